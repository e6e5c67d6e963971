"""What mirrors and sources cost beside nats-server: messages a second, and processor time of the
server for each, while one takes in what its origin has."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.consumers import WAIT_SECONDS, Client
from bench.figures import Figure, command_line, show
from bench.servers import Server
from jsserver.bench.wire import BenchError

SCENARIOS: dict[str, dict[str, Any]] = {
    "mirror": {"mirror": {"name": "S"}},
    "source": {"sources": [{"name": "S"}]},
    "filtered": {"sources": [{"name": "S", "filter_subject": "a.1"}]},
    "transformed": {
        "sources": [{"name": "S", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]}]
    },
}
SUBJECTS = [f"a.{n}" for n in range(10)]


def measure(name: str, scenario: str, count: int, size: int) -> tuple[float, float]:
    """Messages a second, and microseconds of processor time for each."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as folder:
        server = Server(name, Path(folder))
        try:
            server.start()
            client = Client(server)
            client.stream("a.>")
            client.fill(SUBJECTS, count, b"x" * size)
            wanted = count // len(SUBJECTS) if scenario == "filtered" else count
            time.sleep(1)
            before, begun = server.cpu_seconds(), time.monotonic()
            client.api("STREAM.CREATE.T", {"name": "T", "storage": "file", **SCENARIOS[scenario]})
            while (there := client.api("STREAM.INFO.T")["state"]["messages"]) < wanted:
                if time.monotonic() - begun > WAIT_SECONDS:
                    raise BenchError(f"{scenario} of {name}: {there} of {wanted} came in time")
                time.sleep(0.02)
            spent = time.monotonic() - begun
            time.sleep(0.5)
            return wanted / spent, (server.cpu_seconds() - before) / wanted * 1e6
        finally:
            server.kill()


def best(name: str, scenario: str, given: argparse.Namespace) -> list[Figure]:
    runs = [measure(name, scenario, given.count, given.size) for _ in range(given.rounds)]
    return [
        Figure("taken in", "msgs/s", max(rate for rate, _ in runs)),
        Figure("each", "us", min(cost for _, cost in runs)),
    ]


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = command_line("bench.sources", __doc__, SCENARIOS)
    parser.add_argument("--count", type=int, default=1_000_000, help="of messages")
    parser.add_argument("--size", type=int, default=128, help="of their bodies")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best of each counts")
    return show(parser, argv, SCENARIOS, best)


if __name__ == "__main__":
    sys.exit(main())
