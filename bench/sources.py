"""What mirrors and sources cost beside nats-server: messages a second, and processor time of the
server for each, while one takes in what its origin has."""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.consumers import WAIT_SECONDS, Client
from bench.servers import OWN_NAME, PEER_NAME, MissingServer, Server, machine, version_of
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


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.sources", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=" ".join(SCENARIOS))
    parser.add_argument("--count", type=int, default=1_000_000, help="of messages")
    parser.add_argument("--size", type=int, default=128, help="of their bodies")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best of each counts")
    given = parser.parse_args(argv)
    try:
        print(f"{machine()}; {version_of(OWN_NAME)}, {version_of(PEER_NAME)}")
        print(f"{'':14} {'msgs/s':>10} {PEER_NAME:>12} {'us each':>9} {PEER_NAME:>12}")
        for scenario in given.scenarios or SCENARIOS:
            found: dict[str, list[tuple[float, float]]] = {OWN_NAME: [], PEER_NAME: []}
            for _ in range(given.rounds):
                for name, runs in found.items():
                    runs.append(measure(name, scenario, given.count, given.size))
            rates = [max(rate for rate, _ in runs) for runs in found.values()]
            costs = [min(cost for _, cost in runs) for runs in found.values()]
            print(
                f"{scenario:14} {rates[0]:10.0f} {rates[1]:12.0f} {costs[0]:9.2f} {costs[1]:12.2f}"
                f"   rate x{rates[0] / rates[1]:.2f}, processor x{costs[0] / costs[1]:.2f}"
            )
    except (BenchError, MissingServer) as error:
        print(f"bench.sources: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
