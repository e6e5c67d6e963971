"""Starts the servers that are compared and reads what they cost from /proc."""

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from jsserver import __version__
from jsserver.bench.wire import BenchError, wait_for_server
from jsserver.process.procs import die_with_parent

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 30.0
STOP_SECONDS = 120.0
PEER_NAME = "nats-server"
OWN_NAME = "jsserver"


class MissingServer(Exception):
    """A server that is to be compared is not there; the text says what to do."""


def command_of(name: str) -> list[str]:
    """The command of one of the two servers; $NATS_SERVER and $JSSERVER name others."""
    if name == PEER_NAME:
        places = [os.environ.get("NATS_SERVER"), str(ROOT / ".peer/nats-server")]
        for place in [*places, shutil.which(PEER_NAME)]:
            if place and os.access(place, os.X_OK):
                return [place]
        raise MissingServer("nats-server is missing: run `make peer` or set NATS_SERVER")
    chosen = os.environ.get("JSSERVER")
    if chosen:
        return shlex.split(chosen)
    installed = ROOT / ".venv/bin/jsserver"
    if installed.exists():
        return [str(installed)]
    return [sys.executable, "-m", "jsserver.cli"]


def environment() -> dict[str, str]:
    """The environment of a measured server. The server keeps the bytecode of its modules, as an
    installed server does: else each start would compile all modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Server:
    """One server process with JetStream in a folder of its own, on a free port of 127.0.0.1."""

    def __init__(self, name: str, folder: Path, jetstream: str = "", config: str = "") -> None:
        """`jetstream` and `config`: further lines of the configuration file, those inside its
        jetstream block and those outside."""
        self.name = name
        self.folder = folder
        self.jetstream = jetstream
        self.config = config
        self.store = folder / "store"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, seconds: float = START_SECONDS) -> float:
        """Starts it and waits until a client gets its INFO; returns the seconds that took."""
        file = self.folder / "server.conf"
        file.write_text(f'listen: "127.0.0.1:{self.port}"\n{self.blocks()}\n{self.config}\n')
        return self.start_with(file, seconds)

    def start_with(self, file: Path, seconds: float) -> float:
        """The same with a configuration that is written already."""
        begin = time.monotonic()
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [*command_of(self.name), "-c", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                preexec_fn=die_with_parent,
            )
        try:
            self._wait_ready(begin + seconds)
        except BenchError as error:
            self.kill()
            raise BenchError(f"{self.name} did not start: {error}\n{self.log_tail()}") from None
        return time.monotonic() - begin

    def blocks(self) -> str:
        """What its configuration has besides `config`."""
        return f'jetstream {{\nstore_dir: "{self.store}"\n{self.jetstream}\n}}'

    def _wait_ready(self, end: float) -> None:
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise BenchError(f"it ended with code {self.process.returncode}")
            try:
                wait_for_server(self.url, 0)
                return
            except BenchError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.005)

    def log_tail(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Ends it cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise BenchError(f"{self.name} did not end within {STOP_SECONDS:.0f} s") from None

    def cpu_seconds(self) -> float:
        """Time on a processor of the server so far, a launcher's child included, in nanoseconds'
        steps: the ticks of `/proc/PID/stat` are too coarse for a short run. A thread that ended
        is not in it; the servers keep theirs."""
        spent = 0
        for pid in process_tree(self.pid):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended
                    spent += int((task / "schedstat").read_text().split()[0])
        return spent / 1e9

    def reset_peak(self) -> None:
        """Forgets the peak so far."""
        for pid in process_tree(self.pid):
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_memory(self) -> int:
        """Bytes of resident memory at most, since the start or `reset_peak`."""
        return sum(_status(pid, "VmHWM") for pid in process_tree(self.pid))

    def memory(self) -> int:
        """Bytes of resident memory now."""
        return sum(_status(pid, "VmRSS") for pid in process_tree(self.pid))

    def anonymous_memory(self) -> int:
        """Of those, the bytes that are no page of a file: mapped blocks can be dropped."""
        return sum(_status(pid, "RssAnon") for pid in process_tree(self.pid))


def _status(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def process_tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended
            for child in children.read_text().split():
                found += process_tree(int(child))
    return found


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def machine() -> str:
    """One line on the machine the figures are from."""
    model = memory = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory = f"{int(line.split()[1]) / (1 << 20):.0f} GiB"
    cores = len(os.sched_getaffinity(0))
    system = os.uname()
    return f"{cores} cores of {model}, {memory} memory, Linux {system.release.split('-')[0]}"


def version_of(name: str) -> str:
    """One line on what is measured; this server tells clients the version it stands in for."""
    done = subprocess.run(
        [*command_of(name), "--version"], capture_output=True, text=True, timeout=30
    )
    said = (done.stdout + done.stderr).strip().splitlines()[0]
    return f"jsserver {__version__}, as {said}" if name == OWN_NAME else said
