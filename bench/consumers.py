"""What consumers cost beside nats-server: processor time of the server for each message, where much
is pending, many consumers stand on one stream, filters are many, and others are slow."""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figure, command_line, show
from bench.servers import Server
from jsserver.bench.wire import BenchError, publish_frame
from jsserver.client.connection import Connection, Message

FLUSHED = 2000
"""Messages that are published between two looks whether the server keeps up."""
AHEAD = 50_000
"""Messages that a server may still have to store: nats-server drops what comes above 100,000."""
WAIT_SECONDS = 300.0


class Client:
    """A connection to a server, and what that server costs meanwhile."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection = Connection(server.url, name="bench", timeout=WAIT_SECONDS)
        self.inboxes = 0

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(
            self.connection.request(f"$JS.API.{subject}", data).data
        )
        if "error" in answer:
            raise BenchError(f"{subject}: {answer['error']}")
        return answer

    def stream(self, *subjects: str) -> None:
        self.api("STREAM.CREATE.S", {"name": "S", "subjects": list(subjects), "storage": "file"})

    def consumer(self, name: str, stream: str = "S", **config: Any) -> None:
        settings = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": -1} | config
        body = {"stream_name": stream, "config": settings}
        self.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)

    def fill(self, subjects: list[str], count: int, payload: bytes = b"x" * 64) -> None:
        """Stores so many messages, over the subjects in turn."""
        had = self.api("STREAM.INFO.S")["state"]["messages"]
        for start in range(0, count, FLUSHED):
            end = min(start + FLUSHED, count)
            frames = [
                publish_frame(subjects[n % len(subjects)], payload) for n in range(start, end)
            ]
            self.connection.send(b"".join(frames))
            self.connection.flush()
            if end % (AHEAD // 5) == 0:
                self._stored(had + end - AHEAD)
        self._stored(had + count)

    def _stored(self, count: int) -> None:
        """Waits until the stream has so many messages."""
        until = time.monotonic() + WAIT_SECONDS
        while (there := self.api("STREAM.INFO.S")["state"]["messages"]) < count:
            if time.monotonic() > until:
                raise BenchError(f"not all is stored in time: {there} of {count}")
            time.sleep(0.01)

    def pull(self, name: str, count: int) -> list[str]:
        """The reply subjects of so many messages."""
        self.inboxes += 1
        inbox = f"_INBOX.bench.{self.inboxes}"
        sid = self.connection.subscribe(inbox)
        body = json.dumps({"batch": count}).encode()
        frame = publish_frame(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, inbox)
        self.connection.send(frame)
        replies: list[str] = []
        while len(replies) < count:
            op = self.connection.next_op()
            if isinstance(op, Message) and op.sid == sid:
                if op.status[0]:
                    raise BenchError(f"{name}: {op.status}")
                replies.append(op.reply)
        self.connection.unsubscribe(sid)
        return replies

    def ack(self, replies: list[str]) -> None:
        for start in range(0, len(replies), FLUSHED):
            frames = [publish_frame(reply, b"") for reply in replies[start : start + FLUSHED]]
            self.connection.send(b"".join(frames))
            self.connection.flush()

    def cost(self, what: str, work: Callable[[], object], count: int) -> list[Figure]:
        """Of the work, seconds, and microseconds of the server's processor time for each."""
        time.sleep(0.5)
        before, begun = self.server.cpu_seconds(), time.monotonic()
        work()
        took = time.monotonic() - begun
        time.sleep(0.5)
        spent = self.server.cpu_seconds() - before
        return [Figure(what, "s", took), Figure(what, "us", spent / count * 1e6)]


def pending(client: Client, scale: float) -> Iterator[Figure]:
    """A million messages that are not acked, then acked in any order."""
    count = int(1_000_000 * scale)
    client.stream("a.>")
    client.fill(["a.b"], count)
    client.consumer("C", ack_wait=3600 * 10**9)
    replies: list[str] = []
    yield from client.cost("deliver", lambda: replies.extend(client.pull("C", count)), count)
    random.Random(1).shuffle(replies)
    yield from client.cost("ack", lambda: client.ack(replies), count)


def crowd(client: Client, scale: float) -> Iterator[Figure]:
    """Ten thousand consumers on one stream, each of a subject of its own."""
    count, messages = int(10_000 * scale), int(100_000 * scale)
    client.stream("a.>")

    def make() -> None:
        for n in range(count):
            client.consumer(f"c{n}", filter_subject=f"a.{n}")

    yield from client.cost("create", make, count)
    subjects = [f"a.{n}" for n in range(count)]
    yield from client.cost("publish", lambda: client.fill(subjects, messages), messages)


