"""`jsserver cluster`: the commands that look after a cluster, whether its servers run or not."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from jsserver.admin import cluster as running
from jsserver.rescue import command as stopped


def parser() -> argparse.ArgumentParser:
    """The command line; each command sets `run`, which takes the options."""
    made = argparse.ArgumentParser(
        prog="jsserver cluster",
        description="Looks after a cluster of jsserver, of nats-server or of both.",
        epilog="docs/clustering.md has examples.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    running.add(commands)
    stopped.add(commands)
    return made


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the exit code of the process."""
    if not arguments:
        parser().print_help(sys.stderr)
        return 2
    options = parser().parse_args(arguments)
    return int(options.run(options))
