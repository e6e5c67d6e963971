"""A stream, and environments that streams live in; times are ns, sizes and texts bytes."""

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

class StoreError(Exception):
    """The store could not do what was asked; the text is for the client."""

class StreamClosed(StoreError):
    """The stream was closed, by its deletion or with the server."""

class StreamState(NamedTuple):
    """Counts of a stream at one instant."""

    messages: int
    bytes: int
    first_seq: int
    first_ts: int
    """0: the stream is empty."""
    last_seq: int
    last_ts: int
    """0: nothing was ever stored."""
    num_subjects: int
    num_deleted: int

class Damage(NamedTuple):
    """A place where a store's files are damaged."""

    kind: str
    """records, message, block, aside, tail, sequences, log or batch"""
    block: int
    at: int
    size: int
    first: int
    """The sequences that it costs; 0: none, or not known."""
    last: int
    count: int

class Lost(NamedTuple):
    """What a store knows to be lost."""

    sequences: list[int]
    bytes: int
    damage: int
    """How many places were met."""
    places: list[Damage]
    """The first of them."""

class Message(NamedTuple):
    """A stored message."""

    subject: bytes
    seq: int
    ts: int
    headers: bytes
    """The whole block, or empty."""
    data: bytes

class IntakeState(NamedTuple):
    """What a mirror or source takes in."""

    seq: int
    """The origin's last sequence."""
    lag: int
    """Messages that the origin still had then."""
    idle: int
    """How long nothing came."""
    broken: bool
    """Whether it has ended by itself."""
    refused: str
    """Why a message was not stored, if it has ended for that; else empty."""

class EnvBox:
    """The environment of an engine."""

class StreamFace:
    """A stream for the control plane. StoreError: the store failed; StreamClosed: it is closed."""

    def activate(self) -> None: ...
    def update(self, prepared: Any, back: bool = False) -> None: ...
    def state(self) -> StreamState: ...
    def lost(self) -> Lost: ...
    def deleted(self, most: int = ...) -> Sequence[int]: ...
    def subjects(
        self, filter: bytes, start: int = 0, most: int = ...
    ) -> tuple[int, dict[bytes, int]]: ...
    @overload
    def purge(self, filter: bytes | None, seq: int, keep: int) -> int: ...
    @overload
    def purge(self, filter: bytes | None, seq: int, keep: int, short: bool) -> int | None: ...
    def get(self, seq: int) -> Message | None: ...
    def last_for(self, filter: bytes) -> Message | None: ...
    def next_for(self, filter: bytes, seq: int) -> Message | None: ...
    def pack(self, key: bytes, seq: int, last: int, most: int) -> tuple[bytes, int]: ...
    def fill(self, source: Any) -> None: ...
    def at_time(self, ts: int) -> int: ...
    def delete(self, seq: int, erase: bool) -> bool: ...
    def unsettled(self, seq: int = 0) -> int: ...
    def changed_ticket(self) -> int: ...
    def answer(self, ticket: int, reply: bytes, data: bytes, type: bytes) -> bool: ...
    def wait_durable(self, synced: bool = False) -> None: ...

class IntakeFace(StreamFace):
    """A stream that may take in what others deliver."""

    def take_in(
        self,
        id: int,
        deliver: bytes,
        consumer: bytes,
        origin: int,
        mirror: bool,
        head: bytes,
        tail: bytes,
        transforms: Sequence[Any],
    ) -> None: ...
    def leave_off(self, id: int) -> None: ...
    def intake(self, id: int) -> IntakeState | None: ...
    def sourced(self, sources: Sequence[tuple[bytes, bytes]], behind: int = ...) -> list[int]: ...
