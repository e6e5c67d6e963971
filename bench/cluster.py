"""A cluster of three beside one of nats-server: what publishes to streams of three replicas cost,
how long they stop when the stream's leader is lost, and what many such streams cost at rest.

jsserver syncs on a majority before it acks, nats-server every two minutes, and with `always` before
each ack.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.many import keep_in_flight
from bench.rows import shown
from bench.servers import OWN_NAME, PEER_NAME, Server, free_port
from jsserver.bench.wire import BenchError, Connection, new_inbox, payload_of, publish_frame

MEMBERS = 3
SIZE = 128
SECONDS = 60.0
"""How long a condition is waited for."""
PATIENCE = 2.0
"""How long an answer is waited for as long as nobody may lead."""
GAP = 0.02
"""How long an ack is waited for before the next message is published."""
WARM = 200
"""Acks before a leader is lost."""
AFTER = 2.0
"""Seconds for which publishes go on after a leader was lost."""
ALWAYS = "sync_interval: always"
TOGETHER = 20
"""Creations that are asked for at a time."""
PROBED = 200
"""Streams that are published to at a time, to see whether they are back."""
BACK = 300.0
"""Seconds until streams have to be back after a stop of all members."""
ACCOUNTS = """accounts { SYS { users: [{ user: sys, password: sys }] }
A { jetstream: enabled, users: [{ user: a, password: a }] } }
system_account: SYS
no_auth_user: a"""


class Member(Server):
    """A member of a cluster; `routes` are the ports of all members."""

    def __init__(self, name: str, folder: Path, own: int, routes: list[int], config: str) -> None:
        super().__init__(name, folder, config, ACCOUNTS)
        self._own = own
        self._routes = routes

    def blocks(self) -> str:
        urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes)
        return (
            f"{super().blocks()}\nserver_name: {self.folder.name}\n"
            f'cluster {{ name: bench, listen: "127.0.0.1:{self._own}", routes: [{urls}] }}'
        )


class Cluster(NamedTuple):
    members: list[Member]

    def spent(self) -> float:
        """Seconds of processor time of all members until now."""
        return sum(member.cpu_seconds() for member in self.members)

    def leader_of(self, stream: str, member: Member) -> Member | None:
        leader = asked(member, f"STREAM.INFO.{stream}")["cluster"].get("leader")
        return next((one for one in self.members if one.folder.name == leader), None)


@contextmanager
def cluster(name: str, config: str = "") -> Iterator[Cluster]:
    ports = [free_port() for _ in range(MEMBERS)]
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        found = Cluster(
            [
                Member(name, Path(folder) / letter, port, ports, config)
                for letter, port in zip("ABC", ports, strict=True)
            ]
        )
        try:
            for member in found.members:
                member.start()
            create(found.members[0], "PROBE")
            yield found
        finally:
            for member in found.members:
                member.kill()


def create(member: Member, stream: str) -> None:
    """A stream of three replicas, as soon as the cluster can have it."""
    config = {"name": stream, "subjects": [f"{stream}.>"], "num_replicas": MEMBERS}
    wait(lambda: bool(asked(member, f"STREAM.CREATE.{stream}", config)), f"stream {stream}")


def asked(member: Member, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """As `Connection.api`, on a connection of its own, and with little patience."""
    connection = Connection(member.url)
    try:
        connection.timeout = PATIENCE
        connection.socket.settimeout(PATIENCE)
        return connection.api(subject, body)
    finally:
        connection.close()


def wait(found: Callable[[], bool], what: str) -> None:
    """Until it is so; answers that are errors, and none, mean that it is not."""
    end = time.monotonic() + SECONDS
    error: Exception | None = None
    while time.monotonic() < end:
        try:
            if found():
                return
        except BenchError as refused:
            error = refused
        time.sleep(0.1)
    raise BenchError(f"{what}: not within {SECONDS:.0f} s ({error})")


# ---- publishes


def publish(name: str, config: str, given: argparse.Namespace) -> dict[str, Any]:
    """Acks a second of one client at the stream's leader, and processor time for each."""
    with cluster(name, config) as found:
        create(found.members[0], "S")
        leader: list[Member] = []

        def led() -> bool:
            member = found.leader_of("S", found.members[0])
            leader.extend([member] if member else [])
            return bool(leader)

        wait(led, "the stream is led")
        connection = Connection(leader[0].url)
        inbox = new_inbox()
        frames = [publish_frame("S.x", payload_of(SIZE), inbox)]
        rate, cost = keep_in_flight(
            connection, frames, inbox, given.in_flight, given.seconds, found.spent
        )
        memory = sum(member.memory() for member in found.members)
        connection.close()
    return {
        "server": name,
        "config": config,
        "scenario": f"{given.in_flight} in flight",
        "acks_per_second": rate,
        "microseconds": cost,
        "memory": memory,
    }


# ---- a leader is lost


def lost(name: str, number: signal.Signals) -> dict[str, Any]:
    """The longest time without an ack, in seconds, from the signal until another leader has acked
    for a while: a server that ends may ack on before it does."""
    with cluster(name) as found:
        create(found.members[0], "S")
        wait(lambda: found.leader_of("S", found.members[0]) is not None, "the stream is led")
        leader = found.leader_of("S", found.members[0])
        assert leader is not None and leader.process is not None
        other = next(member for member in found.members if member is not leader)
        connection = Connection(other.url)
        inbox = new_inbox()
        connection.send(f"SUB {inbox} 77\r\n".encode())
        connection.socket.settimeout(GAP)
        acked_at(connection, inbox, WARM)
        last = ended = time.monotonic()
        longest = 0.0
        leader.process.send_signal(number)
        while leader.process.poll() is None or longest == 0.0 or last < ended + AFTER:
            now = acked_at(connection, inbox, 1)
            longest, last = max(longest, now - last), now
        connection.close()
    return {"server": name, "config": "", "scenario": number.name, "seconds": longest}


