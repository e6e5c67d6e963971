"""Publishes to many streams at once: acks a second, and what they cost the server.

One client keeps so many messages in flight, to each stream in turn; each ack is waited for.
jsserver syncs before it acks, nats-server every two minutes, and with `always` before each ack.
With `--writer` another process writes to the same file system all the while.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.rows import shown
from bench.servers import OWN_NAME, PEER_NAME, Server
from jsserver.bench.wire import BenchError, Connection, new_inbox, publish_frame

STREAMS = (1, 10, 100, 1000)
IN_FLIGHT = 500
SIZE = 128
BLOCK = 1 << 20
WRITTEN = 1 << 30
FORK = multiprocessing.get_context("fork")


def writes(folder: str) -> None:
    """Writes without an end, and without a sync."""
    path = os.path.join(folder, "stranger")
    block = os.urandom(BLOCK)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    while True:
        for at in range(0, WRITTEN, BLOCK):
            os.pwrite(descriptor, block, at)
            time.sleep(0.005)


@contextmanager
def beside_a_writer(folder: str, wanted: bool) -> Iterator[None]:
    writer = FORK.Process(target=writes, args=(folder,), daemon=True) if wanted else None
    if writer is not None:
        writer.start()
    try:
        yield
    finally:
        if writer is not None:
            writer.kill()
            writer.join()


def publish(server: Server, streams: int, seconds: float) -> tuple[float, float]:
    """Acks a second, and microseconds of the server's processor time for each."""
    connection = Connection(server.url)
    for n in range(streams):
        config = {"name": f"S{n:04}", "subjects": [f"s.{n:04}"]}
        connection.api(f"STREAM.CREATE.S{n:04}", config)
    inbox = new_inbox()
    frames = [publish_frame(f"s.{n:04}", b"x" * SIZE, inbox) for n in range(streams)]
    rate, cost = keep_in_flight(connection, frames, inbox, IN_FLIGHT, seconds, server.cpu_seconds)
    connection.close()
    return rate, cost


def keep_in_flight(
    connection: Connection,
    frames: list[bytes],
    inbox: str,
    in_flight: int,
    seconds: float,
    spent: Callable[[], float],
) -> tuple[float, float]:
    """Publishes the frames, which are of one size and want their acks on the inbox, in turn. Acks
    a second, after one second, and microseconds of the processor time `spent` for each."""
    connection.send(f"SUB {inbox} 77\r\n".encode())
    mark = f"MSG {inbox} ".encode()
    size = len(frames[0])
    many = max(1, -(-2 * in_flight // len(frames)))
    buffer = memoryview(b"".join(frames * many))
    turn = len(frames) * size
    at = acked = counted = 0
    tail = b""
    cpu = begin = 0.0
    sock = connection.socket
    owed = in_flight
    started = time.monotonic()
    while True:
        now = time.monotonic()
        if not begin and now - started > 1.0:
            begin, cpu, counted = now, spent(), acked
        elif begin and now - begin > seconds:
            break
        sock.sendall(buffer[at : at + owed * size])
        at = (at + owed * size) % turn
        data = tail + sock.recv(1 << 18)
        if b"-ERR" in data or b'"error"' in data:
            raise BenchError(data[:400].decode(errors="replace"))
        end = data.rfind(b"\r\n") + 2 if b"\r\n" in data else 0
        tail = data[end:]
        owed = data.count(mark, 0, end)
        acked += owed
    took = time.monotonic() - begin
    used = spent() - cpu
    return (acked - counted) / took, used / (acked - counted) * 1e6


def measure(name: str, config: str, streams: int, given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        server = Server(name, Path(folder), config)
        server.start()
        try:
            with beside_a_writer(folder, given.writer):
                rate, cost = publish(server, streams, given.seconds)
        finally:
            server.kill()
    return {"server": name, "config": config, "streams": streams, "rate": rate, "cost": cost}


def show(row: dict[str, Any]) -> str:
    what = f"{row['streams']:5} streams, {row['server']:11} {row['config']:21}"
    return f"{what} {row['rate']:9,.0f} acks/s, {row['cost']:6.2f} us an ack"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/many.py", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="*", default=STREAMS)
    parser.add_argument("--writer", action="store_true", help="another process writes meanwhile")
    parser.add_argument("--always", action="store_true", help="nats-server's always, too")
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [OWN_NAME, PEER_NAME]
    servers = [(name, "") for name in names]
    if given.always and PEER_NAME in names:
        servers.append((PEER_NAME, "sync_interval: always"))
    rows = (
        measure(name, config, streams, given)
        for streams in given.streams
        for _ in range(given.rounds)
        for name, config in servers
    )
    return shown(parser.prog, names, rows, show, as_json=given.json) is None


if __name__ == "__main__":
    sys.exit(main())