def server(client: Client, scale: float) -> Iterator[Figure]:
    """A hundred thousand consumers on one server, of a hundred streams."""
    streams, count = 100, int(1000 * scale)
    for n in range(streams):
        body = {"name": f"S{n}", "subjects": [f"{n}.>"], "storage": "file"}
        client.api(f"STREAM.CREATE.S{n}", body)
    memory = client.server.anonymous_memory()

    def make() -> None:
        for n in range(streams * count):
            client.consumer(
                f"c{n // streams}", f"S{n % streams}", filter_subject=f"{n % streams}.a"
            )

    yield from client.cost("create", make, streams * count)
    grown = client.server.anonymous_memory() - memory
    yield Figure("made", "KiB", grown / (streams * count) / 1024)


def filters(client: Client, scale: float) -> Iterator[Figure]:
    """A thousand different filters over a million subjects: made, and ten messages of each read."""
    count, subjects = 1000, int(1_000_000 * scale)
    client.stream("a.>")
    client.fill([f"a.{n % count}.{n}" for n in range(subjects)], subjects)

    def make() -> None:
        for n in range(count):
            client.consumer(f"c{n}", filter_subject=f"a.{n}.>")

    def read() -> None:
        for n in range(count):
            client.pull(f"c{n}", 10)

    yield from client.cost("create", make, count)
    yield from client.cost("read", read, 10 * count)


def many(client: Client, scale: float) -> Iterator[Figure]:
    """32 filters over five million messages of a thousand subjects, read from first to last."""
    count = int(5_000_000 * scale)
    client.stream("a.>")
    client.fill([f"a.{n}" for n in range(1000)], count)
    wanted = [f"a.{n * 31}" for n in range(32)]
    client.consumer("C", filter_subjects=wanted, ack_policy="none", max_ack_pending=0)
    matching = count // 1000 * 32
    yield from client.cost("read", lambda: client.pull("C", matching), matching)


def slow(client: Client, scale: float) -> Iterator[Figure]:
    """An eleventh consumer beside ten that wait for acks, with messages that come meanwhile."""
    count = int(300_000 * scale)
    client.stream("a.>")
    client.fill(["a.b"], 10)
    for n in range(10):
        client.consumer(f"slow{n}", max_ack_pending=1)
        client.pull(f"slow{n}", 1)
        client.connection.subscribe(f"_INBOX.slow.{n}")
        frame = publish_frame(f"$JS.API.CONSUMER.MSG.NEXT.S.slow{n}", b"9", f"_INBOX.slow.{n}")
        client.connection.send(frame)
    client.consumer("C", ack_policy="none", max_ack_pending=0)
    yield from client.cost("publish", lambda: client.fill(["a.b"], count), count)
    yield from client.cost("read", lambda: client.pull("C", count), count)


def fetch(client: Client, scale: float) -> Iterator[Figure]:
    """One message after another is asked for and acked, of a hundred thousand that are there."""
    count = int(100_000 * scale)
    client.stream("a.>")
    client.fill(["a.b"], count)
    client.consumer("C")
    took: list[float] = []

    def one_by_one() -> None:
        for _ in range(count):
            begun = time.perf_counter()
            [reply] = client.pull("C", 1)
            took.append(time.perf_counter() - begun)
            client.connection.send(publish_frame(reply, b""))

    yield from client.cost("fetch", one_by_one, count)
    took.sort()
    for label, part in (("P50", 0.5), ("P99.9", 0.999)):
        yield Figure(f"fetch {label}", "us", took[int(part * (count - 1))] * 1e6)


SCENARIOS = {run.__name__: run for run in (pending, crowd, server, filters, many, slow, fetch)}


def measure(name: str, scenario: str, given: argparse.Namespace) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        process = Server(name, Path(folder))
        try:
            process.start()
            yield from SCENARIOS[scenario](Client(process), given.scale)
        finally:
            process.kill()


def main(argv: list[str] | None = None) -> int:
    parser = command_line("bench.consumers", __doc__, SCENARIOS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers, default 1")
    return show(parser, argv, SCENARIOS, measure)


if __name__ == "__main__":
    sys.exit(main())
