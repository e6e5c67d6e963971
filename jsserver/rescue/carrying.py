"""A rescue of one server's directory: what is found there, what is to be done, and doing it.

Groups of streams and consumers come first, the meta group last: until its snapshot has its place
nothing counts, and a rescue that a kill cut short begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jsserver.cluster.meta import MetaError, MetaState, Name, group_of, peers_of
from jsserver.disk.directories import make_directory, sync_directory, write_whole
from jsserver.disk.keys import Keys
from jsserver.disk.quarantine import RESCUED
from jsserver.instances.metafiles import replace
from jsserver.offline.places import found, names_in
from jsserver.offline.stopped import Refused
from jsserver.text.identity import short_hash

from . import groupfiles, grouplogs, plans
from .groupfiles import EntryType, Members, Snapshot
from .grouplogs import GroupLog
from .plans import MEMORY, AssetFate, Fate, Said

META = "_meta_"
RAFT = "_js_"
_CHANGED = (Fate.REDUCED, Fate.FOUND, Fate.REMOVED)
Complete = Callable[[GroupLog, MetaState], list[AssetFate]]
"""Adds to all assignments; what became of each that was added."""
AHEAD = 1 << 20
"""By so much the index of the meta group's new snapshot is above the log's: servers with empty
directories that have agreed on something of their own meanwhile have less, and follow."""
BASE = "base"
"""A file beside that snapshot, with its index: the member hears no leader and no candidate that has
less."""


@dataclass
class Step:
    """What is to be done to a group."""

    fate: AssetFate
    log: GroupLog
    gone: set[str]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "group": self.fate.group,
            "members_removed": sorted(self.gone),
            "entries": len(self.log.rows),
            "damage": self.log.damage,
        }


@dataclass
class Plan:
    """A rescue."""

    root: Path
    server: str
    survivors: dict[str, str]
    """Names by their ids."""
    meta: GroupLog
    state: MetaState
    """All assignments as they are to be."""
    fates: list[AssetFate]
    steps: list[Step] = field(default_factory=list)
    streams: tuple[str, ...] = ()
    """The streams (`ACCOUNT/STREAM`) that are rescued alone; none: the whole server is."""

    @property
    def own(self) -> str:
        """The id of this server."""
        return short_hash(self.server)

    @property
    def given_up(self) -> list[str]:
        """The ids of the members that are none any more."""
        if self.streams:
            return sorted({peer for step in self.steps for peer in step.gone})
        return sorted(self.meta.peers() - self.survivors.keys())

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        if self.streams:
            return bool(self.steps)
        changed = any(one.fate in _CHANGED for one in self.fates)
        return bool(self.given_up or self.steps or changed)

    @property
    def damage(self) -> list[str]:
        """What cannot be read of groups, and is lost by the rescue."""
        found_it = [] if self.streams else [f"meta group: {text}" for text in self.meta.damage]
        for step in self.steps:
            found_it += [f"group {step.log.name} of {step.fate.name}: {t}" for t in step.log.damage]
        return found_it

    @property
    def left(self) -> list[AssetFate]:
        """What nobody holds any more, and stays assigned."""
        return [one for one in self.fates if one.fate is Fate.LOST]


def meta_folder(root: Path, system_account: str) -> Path:
    """The directory of the meta group; Refused. `system_account`: whose it is, "": the only one's
    that has any."""
    pattern = f"{system_account}/{RAFT}/{META}" if system_account else f"*/{RAFT}/{META}"
    folders = sorted(path for path in root.glob(pattern) if path.is_dir())
    if not folders:
        raise Refused(f"{root} holds nothing of a cluster: no group {META} in any account")
    if len(folders) > 1:
        accounts = ", ".join(path.parents[1].name for path in folders)
        raise Refused(f"several accounts have a meta group; --system-account names one: {accounts}")
    return folders[0]


def plan(
    root: Path,
    folder: Path,
    server: str,
    others: list[str],
    *,
    keys: Keys | None,
    remove_lost: bool,
    done: Callable[[int], None],
    complete: Complete | None = None,
) -> Plan:
    """What a rescue does; Refused, Unreadable, Locked. `folder`: of the meta group; `server`: whose
    directory it is; `others`: survivors besides; `done` hears of bytes that were read; `complete`
    adds what a damaged meta group does not list any more, None: nothing is added."""
    meta = grouplogs.read(folder, keys)
    survivors = {short_hash(name): name for name in (server, *others)}
    if complete is None or (meta.members is not None and meta.last_index):
        _check_members(meta, survivors)
    state = fold(meta, anew=complete is not None)
    found_there = [] if complete is None else complete(meta, state)
    own = short_hash(server)
    _check_owner(root, state, server)

    def is_missing(name: Name, said: Said) -> bool:
        return peers_stay(said, survivors) == [own] and _is_absent(root, name, said)

    after, fates = plans.decide(state, survivors.keys(), is_missing, remove_lost)
    names = {one.name for one in found_there}
    fates = [one for one in fates if one.name not in names] + found_there
    made = Plan(root, server, survivors, meta, after, fates)
    for fate in fates:
        place = folder.parent / fate.group
        if fate.fate is not Fate.REDUCED or own not in fate.after or not is_folder(place):
            continue
        log = grouplogs.read(place, keys)
        done(group_size(place))
        gone = log.peers() - survivors.keys()
        if own not in log.peers():
            log.damage.append("this server was not a member yet, and may have a part only")
        if gone or is_unmarked(fate, place):
            made.steps.append(Step(fate, log, gone))
    return made


def is_unmarked(fate: AssetFate, place: Path) -> bool:
    """Whether a group that this server alone is left of has no mark of a rescue: there was none, or
    a kill cut it short after the log had its place."""
    return len(fate.after) == 1 and not fate.in_memory and not (place / RESCUED).exists()


def peers_stay(said: Said, survivors: dict[str, str]) -> list[str]:
    """The members of an assignment that are left."""
    return [peer for peer in peers_of(said) if peer in survivors]


def group_bytes(folder: Path) -> int:
    """Bytes of the logs of all groups beside the meta group's folder."""
    return sum(group_size(folder.parent / name) for name in names_in(folder.parent))


