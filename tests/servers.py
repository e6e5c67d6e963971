"""Starts, watches and ends real server processes for tests: the server under test and its peer."""

import contextlib
import ctypes
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.servers import process_tree
from tests.peer import NEWER_VERSION, PEER_VERSION, find_peer

# What a machine needs that others use as well; all these waits end with what they wait for.
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOG_SECONDS = 60.0
POLL_SECONDS = 0.01
FIRST_PORT = 15000
PR_SET_PDEATHSIG = 1

#: What no server may ever log, whatever it was sent.
UNEXPECTED = re.compile(
    r"Traceback|Exception ignored in|Internal error|JetStream API request on .* failed"
    r"|AddressSanitizer|ThreadSanitizer|runtime error:"
)
LISTENING = re.compile(rb"Listening for client connections on (\S+):(\d+)\s")
MONITOR = re.compile(rb"Starting http monitor on (\S+):(\d+)\s")
READY = b"Server is ready"

_libc = ctypes.CDLL(None, use_errno=True)


def command_under_test() -> list[str]:
    """The server under test: the words of `$JSSERVER`, or this checkout's own command."""
    chosen = os.environ.get("JSSERVER")
    return shlex.split(chosen) if chosen else [sys.executable, "-m", "jsserver.cli"]


def command_of_peer(version: str = PEER_VERSION) -> list[str] | None:
    """The nats-server to compare with, of this release; None where there is none."""
    path = find_peer(version)
    return None if path is None else [str(path)]


def die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


#: Not with AddressSanitizer: another thread may hold its allocator's lock while this process forks,
#: and the child would wait for it for ever.
BEFORE_EXEC = None if "SANITIZE" in os.environ else die_with_parent


def free_port() -> int:
    """A port for a listener that somebody has to know before it is there.

    None of those that the system gives to connections and to listeners on port 0: between this call
    and the listener one of them could be somebody else's.
    """
    given_away = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(FIRST_PORT, max(given_away, FIRST_PORT + 1000))
        with contextlib.suppress(OSError), contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", port))
            return port


class ServerFailed(Exception):
    """A server did not start, did not end in time, or broke; the text holds its log."""


