"""How a comparison shows what it measures: a line for each result as soon as it is there, or all
results as JSON."""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

from bench.servers import MissingServer, machine, version_of
from jsserver.bench.wire import BenchError

Row = dict[str, Any]


def shown(
    program: str,
    names: list[str],
    rows: Iterable[Row],
    show: Callable[[Row], str],
    *,
    as_json: bool,
) -> list[Row] | None:
    """What the servers of these names did; `show` makes the line of one result. None: it could not
    be measured, which the error output says."""
    found = []
    try:
        if not as_json:
            print(machine(), *map(version_of, names), sep="\n")
        for row in rows:
            found.append(row)
            if not as_json:
                print(show(row), flush=True)
    except (BenchError, MissingServer) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return None
    if as_json:
        print(json.dumps(found, indent=1))
    return found