def group_size(place: Path) -> int:
    """Bytes of a group's log."""
    return sum(path.stat().st_size for path in place.glob("msgs/*.blk"))


def is_folder(place: Path) -> bool:
    """Whether a directory is there, which is not a link."""
    return place.is_dir() and not place.is_symlink()


def _check_members(meta: GroupLog, survivors: dict[str, str]) -> None:
    if meta.members is None or not meta.last_index:
        text = "; ".join(meta.damage) or "it has agreed on nothing yet"
        raise Refused(
            f"the meta group here says nothing of a cluster: {text}; --from-streams goes by what"
            " the streams' own directories say"
        )
    members = meta.peers()
    for peer, name in survivors.items():
        if peer not in members:
            known = ", ".join(sorted(members))
            raise Refused(
                f"{name} (id {peer}) is no member of the cluster of this directory: the ids of its"
                f" members are {known}"
            )
    if 2 * len(survivors) > len(members) and members != survivors.keys():
        raise Refused(
            f"{len(survivors)} of {len(members)} members are a majority, and need no rescue: start"
            " them, and take the others out with `nats server cluster peer-remove`"
        )


def fold(meta: GroupLog, *, anew: bool = False) -> MetaState:
    """All assignments that the meta group's directory has. `anew`: an unreadable snapshot is damage
    and has none; Refused otherwise."""
    state = MetaState()
    try:
        state = state if meta.snapshot is None else MetaState.read(meta.snapshot.state)
    except MetaError as error:
        text = f"the snapshot of the meta group says nothing: {error}"
        if not anew:
            raise Refused(text) from None
        meta.damage.append(text)
    for _, _, record in meta.rows:
        for kind, data in record.entries:
            try:
                if kind is EntryType.NORMAL:
                    state.apply(data)
                elif kind is EntryType.SNAPSHOT:
                    state = MetaState.read(data)
            except MetaError as error:
                meta.damage.append(f"entry {record.index}: {error}")
    return state


