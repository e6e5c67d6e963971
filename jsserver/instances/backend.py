"""What the API asks of the data plane, as protocols, and the plain values that cross that line.

Units: times are nanoseconds since the Unix epoch (0: none), durations nanoseconds, sizes bytes;
a limit of -1 means unlimited. Subjects, names, headers and payloads are bytes.

Every method takes the engine lock for a short time and may be called from any thread. A method
whose docstring starts with "Blocking" may besides wait for a disk or work in proportion to what is
stored: it is called in a worker thread, never in the event loop. Methods raise StoreError when the
store cannot do its work, StreamClosed or ConsumerClosed when another request deleted it meanwhile,
and ValueError never: the API validates first.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Protocol, overload

import msgspec

from jsserver.cext.bytes import SubjectTransform as SubjectTransform
from jsserver.cext.consumer import ConsumerClosed as ConsumerClosed
from jsserver.cext.consumer import ConsumerState as ConsumerState
from jsserver.cext.consumer import ConsumerWait as ConsumerWait
from jsserver.cext.consumer import PendingMessage as PendingMessage
from jsserver.cext.engine import AccountUsage as AccountUsage
from jsserver.cext.engine import AnsweredRequests as AnsweredRequests
from jsserver.cext.engine import PlaneClosed as PlaneClosed
from jsserver.cext.stream import IntakeState as IntakeState
from jsserver.cext.stream import Lost as Lost
from jsserver.cext.stream import Message as Message
from jsserver.cext.stream import StoreError as StoreError
from jsserver.cext.stream import StreamClosed as StreamClosed
from jsserver.cext.stream import StreamState as StreamState
from jsserver.wire.types import ConsumerConfig, StreamConfig


class PreparedStream(msgspec.Struct, kw_only=True, frozen=True):
    """A normalised configuration, and what is made of it before the data plane takes it."""

    config: StreamConfig
    subject_transform: SubjectTransform | None
    republish: SubjectTransform | None
    republish_headers_only: bool
    mirror_direct: str
    """Of a mirror: the stream whose direct gets it answers, too; "": nobody's."""


class PreparedConsumer(msgspec.Struct, kw_only=True, frozen=True):
    """A normalised configuration, and what is made of it before the data plane takes it."""

    config: ConsumerConfig
    name: str
    opt_start_time: int
    ack_wait: int
    filters: Sequence[str]
    """Empty: every message."""
    sample_percent: int
    dead_subject: str
    """Where messages are stored that died; "": nowhere."""
    pause_until: int
    """0: not paused. A time in the past means not paused either."""


class ConsumerHandle(Protocol):
    """A consumer in the data plane."""

    @property
    def id(self) -> int:
        """Tells this consumer from a later one of the same name; never used twice."""

    def damaged(self) -> bool:
        """Whether what its directory said of its position could not be read: it starts anew."""

    def counting(self) -> bool:
        """Whether what is pending is still counted: `state` then waits for it."""

    def state(self) -> ConsumerState:
        """Position and counts; drops waiting requests that expired or lost their interest."""

    def changed_state(self) -> ConsumerState:
        """Position and counts when it was opened or last updated, before that led to a delivery."""

    def update(self, prepared: PreparedConsumer, back: bool = False) -> None:
        """Blocking. Takes the new configuration; a new filter counts what is pending anew. One that
        delivers to another subject then is held until `begin`. `back`: as of streams."""

    def pause(self, until: int) -> None:
        """Delivers nothing before this time; 0 or a past time resumes."""

    def reset(self, seq: int) -> int:
        """Blocking. Forgets what was delivered and delivers from this sequence on, 0: from behind
        the ack floor. Returns the sequence."""

    def waits(self) -> ConsumerWait:
        """Why it delivers nothing at the moment; drops waiting requests as `state` does."""

    def oldest(self) -> tuple[int, int]:
        """Blocking. The sequences of the first message that is not delivered yet, and of the first
        that is not acked; 0: none."""

    def pending(self, start: int, limit: int, idle: int) -> list[PendingMessage]:
        """Blocking. At most `limit` messages that are not acked, by sequence from `start` on, last
        delivered at least `idle` ago."""

    def release(self, seqs: Iterable[int], idle: int, deliver: bytes) -> list[int]:
        """Those of at most 256 messages that are not acked, and were last delivered at least `idle`
        ago, are delivered again now: to this subject or, where it is empty, as usual."""

    def unpin(self) -> None:
        """The client that is pinned is so no longer."""

    def begin(self, ticket: int = 0) -> None:
        """Ends the hold of its opening or update once the change with this ticket is durable."""

    def encode_state(self) -> bytes:
        """Position and what is pending, in the format of nats-server's o.dat."""

    def close(self, delete: bool) -> None:
        """Blocking. Stops serving; with `delete` waiting pulls are told that it was deleted, and
        messages that nobody else needs leave an interest stream.

        The state is flushed otherwise. Its files stay: the API removes the directory."""


