"""What several reactor threads carry, beside one: payload bytes delivered in a second.

The load costs clients little, so that a machine of few cores has room for the server: publishers
send what was made before, and receivers have the kernel throw away what it got for them. Messages
are small: with large ones the kernel's copies are most of the work, and the clients' as much of it
as the server's.
"""

import argparse
import json
import mmap
import multiprocessing
import select
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.servers import OWN_NAME, MissingServer, Server, machine, version_of
from jsserver.bench.wire import BenchError, Connection, payload_of, publish_frame
from jsserver.process.procs import die_with_parent

FORK = multiprocessing.get_context("fork")
BATCH_BYTES = 64 << 10
TAKEN_BYTES = 1 << 20
COUNT_BYTES = 8
WARM_SECONDS = 0.5


def load(url: str, subject: str, given: argparse.Namespace, delivered: mmap.mmap) -> None:
    """One publisher and its receivers: a batch is sent when all of the one before has come.

    `delivered`: where the bytes are counted that the receivers took.
    """
    die_with_parent()
    publisher = Connection(url)
    poll = select.epoll()
    receivers = {}
    for _ in range(given.receivers):
        connection = Connection(url)
        sid = connection.subscribe(subject)
        connection.flush()
        receivers[connection.socket.fileno()] = connection.socket
        poll.register(connection.socket, select.EPOLLIN)
    payload = payload_of(given.size)
    messages = max(1, BATCH_BYTES // given.size)
    batch = publish_frame(subject, payload) * messages
    one = len(f"MSG {subject} {sid} {given.size}\r\n") + given.size + 2
    expected = messages * one * given.receivers
    buffer = bytearray(TAKEN_BYTES)
    total = 0
    while True:
        publisher.send(batch)
        missing = expected
        while missing > 0:
            for fd, _ in poll.poll():
                missing -= receivers[fd].recv_into(buffer, TAKEN_BYTES, socket.MSG_TRUNC)
        total += expected
        delivered[:COUNT_BYTES] = total.to_bytes(COUNT_BYTES, "little")


def rate(server: Server, given: argparse.Namespace) -> float:
    """Bytes a second that all receivers together were delivered."""
    counts = [mmap.mmap(-1, COUNT_BYTES) for _ in range(given.publishers)]
    processes = [
        FORK.Process(target=load, args=(server.url, f"load.{i}", given, count), daemon=True)
        for i, count in enumerate(counts)
    ]

    def total() -> int:
        return sum(int.from_bytes(count[:COUNT_BYTES], "little") for count in counts)

    try:
        for process in processes:
            process.start()
        time.sleep(WARM_SECONDS)
        first, begin = total(), time.monotonic()
        time.sleep(given.seconds)
        return (total() - first) / (time.monotonic() - begin)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def measure(reactors: int, given: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-reactors-") as folder:
        server = Server(OWN_NAME, Path(folder), config=f"reactors: {reactors}")
        server.start()
        try:
            return rate(server, given)
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/reactors.py", description=__doc__)
    parser.add_argument("--size", type=int, default=16, help="bytes of a payload")
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--receivers", type=int, default=4, help="of each publisher")
    parser.add_argument("--reactors", type=int, default=2, help="compared with 1")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[int, list[float]] = {1: [], given.reactors: []}
    try:
        for _ in range(given.rounds):
            for reactors, rates in found.items():
                rates.append(measure(reactors, given))
    except (BenchError, MissingServer) as error:
        print(f"bench/reactors.py: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(found, indent=1))
        return 0
    print(machine(), version_of(OWN_NAME), sep="\n")
    one = statistics.median(found[1])
    for reactors, rates in found.items():
        median = statistics.median(rates)
        print(f"reactors: {reactors}  {median / 1e6:10,.0f} MB/s  {median / one:.2f} of one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
