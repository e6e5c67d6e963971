"""`jsserver check`: what a start with a configuration file would say, without starting anything.

Nothing is changed, and a server that runs with the same file is left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jsserver.access.secured import secured
from jsserver.config import ConfigError, advice
from jsserver.config.load import Loaded, check
from jsserver.config.options import Options
from jsserver.disk.storage import Storage, keys_of, limits_of
from jsserver.disk.storedir import WITHIN, is_within_store, store_path, user_of
from jsserver.process.sockets import open_listener
from jsserver.text.flags import FlagError
from jsserver.text.goformat import failure

FINE, WRONG, USAGE, OFFLINE = range(4)
"""Exit codes: a server would start and serve all streams; it would not start; the command line
cannot be read (as of any program); it would start, and not serve all streams."""


class Report:
    """What was found. `offline` has streams, or consumers of one, and why they would be that."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.digest = ""
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.streams = 0
        self.offline: list[tuple[str, str, str]] = []

    def warn(self, line: str) -> None:
        """A line of the log that a start would warn with."""
        self.warnings.append(line)

    @property
    def code(self) -> int:
        """The exit code."""
        return WRONG if self.errors else OFFLINE if self.offline else FINE

    def shown(self) -> Iterator[str]:
        """The lines of text."""
        for error in self.errors:
            yield from (f"error: {line}" for line in error.splitlines() if line)
        yield from (f"warning: {line}" for line in self.warnings)
        yield from (f"offline: '{a} > {asset}': {why}" for a, asset, why in self.offline)
        if self.errors:
            yield f"{self.path}: a server would not start"
            return
        lost = len({(account, asset.partition(" > ")[0]) for account, asset, _ in self.offline})
        yield f"{self.path}: valid ({self.digest})"
        served = f"{lost} of them not served in full" if lost else "all of them served"
        yield f"{self.streams} streams, {served}"

    def as_json(self) -> str:
        """The same for programs."""
        offline = [{"account": a, "asset": s, "reason": why} for a, s, why in self.offline]
        found = {
            "file": self.path,
            "digest": self.digest,
            "starts": not self.errors,
            "errors": self.errors,
            "warnings": self.warnings,
            "streams": self.streams,
            "offline": offline,
        }
        return json.dumps(found, indent=2)


def _check_files(options: Options, report: Report) -> None:
    """The files that a start writes beside the store."""
    for what, path in (("log_file", options.log_file), ("pid_file", options.pid_file)):
        if not path:
            continue
        folder = os.path.dirname(path) or "."
        if os.path.isdir(path):
            report.errors.append(f"{what} {path} is a directory")
        elif not os.path.isdir(folder):
            report.errors.append(f"{what} {path}: there is no directory {folder}")
        elif not os.access(path if os.path.exists(path) else folder, os.W_OK):
            report.errors.append(f"{what} {path} cannot be written by this user")
    folder = options.ports_file_dir
    if folder and not os.access(folder, os.W_OK):
        report.warn(f"ports_file_dir {folder} cannot be written by this user")


def _check_ports(options: Options, report: Report) -> None:
    """Whether others have the ports: perhaps the server that is about to be replaced."""
    monitoring = options.http_port or options.https_port
    for what, host, port in (
        ("port", options.host, options.port),
        ("monitoring port", options.http_host, monitoring),
        ("websocket port", options.websocket.host or "0.0.0.0", options.websocket.port),
    ):
        if port <= 0:
            continue
        try:
            open_listener(host, port).close()
        except OSError as error:
            report.warn(f"{what} {port} cannot be had now: {error.strerror or error}")


def _check_store(options: Options, report: Report) -> None:
    """The store directory, its limits, and what is in it."""
    path = Path(store_path(options.store_dir))
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        report.errors.append(f"the store directory {path} cannot be made: {above} is no directory")
        return
    if not os.access(above, os.R_OK | os.W_OK | os.X_OK):
        report.errors.append(f"{above} cannot be read and written by this user (store_dir)")
        return
    granted = options.jetstream_accounts.values()
    if lacks := Storage.lacks(granted, *limits_of(options, above)):
        report.errors.append(f"what accounts are granted is more than there is: {lacks}")
    if is_within_store(options.store_dir):
        report.warn(WITHIN.format(options.store_dir))
    if not path.exists():
        return
    if user := user_of(str(path)):
        report.warn(f'store directory "{path}" is in use by {user} now')
    _look_at_streams(options, path, report)


def _look_at_streams(options: Options, path: Path, report: Report) -> None:
    from jsserver.cext.bytes import hh64
    from jsserver.instances.metafiles import MetaFiles
    from jsserver.instances.recovery import survey

    files = MetaFiles(hh64, keys_of(options))
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        account = folder.name
        found = list(survey(folder / "streams", files.look))
        names = {asset for asset, _ in found if " > " not in asset}
        report.streams += len(names)
        if not options.operators.enabled and account not in options.jetstream_accounts:
            why = "the configuration has no such account with JetStream"
            found = [(name, why) for name in sorted(names)]
        report.offline += [(account, asset, why) for asset, why in found if why]


def _attempt(step: Callable[[Options, Report], None], options: Options, report: Report) -> None:
    try:
        step(options, report)
    except OSError as error:
        report.errors.append(failure(error))


def examine(path: str, flags: dict[str, object]) -> Report:
    """What a start with this file, and with what the command line sets, would say."""
    report = Report(path)
    try:
        loaded: Loaded = check(path, flags)
    except ConfigError as error:
        report.errors += [line for line in str(error).splitlines() if line]
        return report
    options = loaded.options
    report.digest = options.config_digest
    report.warnings += loaded.without_effect + advice.warnings(options)
    try:
        secured(options, {}, report)
    except ConfigError as error:
        report.errors.append(str(error))
    steps = [_check_files, _check_ports, *([_check_store] if options.jetstream.enabled else [])]
    for step in steps:
        _attempt(step, options, report)
    return report


def main(arguments: Sequence[str], flags: Callable[[Sequence[str]], dict[str, object]]) -> int:
    """Runs the command; the process's exit code. `flags` reads a server's further flags."""
    made = argparse.ArgumentParser(
        prog="jsserver check",
        description="Says what a start with this configuration would say, and starts nothing. "
        "Further flags are those of a server.",
        epilog="Exit code: 0 a server would start and serve all streams; 1 it would not start; "
        "3 it would start and not serve all streams. Messages are not looked at.",
    )
    made.add_argument("-c", "--config", required=True, metavar="FILE", help="configuration file")
    made.add_argument("--json", action="store_true", help="as JSON")
    options, rest = made.parse_known_args(arguments)
    try:
        further = flags(rest)
    except FlagError as error:
        made.error(str(error))
    report = examine(options.config, further)
    out = report.as_json() if options.json else "\n".join(report.shown())
    sys.stdout.write(f"{out}\n")
    return report.code
