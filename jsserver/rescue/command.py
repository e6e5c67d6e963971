"""`jsserver cluster`: the command line for a cluster's store directory that no server runs on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from jsserver.cext.store import journal_drain
from jsserver.disk.keys import Keys
from jsserver.offline import places, seals, shows, stopped
from jsserver.offline.stopped import DONE, FAILED, Refused, alone
from jsserver.text.goformat import rfc3339_nano
from jsserver.text.identity import short_hash
from jsserver.text.tables import table

from . import asides, carrying, founding, plans, single, unlisted
from .carrying import Plan
from .plans import Fate

FOUND = 1
SYSTEM_ACCOUNT = "$SYS"
"""What the system account is called where no configuration names one."""
_BECOMES = {Fate.LOST: "lost", Fate.REMOVED: "removed"}


# ---- rescue ------------------------------------------------------------------------------------


def _rescue(options: argparse.Namespace) -> int:
    root = places.root_of(options.directory)
    keys = seals.server_key(options.key_file) if options.key_file else None
    kept: list[str] = []
    with alone(root, options.yes):
        folder = carrying.meta_folder(root, options.system_account)
        _drain(root, options.yes)
        if options.yes:
            carrying.settle(folder)
        bar = shows.Progress(carrying.group_bytes(folder) * (2 if options.yes else 1))
        made = _planned(options, root, folder, keys, bar)
        refused = made.changes and bool(made.damage) and not options.accept_damage
        if options.yes and not refused:
            kept = [*carrying.carry_out(made, bar.add)]
        bar.end()
    (_tell_json if options.json else _tell)(made, options, refused, kept)
    if refused and options.yes:
        return FAILED
    return FOUND if made.changes and not options.yes else DONE


def _planned(
    options: argparse.Namespace, root: Path, folder: Path, keys: Keys | None, bar: shows.Progress
) -> Plan:
    others = [name for name in options.others if name != options.server]
    if options.streams:
        if options.remove_lost or options.from_streams:
            raise Refused("--remove-lost and --from-streams are for a rescue without --stream")
        names = dict.fromkeys(options.streams)
        of = (root, folder, options.server, others, [*names])
        return single.plan(*of, keys=keys, done=bar.add)
    complete = None
    if options.from_streams:
        if others:
            raise Refused("--from-streams is for one server that is left, without --with")
        own = short_hash(options.server)
        complete = partial(unlisted.add, root, own=own, cluster=options.cluster, keys=keys)
    return carrying.plan(
        root,
        folder,
        options.server,
        others,
        keys=keys,
        remove_lost=options.remove_lost,
        done=bar.add,
        complete=complete,
    )


def _drain(root: Path, changes: bool) -> None:
    """What the journal holds is in the files; Refused."""
    rounds, _, _, damaged, outdated = journal_drain(root, look=not changes)
    if changes and damaged:
        raise Refused("a part of the journal cannot be read: see `jsserver store drain`")
    if rounds and not changes and not outdated:
        text = f"the journal holds {rounds} rounds that files may lack: --yes brings them in first"
        sys.stderr.write(f"jsserver cluster: warning: {text}\n")


def _tell_json(
    made: Plan, options: argparse.Namespace, refused: bool, kept: list[str]
) -> None:
    told = {
        "directory": str(made.root),
        "server": made.server,
        "id": made.own,
        "survivors": [{"name": name, "id": peer} for peer, name in made.survivors.items()],
        "streams": [*made.streams],
        "given_up": made.given_up,
        "changes": made.changes,
        "done": options.yes and not refused,
        "damage": made.damage,
        "groups": [step.as_dict() for step in made.steps],
        "assets": [fate.as_dict() for fate in made.fates],
        "kept": kept,
    }
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


def _tell(made: Plan, options: argparse.Namespace, refused: bool, kept: list[str]) -> None:
    write = sys.stdout.write
    if not made.changes:
        write("nothing to do\n")
        _tell_lost(made)
        return
    survivors = ", ".join(f"{name} ({peer})" for peer, name in made.survivors.items())
    write(f"survivors: {survivors}\n")
    write(f"given up: {', '.join(made.given_up) or 'none'}\n")
    heads = ("account", "asset", "replicas", "becomes")
    rows = [
        (
            one.name.account,
            " > ".join(filter(None, one.name[1:])),
            len(one.before),
            _BECOMES.get(one.fate, len(one.after)),
        )
        for one in made.fates
        if one.fate is not Fate.SAME
    ]
    if rows:
        write(table(heads, rows) + "\n")
    for fate, streams, consumers in plans.counts(made.fates):
        write(f"{fate.value}: {streams} streams, {consumers} consumers\n")
    for one in made.fates:
        if one.is_missing:
            write(f"{one.name}: nothing of it is in this directory\n")
    for text in made.damage:
        write(f"damage: {text}\n")
    if refused:
        write("nothing was changed: what is damaged would be lost; --accept-damage accepts that\n")
    elif not options.yes:
        write("nothing was changed: --yes does it\n")
    for place in kept:
        write(f"what was replaced is kept in {place}\n")
    if options.yes and not refused:
        _tell_lost(made)
        _tell_next(made)


def _tell_next(made: Plan) -> None:
    """What is left to do when single streams are rescued."""
    for text in made.streams:
        sys.stdout.write(f"start the server, and have the cluster replace the members of {text}\n")


def _tell_lost(made: Plan) -> None:
    for one in made.left:
        sys.stdout.write(f"lost, and still assigned to servers that are gone: {one.name}\n")


# ---- found -------------------------------------------------------------------------------------


def _found(options: argparse.Namespace) -> int:
    root = places.root_of(options.directory)
    keys = seals.server_key(options.key_file) if options.key_file else None
    with alone(root, options.yes):
        _drain(root, options.yes)
        system = options.system_account or SYSTEM_ACCOUNT
        made = founding.plan(root, options.server, options.cluster, system, keys)
        refused = bool(made.offline) and not options.leave_out
        if options.yes and not refused:
            founding.carry_out(made)
    if options.json:
        told = {
            "directory": str(root),
            "server": options.server,
            "id": made.own,
            "done": options.yes and not refused,
            "streams": [
                {"account": account, "stream": stream, "consumers": consumers}
                for account, stream, consumers in made.assets()
            ],
            "offline": made.offline,
        }
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        rows = [*made.assets()]
        sys.stdout.write(table(("account", "stream", "consumers"), rows) + "\n")
        for name, why in made.offline.items():
            sys.stdout.write(f"offline, and left out: {name}: {why}\n")
        if refused:
            sys.stdout.write("nothing was changed: --leave-out goes on without what is offline\n")
        elif not options.yes:
            sys.stdout.write("nothing was changed: --yes does it\n")
    if refused and options.yes:
        return FAILED
    return DONE if options.yes else FOUND


# ---- quarantine --------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    root = places.root_of(options.directory)
    known = asides.found(root)
    if options.json:
        told = {"directory": str(root), "quarantine": [one.as_dict(root) for one in known]}
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
        return DONE
    rows = [
        (one.id(root), one.kind.value, rfc3339_nano(one.at), shows.size(one.size()))
        for one in known
    ]
    heads = ("id", "kind", "time", "bytes")
    sys.stdout.write((table(heads, rows, 3) if rows else "nothing is put aside") + "\n")
    return DONE


def _restore(options: argparse.Namespace) -> int:
    root = places.root_of(options.directory)
    to = Path(options.to)
    with alone(root, changes=True):
        (one,) = asides.chosen(root, [options.id])
        place = asides.take_out(one, to)
    if options.json:
        sys.stdout.write(json.dumps({"id": options.id, "place": str(place)}, indent=2) + "\n")
    else:
        sys.stdout.write(f"stream {one.name} of account {one.account} is now in {place}\n")
    return DONE


def _remove(options: argparse.Namespace) -> int:
    root = places.root_of(options.directory)
    with alone(root, options.yes):
        known = asides.chosen(root, options.ids)
        told = [one.as_dict(root) for one in known]
        if options.yes:
            for one in known:
                asides.remove(one)
    if options.json:
        sys.stdout.write(json.dumps({"done": options.yes, "removed": told}, indent=2) + "\n")
    elif options.yes:
        sys.stdout.write(f"{len(known)} removed\n")
    else:
        sys.stdout.write("nothing was changed: --yes removes it for good\n")
    return DONE if options.yes else FOUND


# ---- the command line --------------------------------------------------------------------------

Command = Callable[[argparse.Namespace], int]
EXIT_CODES = (
    "Exit code: 0 done, or nothing to do; 1 something is to be done; 2 refused, unreadable, or the"
    " command line is wrong."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds these commands to those of `jsserver cluster`; `run` of their options carries one
    out."""
    rescue = _command(
        commands,
        "rescue",
        _rescue,
        "let the servers that are left of a cluster go on without those that are lost for good",
    )
    rescue.add_argument("--server", required=True, metavar="NAME", help="whose directory it is")
    text = "another server that is left; run the same on its directory, too"
    rescue.add_argument(
        "--with", dest="others", action="append", default=[], metavar="NAME", help=text
    )
    text = "only this stream, whose group lost its majority while the cluster has one"
    rescue.add_argument(
        "--stream", dest="streams", action="append", default=[], metavar="ACCOUNT/STREAM", help=text
    )
    text = "assign the streams on disk that a damaged meta group does not list to this server"
    rescue.add_argument("--from-streams", action="store_true", help=text)
    text = "with --from-streams: what the cluster is called, where nothing readable says it"
    rescue.add_argument("--cluster", default="", metavar="NAME", help=text)
    text = "remove streams and consumers that nobody has any more"
    rescue.add_argument("--remove-lost", action="store_true", help=text)
    text = "go on where files of groups are damaged, without what stood there"
    rescue.add_argument("--accept-damage", action="store_true", help=text)
    text = "the system account, where several accounts have groups"
    rescue.add_argument("--system-account", default="", metavar="A", help=text)
    text = "the server's encryption key is all that this file holds"
    rescue.add_argument("--key-file", default="", metavar="FILE", help=text)
    _does(rescue)
    _add_found(commands)
    _add_quarantine(commands)


