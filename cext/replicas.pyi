"""Streams and consumers of Raft groups."""

import os
from typing import Any

from jsserver.cext.consumer import StreamHandle
from jsserver.cext.groups import GroupFace, RaftGroups

NEWS_ROLE: int
NEWS_RESET: int
NEWS_FAILED: int
NEWS_PURGED: int
NEWS_DELETED: int
NEWS_DIVERGED: int
NEWS_JOINED: int
MEMBER: int
BASE: int
JOINS_LOG: int
AWAITS_STATE: int

class StreamReplica(GroupFace):
    handle: Any
    def leads(self) -> bool: ...
    def caught_up(self) -> bool: ...
    def agree(self) -> None: ...
    def agreed(self) -> bool: ...
    def feeds(self) -> bool: ...
    def halted(self) -> int: ...
    def why(self) -> str: ...
    def snapshot(self) -> None: ...
    def propose_purge(
        self,
        *,
        subject: bytes,
        reply: bytes,
        client: bytes,
        filter: bytes = b"",
        seq: int = 0,
        keep: int = 0,
    ) -> bool: ...
    def propose_delete(
        self, *, subject: bytes, reply: bytes, client: bytes, seq: int, erase: bool
    ) -> bool: ...
    def retire(self) -> None: ...
    def close(self, part: bool = False) -> None: ...

def open_stream_replica(
    groups: RaftGroups,
    stream: Any,
    group_directory: str | os.PathLike[str],
    *,
    name: bytes,
    id: bytes,
    peers: bytes,
    standing: int,
    sync: bytes,
    synced: bool = False,
) -> StreamReplica: ...

class ConsumerReplica(GroupFace):
    handle: Any
    def leads(self) -> bool: ...
    def halted(self) -> int: ...
    def why(self) -> str: ...
    def snapshot(self) -> None: ...
    def propose_reset(self, seq: int, reply: bytes) -> bool: ...
    def part(self) -> None: ...
    def close(self, delete: bool) -> None: ...

def open_consumer_replica(
    groups: RaftGroups,
    stream: StreamHandle,
    prepared: Any,
    directory: str | os.PathLike[str] | None,
    *,
    group_directory: str | os.PathLike[str],
    name: bytes,
    id: bytes,
    peers: bytes,
    standing: int,
    memory: bool,
    state: bytes = b"",
) -> ConsumerReplica: ...

def join_consumer_replica(
    groups: RaftGroups,
    consumer: Any,
    group_directory: str | os.PathLike[str],
    *,
    name: bytes,
    id: bytes,
    peers: bytes,
    memory: bool,
) -> ConsumerReplica: ...
