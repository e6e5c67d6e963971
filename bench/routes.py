"""Messages over the routes of two members of a cluster, and a route that comes to many
subscriptions: processor time of both members together, two of ours beside two of nats-server.

Messages go from a client of one member to a client of the other one. For the subscriptions, all
routes between the members are cut, one member's client subscribes, and the routes come back.
"""

import argparse
import contextlib
import random
import select
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.rows import shown
from bench.servers import OWN_NAME, PEER_NAME, Server, free_port
from jsserver.bench.wire import BenchError, Connection, payload_of

HEADERS = b"NATS/1.0\r\nTrace: 0123456789abcdef\r\n\r\n"
SCENARIOS = ("plain 128 B", "queue 128 B", "headers 128 B")
PIECE = 500
"""Messages that are sent at a time."""
PROBES = 200
"""Subjects, at random, on which each message must arrive before all are taken as known."""
SECONDS = 120.0


class Member(Server):
    """A member of a cluster; `dials` is the port of another one."""

    def __init__(self, name: str, folder: Path, dials: int, compression: str) -> None:
        super().__init__(name, folder)
        self.cluster_port = free_port()
        self._dials = dials
        self._compression = compression

    def blocks(self) -> str:
        routes = f'"nats://127.0.0.1:{self._dials}"' if self._dials else ""
        return (
            f"server_name: {self.folder.name}\n"
            f'cluster {{ name: bench, listen: "127.0.0.1:{self.cluster_port}"\n'
            f"routes: [{routes}], no_advertise: true, compression: {self._compression} }}"
        )


class Gate:
    """What the second member dials instead of the first one: it can be shut, which cuts all."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self.is_open = True
        self.opened_at = 0.0
        """When the first connection came since it was opened."""
        self._pairs: dict[socket.socket, socket.socket] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listener, *self._pairs], [], [], 0.05)
            if not self.is_open:
                for one in list(self._pairs):
                    self._end(one)
            for one in ready:
                if one is self._listener:
                    self._accept()
                elif one in self._pairs:
                    self._pass_on(one)

    def _accept(self) -> None:
        came, _ = self._listener.accept()
        if not self.is_open or not self.target:
            came.close()
            return
        self.opened_at = self.opened_at or time.monotonic()
        there = socket.create_connection(("127.0.0.1", self.target))
        self._pairs |= {came: there, there: came}

    def _pass_on(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 20)
            if data:
                self._pairs[one].sendall(data)
                return
        except OSError:
            pass
        self._end(one)

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        if other is not None:
            self._pairs.pop(other, None)
            one.close()
            other.close()


@contextlib.contextmanager
def cluster(name: str, given: argparse.Namespace) -> Iterator[tuple[Member, Member, Gate]]:
    gate = Gate()
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        first = Member(name, Path(folder) / "first", 0, given.compression)
        second = Member(name, Path(folder) / "second", gate.port, given.compression)
        try:
            first.start()
            gate.target = first.cluster_port
            second.start()
            yield first, second, gate
        finally:
            first.kill()
            second.kill()


def come(connection: Connection) -> bytes:
    """What has come up to now."""
    data = b""
    connection.send(b"PING\r\n")
    while b"PONG\r\n" not in data:
        data += connection.receive()
    return data


def met(here: Connection, there: Connection, subject: str) -> None:
    """Waits until a message on the subject gets there, where it is subscribed to."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        here.send(f"PUB {subject} 0\r\n\r\n".encode())
        here.flush()
        if f"MSG {subject} ".encode() in come(there):
            return
        time.sleep(0.01)
    raise BenchError(f"nothing came on {subject} within {SECONDS:.0f} s")


def spent(*members: Member) -> float:
    return sum(member.cpu_seconds() for member in members)


def send_all(connection: Connection, messages: int, headers: bytes) -> None:
    body = payload_of(128)
    if headers:
        line = b"HPUB bench.x %d %d\r\n" % (len(headers), len(headers) + len(body))
    else:
        line = b"PUB bench.x %d\r\n" % len(body)
    piece = (line + headers + body + b"\r\n") * PIECE
    for _ in range(messages // PIECE):
        connection.send(piece)


def messages(name: str, scenario: str, given: argparse.Namespace) -> dict[str, Any]:
    with cluster(name, given) as (first, second, _):
        sends, hears = Connection(first.url), Connection(second.url)
        queue = " workers" if scenario.startswith("queue") else ""
        hears.send(f"SUB bench.x{queue} 1\r\nSUB ready 2\r\n".encode())
        met(sends, hears, "ready")
        before = spent(first, second)
        headers = HEADERS if scenario.startswith("headers") else b""
        sender = threading.Thread(target=send_all, args=(sends, given.messages, headers))
        sender.start()
        hears.count_until(b"MSG bench.x", given.messages)
        sender.join()
        cost = spent(first, second) - before
    return {
        "server": name,
        "scenario": scenario,
        "cpu_seconds_per_million": cost / given.messages * 1e6,
    }


def connecting(name: str, given: argparse.Namespace) -> dict[str, Any]:
    count = given.subscriptions
    with cluster(name, given) as (first, second, gate):
        hears, sends = Connection(first.url), Connection(second.url)
        hears.send(b"SUB ready 0\r\n")
        met(sends, hears, "ready")
        gate.is_open = False
        time.sleep(0.2)
        for start in range(1, count, PIECE):
            lines = (
                f"SUB some.subject.{n} {n}\r\n" for n in range(start, min(start + PIECE, count))
            )
            hears.send("".join(lines).encode())
        hears.flush()
        time.sleep(0.5)
        before = spent(first, second)
        gate.opened_at, gate.is_open = 0.0, True
        for n in random.sample(range(1, count), PROBES):
            met(sends, hears, f"some.subject.{n}")
        seconds = time.monotonic() - gate.opened_at
        cost = spent(first, second) - before
    return {
        "server": name,
        "scenario": f"{count:,} subscriptions",
        "cpu_seconds": cost,
        "seconds": seconds,
    }


def show(row: dict[str, Any]) -> str:
    if "seconds" in row:
        cost = f"{row['cpu_seconds']:.3f} CPU s, {row['seconds']:.2f} s"
    else:
        cost = f"{row['cpu_seconds_per_million']:.3f} CPU s per million"
    return f"{row['server']:12} {row['scenario']:24} {cost}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/routes.py", description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--compression", default="off", help="of the routes: off, fast, ...")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    rows = (
        messages(name, scenario, given) if scenario else connecting(name, given)
        for _ in range(given.rounds)
        for scenario in (*SCENARIOS, "")
        for name in names
    )
    return shown(parser.prog, names, rows, show, as_json=given.json) is None


if __name__ == "__main__":
    sys.exit(main())
