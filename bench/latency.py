"""Latency of requests and of durable publishes on both servers, and of requests under API load.

request   request/reply between two clients, one request at a time
publish   JetStream publish, one ack at a time, to a file: jsserver's default, where each ack waits
          for the disk, beside nats-server's `sync_interval: always`
hammered  request/reply again while another client makes streams and asks for their state
replayed  publish again, while a consumer reads another stream, none of it in the page cache
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.servers import OWN_NAME, PEER_NAME, MissingServer, Server, machine, version_of
from jsserver.bench import core, streams
from jsserver.bench.run import Options, Worker, run
from jsserver.bench.wire import BenchError, Connection, new_inbox, publish_frame
from jsserver.process.procs import die_with_parent

SHOWN = ("P50", "P99", "P99.9")
FORK = multiprocessing.get_context("fork")
HAMMER_BATCH = 100
REPLAYED_BYTES = 4096
HAMMER_START_SECONDS = 30.0
Latency = dict[str, float]


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[BaseProcess]:
    """Runs `work` in a process of its own for the length of the block."""

    def run_it() -> None:
        die_with_parent()
        work()

    process = FORK.Process(target=run_it, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()


def request_latency(server: Server, requests: int) -> Latency:
    """Percentiles of request/reply, in microseconds."""
    options = Options(url=server.url, subject=f"bench.{new_inbox()[7:]}", messages=requests)

    def answer() -> None:
        core.serve(Worker(options, 0, 0, FORK.Barrier(1)))

    with beside(answer):
        _wait_for_answers(options)
        return run("request", core.request, options).latency_us


def _wait_for_answers(options: Options) -> None:
    connection = Connection(options.url)
    end = time.monotonic() + 10
    while True:
        try:
            connection.request(options.subject)
            break
        except BenchError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
    connection.close()


def publish_latency(server: Server, publishes: int) -> Latency:
    """Percentiles of a synchronous publish to a file stream, in microseconds."""
    options = Options(url=server.url, messages=publishes, create=True)
    streams.prepare(options)
    return run("publish", streams.publish_sync, options).latency_us


def _uncache(store: Path) -> None:
    """What nobody has mapped leaves the page cache."""
    for path in store.rglob("*.blk"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def replay(options: Options, store: Path) -> None:
    """Reads the stream to its end, again and again."""
    while True:
        _uncache(store)
        streams.ordered(Worker(options, 0, options.messages, FORK.Barrier(1)))


def _is_read(connection: Connection, stream: str) -> bool:
    found = connection.api(f"CONSUMER.LIST.{stream}").get("consumers") or []
    return any(consumer["delivered"]["stream_seq"] for consumer in found)


def replayed_latency(server: Server, publishes: int, size: int) -> Latency:
    """As `publish_latency`, while another stream of `size` MiB comes from the disk."""
    options = Options(
        url=server.url,
        subject="cold",
        stream="COLD",
        messages=size * (1 << 20) // REPLAYED_BYTES,
        size=REPLAYED_BYTES,
        max_bytes=-1,
        create=True,
    )
    streams.prepare(options)
    run("fill", streams.publish_async, options)
    server.stop()  # what it has mapped stays in the page cache
    server.start()
    with beside(lambda: replay(options, server.store)):
        connection = Connection(server.url)
        end = time.monotonic() + HAMMER_START_SECONDS
        while not _is_read(connection, options.stream):
            if time.monotonic() > end:
                raise BenchError("the replay did not begin")
            time.sleep(0.02)
        connection.close()
        return publish_latency(server, publishes)


def hammer(url: str, count: int) -> None:
    """Makes `count` streams, `HAMMER_BATCH` requests under way, then asks for the state of each
    again and again."""
    connection = Connection(url)
    inbox = new_inbox()
    sid = connection.subscribe(inbox)
    mark = f"MSG {inbox} {sid} ".encode()
    create = True
    while True:
        for first in range(0, count, HAMMER_BATCH):
            numbers = range(first, min(first + HAMMER_BATCH, count))
            frames = []
            for number in numbers:
                name = f"HAMMER{number}"
                body = b""
                if create:
                    config = {"name": name, "subjects": [f"hammer.{number}"], "storage": "memory"}
                    body = json.dumps(config).encode()
                verb = "CREATE" if create else "INFO"
                frames.append(publish_frame(f"$JS.API.STREAM.{verb}.{name}", body, inbox))
            connection.send(b"".join(frames))
            connection.count_until(mark, len(frames))
        create = False


def hammered_latency(server: Server, requests: int, count: int) -> Latency:
    """As `request_latency`, under the load of `hammer`."""
    with beside(lambda: hammer(server.url, count)):
        connection = Connection(server.url)
        end = time.monotonic() + HAMMER_START_SECONDS
        while connection.api("STREAM.NAMES")["total"] == 0:
            if time.monotonic() > end:
                raise BenchError("the API load did not begin")
            time.sleep(0.02)
        connection.close()
        return request_latency(server, requests)


def measure(name: str, given: argparse.Namespace) -> dict[str, Latency]:
    """Everything on one freshly started server."""
    durable = "sync_interval: always" if name == PEER_NAME else ""
    found: dict[str, Latency] = {}
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=given.folder) as folder:
        server = Server(name, Path(folder), durable)
        try:
            server.start()
            found["request"] = request_latency(server, given.requests)
            found["publish"] = publish_latency(server, given.publishes)
            found["hammered"] = hammered_latency(server, given.requests, given.streams)
            if given.replayed:
                found["replayed"] = replayed_latency(server, given.publishes, given.replayed)
        finally:
            server.kill()
    return found


def medians(rounds: list[dict[str, Latency]]) -> dict[str, Latency]:
    return {
        what: {name: statistics.median(r[what][name] for r in rounds) for name in SHOWN}
        for what in rounds[0]
    }


def table(results: dict[str, dict[str, Latency]]) -> str:
    lines = []
    for what in next(iter(results.values())):
        for percentile in SHOWN:
            line = f"{what:9} {percentile:6}"
            for name, found in results.items():
                line += f"  {name} {found[what][percentile]:10,.1f} us"
            if len(results) == 2:
                own, peer = results[OWN_NAME], results[PEER_NAME]
                line += f"  ratio {own[what][percentile] / peer[what][percentile]:.2f}"
            lines.append(line)
    for name, found in results.items():
        times = found["hammered"]["P99.9"] / found["request"]["P99.9"]
        times_median = found["hammered"]["P50"] / found["request"]["P50"]
        lines.append(f"{name}: hammered is {times_median:.2f} (P50), {times:.2f} (P99.9) of idle")
        if "replayed" in found:
            times = found["replayed"]["P99.9"] / found["publish"]["P99.9"]
            times_median = found["replayed"]["P50"] / found["publish"]["P50"]
            lines.append(
                f"{name}: replayed is {times_median:.2f} (P50), {times:.2f} (P99.9) of idle"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench/latency.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--publishes", type=int, default=5_000)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument(
        "--replayed", type=int, default=2048, metavar="MIB", help="default 2048; 0: not measured"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--folder", type=Path, help="where the stores are made")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    rounds: dict[str, list[dict[str, Latency]]] = {name: [] for name in names}
    try:
        versions = [version_of(name) for name in names]
        for _ in range(given.rounds):
            for name in names:
                rounds[name].append(measure(name, given))
    except (BenchError, MissingServer) as error:
        print(f"bench/latency.py: {error}", file=sys.stderr)
        return 1
    if given.json:
        found: dict[str, Any] = dict(rounds)
        print(json.dumps(found, indent=1))
    else:
        print(machine(), *versions, f"medians of {given.rounds}", sep="\n")
        print(table({name: medians(rounds[name]) for name in names}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
