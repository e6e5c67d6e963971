"""Messages flow while nothing in the server's Python can run."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import ClassVar

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.alone

DRIVER = [sys.executable, "-m", "tests.client.gil_driver"]
HELD_SECONDS = 2.0
LONGEST_GAP = 1 / 5  # of the time that the lock is held


class Ruler:
    """Counts the milliseconds that the machine gave us: one that stood still for all of us is not
    the server's doing.
    """

    def __init__(self) -> None:
        self.ticks = 0
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.stopped.is_set():
            time.sleep(0.001)
            self.ticks += 1

    def finish(self) -> None:
        self.stopped.set()
        self.thread.join(10)


class HeldServer(Server):
    """A server whose Python can be stopped for a while."""

    streams: ClassVar[dict[str, int]] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def hold(self, seconds: float, ruler: Ruler) -> tuple[int, int]:
        """Holds the lock for some seconds; the ticks at which it was taken and given back."""
        assert self.process is not None and self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{seconds}\n".encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"held\n"
        taken = ruler.ticks
        assert self.process.stdout.readline() == b"released\n"
        return taken, ruler.ticks


@pytest.fixture
def held_server(servers: Servers) -> Iterator[HeldServer]:
    if find_spec("jsserver.cli") is None:
        pytest.skip("the server is not built here")
    folder = servers.base / "held"
    server = HeldServer(DRIVER, folder, jetstream=True)
    servers.started.append(server)
    server.start()
    yield server


class Traffic:
    """One thing done over and over by a client; the ruler's ticks at which each was done."""

    def __init__(self, server: Server, ruler: Ruler) -> None:
        self.client = RawApp(server.port)
        self.ruler = ruler
        self.moments: list[int] = []
        self.stopped = threading.Event()
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self.once()
                self.moments.append(self.ruler.ticks)
                time.sleep(0.001)
        except Exception as failure:
            self.failure = failure

    def once(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.stopped.set()
        self.thread.join(10)
        self.client.close()
        assert self.failure is None, self.failure

    def longest_gap(self, start: int, end: int) -> int:
        """The most ticks without anything done between two moments."""
        inside = [start, *(m for m in self.moments if start < m < end), end]
        return max(b - a for a, b in itertools.pairwise(inside))


class CoreTraffic(Traffic):
    """Publishes to a subscriber on another connection."""

    def __init__(self, server: Server, ruler: Ruler) -> None:
        super().__init__(server, ruler)
        self.subscriber = RawApp(server.port)
        self.subscriber.subscribe("core")
        self.subscriber.sync()

    def once(self) -> None:
        self.client.publish("core", b"x")
        self.subscriber.message(10)


class PublishTraffic(Traffic):
    """Publishes to a stream and waits for the ack."""

    def once(self) -> None:
        assert b'"seq":' in self.client.request("js.a", b"x").payload


class ConsumeTraffic(Traffic):
    """Publishes, asks for the next message, gets it and acks it, all confirmed."""

    def once(self) -> None:
        self.client.request("js.b", b"x")
        message = self.client.request("$JS.API.CONSUMER.MSG.NEXT.JS.C", b"1")
        assert message.payload == b"x"
        self.client.request(message.reply, b"+ACK")


class DirectTraffic(Traffic):
    """Reads a message by its sequence."""

    def once(self) -> None:
        answer = self.client.request("$JS.API.DIRECT.GET.JS", b'{"seq":1}')
        assert answer.payload == b"first"


def test_messages_flow_while_python_is_held(held_server: HeldServer) -> None:
    with RawApp(held_server.port) as client:
        config = {"name": "JS", "subjects": ["js.>"], "allow_direct": True}
        assert "error" not in client.api("STREAM.CREATE.JS", config)
        assert b'"seq":1' in client.request("js.first", b"first").payload
        consumer = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "js.b"}
        body = {"stream_name": "JS", "config": consumer}
        assert "error" not in client.api("CONSUMER.DURABLE.CREATE.JS.C", body)
    kinds = (CoreTraffic, PublishTraffic, ConsumeTraffic, DirectTraffic)
    ruler = Ruler()
    traffic = [kind(held_server, ruler) for kind in kinds]
    try:
        for one in traffic:
            one.thread.start()
        while not all(len(one.moments) > 20 for one in traffic):
            assert all(one.failure is None for one in traffic), [t.failure for t in traffic]
            time.sleep(0.01)
        start, end = held_server.hold(HELD_SECONDS, ruler)
    finally:
        for one in traffic:
            one.finish()
        ruler.finish()
    assert end - start > 50
    gaps = {type(one).__name__: one.longest_gap(start, end) for one in traffic}
    assert max(gaps.values()) < (end - start) * LONGEST_GAP, (gaps, end - start)
