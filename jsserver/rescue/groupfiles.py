"""Small files of a Raft group and the records of its log, as bytes: nats-server's forms.

All numbers are little endian. Members are called by their ids of eight characters.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from jsserver.cext.bytes import hh64, sha256
from jsserver.cluster.groups import peer_state

ID = 8
"""Bytes of a member's id."""
_U64 = struct.Struct("<Q")
_MEMBERS = struct.Struct("<II")
_SNAPSHOT = struct.Struct("<QQI")
_RECORD = struct.Struct("<8sQQQQH")
_ENTRY = struct.Struct("<IB")


class EntryType(IntEnum):
    """What an entry of a log is."""

    NORMAL = 0
    OLD_SNAPSHOT = 1
    PEER_STATE = 2
    ADD_PEER = 3
    REMOVE_PEER = 4
    LEADER_TRANSFER = 5
    SNAPSHOT = 6


class Damaged(Exception):
    """A file or a record cannot be what was written; the text says why."""


class Members(NamedTuple):
    """A group's members: `peers.idx`, and what snapshots and entries have of it."""

    size: int
    """How many there are to be."""
    peers: tuple[str, ...]
    extension: bytes = b"\0\0"
    """Whether the cluster extends another domain, as it stands there."""


@dataclass(frozen=True)
class Snapshot:
    """What stands for a log up to an index."""

    term: int
    index: int
    members: Members
    state: bytes

    @property
    def name(self) -> str:
        """That of its file."""
        return f"snap.{self.term}.{self.index}"


@dataclass(frozen=True)
class Record:
    """One index of a log."""

    leader: str
    term: int
    commit: int
    pterm: int
    pindex: int
    entries: tuple[tuple[EntryType, bytes], ...]

    @property
    def index(self) -> int:
        """Its own."""
        return self.pindex + 1


def members_of(data: bytes) -> Members:
    """Reads a set of members; Damaged."""
    if len(data) < _MEMBERS.size:
        raise Damaged("too short for a set of members")
    size, count = _MEMBERS.unpack_from(data)
    end = _MEMBERS.size + count * ID
    if len(data) < end:
        raise Damaged(f"{count} members do not fit into {len(data)} bytes")
    ids = [data[at : at + ID].decode("latin-1") for at in range(_MEMBERS.size, end, ID)]
    return Members(size, tuple(ids), data[end : end + 2])


def members_bytes(members: Members) -> bytes:
    """The set as it is written."""
    return peer_state(members.size, members.peers, members.extension)


def snapshot_of(group: str, data: bytes) -> Snapshot:
    """Reads a snapshot of a group; Damaged."""
    plain, tail = data[: -_U64.size], data[-_U64.size :]
    if len(plain) < _SNAPSHOT.size:
        raise Damaged("too short for a snapshot")
    if hh64(sha256(group.encode()), plain) != _U64.unpack(tail)[0]:
        raise Damaged("its checksum does not fit")
    term, index, length = _SNAPSHOT.unpack_from(plain)
    at = _SNAPSHOT.size + length
    if at > len(plain) or index == 0:
        raise Damaged("its set of members does not fit")
    return Snapshot(term, index, members_of(plain[_SNAPSHOT.size : at]), plain[at:])


def snapshot_bytes(group: str, snapshot: Snapshot) -> bytes:
    """The snapshot as it is written."""
    members = members_bytes(snapshot.members)
    head = _SNAPSHOT.pack(snapshot.term, snapshot.index, len(members))
    plain = head + members + snapshot.state
    return plain + _U64.pack(hh64(sha256(group.encode()), plain))


def vote_of(data: bytes) -> int:
    """The term that `tav.idx` has; Damaged."""
    if len(data) < _U64.size:
        raise Damaged("too short for a vote")
    return int(_U64.unpack_from(data)[0])


def vote_bytes(term: int) -> bytes:
    """`tav.idx` of a member that has voted for nobody in a term."""
    return _U64.pack(term)


def base_bytes(snapshot: Snapshot) -> bytes:
    """What says that a group's history begins with a snapshot."""
    return _U64.pack(snapshot.index)


def record_of(data: bytes) -> Record:
    """Reads a record of a log; Damaged."""
    if len(data) < _RECORD.size:
        raise Damaged("too short for a record of a log")
    leader, term, commit, pterm, pindex, count = _RECORD.unpack_from(data)
    entries, at = [], _RECORD.size
    for _ in range(count):
        if at + _ENTRY.size > len(data):
            raise Damaged("an entry ends early")
        length, kind = _ENTRY.unpack_from(data, at)
        end = at + 4 + length
        if length == 0 or end > len(data) or kind not in EntryType.__members__.values():
            raise Damaged("an entry is none")
        entries.append((EntryType(kind), data[at + _ENTRY.size : end]))
        at = end
    if not entries:
        raise Damaged("a record without entries")
    return Record(leader.decode("latin-1"), term, commit, pterm, pindex, tuple(entries))


def record_bytes(record: Record) -> bytes:
    """The record as it is written."""
    head = _RECORD.pack(
        record.leader.encode("latin-1"),
        record.term,
        record.commit,
        record.pterm,
        record.pindex,
        len(record.entries),
    )
    body = b"".join(_ENTRY.pack(1 + len(data), kind) + data for kind, data in record.entries)
    return head + body + b"\0"
