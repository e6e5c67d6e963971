"""Consumers, and streams with consumers, for the control plane; times are ns, texts bytes."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from jsserver.cext.stream import IntakeFace, StoreError

class ConsumerClosed(StoreError):
    """The consumer was closed, its stream was not."""

class ConsumerState(NamedTuple):
    """Position and counts of a consumer at one instant."""

    delivered_consumer: int
    delivered_stream: int
    delivered_ts: int
    """Wall clock of the last delivery since the server started; 0: none."""
    floor_consumer: int
    floor_stream: int
    floor_ts: int
    """Wall clock of the last acknowledgement since the server started; 0: none."""
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int
    push_bound: bool
    pinned_id: bytes
    """What the pinned client asks with; empty: nobody is pinned."""
    pinned_ts: int
    """Wall clock since when."""

class ConsumerWait(NamedTuple):
    """Why a consumer delivers nothing at the moment."""

    reason: int
    """WAITS_* of consumer/why.pxi; 0: it delivers."""
    until: int
    """Wall clock at which that ends; 0: nobody knows."""
    number: int
    seq: int

class PendingMessage(NamedTuple):
    """A message that was delivered and is not acked."""

    seq: int
    subject: bytes
    deliveries: int
    sent: int
    """Wall clock of the last delivery, or of what put its deadline off."""
    due: int
    """Wall clock at which it is delivered again; 0: not in time."""
    queued: bool
    """Whether it is to be delivered again now."""

class ConsumerHandle:
    """A consumer. StoreError: memory ran out; ConsumerClosed or StreamClosed: it is closed."""

    @property
    def id(self) -> int:
        """Its number, never used again while the server runs: events name it."""

    def changed_state(self) -> ConsumerState: ...
    def damaged(self) -> bool: ...
    def counting(self) -> bool: ...
    def state(self) -> ConsumerState: ...
    def update(self, prepared: Any, back: bool = False) -> None: ...
    def pause(self, until: int) -> None: ...
    def reset(self, seq: int) -> int: ...
    def waits(self) -> ConsumerWait: ...
    def oldest(self) -> tuple[int, int]: ...
    def pending(self, start: int, limit: int, idle: int) -> list[PendingMessage]: ...
    def release(self, seqs: Iterable[int], idle: int, deliver: bytes) -> list[int]: ...
    def unpin(self) -> None: ...
    def begin(self, ticket: int = 0) -> None: ...
    def encode_state(self) -> bytes:
        """The state in the format of nats-server's o.dat."""
    def close(self, delete: bool) -> None: ...

class StreamHandle(IntakeFace):
    """A stream with its consumers."""

    def activate(self, hold: bool = False) -> None: ...
    def open_consumer(
        self, prepared: Any, directory: str | bytes | None, hold: bool = False
    ) -> ConsumerHandle: ...
    def await_consumers(self) -> None:
        """Of a member of a Raft group: until `serve`, all messages stay."""
    def serve(self) -> None:
        """Of a member of a Raft group: all its consumers are open."""
    def reopen(self, mirror: bool = False) -> None: ...
    def resume(self) -> None: ...
    def withhold(self, on: bool) -> None: ...
    def close(self, delete: bool) -> None: ...
