"""The service manager's readiness protocol, received as systemd would."""

import asyncio
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jsserver.process.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The address as $NOTIFY_SOCKET gives it, and the manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        if request.param == "path":
            address = str(tmp_path / "notify")
            end.bind(address)
        else:
            address = f"@jsserver-test-{os.getpid()}"
            end.bind("\0" + address[1:])
        end.settimeout(5)
        yield address, end


def received(end: socket.socket) -> dict[str, str]:
    lines = end.recv(4096).decode().split("\n")
    return dict(line.split("=", 1) for line in lines)


def test_each_message_carries_what_systemd_reads(manager: tuple[str, socket.socket]) -> None:
    address, end = manager
    notifier = Notifier(address)
    notifier.ready("listening on 127.0.0.1:4222")
    assert received(end) == {
        "READY": "1",
        "MAINPID": str(os.getpid()),
        "STATUS": "listening on 127.0.0.1:4222",
    }
    notifier.extend_timeout(2.5, "recovering\nORDERS")
    assert received(end) == {"EXTEND_TIMEOUT_USEC": "2500000", "STATUS": "recovering ORDERS"}
    notifier.alive()
    assert received(end) == {"WATCHDOG": "1"}
    notifier.stopping()
    assert received(end) == {"STOPPING": "1"}


def test_the_manager_is_kept_patient_and_then_fed(manager: tuple[str, socket.socket]) -> None:
    address, end = manager
    notifier = Notifier(address, watchdog_s=0.02)
    waiting = select.poll()
    waiting.register(end, select.POLLIN)

    async def start() -> None:
        attending = asyncio.create_task(notifier.attend())
        await asyncio.sleep(0)
        assert int(received(end)["EXTEND_TIMEOUT_USEC"]) >= 30_000_000
        notifier.ready()
        assert received(end)["READY"] == "1"
        for _ in range(3):
            while True:
                await asyncio.sleep(0.005)
                if waiting.poll(0):
                    break
            assert received(end) == {"WATCHDOG": "1"}
        attending.cancel()

    asyncio.run(asyncio.wait_for(start(), 10))


def test_environment_is_read_once_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "@somewhere")
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    notifier = Notifier.from_environment()
    assert (notifier.address, notifier.watchdog_s, notifier.enabled) == ("@somewhere", 30.0, True)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)


@pytest.mark.parametrize(
    ("period", "pid", "expected"),
    [
        ("1000000", "", 1.0),
        ("1000000", "parent", 1.0),
        ("1000000", "1999999999", None),
        ("0", "", None),
        ("soon", "", None),
        ("", "", None),
    ],
)
def test_watchdog_is_ours_to_feed(
    monkeypatch: pytest.MonkeyPatch, period: str, pid: str, expected: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", period)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()) if pid == "parent" else pid)
    assert Notifier.from_environment().watchdog_s == expected


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "/nowhere/at/all", "@nobody-listens-here"])
def test_no_manager_is_no_error(address: str) -> None:
    notifier = Notifier(address)
    notifier.ready("fine")
    notifier.stopping()


def test_a_manager_that_does_not_read_never_blocks_the_server(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        notifier = Notifier(str(tmp_path / "notify"))
        for _ in range(2_000):  # several times the queue of a datagram socket
            notifier.alive()
        assert received(end) == {"WATCHDOG": "1"}