class StreamHandle(Protocol):
    """A stream in the data plane."""

    def activate(self, hold: bool = False) -> None:
        """Subscribes its subjects and direct-get subjects and starts to serve. Called once, after
        the consumers that were on disk are open. `hold`: not all are, and nobody knows what the
        others need; what consumers let go of stays (interest retention)."""

    def update(self, prepared: PreparedStream, back: bool = False) -> None:
        """Blocking. Takes the new configuration; lower limits have trimmed when it returns.
        `back`: the one before an update that failed, with which a stream that failed comes back."""

    def state(self) -> StreamState:
        """Counts."""

    def lost(self) -> Lost:
        """Which messages cannot be served because the files are damaged, and where."""

    def deleted(self, most: int) -> Sequence[int]:
        """Blocking. Deleted sequences between the first and the last one, ascending, the first ones
        of them."""

    def subjects(self, filter: bytes, start: int, most: int) -> tuple[int, dict[bytes, int]]:
        """Blocking. How many stored subjects match the pattern, and of those, in order, the numbers
        of messages of at most `most` from the one at `start` on."""

    @overload
    def purge(self, filter: bytes | None, seq: int, keep: int) -> int:
        """Blocking. Removes everything, or what matches `filter`; with `seq` only below it, with
        `keep` all but the newest. 0 stands for "not given". Returns how many messages went."""

    @overload
    def purge(self, filter: bytes | None, seq: int, keep: int, short: bool) -> int | None:
        """As before. With `short` it does not block: None, and nothing was done, where it takes
        long."""

    def get(self, seq: int) -> Message | None:
        """The message with this sequence."""

    def last_for(self, filter: bytes) -> Message | None:
        """The newest message on a matching subject."""

    def next_for(self, filter: bytes, seq: int) -> Message | None:
        """The first message from `seq` on whose subject matches; an empty filter matches all."""

    def pack(self, key: bytes, seq: int, last: int, most: int) -> tuple[bytes, int]:
        """Blocking. Messages from `seq` up to `last`, which has been reached, as a block of some
        `most` bytes, at least one message, whose checksums have this key of 32 bytes; and where the
        next block begins, beyond `last` after the last one."""

    def fill(self, source: "StreamHandle") -> None:
        """Blocking. Of a stream without messages that is not activated yet: takes those of another
        one, under their sequences and times, as far as its own limits let them stay."""

    def at_time(self, ts: int) -> int:
        """The sequence of the first message stored at or after this time; last + 1 if none."""

    def delete(self, seq: int, erase: bool) -> bool:
        """Blocking. Removes one message; False if there is none. `erase` overwrites its bytes."""

    def unsettled(self, seq: int = 0) -> int:
        """What an answer waits for that shows the message with this sequence or, with 0, anything
        else of the stream, so that nothing is seen before it is durable: a ticket; 0: nothing."""

    def changed_ticket(self) -> int:
        """What an answer waits for that says that the stream or a consumer of it was changed: a
        ticket for `answer`; 0: all is as durable as the sync setting promises."""

    def answer(self, ticket: int, reply: bytes, data: bytes, type: bytes) -> bool:
        """Publishes an answer to `reply` when the ticket is durable, or an error of this type if
        that fails. False when too many wait."""

    def wait_durable(self, synced: bool = False) -> None:
        """Blocking. Returns when everything done so far to the stream and its consumers is as
        durable as the sync setting promises; `synced`: when it is on disk, whatever that says."""

    def take_in(
        self,
        id: int,
        deliver: bytes,
        consumer: bytes,
        origin: int,
        mirror: bool,
        head: bytes,
        tail: bytes,
        transforms: Sequence[SubjectTransform | None],
    ) -> None:
        """Takes in what the consumer, by its stream's name, a dot and its own, delivers there, from
        behind the origin's sequence `origin` on, in place of what was taken in under this id. A
        mirror uses up sequences up to it; a source notes each message's origin between `head` and
        `tail`. The first transform that matches gives the subject. SourceBroken tells that it has
        ended."""

    def leave_off(self, id: int) -> None:
        """Ends what `take_in` began."""

    def intake(self, id: int) -> IntakeState | None:
        """How far that is; None: nothing is taken in under this id."""

    def sourced(self, sources: Sequence[tuple[bytes, bytes]], behind: int) -> list[int]:
        """Blocking. The last sequences of the origins of these sources, by head and tail, that
        messages stored behind this one tell; 0: none."""

    def reopen(self, mirror: bool = False) -> None:
        """Blocking. Of a stream that failed, else nothing: opens it again, with its consumers, from
        what was durable before. It is read then, and not changed before `resume`. A mirror, which
        refused nothing to anybody, keeps all that is on disk. StoreError if it cannot be opened: to
        be tried again."""

    def resume(self) -> None:
        """Takes changes again."""

    def withhold(self, on: bool) -> None:
        """Blocking. With `on`, nothing of it is written any more, whatever it takes: its directory
        may be taken away. Without, all that is written after all."""

    def open_consumer(
        self, prepared: PreparedConsumer, directory: str | None, hold: bool = False
    ) -> ConsumerHandle:
        """Blocking. Opens a consumer, new or with the state found in its directory, and serves it
        as soon as the stream is active. None, or any of a stream in memory: state is kept in memory
        only."""

    def close(self, delete: bool) -> None:
        """Blocking. Stops serving, closes its consumers, and flushes and closes the store. With
        `delete` nothing needs to be flushed, and waiting pulls are told that their consumer was
        deleted. The files stay: the API removes the directory."""


