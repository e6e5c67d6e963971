"""A cluster of one member that begins with the streams of a standalone server's directory.

The directory gets a meta group whose snapshot assigns all that lies there to this server. Other
servers join that with empty directories.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jsserver.assets.assigned import StreamAssignment as Stored
from jsserver.cext.bytes import hh64
from jsserver.cluster import proposals
from jsserver.cluster.meta import MetaState, StreamAssignment
from jsserver.disk.directories import make_directory, sync_directory, write_whole
from jsserver.disk.keys import Keys
from jsserver.instances import recovery
from jsserver.instances.metafiles import MetaFiles, erase
from jsserver.offline.places import folders_in
from jsserver.offline.stopped import Refused
from jsserver.text.identity import short_hash
from jsserver.text.nuid import token

from . import groupfiles, grouplogs
from .carrying import AHEAD, BASE, META, RAFT
from .groupfiles import Members, Snapshot

TERM = grouplogs.TERM_STEP
"""Of the snapshot that a new meta group begins with."""


@dataclass
class Founding:
    """What a cluster is to begin with."""

    root: Path
    folder: Path
    """Of the meta group."""
    own: str
    """The id of this server."""
    state: MetaState = field(default_factory=MetaState)
    offline: dict[str, str] = field(default_factory=dict)
    """Streams (`account > stream`) that are left out, and why."""

    def assets(self) -> Iterator[tuple[str, str, int]]:
        """Account, stream, and how many consumers it has."""
        for account, name, assignment in self.state:
            yield account, name, len(assignment.consumers)


def plan(root: Path, server: str, cluster: str, system: str, keys: Keys | None) -> Founding:
    """What a directory has for a cluster; Refused. `system`: the system account's name."""
    there = sorted(root.glob(f"*/{RAFT}/{META}"))
    if there:
        raise Refused(f"this is the directory of a member of a cluster: {there[0]} is there")
    own = short_hash(server)
    made = Founding(root, root / system / RAFT / META, own)
    streams, made.offline = streams_in(root, keys)
    for account, name, found in streams:
        of_account = made.state.streams.setdefault(account, {})
        of_account[name] = assignment(found, account, own, cluster)
    if not made.state.streams:
        raise Refused(f"{root} has no streams that a cluster could begin with")
    return made


def streams_in(
    root: Path, keys: Keys | None
) -> tuple[list[tuple[str, str, Stored]], dict[str, str]]:
    """The streams of a store directory: account, name, and what the stream's folder says; and those
    that would be offline (`account > stream`), with the reason."""
    found: list[tuple[str, str, Stored]] = []
    offline = {}
    files = MetaFiles(hh64, keys)
    for account in folders_in(root):
        for name in folders_in(root / account / "streams"):
            stored = recovery.read_stream(root / account / "streams" / name, files.look)
            if isinstance(stored, str):
                offline[f"{account} > {name}"] = stored
            else:
                found.append((account, name, stored))
    return found, offline


def assignment(stored: Stored, account: str, own: str, cluster: str) -> StreamAssignment:
    """A stream on disk, and its consumers, as assigned to one server alone."""
    config = msgspec.structs.replace(stored.config, num_replicas=1)
    of = proposals.group("S", [own], config.storage, cluster, token(8))
    client = {"acc": account, "cluster": cluster}
    said = {"client": client, **proposals.stream(config, stored.created, of, token(8))}
    consumers = {}
    for name, one in stored.consumers.items():
        replicas = min(one.stored.num_replicas, 1)
        about = msgspec.structs.replace(one.stored, num_replicas=replicas)
        group = proposals.group("C", [own], config.storage, cluster, token(8))
        made = proposals.consumer(name, config.name, about, one.created, group)
        consumers[name] = {"client": client, **made}
    return StreamAssignment(said, consumers)


def carry_out(made: Founding) -> None:
    """Makes the meta group, which is there as a whole or not at all; OSError."""
    members = Members(1, (made.own,))
    snapshot = Snapshot(TERM, AHEAD, members, made.state.snapshot())
    new = made.folder.with_name(f"{META}.new")
    erase(new)
    make_directory(new / "snapshots")
    write_whole(new / "snapshots" / snapshot.name, groupfiles.snapshot_bytes(META, snapshot))
    write_whole(new / BASE, groupfiles.base_bytes(snapshot))
    write_whole(new / "peers.idx", groupfiles.members_bytes(members))
    write_whole(new / "tav.idx", groupfiles.vote_bytes(TERM))
    sync_directory(new / "snapshots")
    sync_directory(new)
    os.rename(new, made.folder)
    sync_directory(made.folder.parent)