def _is_absent(root: Path, name: Name, said: Said) -> bool:
    """Whether a stream in files has no files."""
    if name.consumer or group_of(said).get("store") == MEMORY:
        return False
    return not (root / name.account / "streams" / name.stream / "meta.inf").exists()


def _check_owner(root: Path, state: MetaState, server: str) -> None:
    """Refused where what is here is another server's by all that can be seen."""
    own, foreign, absent = short_hash(server), "", ""
    for account, name, assignment in state:
        stream = Name(account, name)
        is_absent = _is_absent(root, stream, assignment.said)
        if own in assignment.peers:
            absent = str(stream) if is_absent else absent
        elif not is_absent and group_of(assignment.said).get("store") != MEMORY:
            foreign = str(stream)
    if foreign and absent:
        raise Refused(
            f"this is not the directory of {server}: it lacks {absent}, which {server} holds, and"
            f" has {foreign}, which {server} does not"
        )


# ---- doing it ----------------------------------------------------------------------------------


def carry_out(made: Plan, done: Callable[[int], None]) -> Iterator[str]:
    """Does it, and says what was kept where; OSError. `done` hears of bytes that were written."""
    for step in made.steps:
        place = step.log.folder
        if step.fate.in_memory:
            _put_members(place, step.log.members, step.fate.after)
        elif step.gone:
            grouplogs.write(step.log, grouplogs.removals(step.log, step.gone, made.own), done)
        if len(step.fate.after) == 1 and not step.fate.in_memory:
            replace(place / RESCUED, b"")
    if made.changes and not made.streams:
        yield str(_put_meta(made))


def _put_members(place: Path, before: Members | None, peers: tuple[str, ...]) -> None:
    extension = b"\0\0" if before is None else before.extension
    made = Members(len(peers), peers, extension)
    replace(place / "peers.idx", groupfiles.members_bytes(made))


def _put_meta(made: Plan) -> Path:
    """The meta group with the survivors alone; where its former snapshots and members are kept."""
    meta = made.meta
    kept = _keep(meta)
    peers = tuple(sorted(made.survivors))
    extension = b"\0\0" if meta.members is None else meta.members.extension
    members = Members(len(peers), peers, extension)
    term = max(meta.term, max(meta.last_term, meta.floor[0]) + grouplogs.TERM_STEP)
    index = max(meta.last_index, meta.floor[1]) + AHEAD
    replace(meta.folder / "tav.idx", groupfiles.vote_bytes(term))
    snapshot = Snapshot(term, index, members, made.state.snapshot())
    make_directory(meta.folder / "snapshots")
    replace(meta.folder / BASE, groupfiles.base_bytes(snapshot))  # counts with the snapshot alone
    new = meta.folder / "snapshot.new"
    write_whole(new, groupfiles.snapshot_bytes(meta.name, snapshot))
    new.rename(meta.folder / "snapshots" / snapshot.name)
    sync_directory(meta.folder / "snapshots")
    sync_directory(meta.folder)
    replace(meta.folder / "peers.idx", groupfiles.members_bytes(members))
    return kept


def _keep(meta: GroupLog) -> Path:
    """Copies of the small files that are replaced, in a folder that no server looks at."""
    kept = meta.folder / f"before-rescue-{time.time_ns()}"
    make_directory(kept)
    places = [meta.folder / name for name in ("tav.idx", "peers.idx", BASE)]
    places += [meta.folder / "snapshots" / name for name in names_in(meta.folder / "snapshots")]
    for place in places:
        if (data := found(place)) is not None:
            write_whole(kept / place.name, data)
    sync_directory(kept)
    sync_directory(meta.folder)
    return kept


def settle(folder: Path) -> None:
    """Finishes what a kill has left of an earlier rescue; OSError. `folder`: of the meta group."""
    for name in names_in(folder.parent):
        grouplogs.settle(folder.parent / name)


