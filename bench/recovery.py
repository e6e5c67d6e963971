"""Ten million messages over a million subjects: peak memory, and restart to ready.

Loads each server in turn, kills it with SIGKILL, starts it, stops it cleanly, starts it again, and
checks each time that no message is missing. `--rounds` repeats the restarts, alternating; before
each further kill some messages more are published, lest an index of the clean stop still holds.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.rows import shown
from bench.servers import OWN_NAME, PEER_NAME, Server
from jsserver.bench.run import Options, Outcome, run
from jsserver.bench.streams import publish_async
from jsserver.bench.wire import BenchError, Connection

STREAM = "benchstream"
START_SECONDS_MAX = 900.0


def create(server: Server, subjects: int) -> None:
    connection = Connection(server.url)
    config = {
        "name": STREAM,
        "subjects": ["bench.*"],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msgs_per_subject": -1,
        "num_replicas": 1,
        "allow_direct": True,
    }
    connection.api(f"STREAM.CREATE.{STREAM}", config)
    connection.close()


def publish(server: Server, given: argparse.Namespace, messages: int) -> Outcome:
    options = Options(
        url=server.url,
        messages=messages,
        size=given.size,
        batch=given.batch,
        subjects=given.subjects,
        stream=STREAM,
    )
    return run("load", publish_async, options)


def load(server: Server, given: argparse.Namespace) -> dict[str, float]:
    cpu = server.cpu_seconds()
    outcome = publish(server, given, given.messages)
    return {
        "load_seconds": outcome.seconds,
        "load_msgs_per_second": outcome.messages_per_second,
        "load_cpu_seconds": server.cpu_seconds() - cpu,
        "load_peak_bytes": server.peak_memory(),
        "load_end_bytes": server.memory(),
        "load_end_anonymous_bytes": server.anonymous_memory(),
        "store_bytes": sum(p.stat().st_size for p in server.store.rglob("*") if p.is_file()),
    }


def until_all_there(server: Server, messages: int, begin: float) -> float:
    """Seconds from `begin` until the stream answers with all its messages."""
    connection = Connection(server.url)
    while True:
        try:
            state = connection.api(f"STREAM.INFO.{STREAM}")["state"]
            break
        except BenchError:
            if time.monotonic() - begin > START_SECONDS_MAX:
                raise
            time.sleep(0.01)
    taken = time.monotonic() - begin
    connection.close()
    if state["messages"] != messages:
        raise BenchError(f"{server.name} has {state['messages']} of {messages} messages")
    return taken


def restart(server: Server, how: signal.Signals, messages: int) -> dict[str, float]:
    """Ends the server, starts it and reads what that took."""
    begin = time.monotonic()
    if how is signal.SIGTERM:
        server.stop()
    else:
        server.kill()
    ended = time.monotonic()
    ready = server.start(START_SECONDS_MAX)
    return {
        "end_seconds": ended - begin,
        "ready_seconds": ready,
        "all_there_seconds": until_all_there(server, messages, ended),
        "cpu_seconds": server.cpu_seconds(),
        "peak_bytes": server.peak_memory(),
    }


def measure(servers: list[Server], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for server in servers:
        server.start()
        create(server, given.subjects)
        say(f"{server.name}: loading {given.messages:,} messages")
        yield {"server": server.name, "step": "load", **load(server, given)}
    messages = given.messages
    for number in range(given.rounds):
        if number:
            messages += given.batch
            for server in servers:
                publish(server, given, given.batch)
        for how, step in ((signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "clean stop")):
            for server in servers:
                say(f"{server.name}: restart after {step}, round {number + 1}")
                yield {"server": server.name, "step": step} | restart(server, how, messages)


def say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def show(row: dict[str, Any]) -> str:
    parts = []
    for key, value in row.items():
        if key.endswith("_bytes"):
            parts.append(f"{key[:-6]} {value / (1 << 20):,.0f} MiB")
        elif isinstance(value, float):
            parts.append(f"{key} {value:,.2f}")
    return f"{row['server']:12} {row['step']:11} " + ", ".join(parts)


def all_of(names: list[str], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Those of measure(), of servers that are there for as long."""
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        base = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="bench-recovery-", dir=given.folder)
            )
        )
        servers = [Server(name, base / name, "max_file_store: 64GB") for name in names]
        for server in servers:
            stack.callback(server.kill)
        yield from measure(servers, given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/recovery.py", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--subjects", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--folder", type=Path, help="where the stores are made")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    rows = shown(parser.prog, names, all_of(names, given), show, as_json=given.json)
    return rows is None


if __name__ == "__main__":
    sys.exit(main())