def acked_at(connection: Connection, inbox: str, times: int) -> float:
    """Publishes until so many were acked, the next one when the one before was, or was lost; when
    the last one was."""
    end = time.monotonic() + SECONDS
    while times:
        connection.send(publish_frame("S.x", b"x", inbox))
        try:
            data = connection.socket.recv(1 << 16)
        except TimeoutError:
            data = b""
        times -= b'"seq":' in data
        if not times:
            break
        if time.monotonic() > end:
            raise BenchError("nothing was acked after the leader was lost")
        if b'"seq":' not in data and data:
            time.sleep(0.001)  # nobody leads it
    return time.monotonic()


# ---- many at rest


def rest(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Many streams: how long their creation takes, what they cost at rest, and how long it takes
    until all of them take messages after a stop of all members."""
    with cluster(name) as found:
        names = [f"S{n:05}" for n in range(given.streams)]
        begin, spent = time.monotonic(), found.spent()
        create_all(found, names)
        created, creation = time.monotonic() - begin, found.spent() - spent
        time.sleep(3.0)  # elections are over
        begin, spent = time.monotonic(), found.spent()
        time.sleep(given.seconds)
        idle = (found.spent() - spent) / (time.monotonic() - begin)
        memory = sum(member.memory() for member in found.members)
        for member in found.members:
            member.stop()
        begin = time.monotonic()
        for member in found.members:
            member.start(SECONDS)
        all_led(found, names)
        back = time.monotonic() - begin
    return {
        "server": name,
        "config": "",
        "scenario": f"{given.streams} streams",
        "created": created,
        "creation_cpu": creation,
        "idle": idle,
        "back": back,
        "memory": memory,
    }


def create_all(found: Cluster, names: list[str]) -> None:
    """Some at a time; the API's queue and the placement bear that."""
    connection = Connection(found.members[0].url)
    inbox = new_inbox()
    connection.send(f"SUB {inbox} 77\r\n".encode())
    mark = f"MSG {inbox} ".encode()
    for at in range(0, len(names), TOGETHER):
        part = names[at : at + TOGETHER]
        for stream in part:
            config = {"name": stream, "subjects": [f"{stream}.>"], "num_replicas": MEMBERS}
            body = json.dumps(config).encode()
            connection.send(publish_frame(f"$JS.API.STREAM.CREATE.{stream}", body, inbox))
        seen, data = 0, b""
        while seen < len(part):
            data += connection.receive()
            seen = data.count(mark)
        if b'"error"' in data:
            raise BenchError(data[-600:].decode(errors="replace"))
    connection.close()


def all_led(found: Cluster, names: list[str]) -> None:
    """Each stream takes a message."""
    left = set(names)
    connection = Connection(found.members[0].url)
    connection.socket.settimeout(0.1)
    inbox = new_inbox()
    connection.send(f"SUB {inbox}.* 77\r\n".encode())
    end = time.monotonic() + BACK
    while left:
        if time.monotonic() > end:
            raise BenchError(f"{len(left)} streams are not back within {BACK:.0f} s")
        for stream in sorted(left)[:PROBED]:
            connection.send(publish_frame(f"{stream}.x", b"", f"{inbox}.{stream}"))
        data = heard(connection, 0.5)
        if b"PING\r\n" in data:
            connection.send(b"PONG\r\n")
        for line in data.split(b"\r\n"):
            if line.startswith(b'{"stream":"') and b'"seq":' in line:
                left.discard(json.loads(line)["stream"])
    connection.close()


def heard(connection: Connection, seconds: float) -> bytes:
    """What comes within that time, or until nothing comes for a while."""
    data = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            data += connection.socket.recv(1 << 18)
        except TimeoutError:
            break
    return data


def show(row: dict[str, Any]) -> str:
    what = f"{row['server']:11} {row['config']:21} {row['scenario']:14}"
    if "microseconds" in row:
        return (
            f"{what} {row['acks_per_second']:9,.0f} acks/s, {row['microseconds']:6.2f} us an ack,"
            f" {row['memory'] >> 20} MiB"
        )
    if "seconds" in row:
        return f"{what} {row['seconds']:6.3f} s"
    return (
        f"{what} created in {row['created']:.1f} s ({row['creation_cpu']:.1f} CPU s), at rest"
        f" {row['idle'] * 100:.1f} % of a core, back after {row['back']:.1f} s,"
        f" {row['memory'] >> 20} MiB"
    )


def runs(name: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if "publish" in given.what:
        yield publish(name, "", given)
        if name == PEER_NAME:
            yield publish(name, ALWAYS, given)
    if "lost" in given.what:
        yield lost(name, signal.SIGKILL)
        yield lost(name, signal.SIGTERM)
    if "rest" in given.what:
        yield rest(name, given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/cluster.py", description=__doc__)
    parser.add_argument("what", nargs="*", default=["publish", "lost", "rest"])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--in-flight", type=int, default=500)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    rows = (row for _ in range(given.rounds) for name in names for row in runs(name, given))
    return shown(parser.prog, names, rows, show, as_json=given.json) is None


if __name__ == "__main__":
    sys.exit(main())
