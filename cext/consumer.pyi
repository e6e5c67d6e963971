"""Consumers, and streams with consumers, for the control plane; times are ns, texts bytes."""

from typing import Any, NamedTuple

from jsserver.cext.stream import StoreError, StreamFace

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

class ConsumerHandle:
    """A consumer. StoreError: memory ran out; ConsumerClosed or StreamClosed: it is closed."""

    @property
    def id(self) -> int:
        """Its number, never used again while the server runs: events name it."""

    def changed_state(self) -> ConsumerState: ...
    def counting(self) -> bool: ...
    def state(self) -> ConsumerState: ...
    def update(self, params: Any, back: bool = False) -> None: ...
    def pause(self, until: int) -> None: ...
    def reset(self, seq: int) -> int: ...
    def unpin(self) -> None: ...
    def begin(self, ticket: int = 0) -> None: ...
    def has_interest(self) -> bool: ...
    def encode_state(self) -> bytes:
        """The state in the format of nats-server's o.dat."""
    def close(self, delete: bool) -> None: ...

class StreamHandle(StreamFace):
    """A stream with its consumers."""

    def activate(self, hold: bool = False) -> None: ...
    def open_consumer(
        self, params: Any, directory: str | None, hold: bool = False
    ) -> ConsumerHandle: ...
    def reopen(self) -> None: ...
    def resume(self) -> None: ...
    def close(self, delete: bool) -> None: ...
