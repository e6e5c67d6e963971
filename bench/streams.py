"""What streams cost beside nats-server: ten thousand of them on one server, batches of publishes,
lives and schedules that end, purges of ten million messages, and lists of ten thousand streams.

crowd      streams that are made, wait, and are there again after a stop and after a kill
batches    `nats bench js pub atomic` and `fast`; nats-server with `sync_interval: always`
lives      ten million messages with a TTL, which all end within ten seconds
schedules  a million messages that come at a time of their own, all within ten seconds
purges     all of a stream, of one subject and of a million, or all but some, or what a filter names
listed     requests of another client while streams are made, listed and asked for
"""

import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import measure as runs
from bench.figures import Figure, command_line, show
from bench.holds import Victim
from bench.latency import beside, request_latency
from bench.scenarios import Scenario
from bench.servers import PEER_NAME, Server
from bench.tool import Tool
from jsserver.bench.wire import BenchError, Connection, new_inbox, publish_frame

IN_FLIGHT = 100
"""Requests of the API that wait for their answers at once."""
FLUSHED = 5000
"""Messages that are published between two looks whether the server keeps up."""
IDLE_SECONDS = 35.0
"""Until idle streams have given back what they do not need."""
ENDS_SECONDS = 10
"""Within how long everything ends that has a time to end."""
POLL_SECONDS = 0.1
WAIT_SECONDS = 600.0
PURGED_TYPES = (("file", 1), ("file", 1_000_000), ("memory", 1), ("memory", 1_000_000))


def connect(server: Server) -> Connection:
    connection = Connection(server.url)
    connection.socket.settimeout(WAIT_SECONDS)
    return connection


def ask(server: Server, requests: list[tuple[str, bytes]]) -> None:
    """Sends these requests of the API, so many at once, and waits for their answers."""
    connection = connect(server)
    inbox = new_inbox()
    connection.send(f"SUB {inbox} 1\r\n".encode())
    mark = f"MSG {inbox} ".encode()
    for start in range(0, len(requests), IN_FLIGHT):
        some = requests[start : start + IN_FLIGHT]
        frames = [publish_frame(f"$JS.API.{subject}", body, inbox) for subject, body in some]
        connection.send(b"".join(frames))
        connection.count_until(mark, len(frames))
    connection.close()


def creations(count: int, storage: str = "file") -> list[tuple[str, bytes]]:
    return [
        (
            f"STREAM.CREATE.S{n}",
            json.dumps({"name": f"S{n}", "subjects": [f"s.{n}"], "storage": storage}).encode(),
        )
        for n in range(count)
    ]


@contextmanager
def started(name: str, jetstream: str = "") -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Server(name, Path(folder), jetstream)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def crowd(name: str, scale: float) -> Iterator[Figure]:
    count = int(10_000 * scale)
    with started(name, "sync_interval: always" if name == PEER_NAME else "") as server:
        time.sleep(1.0)
        memory, cpu, begin = server.anonymous_memory(), server.cpu_seconds(), time.monotonic()
        ask(server, creations(count))
        took = time.monotonic() - begin
        yield Figure("create", "streams/s", count / took)
        yield Figure("create", "us", (server.cpu_seconds() - cpu) / count * 1e6)
        time.sleep(IDLE_SECONDS)
        yield Figure("made", "KiB", (server.anonymous_memory() - memory) / count / 1024)
        cpu = server.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        idle = (server.cpu_seconds() - cpu) / IDLE_SECONDS
        yield Figure("idle", "ms/s", idle * 1e3)
        server.stop()
        yield from _started_again(server, "after a stop", count, memory)
        frames = [publish_frame(f"s.{n}", b"x" * 64) for n in range(count)]
        connection = connect(server)
        connection.send(b"".join(frames))
        connection.flush()
        _wait(lambda: connection.api(f"STREAM.INFO.S{count - 1}")["state"]["messages"] == 1)
        time.sleep(IDLE_SECONDS)
        yield Figure("with a message", "KiB", (server.anonymous_memory() - memory) / count / 1024)
        server.kill()
        yield from _started_again(server, "after a kill", count, memory)


def _started_again(server: Server, when: str, count: int, memory: int) -> Iterator[Figure]:
    begin = time.monotonic()
    server.start(WAIT_SECONDS)
    connection = connect(server)
    if connection.api("STREAM.NAMES")["total"] != count:
        raise BenchError("not all streams are there again")
    yield Figure(when, "s", time.monotonic() - begin)
    yield Figure(when, "us", server.cpu_seconds() / count * 1e6)
    time.sleep(IDLE_SECONDS)
    yield Figure(when, "KiB", (server.anonymous_memory() - memory) / count / 1024)


