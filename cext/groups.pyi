"""Raft groups of a server, for the control plane."""

import os
from typing import Any, NamedTuple, Protocol

from jsserver.cext.stream import EnvBox

class Account(Protocol):
    def pointer(self) -> Any: ...

class GroupError(OSError): ...

class EntryTaken(NamedTuple):
    index: int
    term: int
    type: int
    data: bytes

class State(NamedTuple):
    index: int
    term: int
    data: bytes

class Taken(NamedTuple):
    state: State | None
    entries: list[EntryTaken]

class Found(NamedTuple):
    fresh: bool
    lost: bool
    aside: int
    records: int
    state: State

class GroupState(NamedTuple):
    role: str
    term: int
    leader: bytes
    first: int
    last: int
    last_term: int
    commit: int
    applied: int
    stored: int
    size: int
    quorum: int
    members: int
    lost: bool
    diverged: bool
    error: int
    bytes: int

class Peer(NamedTuple):
    id: bytes
    match: int
    silent: int
    leads: bool

class RaftGroups:
    def __init__(self, plane: EnvBox, account: Account) -> None: ...
    def run(self) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...
    def open(
        self,
        directory: str | os.PathLike[str],
        name: bytes,
        id: bytes,
        *,
        peers: bytes,
        observer: bool,
    ) -> RaftGroup: ...

class RaftGroup:
    number: int
    found: Found
    def close(self) -> None: ...
    def take(self) -> Taken: ...
    def applied(self, index: int) -> None: ...
    def snapshot(self, term: int, index: int, state: bytes) -> bool: ...
    def observe(self, observer: bool) -> None: ...
    def state(self) -> GroupState: ...
    def peers(self) -> list[Peer]: ...
