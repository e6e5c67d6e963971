"""What several reactor threads carry, beside one: payload bytes delivered in a second.

The load costs clients little, so that a machine of few cores has room for the server: publishers
send what was made before, and receivers have the kernel throw away what it got for them. With
--tls that is ciphertext: the server encrypts for each receiver, and nobody decrypts it. Without, a
large part of the work is the kernel's copies, and the clients' as much of that as the server's.
"""

import argparse
import json
import mmap
import multiprocessing
import os
import select
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.servers import OWN_NAME, MissingServer, Server, machine, version_of
from jsserver.bench.wire import BenchError, payload_of, publish_frame
from jsserver.client.connection import Connection
from jsserver.client.credentials import Tls
from jsserver.process.procs import die_with_parent
from tests.certificates import Authority

FORK = multiprocessing.get_context("fork")
BATCH_BYTES = 64 << 10
TAKEN_BYTES = 1 << 20
WAKES_BYTES = 256 << 10
ANSWER_BYTES = 4096
COUNT_BYTES = 8
WARM_SECONDS = 0.5


def load(port: int, ca: str, subject: str, given: argparse.Namespace, delivered: mmap.mmap) -> None:
    """One publisher and its receivers: a batch is sent when the server has taken the one before.

    `ca`: a file, if the receivers use TLS. `delivered`: where the bytes are counted that they took.
    """
    die_with_parent()
    publisher = Connection(f"nats://127.0.0.1:{port}", name="publisher")
    poll = select.epoll()
    receivers = {}
    for _ in range(given.receivers):
        scheme, tls = ("tls", Tls(ca_file=ca)) if ca else ("nats", Tls())
        connection = Connection(f"{scheme}://127.0.0.1:{port}", name="receiver", tls=tls)
        connection.subscribe(subject)
        connection.flush()
        raw = socket.socket(fileno=os.dup(connection.socket.fileno()))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKES_BYTES)
        receivers[raw.fileno()] = (raw, connection)
        poll.register(raw, select.EPOLLIN)
    poll.register(publisher.socket, select.EPOLLIN)
    frames = publish_frame(subject, payload_of(given.size)) * max(1, BATCH_BYTES // given.size)
    batch = frames + b"PING\r\n"
    buffer = bytearray(TAKEN_BYTES)
    total = 0
    publisher.send(batch)
    while True:
        for fd, _ in poll.poll():
            if fd in receivers:
                total += receivers[fd][0].recv_into(buffer, TAKEN_BYTES, socket.MSG_TRUNC)
                continue
            came = publisher.socket.recv(ANSWER_BYTES)
            if not came:
                return
            if b"PING" in came:
                publisher.send(b"PONG\r\n")
            if b"PONG" in came:
                publisher.send(batch)
        delivered[:COUNT_BYTES] = total.to_bytes(COUNT_BYTES, "little")


def rate(server: Server, ca: str, given: argparse.Namespace) -> float:
    """Bytes a second that all receivers together were delivered."""
    counts = [mmap.mmap(-1, COUNT_BYTES) for _ in range(given.publishers)]
    processes = [
        FORK.Process(target=load, args=(server.port, ca, f"load.{i}", given, count), daemon=True)
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
        config, ca = f"reactors: {reactors}\n", ""
        if given.tls:
            authority = Authority(Path(folder) / "certificates")
            issued = authority.server()
            config += f'tls {{ cert_file: "{issued.cert}", key_file: "{issued.key}" }}\n'
            config += "allow_non_tls: true\n"  # publishers: what they cost is to be the same
            ca = str(authority.cert)
        server = Server(OWN_NAME, Path(folder), config=config)
        server.start()
        try:
            return rate(server, ca, given)
        finally:
            server.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/reactors.py", description=__doc__)
    parser.add_argument("--size", type=int, default=16, help="bytes of a payload")
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--receivers", type=int, default=4, help="of each publisher")
    parser.add_argument("--tls", action="store_true", help="receivers use TLS")
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
