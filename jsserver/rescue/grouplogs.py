"""A Raft group as its directory has it, read without a server, and written anew with fewer members.

A log is written anew as a whole, into blocks without anything of ours beside them, and takes the
old one's place in one step. The old one stays, under another name.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from jsserver.disk.directories import make_directory, sync_directory, write_whole
from jsserver.disk.keys import Keys
from jsserver.instances.metafiles import erase
from jsserver.offline import blocks, seals
from jsserver.offline.blocks import Kind
from jsserver.offline.mending import record as block_record
from jsserver.offline.messages import Walk, messages_of
from jsserver.offline.places import Place, found, names_in, whole
from jsserver.process.libc import call

from . import groupfiles
from .groupfiles import Damaged, EntryType, Members, Record, Snapshot

TERM_STEP = 1000
"""By so much the term of what is left of a group is above that of its log: a member that was given
up, and comes back with its disk all the same, is outvoted."""
BLOCK_BYTES = 4 << 20
"""Of a log's block, as both servers have it."""
FRESH = "msgs.rescue"
"""Beside a log: the one that is to take its place, then the one that it was."""
BEFORE = "msgs.before-rescue-"
BESIDE = ("sequence.jsr", "checkpoint.jss", "subjects.jsd")
"""What jsserver keeps of a log beside its blocks."""
_EXCHANGE, _HERE = 2, -100
_SNAPSHOT = re.compile(r"snap\.(0|[1-9][0-9]{0,18})\.([1-9][0-9]{0,18})")


@dataclass
class GroupLog:
    """What a server has of a group."""

    name: str
    folder: Path
    keys: Keys | None = None
    snapshot: Snapshot | None = None
    members: Members | None = None
    """By the snapshot, or `peers.idx`; None: the server has neither."""
    term: int = 0
    """That it has voted in, or heard of."""
    floor: tuple[int, int] = (0, 0)
    """The greatest term and the greatest index of its snapshots' names, also of damaged ones."""
    rows: list[tuple[int, bytes, Record]] = field(default_factory=list)
    """What follows the snapshot: time, bytes and what they say."""
    damage: list[str] = field(default_factory=list)
    """What cannot be read, and what is lost by that."""

    @property
    def last_index(self) -> int:
        """That of the last record."""
        return self.rows[-1][2].index if self.rows else self._base[1]

    @property
    def last_term(self) -> int:
        """That of the last record."""
        return self.rows[-1][2].term if self.rows else self._base[0]

    @property
    def _base(self) -> tuple[int, int]:
        return (0, 0) if self.snapshot is None else (self.snapshot.term, self.snapshot.index)

    @property
    def commit(self) -> int:
        """Up to which index it is known that a majority has it."""
        said = max((record.commit for _, _, record in self.rows), default=0)
        return min(max(said, self._base[1]), self.last_index)

    def peers(self) -> set[str]:
        """Who is a member, or becomes one by what the log has."""
        now: set[str] = {*(self.members.peers if self.members is not None else ())}
        after, commit = {*now}, self.commit
        for _, _, record in self.rows:
            for kind, data in record.entries:
                if kind is EntryType.PEER_STATE:
                    try:
                        after = {*groupfiles.members_of(data).peers}
                    except Damaged:
                        continue
                    now = {*after} if record.index <= commit else now
                elif kind is EntryType.ADD_PEER:
                    now.add(data.decode("latin-1"))
                    after.add(data.decode("latin-1"))
                elif kind is EntryType.REMOVE_PEER:
                    now.discard(data.decode("latin-1"))
                    after.discard(data.decode("latin-1"))
        return now | after


def read(folder: Path, keys: Keys | None = None) -> GroupLog:
    """Reads the directory of a group; Unreadable, Locked."""
    log = GroupLog(folder.name, folder, keys)
    _read_small(log)
    _read_rows(log)
    return log


def _read_small(log: GroupLog) -> None:
    for name, take in (("tav.idx", _take_vote), ("peers.idx", _take_members)):
        data = found(log.folder / name)
        if data is None:
            continue
        try:
            take(log, data)
        except Damaged as error:
            log.damage.append(f"{name}: {error}")
    names = [*filter(None, map(_SNAPSHOT.fullmatch, names_in(log.folder / "snapshots")))]
    for match in names:
        log.floor = max(log.floor[0], int(match[1])), max(log.floor[1], int(match[2]))
    for match in sorted(names, key=lambda one: (int(one[1]), int(one[2])), reverse=True):
        data = whole(log.folder / "snapshots" / match[0])
        try:
            log.snapshot = groupfiles.snapshot_of(log.name, data)
            log.members = log.snapshot.members
            return
        except Damaged as error:
            log.damage.append(f"snapshots/{match[0]}: {error}")


def _take_vote(log: GroupLog, data: bytes) -> None:
    log.term = groupfiles.vote_of(data)


def _take_members(log: GroupLog, data: bytes) -> None:
    log.members = groupfiles.members_of(data)


