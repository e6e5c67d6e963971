"""What drives streams and consumers that have replicas, as those that run need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment

    from .rounds import Work
    from .running import Consumer, Stream


class StreamMember(Protocol):
    """A stream's member of its Raft group."""

    def leads(self) -> bool:
        """Whether it takes publishes."""

    def trouble(self) -> str:
        """Why it is not as the group is, "": it is, or was a moment ago; in any thread."""


class ConsumerMember(Protocol):
    """A consumer's member of its Raft group."""

    @property
    def handle(self) -> Any:
        """The consumer."""

    def leads(self) -> bool:
        """Whether it delivers and answers."""

    def trouble(self) -> str:
        """As a stream's."""


class Groups(Protocol):
    """The Raft groups of an account's streams and consumers. All of it may wait for a disk."""

    def drives(self, wanted: StreamAssignment) -> bool:
        """Whether the stream is the one that has replicas."""

    def prepare(self, name: str, consumer: str = "") -> Work[None]:
        """Makes the directory of the group of a stream, or of one of its consumers, if it has one;
        OSError."""

    def join(self, stream: Stream) -> None:
        """Sets `member` of a stream that is open and not served; OSError, StoreError."""

    def leave(self, stream: Stream, *, delete: bool) -> None:
        """Ends `member` of a stream and of its consumers. `delete`: they are no more."""

    def join_consumer(
        self, stream: Stream, wanted: ConsumerAssignment, prepared: Any, directory: str | None
    ) -> ConsumerMember | None:
        """The opened consumer of a stream that has a member; None: it has no replicas."""

    def begins_with(self, stream: str, consumer: str) -> bytes:
        """How far a new consumer is, as an o.dat; b"": it begins as its configuration says."""

    def leave_consumer(self, stream: Stream, consumer: Consumer, *, delete: bool) -> None:
        """As `leave`, with its handle."""
