"""What requests of JetStream's API cost beside nats-server, pipelined by one connection, by ten and
by a hundred: processor time of the server for each, and how many are answered in a second."""

import argparse
import json
import selectors
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Figure, command_line, show
from bench.servers import PEER_NAME, Server
from jsserver.bench.wire import BenchError, Connection, new_inbox, payload_of, publish_frame

CONNECTIONS = (1, 10, 100)
WAIT_SECONDS = 300.0
FILLED = 500
"""Messages on their way while a stream is filled."""
SIZE = 128
DEAR = 20
"""Of creations and removals one for so many other requests."""


class Asker:
    """A connection with requests on their way."""

    def __init__(self, url: str) -> None:
        self.connection = Connection(url)
        self.inbox = new_inbox()
        sid = self.connection.subscribe(self.inbox)
        self.connection.flush()
        self.connection.socket.setblocking(True)
        self.mark = f"MSG {self.inbox} {sid} ".encode()
        self.frames: list[bytes] = []
        self.sent = 0
        self.answered = 0
        self.tail = b""

    def send(self, in_flight: int) -> None:
        """Fills up what is on its way."""
        until = min(self.answered + in_flight, len(self.frames))
        if until > self.sent:
            self.connection.socket.sendall(b"".join(self.frames[self.sent : until]))
            self.sent = until

    def receive(self) -> int:
        """Reads what came; how many answers that was."""
        data = self.connection.socket.recv(1 << 20)
        if not data:
            raise BenchError("the server closed a connection")
        for sign in (b'"error":', b"NATS/1.0 503"):
            at = data.find(sign)
            if at >= 0:
                raise BenchError(f"a request was refused: {data[at : at + 200]!r}")
        if b"PING\r\n" in data:
            self.connection.socket.sendall(b"PONG\r\n")
        data = self.tail + data
        count = data.count(self.mark)
        self.tail = data[-len(self.mark) + 1 :]
        self.answered += count
        return count


Request = tuple[str, bytes]
"""The subject behind `$JS.API.`, and the body."""


def ask(url: str, requests: list[Request], connections: int, in_flight: int) -> float:
    """Sends all requests, each connection its share; the seconds until the last one is answered."""
    askers = [Asker(url) for _ in range(connections)]
    for number, (subject, body) in enumerate(requests):
        asker = askers[number % connections]
        asker.frames.append(publish_frame(f"$JS.API.{subject}", body, asker.inbox))
    left = len(requests)
    with selectors.DefaultSelector() as selector:
        for asker in askers:
            selector.register(asker.connection.socket, selectors.EVENT_READ, asker)
        begin = time.monotonic()
        for asker in askers:
            asker.send(in_flight)
        while left:
            if time.monotonic() > begin + WAIT_SECONDS:
                raise BenchError(f"{left} requests were not answered in time")
            for key, _ in selector.select(1.0):
                left -= key.data.receive()
                key.data.send(in_flight)
        seconds = time.monotonic() - begin
    for asker in askers:
        asker.connection.close()
    return seconds


def fill(url: str, stream: str, count: int) -> list[int]:
    """Stores so many messages, and returns their sequences."""
    connection = Connection(url)
    inbox = new_inbox()
    mark = f"MSG {inbox} {connection.subscribe(inbox)} ".encode()
    last = int(connection.api(f"STREAM.INFO.{stream}")["state"]["last_seq"])
    frame = publish_frame(f"{stream}.a", payload_of(SIZE), inbox)
    for start in range(0, count, FILLED):
        some = min(FILLED, count - start)
        connection.send(frame * some)
        connection.count_until(mark, some)
    connection.close()
    return list(range(last + 1, last + 1 + count))


def get(url: str, count: int) -> list[Request]:
    """MSG.GET by sequence."""
    seqs = fill(url, "S", count)
    return [("STREAM.MSG.GET.S", json.dumps({"seq": seq}).encode()) for seq in seqs]


def last(url: str, count: int) -> list[Request]:
    """MSG.GET of a subject's last message."""
    fill(url, "S", 1)
    return [("STREAM.MSG.GET.S", json.dumps({"last_by_subj": "S.a"}).encode())] * count


def delete(url: str, count: int) -> list[Request]:
    """MSG.DELETE that leaves the bytes."""
    seqs = fill(url, "S", count)
    body = '{"seq":%d,"no_erase":true}'
    return [("STREAM.MSG.DELETE.S", (body % seq).encode()) for seq in seqs]


def erase(url: str, count: int) -> list[Request]:
    """MSG.DELETE that overwrites the bytes."""
    seqs = fill(url, "S", count)
    return [("STREAM.MSG.DELETE.S", json.dumps({"seq": seq}).encode()) for seq in seqs]


def info(url: str, count: int) -> list[Request]:
    """STREAM.INFO."""
    return [("STREAM.INFO.S", b"")] * count


