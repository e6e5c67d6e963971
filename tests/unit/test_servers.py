"""The harness itself: what a server must never write fails the test that started it."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bench.servers import process_tree
from tests.servers import Server, ServerFailed, command_under_test

STUB = """
import signal, sys
print("Listening for client connections on 127.0.0.1:1 ", flush=True)
print("Server is ready", flush=True)
print({line!r}, file=sys.stderr, flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    "line",
    [
        "==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x1",
        "cext/net.c:7:1: runtime error: index 9 out of bounds",
        "Exception ignored in: 'jsserver.cext.net.turn'",
        "Traceback (most recent call last):",
    ],
)
def test_a_broken_server_fails_the_test(tmp_path: Path, line: str) -> None:
    server = Server([sys.executable, "-c", STUB.format(line=line)], tmp_path)
    server.start()
    server.wait_log(line)
    with pytest.raises(ServerFailed, match="in the log"):
        server.kill()


def test_servers_are_checked_as_the_tests_are(tmp_path: Path) -> None:
    """Where the tests run under AddressSanitizer, so does the server that they start."""
    server = Server(command_under_test(), tmp_path)
    try:
        server.start()
        theirs = Path(f"/proc/{server.pid}/maps").read_text()
    finally:
        server.kill()
    assert ("libasan" in theirs) == ("libasan" in Path("/proc/self/maps").read_text())


def test_processes_are_found_while_threads_come_and_go() -> None:
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            thread = threading.Thread(target=time.sleep, args=(0,))
            thread.start()
            thread.join()

    busy = threading.Thread(target=come_and_go)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        busy.start()
        try:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                assert child.pid in process_tree(os.getpid())
        finally:
            done.set()
            busy.join()
            child.communicate()
