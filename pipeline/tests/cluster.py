"""A real standalone Spark cluster on loopback: a master and workers, each a process of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from pipeline.tests.paths import PYTHONPATH
from tests.servers import die_with_parent

START_SECONDS = 60.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05
MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")

SPARK_HOME = Path(pyspark.__file__).parent


def environment(**more: str) -> dict[str, str]:
    """What every Spark process is started with: loopback only, this Python, this checkout."""
    path = os.pathsep.join(p for p in (PYTHONPATH, os.environ.get("PYTHONPATH", "")) if p)
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": path,
        **more,
    }


class Daemon:
    """One master or worker: a JVM with a log of its own."""

    def __init__(self, name: str, folder: Path, words: list[str]) -> None:
        self.log_path = folder / f"{name}.log"
        self.name = name
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *words],
                env=environment(SPARK_WORKER_DIR=str(folder / f"{name}-work")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern: re.Pattern[str], seconds: float = START_SECONDS) -> re.Match[str]:
        end = time.monotonic() + seconds
        while True:
            if found := pattern.search(self.log()):
                return found
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.name} does not say {pattern.pattern}:\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Cluster:
    """A master and workers of one core each; a worker that was killed can be started again."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.workers: list[Daemon] = []
        words = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        self.master = Daemon("master", folder, [*words, "--port", "0", "--webui-port", "0"])
        try:
            self.url = self.master.wait_for(MASTER_AT)[1]
            self._started = 0
            for _ in range(workers):
                self.add_worker()
            for worker in self.workers:
                self.wait_for(worker)
        except BaseException:
            self.stop()
            raise

    def add_worker(self) -> Daemon:
        self._started += 1
        words = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
        words += ["--webui-port", "0", "-c", "1", "-m", "1g", self.url]
        worker = Daemon(f"worker-{self._started}", self.folder, words)
        self.workers.append(worker)
        return worker

    def wait_for(self, worker: Daemon) -> None:
        worker.wait_for(re.compile("Successfully registered with master"))

    def replace(self, worker: Daemon) -> None:
        """Ends a worker at once, with the executors that it started, and starts another."""
        worker.kill()
        self.workers.remove(worker)
        self.wait_for(self.add_worker())

    def stop(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.stop()


@contextlib.contextmanager
def cluster_in(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    cluster = Cluster(folder, workers)
    try:
        yield cluster
    finally:
        cluster.stop()
