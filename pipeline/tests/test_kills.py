"""A streaming query whose driver, workers or server are killed loses nothing and repeats nothing.

Kills and seed come from the environment: `SPARK_KILLS` (3) and `SPARK_KILL_SEED` (1, shown).
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import process_tree
from jsserver_spark.jetstream import JetStream
from jsserver_spark.live.fetch import fetch
from jsserver_spark.options import SourceOptions
from jsserver_spark.text.goformat import SECOND
from pipeline.tests.cluster import Cluster, cluster_in, environment
from tests.seeds import seed_of
from tests.servers import Server, Servers, die_with_parent

KILLS = int(os.environ.get("SPARK_KILLS", "3"))
SEED = seed_of("SPARK_KILL_SEED")
VICTIMS = {"driver": 1, "worker": 2, "server": 2}
"""And how often each is chosen: a driver takes half a minute to start."""
MESSAGES = 300  # more for each kill
MOMENT_S = 4.0  # a kill comes at any time within
END_SECONDS = 120.0
POLL_SECONDS = 0.1
STREAM = {"storage": "file", "allow_direct": True, "duplicate_window": 1800 * SECOND}


class Driver:
    """The query's driver: a process group of Python and its JVM."""

    def __init__(self, cluster: Cluster, server: Server, folder: Path) -> None:
        self.words = [sys.executable, "-m", "pipeline.tests.kill_query"]
        self.words += [cluster.url, server.url, str(folder / "checkpoint"), str(folder)]
        self.log_path = folder / "driver.log"
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.starts += 1
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.words,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextlib.contextmanager
def ended(driver: Driver) -> Iterator[Driver]:
    try:
        yield driver
    finally:
        driver.kill()


def options(server: Server, stream: str) -> SourceOptions:
    return SourceOptions.read({"servers": server.url, "stream": stream}, "the kill test")


def publish(server: Server, first: int, count: int) -> None:
    """Numbers, one a message, each acked."""
    js = JetStream(options(server, "IN"))
    try:
        for number in range(first, first + count):
            assert "seq" in json.loads(js.request(f"in.{number % 7}", b"%d" % number).data)
    finally:
        js.close()


def state(server: Server, stream: str) -> tuple[int, int]:
    """Messages, last sequence."""
    js = JetStream(options(server, stream))
    try:
        now = js.stream_info(stream).state
        return now.messages, now.last_seq
    finally:
        js.close()


def numbers_in(server: Server, stream: str) -> list[int]:
    """What the stream holds, in order."""
    last = state(server, stream)[1]
    batches = fetch(options(server, stream), stream, 1, last)
    return [int(data) for batch in batches for data in batch.column("data").to_pylist()]


def kill_worker(cluster: Cluster, choice: random.Random) -> str:
    """One process of a worker's: itself, its executor, or one of the executor's Pythons."""
    worker = choice.choice(cluster.workers)
    pid = choice.choice(process_tree(worker.process.pid))
    if pid == worker.process.pid:
        cluster.replace(worker)
        return "worker"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return "executor"


def wait_until_done(driver: Driver, server: Server, wanted: int) -> None:
    end = time.monotonic() + END_SECONDS
    while state(server, "OUT")[0] < wanted:
        if not driver.running:
            driver.start()
        log = driver.log_path.read_text(errors="replace")[-3000:]
        assert time.monotonic() < end, f"{state(server, 'OUT')} of {wanted} arrived; log:\n{log}"
        time.sleep(POLL_SECONDS)


@pytest.mark.timeout(300 + 60 * KILLS)
def test_every_message_arrives_exactly_once(servers: Servers, tmp_path: Path) -> None:
    choice = random.Random(SEED)
    server = servers.under_test(jetstream=True)
    js = JetStream(options(server, "IN"))
    js.api("STREAM.CREATE.IN", {"name": "IN", "subjects": ["in.>"], **STREAM})
    js.api("STREAM.CREATE.OUT", {"name": "OUT", "subjects": ["out.>"], **STREAM})
    js.close()
    killed: Counter[str] = Counter()
    with (
        cluster_in(tmp_path) as cluster,
        ended(Driver(cluster, server, tmp_path)) as driver,
    ):
        publish(server, 0, MESSAGES)
        driver.start()
        wait_until_done(driver, server, 1)
        for number in range(1, KILLS + 1):
            publish(server, number * MESSAGES, MESSAGES)
            time.sleep(choice.uniform(0, MOMENT_S))  # the moment of the kill is what is random
            (victim,) = choice.choices(list(VICTIMS), list(VICTIMS.values()))
            if victim == "driver":
                driver.kill()
            elif victim == "worker":
                victim = kill_worker(cluster, choice)
            else:
                kill = choice.random() < 0.5
                victim += " (SIGKILL)" if kill else " (SIGTERM)"
                server.restart(kill=kill)
            killed[victim] += 1
            print(f"kill {number}: {victim}, {state(server, 'OUT')[0]} arrived", flush=True)
            if not driver.running:
                driver.start()
                published = (number + 1) * MESSAGES
                wait_until_done(driver, server, min(state(server, "OUT")[0] + 1, published))
        total = (KILLS + 1) * MESSAGES
        wait_until_done(driver, server, total)
    print(f"seed {SEED}: killed {dict(killed)}, {driver.starts} drivers")
    expected = Counter(numbers_in(server, "IN"))
    got = Counter(numbers_in(server, "OUT"))
    assert expected == Counter(range(total)), "the source itself is wrong"
    assert got == expected, f"seed {SEED}: {got - expected} too often, {expected - got} missing"
