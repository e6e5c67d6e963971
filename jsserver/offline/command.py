"""`jsserver store`: the command line of the tools for a store directory that no server runs on."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jsserver.cext.bytes import hh64
from jsserver.cext.store import journal_drain
from jsserver.instances.metafiles import MetaFiles
from jsserver.text.tables import table

from . import dumping, places, repair, seals, shows, stopped, usage
from .check import Report, StreamCheck
from .findings import Finding, Findings, Severity
from .places import Layout, Place
from .stopped import Refused

SOUND, FOUND, FAILED = stopped.DONE, 1, stopped.FAILED
_VERDICTS = {SOUND: "sound", FOUND: "not sound", FAILED: "not everything could be read"}
LAST_SEQUENCE = (1 << 64) - 1


def _layout(options: argparse.Namespace) -> tuple[Layout, list[Place]]:
    keys = seals.server_key(options.key_file) if options.key_file else None
    found = places.layout(options.directory, keys)
    chosen = found.chosen(options.account, options.stream)
    if not chosen and (options.account or options.stream):
        wanted = " ".join(filter(None, (options.account, options.stream)))
        there = ", ".join(f"{place.account} {place.name}" for place in found.streams) or "none"
        raise Refused(f"there is no stream {wanted}; there are: {there}")
    return found, chosen


def _warn(root: Path) -> None:
    """Of what makes whole files look damaged."""
    if user := places.server_on(root):
        text = f"{user} runs on this directory: what it writes meanwhile may look damaged"
        sys.stderr.write(f"jsserver store: warning: {text}\n")
    elif text := _undrained(root):
        sys.stderr.write(f"jsserver store: warning: {text}\n")


def _undrained(root: Path) -> str:
    """That the journal holds what a power cut may have kept from the files; "": it does not."""
    rounds, _, _, _, outdated = journal_drain(root, look=True)
    text = f"the journal holds {rounds} rounds that files may lack: `jsserver store drain` first"
    return text if rounds and not outdated else ""


def _bytes_of(chosen: list[Place]) -> int:
    total = 0
    for place in chosen:
        folder, hidden = place.messages()
        for number in places.numbers_of(places.names_in(folder), hidden):
            try:
                total += os.stat(folder / f"{number}.blk").st_size
            except OSError:
                continue
    return total


# ---- check ---------------------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    layout, chosen = _layout(options)
    _warn(layout.root)
    outside = Findings()
    if not options.account and not options.stream:
        for path, what in layout.foreign:
            kind = "link" if path.is_symlink() else "strange"
            severity = Severity.WARNING if kind == "link" else Severity.NOTE
            where = str(path.relative_to(layout.root))
            outside.add(Finding(severity, kind, "", "", where, what))
    files = MetaFiles(hh64)
    bar = shows.Progress(_bytes_of(chosen))
    reports = []
    for place in chosen:
        report = StreamCheck(place, layout.root, files, bar.add).run()
        bar.end()
        _offline(report, files)
        _tell(report.findings, options)
        reports.append(report)
    _tell(outside, options)
    everything = [outside, *(report.findings for report in reports)]
    code = FOUND
    if any(findings.unread for findings in everything):
        code = FAILED
    elif all(findings.sound for findings in everything):
        code = SOUND
    _sum_up(options, layout, reports, outside)
    if not options.json:
        sys.stdout.write(f"{_VERDICTS[code]}\n")
    return code


def _offline(report: Report, files: MetaFiles) -> None:
    """What keeps a start of jsserver from serving it although its files are whole."""
    from jsserver.instances.recovery import survey_stream

    if report.encrypted or report.findings.count(Severity.DAMAGE):
        return
    place = report.place
    for asset, why in survey_stream(place.folder, files.look):
        if why:
            where = f"{place.account}/streams/{place.name}/meta.inf"
            text = f"{asset}: {why}"
            report.findings.add(
                Finding(Severity.WARNING, "offline", place.account, place.name, where, text)
            )


def _tell(findings: Findings, options: argparse.Namespace) -> None:
    if options.json:
        return
    for finding in findings.in_order():
        if finding.severity is not Severity.NOTE or options.notes:
            sys.stdout.write("\n".join(finding.lines()) + "\n")
    hidden = sum(findings.more.values())
    if hidden:
        sys.stdout.write(f"{hidden} more findings in this stream\n")


def _summary(report: Report) -> dict[str, object]:
    walk, found = report.walk, report.findings
    return {
        "account": report.place.account,
        "stream": report.place.name,
        "blocks": report.blocks,
        "bytes": report.size,
        "records": report.records,
        "messages": walk.live,
        "message_bytes": walk.live_bytes,
        "last_seq": walk.last,
        "encrypted": report.encrypted,
        "sealed": report.sealed,
        "compressed_blocks": sum(span.packed for span in walk.spans),
        "damage": found.count(Severity.DAMAGE),
        "warnings": found.count(Severity.WARNING),
        "notes": found.count(Severity.NOTE),
        "unread": found.unread,
    }


def _sum_up(
    options: argparse.Namespace, layout: Layout, reports: list[Report], outside: Findings
) -> None:
    sums = [_summary(report) for report in reports]
    if options.json:
        findings = [f.as_dict() for r in reports for f in r.findings.in_order()]
        findings += [f.as_dict() for f in outside.in_order()]
        told = {"directory": str(layout.root), "streams": sums, "findings": findings}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
        return
    heads = ("account", "stream", "blocks", "bytes", "messages", "damage", "warnings", "notes", "")
    rows = [
        (
            *(told[k] for k in ("account", "stream", "blocks")),
            shows.size(report.size),
            *(told[k] for k in ("messages", "damage", "warnings", "notes")),
            _marks(told),
        )
        for report, told in zip(reports, sums, strict=True)
    ]
    sys.stdout.write(table(heads, rows) + "\n")


def _marks(told: dict[str, object]) -> str:
    packed = told["compressed_blocks"]
    words = ["encrypted: records not looked at"] if told["sealed"] else []
    words += ["encrypted"] if told["encrypted"] and not told["sealed"] else []
    words += [f"{packed} compressed"] if packed else []
    return ", ".join(words)


# ---- du and dump ---------------------------------------------------------------------------------


def _du(options: argparse.Namespace) -> int:
    layout, chosen = _layout(options)
    _warn(layout.root)
    used = [usage.of_stream(place) for place in chosen]
    if options.json:
        told = {"directory": str(layout.root), "streams": [one.as_dict() for one in used]}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        heads = ["account", "stream", "disk", *usage.KINDS, "live", "deleted", "live/disk"]
        heads += ["messages", "n blocks", "files"]
        rows = [
            (
                *(one.place.account, one.place.name, shows.size(one.total)),
                *(shows.size(one.disk[kind]) for kind in usage.KINDS),
                *("encrypted" if one.sealed else shows.size(n) for n in (one.live, one.gone)),
                *(f"{one.ratio:.0%}", one.messages, one.blocks, one.files),
            )
            for one in used
        ]
        sys.stdout.write(table(heads, rows) + "\n")
        for account in sorted({one.place.account for one in used}):
            own = [one.total for one in used if one.place.account == account]
            text = f"{account}: {shows.size(sum(own))} on disk in {len(own)} streams"
            sys.stdout.write(f"{text}\n")
    unread = [f"{one.place.name}: {text}" for one in used for text in one.unread]
    for text in unread:
        sys.stderr.write(f"jsserver store: {text}\n")
    return FAILED if unread else SOUND


def _dump(options: argparse.Namespace) -> int:
    layout, chosen = _layout(options)
    if len(chosen) != 1:
        accounts = ", ".join(place.account for place in chosen)
        raise Refused(f"name the account with --account; the stream is in {accounts}")
    _warn(layout.root)
    first, last = options.first, options.last
    wanted = dumping.Wanted(first, last, options.subject, options.limit)
    faults = dumping.dump(chosen[0], wanted, _form(options), sys.stdout)
    for text in faults:
        sys.stderr.write(f"jsserver store: {text}\n")
    return FOUND if faults else SOUND


def _form(options: argparse.Namespace) -> dumping.Form:
    return dumping.Form(options.json, options.raw, options.deleted, options.consumers)


# ---- repair --------------------------------------------------------------------------------------


def _repair(options: argparse.Namespace) -> int:
    layout, chosen = _layout(options)
    with stopped.alone(layout.root, options.yes):
        if text := _undrained(layout.root):
            raise Refused(text)
        files = MetaFiles(hh64)
        plans = [repair.plan(place, files) for place in chosen]
        kept = [str(repair.carry_out(one)) for one in plans if one.steps and options.yes]
    if options.json:
        told = {"done": options.yes, "quarantine": kept}
        streams = [one.as_dict(layout.root) for one in plans]
        sys.stdout.write(json.dumps({**told, "streams": streams}, indent=2) + "\n")
    else:
        for one in plans:
            for line in one.lines(layout.root):
                sys.stdout.write(f"{line}\n")
        for folder in kept:
            sys.stdout.write(f"what was replaced is kept in {folder}\n")
        if not any(one.steps for one in plans):
            sys.stdout.write("nothing to do\n")
        elif not options.yes:
            sys.stdout.write("nothing was changed: --yes does it\n")
    left = any(one.left for one in plans)
    return FOUND if left or (not options.yes and any(one.steps for one in plans)) else SOUND


# ---- drain ---------------------------------------------------------------------------------------


def _drain(options: argparse.Namespace) -> int:
    root = places.layout(options.directory).root
    with stopped.alone(root):
        rounds, files, size, damaged, outdated = journal_drain(root)
    if options.json:
        told = {"rounds": rounds, "files": files, "bytes": size}
        told |= {"damaged": damaged, "outdated": outdated}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    elif not rounds and not damaged:
        sys.stdout.write("nothing to do\n")
    else:
        sys.stdout.write(f"{rounds} rounds: {size} bytes are in {files} files\n")
    if not damaged and not outdated:
        return SOUND
    text = "a part of the journal cannot be read"
    if outdated:
        text = "nats-server has started here since the journal was written: it is left out"
    kept = root / ".jsserver.journal"
    sys.stderr.write(f"jsserver store: {text}; its bytes are kept in {kept}\n")
    return FOUND


# ---- the command line ----------------------------------------------------------------------------

Command = Callable[[argparse.Namespace], int]


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="jsserver store",
        description="Tools for a store directory that no server runs on, whichever of jsserver and"
        " nats-server wrote it.",
        epilog="docs/store-tools.md has examples. Exit code: 0 sound, or done; 1 something was"
        " found; 2 something could not be read, or the command line is wrong.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = _command(commands, "check", _check, "look for damage; nothing is changed")
    check.add_argument("--notes", action="store_true", help="also what is no fault")
    mend = _command(commands, "repair", _repair, "contain damage, and keep what is good")
    does = mend.add_mutually_exclusive_group()
    does.add_argument("--yes", action="store_true", help="do it")
    does.add_argument("--dry-run", action="store_true", help="only say what (the default)")
    _command(commands, "du", _du, "say what takes the room")
    text = "bring what the journal holds into the files, and remove the journal"
    _command(commands, "drain", _drain, text, chooses=False)
    dump = _command(commands, "dump", _dump, "show the messages of a stream")
    dump.add_argument("--from", dest="first", type=_sequence, default=0, metavar="SEQ")
    dump.add_argument("--to", dest="last", type=_sequence, default=LAST_SEQUENCE, metavar="SEQ")
    dump.add_argument("--subject", default="", metavar="FILTER", help="with * and >")
    dump.add_argument("--limit", type=_sequence, default=LAST_SEQUENCE, metavar="N")
    dump.add_argument("--raw", action="store_true", help="payloads alone, as they are")
    dump.add_argument("--deleted", action="store_true", help="also ranges that are not there")
    dump.add_argument("--consumers", action="store_true", help="also positions of consumers")
    return made


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Command,
    what: str,
    chooses: bool = True,
) -> argparse.ArgumentParser:
    """chooses: among the streams."""
    made = commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    made.add_argument("directory", metavar="DIR", help="the store_dir of a server")
    made.add_argument("--json", action="store_true", help="as JSON, for programs")
    made.set_defaults(run=run)
    if not chooses:
        return made
    made.add_argument("--account", default="", metavar="A", help="of this account alone")
    is_dump = name == "dump"
    text = "the stream" if is_dump else "this stream alone"
    made.add_argument("--stream", default="", metavar="S", help=text, required=is_dump)
    text = "the server's encryption key is all that this file holds"
    made.add_argument("--key-file", default="", metavar="FILE", help=text)
    return made


def _sequence(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_SEQUENCE:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, or too large")
    return int(text)


def main(arguments: Sequence[str]) -> int:
    """Runs the command; the process's exit code."""
    options = _parser().parse_args(arguments)
    return stopped.run("jsserver store", options, options.run)
