"""Raft groups and members as the running streams and consumers use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment

    from .rounds import Work
    from .running import Consumer, Stream


class StreamMember(Protocol):
    """A stream's member of its Raft group."""

    def leads(self) -> bool:
        """Whether this server leads the stream and takes publishes."""

    def trouble(self) -> str:
        """Why the member is not current; "": it is, or was a moment ago; in any thread."""


class ConsumerMember(Protocol):
    """A consumer's member of its Raft group."""

    @property
    def handle(self) -> Any:
        """The consumer's handle."""

    def leads(self) -> bool:
        """Whether this server leads the consumer, delivers and answers."""

    def trouble(self) -> str:
        """Why the member is not current; "": it is, or was a moment ago; in any thread."""


class Groups(Protocol):
    """The Raft groups of an account's streams and consumers. Every method may wait for a disk."""

    def drives(self, wanted: StreamAssignment) -> bool:
        """Whether this very stream is replicated here."""

    def prepare(self, name: str, consumer: str = "") -> Work[None]:
        """Makes the directory for the group of a stream or a consumer, if it has a group;
        OSError."""

    def join(self, stream: Stream, *, synced: bool = False) -> None:
        """Sets `member` of a stream that is open and not served yet; OSError, StoreError.
        `synced`: what the stream's file system has is on disk."""

    def leave(self, stream: Stream, *, delete: bool) -> None:
        """Closes the members of a stream and its consumers. `delete`: they were deleted."""

    def join_consumer(
        self, stream: Stream, wanted: ConsumerAssignment, prepared: Any, directory: str | None
    ) -> ConsumerMember | None:
        """The member of a consumer to be opened; None: the consumer is not replicated."""

    def begins_with(self, stream: str, consumer: str) -> bytes:
        """A new consumer's first state in the form of o.dat; b"": its configuration decides."""

    def leave_consumer(self, stream: Stream, consumer: Consumer, *, delete: bool) -> None:
        """Closes a consumer's member, and its handle with it."""
