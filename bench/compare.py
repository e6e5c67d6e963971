"""Runs every scenario on nats-server and on jsserver in turn and prints both beside each other.

The whole run writes bench/RESULTS.md; one with --quick or --scenario only prints, unless --output
names a file.
"""

import argparse
import fnmatch
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.measure import measure
from bench.report import Row, markdown
from bench.scenarios import Scenario, all_scenarios
from bench.servers import OWN_NAME, PEER_NAME, MissingServer, machine, version_of
from bench.tool import Tool
from jsserver.bench.wire import BenchError

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
ROUNDS = 3
QUICK_SCALE = 0.05


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench/compare.py", description=__doc__)
    parser.add_argument(
        "--scenario", action="append", metavar="NAME", help="only these; with * and ?; repeatable"
    )
    parser.add_argument("--rounds", type=int, default=0, help=f"default {ROUNDS}, with --quick 1")
    parser.add_argument("--quick", action="store_true", help="few messages, one round")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiplies each scenario's messages"
    )
    parser.add_argument("--server", choices=(OWN_NAME, PEER_NAME), help="one of them alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--output", type=Path, help="write the tables to this file")
    parser.add_argument("--list", action="store_true", help="print the scenarios' names")
    return parser


def chosen(scenarios: Sequence[Scenario], patterns: Sequence[str] | None) -> list[Scenario]:
    if not patterns:
        return list(scenarios)
    found = [s for s in scenarios if any(fnmatch.fnmatch(s.name, p) for p in patterns)]
    if not found:
        raise BenchError(f"no scenario is named {' or '.join(patterns)}; --list shows them")
    return found


def compare(
    scenarios: Sequence[Scenario], names: Sequence[str], rounds: int, tool: Tool, light: Tool
) -> list[Row]:
    """Each round runs every scenario on every server; the first of them alternates."""
    rows = [Row(scenario.name) for scenario in scenarios]
    for number in range(rounds):
        for scenario, row in zip(scenarios, rows, strict=True):
            for name in names if number % 2 == 0 else reversed(names):
                progress(f"round {number + 1} of {rounds}: {scenario.name} on {name}")
                try:
                    load = light if scenario.light else tool
                    row.samples[name].append(measure(name, scenario, load))
                except (BenchError, OSError) as error:
                    row.failures[name] = str(error)
    progress("")
    return rows


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main() -> int:
    given = arguments().parse_args()
    names = [given.server] if given.server else [PEER_NAME, OWN_NAME]
    rounds = given.rounds or (1 if given.quick else ROUNDS)
    try:
        scale = QUICK_SCALE if given.quick else given.scale
        scenarios = chosen(all_scenarios(scale), given.scenario)
        if given.list:
            print(*(s.name for s in scenarios), sep="\n")
            return 0
        versions = [version_of(name) for name in names]
        with tempfile.TemporaryDirectory(prefix="bench-tool-") as folder:
            tool = Tool(Path(folder))
            light = Tool(Path(folder), own=True)
            rows = compare(scenarios, names, rounds, tool, light)
    except (BenchError, MissingServer) as error:
        print(f"bench/compare.py: {error}", file=sys.stderr)
        return 1
    load = f"load: {tool.name}; where a line says `light load`: {light.name}"
    text = markdown(rows, facts=[machine(), *versions, load], rounds=rounds)
    print(json.dumps([row.as_json() for row in rows], indent=1) if given.json else text)
    output = given.output
    if output is None and not (given.quick or given.scenario or given.server):
        output = RESULTS
    if output is not None:
        output.write_text(text)
    return 1 if any(row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