class Server:
    """One server process on 127.0.0.1, on a free port that it keeps over restarts.

    `folder` holds its log, its configuration file and its store; `config` is the text of a
    configuration file, `args` are further command line words. All waits are bounded.
    `streams` are standard streams of the process other than its log.
    """

    streams: ClassVar[dict[str, int]] = {}

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        config: str = "",
        args: Sequence[str] = (),
        jetstream: bool = False,
        monitor: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.command = list(command)
        self.folder = folder
        self.store = folder / "store"
        self.log_path = folder / "server.log"
        self.config = config
        self.args = list(args)
        self.jetstream = jetstream
        self.monitor = monitor
        self.env = dict(env or {})
        self.port = -1
        self.monitor_port = -1
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was not started"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        """What the server has logged since its last start."""
        return self._log_bytes().decode("utf-8", "replace")

    def _log_bytes(self) -> bytes:
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            return log.read()

    def _command_line(self) -> list[str]:
        words = [*self.command, "-a", "127.0.0.1", "-p", str(self.port)]
        if self.monitor:
            words += ["-m", str(self.monitor_port)]
        if self.jetstream:
            words += ["-js", "-sd", str(self.store)]
        if self.config:
            path = self.folder / "server.conf"
            path.write_text(self.config)
            words += ["-c", str(path)]
        return words + self.args

    def launch(self) -> None:
        """Spawns the process without waiting for it to become ready."""
        assert not self.running, "the server is running already"
        with open(self.log_path, "ab") as log:
            self._log_start = log.tell()
            ours = {"stdin": subprocess.DEVNULL, "stdout": log.fileno(), "stderr": log.fileno()}
            streams = ours | self.streams
            self.process = subprocess.Popen(
                self._command_line(),
                stdin=streams["stdin"],
                stdout=streams["stdout"],
                stderr=streams["stderr"],
                env={**os.environ, **self.env},
                preexec_fn=BEFORE_EXEC,
            )

    def start(self, seconds: float = START_SECONDS) -> "Server":
        """Starts the server and waits until it says that it is ready."""
        self.launch()
        self.wait_ready(seconds)
        return self

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        end = time.monotonic() + seconds
        while READY not in self._log_bytes():
            if not self.running or time.monotonic() > end:
                state = "is not ready yet" if self.running else "ended"
                self.kill()
                raise ServerFailed(f"{self.command} {state}; its log:\n{self.log()}")
            time.sleep(POLL_SECONDS)
        self._learn_ports()

    def _learn_ports(self) -> None:
        log = self._log_bytes()
        found = LISTENING.search(log)
        if found is None:
            raise ServerFailed(f"no line names the client port; the log:\n{self.log()}")
        self.port = int(found[2])
        if self.monitor:
            found = MONITOR.search(log)
            if found is None:
                raise ServerFailed(f"no line names the monitoring port; the log:\n{self.log()}")
            self.monitor_port = int(found[2])

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Ends the server with SIGTERM and returns its exit code."""
        return self._end(signal.SIGTERM, seconds)

    def kill(self, seconds: float = STOP_SECONDS) -> int:
        """Ends the server with SIGKILL, as a crash would."""
        return self._end(signal.SIGKILL, seconds)

    def _end(self, number: signal.Signals, seconds: float) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(seconds)
            raise ServerFailed(
                f"{self.command} did not end within {seconds} s of {number.name}; its log:\n"
                f"{self.log()}"
            ) from None
        self._wait_port_free()
        unexpected = UNEXPECTED.search(self.log())
        if unexpected is not None:
            raise ServerFailed(f"{unexpected[0]!r} in the log:\n{self.log()}")
        return code

    def _wait_port_free(self) -> None:
        """A launcher's child may outlive its parent by a moment."""
        end = time.monotonic() + 5
        while self.port > 0 and time.monotonic() < end:
            with contextlib.closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) != 0:
                    return
            time.sleep(POLL_SECONDS)

    def restart(self, *, kill: bool = False) -> None:
        """Ends the server, cleanly or as a crash would; starts it on the same port and store."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def start_on_copy(self, store: Path) -> "Server":
        """Starts the server on a copy of a store in place of what it has, stopped before that."""
        self.stop()
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(store, self.store)
        return self.start()

    def wait_log(self, text: str, seconds: float = LOG_SECONDS) -> None:
        """Waits until `text` appears in the log of this start."""
        end = time.monotonic() + seconds
        while text not in self.log():
            assert time.monotonic() < end, f"{text!r} did not appear in the log:\n{self.log()}"
            time.sleep(POLL_SECONDS)

    def memory(self) -> int:
        """Resident bytes of the server's process and of its children."""
        return sum(_resident(pid) for pid in process_tree(self.pid))

    def cpu_seconds(self) -> float:
        """Processor seconds of the server's process and of its children."""
        ticks = 0
        for pid in process_tree(self.pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Servers:
    """Starts servers in folders of their own below `base` and ends them all."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.started: list[Server] = []

    def under_test(self, **options: object) -> Server:
        return self._start(command_under_test(), "server", **options)

    def peer(self, **options: object) -> Server:
        return self.release(PEER_VERSION, **options)

    def release(self, version: str, /, **options: object) -> Server:
        """A nats-server of this release; tests ask for one only where there is one."""
        command = command_of_peer(version)
        assert command is not None, f"there is no nats-server {version} here"
        return self._start(command, "peer", **options)

    def of_kind(self, kind: str, /, **options: object) -> Server:
        """A server of a mixture: `o` is ours, `p` the peer, `n` nats-server's newest release."""
        if kind == "o":
            return self.under_test(**options)
        return self.release(NEWER_VERSION if kind == "n" else PEER_VERSION, **options)

    def _start(self, command: list[str], kind: str, **options: object) -> Server:
        folder = self.base / f"{kind}{len(self.started)}"
        server = Server(command, folder, **options)  # type: ignore[arg-type]
        self.started.append(server)
        return server.start()

    def end_all(self) -> None:
        with contextlib.ExitStack() as ends:
            for server in self.started:
                ends.callback(server.kill)


@contextlib.contextmanager
def servers_in(base: Path) -> Iterator[Servers]:
    """A `Servers` whose processes are gone at the end of the block, whatever happens in it."""
    servers = Servers(base)
    try:
        yield servers
    finally:
        servers.end_all()