def _add_found(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "let a cluster begin with the streams of a standalone server's directory"
    made = _command(commands, "found", _found, text)
    made.add_argument("--server", required=True, metavar="NAME", help="its server_name from now on")
    made.add_argument("--cluster", required=True, metavar="NAME", help="the name of the cluster")
    made.add_argument("--leave-out", action="store_true", help="leave out what is offline")
    text = f"the system account (default: {SYSTEM_ACCOUNT})"
    made.add_argument("--system-account", default="", metavar="A", help=text)
    text = "the server's encryption key is all that this file holds"
    made.add_argument("--key-file", default="", metavar="FILE", help=text)
    _does(made)


def _add_quarantine(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "what servers have put aside instead of removing it"
    quarantine = commands.add_parser("quarantine", help=text, description=text.capitalize() + ".")
    below = quarantine.add_subparsers(dest="below", required=True, metavar="COMMAND")
    _command(below, "list", _list, "list what is put aside")
    text = "move a stream into a store directory of its own, for a standalone server"
    restore = _command(below, "restore", _restore, text)
    restore.add_argument("id", metavar="ID", help="as list names it")
    restore.add_argument("--to", required=True, metavar="DIR", help="the store_dir to move it to")
    remove = _command(below, "remove", _remove, "remove what is put aside for good")
    remove.add_argument("ids", metavar="ID", nargs="+", help="as list names it")
    _does(remove)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    work: Command,
    what: str,
) -> argparse.ArgumentParser:
    text = what[0].upper() + what[1:] + "."
    made = commands.add_parser(name, help=what, description=text, epilog=EXIT_CODES)
    made.add_argument("directory", metavar="DIR", help="the store_dir of a server")
    made.add_argument("--json", action="store_true", help="as JSON, for programs")
    made.set_defaults(run=run, work=work)
    return made


def _does(made: argparse.ArgumentParser) -> None:
    does = made.add_mutually_exclusive_group()
    does.add_argument("--yes", action="store_true", help="do it")
    does.add_argument("--dry-run", action="store_true", help="only say what (the default)")


def run(options: argparse.Namespace) -> int:
    """Carries out the command that the options are of; the process's exit code."""
    return stopped.run("jsserver cluster", options, options.work)
