"""What consumers cost beside nats-server: processor time of the server for each message, where much
is pending, many consumers stand on one stream, filters are many, and others are slow."""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.servers import OWN_NAME, PEER_NAME, MissingServer, Server, machine, version_of
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

    def consumer(self, name: str, **config: Any) -> None:
        settings = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": -1} | config
        body = {"stream_name": "S", "config": settings}
        self.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)

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

    def cost(self, work: Callable[[], object], count: int) -> float:
        """Microseconds of the server's processor time for each of `count`."""
        time.sleep(0.5)
        before = self.server.cpu_seconds()
        work()
        time.sleep(0.5)
        return (self.server.cpu_seconds() - before) / count * 1e6


def pending(client: Client, scale: float) -> dict[str, float]:
    """A million messages that are not acked, then acked in any order."""
    count = int(1_000_000 * scale)
    client.stream("a.>")
    client.fill(["a.b"], count)
    client.consumer("C", ack_wait=3600 * 10**9)
    replies: list[str] = []
    delivered = client.cost(lambda: replies.extend(client.pull("C", count)), count)
    random.Random(1).shuffle(replies)
    return {"deliver": delivered, "ack": client.cost(lambda: client.ack(replies), count)}


def crowd(client: Client, scale: float) -> dict[str, float]:
    """Ten thousand consumers on one stream, each of a subject of its own."""
    count, messages = int(10_000 * scale), int(100_000 * scale)
    client.stream("a.>")

    def make() -> None:
        for n in range(count):
            client.consumer(f"c{n}", filter_subject=f"a.{n}")

    made = client.cost(make, count)
    subjects = [f"a.{n}" for n in range(count)]
    return {
        "create": made,
        "publish": client.cost(lambda: client.fill(subjects, messages), messages),
    }


def filters(client: Client, scale: float) -> dict[str, float]:
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

    return {"create": client.cost(make, count), "read": client.cost(read, 10 * count)}


def many(client: Client, scale: float) -> dict[str, float]:
    """32 filters over five million messages of a thousand subjects, read from first to last."""
    count = int(5_000_000 * scale)
    client.stream("a.>")
    client.fill([f"a.{n}" for n in range(1000)], count)
    wanted = [f"a.{n * 31}" for n in range(32)]
    client.consumer("C", filter_subjects=wanted, ack_policy="none", max_ack_pending=0)
    matching = count // 1000 * 32
    return {"read": client.cost(lambda: client.pull("C", matching), matching)}


def slow(client: Client, scale: float) -> dict[str, float]:
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
    stored = client.cost(lambda: client.fill(["a.b"], count), count)
    return {"publish": stored, "read": client.cost(lambda: client.pull("C", count), count)}


SCENARIOS = {run.__name__: run for run in (pending, crowd, filters, many, slow)}


def measure(name: str, scenario: str, scale: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Server(name, Path(folder))
        try:
            server.start()
            return SCENARIOS[scenario](Client(server), scale)
        finally:
            server.kill()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.consumers", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=" ".join(SCENARIOS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers, default 1")
    given = parser.parse_args(argv)
    try:
        print(f"{machine()}; {version_of(OWN_NAME)}, {version_of(PEER_NAME)}")
        print(f"{'':20} {'us each':>10} {PEER_NAME:>12} {'ratio':>7}")
        for scenario in given.scenarios or SCENARIOS:
            ours, theirs = (measure(name, scenario, given.scale) for name in (OWN_NAME, PEER_NAME))
            for what, cost in ours.items():
                label = f"{scenario} {what}"
                print(f"{label:20} {cost:10.2f} {theirs[what]:12.2f} {cost / theirs[what]:7.2f}")
    except (BenchError, MissingServer) as error:
        print(f"bench.consumers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