def _read_rows(log: GroupLog) -> None:
    place = Place(log.name, log.name, log.folder, log.keys)
    folder, _ = place.messages()
    encrypted = any(name.endswith(".key") for name in names_in(folder))
    found_rows: dict[int, tuple[int, bytes]] = {}
    walk = Walk(place)
    for look in walk.looks(partial(blocks.read_or_fault, place, encrypted=encrypted)):
        block = look.block
        if block.sealed:
            raise seals.Locked(f"the log of group {log.name}: {block.fault}")
        if block.fault:
            log.damage.append(f"msgs/{block.number}.blk: {block.fault}")
        if look.span.void:
            continue
        for row in messages_of(block):
            if walk.is_live(block.number, row[1]):
                found_rows.setdefault(row[1], (row[2], block.payload(row)))
        if any(row[6] == Kind.BAD for row in block.rows()):
            log.damage.append(f"msgs/{block.number}.blk: not all of its records are good")
    term, index = log._base
    while (taken := found_rows.get(index + 1)) is not None:
        try:
            record = groupfiles.record_of(taken[1])
        except Damaged as error:
            log.damage.append(f"entry {index + 1}: {error}")
            return
        if record.pindex != index or record.pterm != term or record.term < term:
            break
        log.rows.append((*taken, record))
        term, index = record.term, record.index
    behind = [seq for seq in found_rows if seq > index]
    if behind:
        log.damage.append(
            f"entries {min(behind)} to {max(behind)} do not follow entry {index}, which is the last"
        )


# ---- a log with fewer members ------------------------------------------------------------------


def removals(log: GroupLog, gone: set[str], own: str) -> list[Record]:
    """The records behind a log's end by which these members are none any more. What was not known
    to be committed is neither more nor less so by them: those that stay agree on it."""
    term, commit = log.last_term + TERM_STEP, log.commit
    made: list[Record] = []
    pterm, pindex = log.last_term, log.last_index
    for peer in sorted(gone):
        entry = (EntryType.REMOVE_PEER, peer.encode("latin-1"))
        made.append(Record(own, term, commit, pterm, pindex, (entry,)))
        pterm, pindex = term, pindex + 1
    return made


def write(log: GroupLog, more: list[Record], done: Callable[[int], None]) -> None:
    """The log's records and these become the log; OSError. `done` hears of bytes that were
    written. A kill at any moment leaves the one log or the other."""
    fresh, now = log.folder / FRESH, log.folder / "msgs"
    make_directory(now)
    erase(fresh)
    make_directory(fresh)
    for name, data in _blocks(log, more):
        write_whole(fresh / name, data)
        done(len(data))
    sync_directory(fresh)
    _exchange(fresh, now)
    sync_directory(log.folder)
    settle(log.folder)


def settle(folder: Path) -> None:
    """Finishes what a kill interrupted: what was a group's log, if there is any, gets the name by
    which it is kept; OSError."""
    if not (folder / FRESH).is_dir():
        return
    if not (folder / "msgs").exists():
        os.rename(folder / FRESH, folder / "msgs")
        sync_directory(folder)
        return
    kept = folder / f"{BEFORE}{time.time_ns()}"
    os.rename(folder / FRESH, kept)
    for name in BESIDE:
        if (folder / name).exists():
            os.rename(folder / name, kept / name)
    sync_directory(folder)


def _exchange(one: Path, other: Path) -> None:
    paths = os.fsencode(one), os.fsencode(other)
    if call("renameat2", _HERE, paths[0], _HERE, paths[1], _EXCHANGE) == 0:
        return
    aside = one.with_name(f"{BEFORE}{time.time_ns()}")  # a file system that has no such step
    os.rename(other, aside)
    os.rename(one, other)


def _blocks(log: GroupLog, more: list[Record]) -> Iterator[tuple[str, bytes]]:
    """The files of a log: of each block its key, where there is one, and its records."""
    now = time.time_ns()
    rows = [(at, data, record.index) for at, data, record in log.rows]
    rows += [(now, groupfiles.record_bytes(record), record.index) for record in more]
    number, plain = 1, bytearray()
    keys = _keys_like(log)
    for at, data, index in rows:
        if plain and len(plain) + len(data) > BLOCK_BYTES:
            yield from _block(log.name, number, bytes(plain), keys)
            number, plain = number + 1, bytearray()
        plain += block_record(blocks.key_of(f"{log.name}-{number}"), index, at, data)
    yield from _block(log.name, number, bytes(plain), keys)


def _block(group: str, number: int, plain: bytes, keys: Keys | None) -> Iterator[tuple[str, bytes]]:
    if keys is not None:
        seed, key_file = keys.new(group, f"{group}:{number}")
        yield f"{number}.key", key_file
        plain = seed.encrypt(plain)
    yield f"{number}.blk", plain


def _keys_like(log: GroupLog) -> Keys | None:
    """Keys by the cipher that the log has; None: it is in clear."""
    for name in names_in(log.folder / "msgs"):
        if name.endswith(".key"):
            if log.keys is None:
                raise seals.Locked(f"the log of group {log.name} is encrypted")
            return log.keys.like(whole(log.folder / "msgs" / name))
    return None