class AccountHandle(Protocol):
    """An account of the data plane."""

    def open_stream(
        self, directory: str | None, prepared: PreparedStream, synced: bool = False
    ) -> StreamHandle:
        """Blocking. Opens a stream, new or with what is found in its directory (None exactly for
        memory storage), without serving it yet. `synced`: all of that is on disk, and the caller
        syncs what opening changes of it, before it is served.
        StoreError if the store cannot be opened."""

    def usage(self) -> AccountUsage:
        """What its streams hold."""

    def requests(self) -> AnsweredRequests:
        """What its streams have answered of the API, since the account is there."""

    def set_limits(self, max_memory: int, max_storage: int) -> None:
        """The most that its streams may hold, checked at each publish."""

    def publish(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Routes a message of the server's own."""

    def request(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Routes a request on the account's behalf: as from a client that may do everything."""

    def serve_answers(self, subject: bytes) -> None:
        """Answers on this subject come to the control plane, from clients and servers alike."""

    def serve_requests(self, subject: bytes) -> None:
        """Messages on this subject, which may have wildcards, come to the control plane."""

    def serve_acks(self, subject: bytes) -> None:
        """What streams answer on this subject comes to the control plane, and nothing that anybody
        else sends there."""

    def stop_requests(self, subject: bytes) -> None:
        """Ends what `serve_requests` began."""

    def subject_interest(self, subject: bytes) -> bool:
        """Whether a client would receive a message on this subject."""

    def subscribed(self, subject: bytes) -> bool:
        """Whether somebody has subscribed to exactly this subject."""

    def outstanding(self, subject: bytes) -> int:
        """The most bytes that wait to be written to one of the connections that would receive a
        message on this subject; -1: none would."""

    def may_receive(self, cid: int, subject: bytes) -> bool:
        """Whether a connection of this account may subscribe to this subject, or publish there."""


class Accounts(Protocol):
    """The data plane's accounts by name."""

    def __getitem__(self, name: str) -> AccountHandle: ...
    def __contains__(self, name: object) -> bool: ...


class ConsumerGone(msgspec.Struct, kw_only=True, frozen=True):
    """Event: a consumer was without interest for its threshold and is to be deleted."""

    account: str
    stream: str
    consumer: str
    id: int


class PauseOver(msgspec.Struct, kw_only=True, frozen=True):
    """Event: a consumer's pause ended by itself."""

    account: str
    stream: str
    consumer: str


class AdvisoryKind(IntEnum):
    """What a consumer's advisory is about."""

    MAX_DELIVER = 1
    NAK = 2
    TERM = 3
    ACK_METRIC = 4
    PINNED = 5
    UNPINNED = 6


class ConsumerAdvisory(msgspec.Struct, kw_only=True, frozen=True):
    """Event: something that a consumer tells listeners of `$JS.EVENT`; sent only if there are."""

    account: str
    stream: str
    consumer: str
    kind: AdvisoryKind
    stream_seq: int
    consumer_seq: int
    deliveries: int
    ack_time: int = 0
    """Nanoseconds from the last delivery to the acknowledgement (ACK_METRIC)."""
    reason: str = ""
    """TERM: what the client gave. PINNED, UNPINNED: the group, a blank, and the pin's id or why it
    ended."""


class BatchAbandoned(msgspec.Struct, kw_only=True, frozen=True):
    """Event: an atomic batch was dropped; told only if there are listeners of `$JS.EVENT`."""

    account: str
    stream: str
    batch: str
    reason: str
    """timeout, large, incomplete or unsupported"""


class SourceBroken(msgspec.Struct, kw_only=True, frozen=True):
    """Event: what a stream took in under this id has ended, for a gap or for a message that it
    cannot store."""

    account: str
    stream: str
    id: int


Event = SourceBroken | ConsumerGone | PauseOver | ConsumerAdvisory | BatchAbandoned
