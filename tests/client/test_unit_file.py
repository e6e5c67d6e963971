"""The systemd unit: what it sets, and the server doing what it promises, without systemd."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import process_tree
from tests.servers import Server, command_under_test

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging" / "jsserver.service"
ONE_FILE = Path(os.environ.get("JSSERVER_DIST", ROOT / "dist")) / "jsserver"
LAME_DUCK_SECONDS = 120  # nats-server's default lame_duck_duration
PR_SET_MDWE = 65  # prctl(2), Linux 6.3
PR_MDWE_REFUSE_EXEC_GAIN = 1


def settings() -> dict[str, dict[str, list[str]]]:
    """Section -> key -> values in their order."""
    found: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, f"not a setting: {line}"
            found.setdefault(section, {}).setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def service() -> dict[str, list[str]]:
    return settings()["Service"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("NotifyAccess", "all"),
        ("ExecReload", "/bin/kill -s HUP $MAINPID"),
        ("KillSignal", "SIGTERM"),
        ("LimitNOFILE", "800000"),
        ("StateDirectory", "jsserver"),
        ("User", "jsserver"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("MemoryDenyWriteExecute", "yes"),
        ("CapabilityBoundingSet", ""),
    ],
)
def test_setting(service: dict[str, list[str]], key: str, value: str) -> None:
    assert service[key] == [value]


def test_it_stands_beside_the_unit_of_nats_server_and_never_in_its_place() -> None:
    assert "Alias" not in settings()["Install"]
    assert settings()["Unit"]["Conflicts"] == ["nats-server.service"]


def test_a_lame_duck_has_the_time_to_finish(service: dict[str, list[str]]) -> None:
    assert int(service["TimeoutStopSec"][0]) > LAME_DUCK_SECONDS


def test_started_program_and_configuration_are_those_it_checks(
    service: dict[str, list[str]],
) -> None:
    (start,), (check,) = service["ExecStart"], service["ExecStartPre"]
    program, *words = start.split()
    assert check.split() == [program, "-t", *words]


def test_only_plain_keys_are_given_once(service: dict[str, list[str]]) -> None:
    assert {key for key, values in service.items() if len(values) > 1} <= {"SystemCallFilter"}


def test_systemd_accepts_it(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # The program is not installed where the unit expects it; any other stands in for it.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/jsserver", sys.executable))
    done = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert complaints == []


def test_systemd_finds_it_little_exposed() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", UNIT],
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    if found is None:
        pytest.skip(f"this systemd-analyze cannot judge a file: {done.stderr.strip()}")
    assert float(found[1]) < 2.0


def programs() -> Iterator[object]:
    yield pytest.param(command_under_test(), id="installed")
    absent = pytest.mark.skipif(not ONE_FILE.exists(), reason="no executable: run `make binary`")
    yield pytest.param([str(ONE_FILE)], id="one-file", marks=absent)


class Manager:
    """The service manager's end of the readiness protocol."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))

    def wait_for(self, state: str, seconds: float = 20.0) -> dict[str, str]:
        """The fields of the first message that has `state`."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            lines = self.socket.recv(4096).decode().split("\n")
            if state in lines:
                return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path)
    yield made
    made.socket.close()


@pytest.mark.parametrize("command", programs())
def test_it_says_when_it_is_ready_and_when_it_stops(
    command: list[str], manager: Manager, tmp_path: Path
) -> None:
    env = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "400000"}
    server = Server(command, tmp_path / "server", jetstream=True, env=env)
    try:
        server.start()
        ready = manager.wait_for("READY=1")
        assert int(ready["MAINPID"]) == process_tree(server.pid)[-1]
        manager.wait_for("WATCHDOG=1")
        manager.wait_for("WATCHDOG=1")
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        manager.wait_for("STOPPING=1")
        server.process.wait(10)
    finally:
        server.kill()


@pytest.mark.parametrize("command", programs())
def test_it_runs_where_memory_can_never_become_executable(
    command: list[str], tmp_path: Path
) -> None:
    """What MemoryDenyWriteExecute= asks of a program, by the kernel's own switch for it."""
    if "LD_PRELOAD" in os.environ:
        pytest.skip("AddressSanitizer needs such memory")
    switch = (
        "import ctypes, os, sys\n"
        f"ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0)\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    if not _kernel_has_mdwe():
        pytest.skip("needs Linux 6.3")
    server = Server([sys.executable, "-c", switch, *command], tmp_path / "server", jetstream=True)
    try:
        server.start()
        with socket.create_connection(("127.0.0.1", server.port), 5) as client:
            client.sendall(b"CONNECT {}\r\nPING\r\n")
            with client.makefile("rb") as lines:
                assert lines.readline().startswith(b"INFO ")
                assert b"PONG" in lines.readline() + lines.readline()
    finally:
        server.kill()


def _kernel_has_mdwe() -> bool:
    """Asks in a child: the switch cannot be undone."""
    ask = (
        f"import ctypes; raise SystemExit(ctypes.CDLL(None).prctl({PR_SET_MDWE}, 1, 0, 0, 0) != 0)"
    )
    return subprocess.run([sys.executable, "-c", ask], timeout=20).returncode == 0
