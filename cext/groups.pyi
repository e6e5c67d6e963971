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
    vote: bytes
    met: int
    """The last index of the first leader since this member was opened; 0: there was none yet."""

class Peer(NamedTuple):
    id: bytes
    match: int
    silent: int
    leads: bool

class RaftGroups:
    def __init__(self, plane: EnvBox, account: Account, serving_most: int = ...) -> None: ...
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

class GroupFace:
    number: int
    found: Found
    def state(self) -> GroupState: ...
    def peers(self) -> list[Peer]: ...
    def observe(self, observer: bool) -> None: ...
    def hand_over(self, to: bytes = b"") -> bool: ...
    def choose(self, alone: bool = True) -> None: ...
    def gone(self, peer: bytes) -> None: ...
    def add_peer(self, peer: bytes) -> bool: ...
    def remove_peer(self, peer: bytes) -> bool: ...
    def assign(self, peers: list[bytes]) -> None: ...
    def set_peers(self, peers: list[bytes]) -> bool: ...

class RaftGroup(GroupFace):
    def close(self) -> None: ...
    def take(self) -> Taken: ...
    def applied(self, index: int) -> None: ...
    def snapshot(self, term: int, index: int, state: bytes) -> bool: ...
    def propose(self, data: bytes) -> bool: ...
