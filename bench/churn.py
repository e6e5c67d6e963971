"""Clients that connect, subscribe and leave, over and over: memory before, during and after.

Each of `--clients` connections subscribes to subjects of its own and a shared wildcard, publishes
once, and leaves: half of them unsubscribe first, half just close.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.rows import shown
from bench.servers import OWN_NAME, PEER_NAME, Server
from jsserver.bench.wire import Connection, publish_frame

SUBSCRIPTIONS = 10
WARM_UP_SECONDS = 5.0
SETTLE_SECONDS = 5.0
GROWTH_MAX = 0.10
PROCESSES = 2


def churn(url: str, clients: int, seconds: float, offset: int) -> int:
    """Holds up to `clients` connections, replacing the oldest; returns how many there were."""
    end = time.monotonic() + seconds
    held: list[Connection] = []
    made = 0
    while time.monotonic() < end:
        number = offset + made
        connection = Connection(url, name=f"churn-{number}")
        lines = [f"SUB churn.{number}.{sid} {sid}\r\n" for sid in range(1, SUBSCRIPTIONS)]
        lines.append(f"SUB churn.all.> group-{number % 7} {SUBSCRIPTIONS}\r\n")
        connection.send("".join(lines).encode() + publish_frame(f"churn.{number}.1", b"hello"))
        connection.flush()
        held.append(connection)
        made += 1
        if len(held) >= clients:
            leave(held.pop(0), polite=made % 2 == 0)
    for connection in held:
        leave(connection, polite=False)
    return made


def leave(connection: Connection, *, polite: bool) -> None:
    if polite:
        lines = [b"UNSUB %d\r\n" % sid for sid in range(1, SUBSCRIPTIONS + 1)]
        connection.send(b"".join(lines))
    connection.close()


def run_churn(url: str, clients: int, seconds: float) -> int:
    share = clients // PROCESSES
    work = [(url, share, seconds, index * 10_000_000) for index in range(PROCESSES)]
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        return sum(pool.starmap(churn, work))


def measure(name: str, given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Server(name, Path(folder))
        try:
            server.start()
            # What a server allocates once, for its first thousand clients, is no growth.
            run_churn(server.url, given.clients, WARM_UP_SECONDS)
            time.sleep(SETTLE_SECONDS)
            before = server.memory()
            cpu = server.cpu_seconds()
            made = run_churn(server.url, given.clients, given.seconds)
            cpu = server.cpu_seconds() - cpu
            peak = server.peak_memory()
            time.sleep(SETTLE_SECONDS)
            after = server.memory()
        finally:
            server.kill()
    return {
        "server": name,
        "connections": made,
        "before_bytes": before,
        "peak_bytes": peak,
        "after_bytes": after,
        "growth": after / before - 1,
        "cpu_seconds_per_thousand": cpu / made * 1000,
    }


def show(row: dict[str, Any]) -> str:
    before, peak, after = (row[f"{k}_bytes"] / (1 << 20) for k in ("before", "peak", "after"))
    return (
        f"{row['server']:12} {row['connections']:,} connections; memory before {before:.1f} MiB, "
        f"peak {peak:.1f}, after {after:.1f} ({row['growth']:+.1%}); "
        f"{row['cpu_seconds_per_thousand']:.3f} CPU s per thousand"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/churn.py", description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    made = (measure(name, given) for name in names)
    rows = shown(parser.prog, names, made, show, as_json=given.json)
    return 1 if rows is None or rows[-1]["growth"] > GROWTH_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