def _wait(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not reached():
        if time.monotonic() > end:
            raise BenchError("not all is there in time")
        time.sleep(0.05)


def batches(name: str, scale: float) -> Iterator[Figure]:
    count = int(600_000 * scale)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tool = Tool(Path(folder))
        for how, clients in itertools.product(("atomic", "fast"), (1, 4)):
            words = ("js", "pub", how, "bench", "--create", f"--msgs={count}")
            scenario = Scenario(
                how,
                (*words, f"--clients={clients}"),
                count,
                peer_config="sync_interval: always",
            )
            sample = runs.measure(name, scenario, tool)
            yield Figure(f"{how}, {clients}", "messages/s", sample.rate)
            yield Figure(f"{how}, {clients}", "us", sample.cpu_per_million)


def stream(connection: Connection, storage: str, *subjects: str, **more: Any) -> None:
    config = {"name": "S", "subjects": subjects, "storage": storage} | more
    connection.api("STREAM.CREATE.S", config)


class Deadlines:
    """When what was published has to have ended, and how late it does."""

    def __init__(self, server: Server, count: int) -> None:
        self.server = server
        self.count = count
        self.at: list[tuple[float, int]] = []

    def fill(self, end: float, frames: Callable[[int, int, float], list[bytes]]) -> None:
        """Publishes `count`, whose times are spread over the seconds after `end`: `frames` makes
        a piece of them, given first, last and its deadline."""
        connection = connect(self.server)
        for start in range(0, self.count, FLUSHED):
            last = min(start + FLUSHED, self.count)
            deadline = end + start / FLUSHED % ENDS_SECONDS
            connection.send(b"".join(frames(start, last, deadline)))
            connection.flush()
            self.at.append((deadline, last - start))
        self.at.sort()
        if time.time() > end:
            raise BenchError("publishing took too long")
        connection.close()

    def watch(self, ended: Callable[[], int]) -> Iterator[Figure]:
        """The latest that one came, in seconds, and the processor time of each."""
        time.sleep(max(0.0, self.at[0][0] - 1 - time.time()))
        due = list(itertools.accumulate(number for _, number in self.at))
        cpu, at, latest = self.server.cpu_seconds(), 0, 0.0
        while at < len(due):
            done = ended()
            now = time.time()
            while at < len(due) and due[at] <= done:
                at += 1
            if at < len(due):
                latest = max(latest, now - self.at[at][0])
            if now > self.at[-1][0] + WAIT_SECONDS:
                raise BenchError("not all ended in time")
            time.sleep(POLL_SECONDS)
        yield Figure("late", "s", latest)
        yield Figure("end", "us", (self.server.cpu_seconds() - cpu) / self.count * 1e6)


def lives(name: str, scale: float) -> Iterator[Figure]:
    for storage in ("file", "memory"):
        yield from _lives(name, storage, int(10_000_000 * scale))


def _lives(name: str, storage: str, count: int) -> Iterator[Figure]:
    with started(name) as server:
        connection = connect(server)
        stream(connection, storage, "s.>", allow_msg_ttl=True)
        deadlines = Deadlines(server, count)
        memory, cpu = server.anonymous_memory(), server.cpu_seconds()

        def frames(start: int, last: int, deadline: float) -> list[bytes]:
            header = b"NATS/1.0\r\nNats-TTL: %ds\r\n\r\n" % round(deadline - time.time())
            one = publish_frame("s.a", b"x" * 32, header=header)
            return [one * (last - start)]

        deadlines.fill(time.time() + _filling(name, count), frames)

        def left() -> int:
            return int(connection.api("STREAM.INFO.S")["state"]["messages"])

        _wait(lambda: left() == count)
        yield Figure(f"{storage}: publish", "us", (server.cpu_seconds() - cpu) / count * 1e6)
        wait = server.anonymous_memory() - memory
        yield Figure(f"{storage}: publish", "B", wait / count)
        for figure in deadlines.watch(lambda: count - left()):
            yield Figure(f"{storage}: {figure.what}", figure.unit, figure.value)


def _filling(name: str, count: int) -> int:
    """Seconds in which so many are published for sure."""
    return 10 + count // (60_000 if name == PEER_NAME else 120_000)


def schedules(name: str, scale: float) -> Iterator[Figure]:
    for storage in ("file", "memory"):
        yield from _schedules(name, storage, int(1_000_000 * scale))


def _schedules(name: str, storage: str, count: int) -> Iterator[Figure]:
    with started(name) as server:
        connection = connect(server)
        stream(connection, storage, "s.>", "t.>", allow_msg_schedules=True, allow_msg_ttl=True)
        deadlines = Deadlines(server, count)
        memory, cpu = server.anonymous_memory(), server.cpu_seconds()

        def frames(start: int, last: int, deadline: float) -> list[bytes]:
            at = datetime.fromtimestamp(round(deadline), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            lines = f"NATS/1.0\r\nNats-Schedule: @at {at}\r\nNats-Schedule-Target: t.a\r\n\r\n"
            header = lines.encode()
            return [publish_frame(f"s.{n}", b"x" * 32, header=header) for n in range(start, last)]

        deadlines.fill(round(time.time()) + _filling(name, 2 * count), frames)

        def last() -> int:
            return int(connection.api("STREAM.INFO.S")["state"]["last_seq"])

        _wait(lambda: last() == count)
        yield Figure(f"{storage}: publish", "us", (server.cpu_seconds() - cpu) / count * 1e6)
        wait = server.anonymous_memory() - memory
        yield Figure(f"{storage}: publish", "B", wait / count)
        for figure in deadlines.watch(lambda: last() - count):
            yield Figure(f"{storage}: {figure.what}", figure.unit, figure.value)


def purges(name: str, scale: float) -> Iterator[Figure]:
    for storage, subjects in PURGED_TYPES:
        count = int(10_000_000 * scale)
        subjects = max(1, int(subjects * scale))
        bodies: list[tuple[str, dict[str, Any]]] = [("all", {}), ("keep", {"keep": 1000})]
        if subjects > 1:
            bodies.append(("filter", {"filter": "s.*.7"}))
        for what, body in bodies:
            with started(name) as server:
                connection = connect(server)
                stream(connection, storage, "s.>")
                _fill(server, count, subjects)
                label = f"{storage} {subjects}, {what}"
                time.sleep(2.0)
                yield from _purged(server, connection, label, body, count)


def _fill(server: Server, count: int, subjects: int) -> None:
    connection = connect(server)
    pieces: list[bytes] = []
    for start in range(0, count, FLUSHED):
        at = start // FLUSHED % max(1, subjects // FLUSHED)
        if at == len(pieces):
            numbers = (n % subjects for n in range(start, start + FLUSHED))
            frames = [publish_frame(f"s.{n // 10}.{n % 10}", b"x" * 32) for n in numbers]
            pieces.append(b"".join(frames))
        connection.send(pieces[at])
        connection.flush()
    stored = count + -count % FLUSHED
    _wait(lambda: connection.api("STREAM.INFO.S")["state"]["messages"] == stored)
    connection.close()


def _purged(
    server: Server, connection: Connection, label: str, body: dict[str, Any], count: int
) -> Iterator[Figure]:
    victim = Victim(server.url)
    cpu = server.cpu_seconds()
    time.sleep(1.0)
    victims = server.cpu_seconds() - cpu
    yield Figure(f"{label}: wait before", "ms", victim.take())
    cpu, begin = server.cpu_seconds(), time.monotonic()
    purged = connection.api("STREAM.PURGE.S", body)["purged"]
    took = time.monotonic() - begin
    yield Figure(f"{label}: took", "ms", took * 1e3)
    yield Figure(f"{label}: wait", "ms", victim.take())
    time.sleep(3.0)
    yield Figure(f"{label}: wait after", "ms", victim.take())
    spent = server.cpu_seconds() - cpu - victims * (took + 3.0)
    yield Figure(f"{label}: each", "us", spent / purged * 1e6)
    victim.end()


def listed(name: str, scale: float) -> Iterator[Figure]:
    count, requests = int(10_000 * scale), int(50_000 * scale)
    with started(name) as server:
        idle = request_latency(server, requests)
        yield Figure("idle: P99.9", "us", idle["P99.9"])

        def make() -> None:
            while True:
                ask(server, creations(count, "memory"))
                ask(server, [(f"STREAM.DELETE.S{n}", b"") for n in range(count)])

        with beside(make):
            yield from _beside("made", idle, request_latency(server, requests))
        ask(server, creations(count))
        lists = [
            (f"STREAM.{what}", json.dumps({"offset": offset}).encode())
            for what, page in (("NAMES", 1024), ("LIST", 256))
            for offset in range(0, count, page)
        ]
        infos = [(f"STREAM.INFO.S{n}", b"") for n in range(count)]
        for what, asked in (("listed", lists), ("asked for", infos)):
            cpu = server.cpu_seconds()
            ask(server, asked)
            yield Figure(f"{what}: each", "us", (server.cpu_seconds() - cpu) / count * 1e6)

            def again(asked: list[tuple[str, bytes]] = asked) -> None:
                while True:
                    ask(server, asked)

            with beside(again):
                yield from _beside(what, idle, request_latency(server, requests))


def _beside(what: str, idle: dict[str, float], found: dict[str, float]) -> Iterator[Figure]:
    yield Figure(f"{what}: P99.9", "us", found["P99.9"])
    yield Figure(f"{what}: P99.9", "of idle", found["P99.9"] / idle["P99.9"])


SCENARIOS = {run.__name__: run for run in (crowd, batches, lives, schedules, purges, listed)}


def main(argv: list[str] | None = None) -> int:
    parser = command_line("bench.streams", __doc__, SCENARIOS)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers, default 1")
    return show(
        parser, argv, SCENARIOS, lambda name, what, given: SCENARIOS[what](name, given.scale)
    )


if __name__ == "__main__":
    sys.exit(main())
