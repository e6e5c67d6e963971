"""Figures of scenarios on this server and on nats-server: beside each other, or as JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.servers import OWN_NAME, PEER_NAME, MissingServer, machine, version_of
from jsserver.bench.wire import BenchError

Run = Callable[[str, str, argparse.Namespace], Iterable["Figure"]]
"""Runs a scenario on the server of a name, as the command line says."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of a scenario's figures; `unit` is what `value` counts, for each of what is named."""

    what: str
    unit: str
    value: float


def table(figures: dict[str, list[Figure]]) -> Iterator[str]:
    """A line for each figure: of one server, or of both and how they compare."""
    for row in zip(*figures.values(), strict=True):
        line = f"  {row[0].what:32} {row[0].unit:10}"
        line += "".join(f" {figure.value:14,.2f}" for figure in row)
        if len(row) == 2:
            line += f" {row[0].value / row[1].value:8.2f}" if row[1].value else ""
        yield line


def command_line(
    name: str, purpose: str | None, scenarios: Iterable[str]
) -> argparse.ArgumentParser:
    """What the command lines of such benches have in common."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=purpose,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=" ".join(scenarios))
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def show(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    scenarios: Mapping[str, Any],
    run: Run,
) -> int:
    """Runs what `argv` names, prints it, and returns the status to exit with."""
    given = parser.parse_args(argv)
    for scenario in given.scenarios:
        if scenario not in scenarios:
            parser.error(f"no scenario is named {scenario}")
    names = [given.server] if given.server else [OWN_NAME, PEER_NAME]
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    try:
        if not given.json:
            print(machine(), *(version_of(name) for name in names), sep="; ")
        for scenario in given.scenarios or scenarios:
            figures = {name: list(run(name, scenario, given)) for name in names}
            found[scenario] = {
                name: [asdict(figure) for figure in some] for name, some in figures.items()
            }
            if not given.json:
                print(f"{scenario:45}", *(f"{name:>14}" for name in names))
                print(*table(figures), sep="\n", flush=True)
    except (BenchError, MissingServer) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(found, indent=1))
    return 0