def consumer_info(url: str, count: int) -> list[Request]:
    """CONSUMER.INFO."""
    connection = Connection(url)
    connection.api("CONSUMER.CREATE.S.d", made("d"))
    connection.close()
    return [("CONSUMER.INFO.S.d", b"")] * count


def purge(url: str, count: int) -> list[Request]:
    """PURGE of a subject with one message."""
    connection = Connection(url)
    inbox = new_inbox()
    mark = f"MSG {inbox} {connection.subscribe(inbox)} ".encode()
    for start in range(0, count, FILLED):
        some = range(start, min(start + FILLED, count))
        connection.send(b"".join(publish_frame(f"S.p{n}", payload_of(SIZE), inbox) for n in some))
        connection.count_until(mark, len(some))
    connection.close()
    return [("STREAM.PURGE.S", b'{"filter":"S.p%d"}' % n) for n in range(count)]


def made(name: str) -> dict[str, object]:
    """The request for a durable consumer of S."""
    config = {"durable_name": name, "ack_policy": "explicit"}
    return {"stream_name": "S", "config": config}


def of_each(subject: str, body: Callable[[str], object], count: int) -> list[Request]:
    """Requests about consumers or streams c0, c1 and so on."""
    names = [f"c{n}" for n in range(count)]
    return [(f"{subject}.{name}", json.dumps(body(name)).encode()) for name in names]


def nothing(url: str, subject: str, count: int) -> None:
    """Removes what another round left."""
    connection = Connection(url)
    names = [f"c{n}" for n in range(count)]
    there = set(connection.api("STREAM.NAMES").get("streams") or [])
    while subject.startswith("CONSUMER"):
        page = connection.api("CONSUMER.NAMES.S", {"offset": len(there)})["consumers"]
        if not page:
            break
        there.update(page)
    left = [(f"{subject}.{name}", b"") for name in names if name in there]
    connection.close()
    if left:
        ask(url, left, 1, FILLED)


def consumer_create(url: str, count: int) -> list[Request]:
    """CONSUMER.CREATE of durable consumers on one stream."""
    nothing(url, "CONSUMER.DELETE.S", count // DEAR)
    return of_each("CONSUMER.CREATE.S", made, count // DEAR)


def consumer_delete(url: str, count: int) -> list[Request]:
    """CONSUMER.DELETE of these."""
    ask(url, consumer_create(url, count), 1, FILLED)
    return [(f"CONSUMER.DELETE.S.c{n}", b"") for n in range(count // DEAR)]


def stream_create(url: str, count: int) -> list[Request]:
    """STREAM.CREATE, to files."""
    nothing(url, "STREAM.DELETE", count // DEAR)
    return of_each(
        "STREAM.CREATE", lambda name: {"name": name, "subjects": [f"{name}.>"]}, count // DEAR
    )


def stream_delete(url: str, count: int) -> list[Request]:
    """STREAM.DELETE of these."""
    ask(url, stream_create(url, count), 1, FILLED)
    return [(f"STREAM.DELETE.c{n}", b"") for n in range(count // DEAR)]


SCENARIOS: dict[str, Callable[[str, int], list[Request]]] = {
    run.__name__: run
    for run in (
        *(get, last, delete, erase, info, consumer_info, purge),
        *(consumer_create, consumer_delete, stream_create, stream_delete),
    )
}


def measure(name: str, scenario: str, given: argparse.Namespace) -> Iterator[Figure]:
    """Each number of connections, `rounds` times: the medians."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"bench-{name}-"))
        synced = "sync_interval: always" if given.synced and name == PEER_NAME else ""
        server = Server(name, Path(folder), synced)
        stack.callback(server.kill)
        server.start()
        connection = Connection(server.url)
        connection.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.*"], "storage": "file"})
        connection.close()
        for connections in given.connections:
            cost, rate = [], []
            for _ in range(given.rounds):
                requests = SCENARIOS[scenario](server.url, given.requests)
                before = server.cpu_seconds()
                seconds = ask(server.url, requests, connections, given.in_flight)
                cost.append((server.cpu_seconds() - before) / len(requests) * 1e6)
                rate.append(len(requests) / seconds)
            label = f"{connections} connection{'s' if connections > 1 else ''}"
            yield Figure(label, "us each", statistics.median(cost))
            yield Figure(label, "a second", statistics.median(rate))


def main(argv: list[str] | None = None) -> int:
    parser = command_line("bench.api", __doc__, SCENARIOS)
    parser.add_argument("--connections", type=int, nargs="*", default=CONNECTIONS)
    parser.add_argument("--requests", type=int, default=20_000, help="of each kind, default 20,000")
    parser.add_argument("--in-flight", type=int, default=100, help="of a connection, default 100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--synced", action="store_true", help="nats-server answers what is on disk, too"
    )
    return show(parser, argv, SCENARIOS, measure)


if __name__ == "__main__":
    sys.exit(main())
