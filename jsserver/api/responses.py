"""Answers of the JetStream API, each declared once; omission as in `types`."""

import msgspec

from jsserver.assets.limits import AccountLimits
from jsserver.wire.errors import ErrorBody
from jsserver.wire.types import (
    ClusterInfo,
    ConsumerConfig,
    Int64,
    SourceInfo,
    StreamAlternate,
    StreamConfig,
    StreamStateInfo,
    Time,
    Uint64,
    Wire,
    always,
)

TYPE_PREFIX = "io.nats.jetstream.api.v1."


class Response(Wire):
    """The envelope. Pages and subject details carry total, offset and limit, errors included."""

    type: str = ""
    error: ErrorBody | None = None
    total: int | None = None
    offset: int | None = None
    limit: int | None = None


class PagedResponse(Response):
    """The envelope of an answer that always has its page."""

    total: int | None = always(0)
    offset: int | None = always(0)
    limit: int | None = always(0)


class SuccessResponse(Response):
    """STREAM.DELETE, STREAM.MSG.DELETE, CONSUMER.DELETE; and errors without a body."""

    success: bool = False


class ApiStats(Wire):
    """Requests that an account made."""

    level: int = always(0)
    total: int = always(0)
    errors: int = always(0)
    inflight: int = 0


class TierInfo(Wire):
    """What streams of one number of replicas use."""

    memory: int = always(0)
    storage: int = always(0)
    reserved_memory: int = always(0)
    reserved_storage: int = always(0)
    streams: int = always(0)
    consumers: int = always(0)
    limits: AccountLimits = always(AccountLimits())


class AccountInfo(Response):
    """INFO."""

    memory: int = always(0)
    storage: int = always(0)
    reserved_memory: int = always(0)
    reserved_storage: int = always(0)
    streams: int = always(0)
    consumers: int = always(0)
    limits: AccountLimits = always(AccountLimits())
    domain: str = ""
    api: ApiStats = always(ApiStats())
    tiers: dict[str, TierInfo] = msgspec.field(default_factory=dict)


class StreamInfo(Response):
    """A stream: element of a list, and body of STREAM.CREATE, UPDATE and INFO."""

    config: StreamConfig | None = None
    created: Time = ""
    state: StreamStateInfo | None = None
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = msgspec.field(default_factory=list)
    domain: str = ""
    cluster: ClusterInfo | None = None
    alternates: list[StreamAlternate] = msgspec.field(default_factory=list)
    ts: Time = ""
    did_create: bool = False


class StreamNames(PagedResponse):
    """STREAM.NAMES; null when there is none."""

    streams: list[str] | None = always(None)


class StreamList(PagedResponse):
    """STREAM.LIST."""

    streams: list[StreamInfo] = msgspec.field(default_factory=lambda: [])
    missing: list[str] | None = None
    offline: dict[str, str] | None = None


class SnapshotResponse(Response):
    """STREAM.SNAPSHOT: what follows on the deliver subject."""

    config: StreamConfig | None = None
    state: StreamStateInfo | None = None


class RestoreResponse(Response):
    """STREAM.RESTORE: where the archive is to be sent."""

    deliver_subject: str = always("")


class AccountPurgeResponse(Response):
    """ACCOUNT.PURGE."""

    initiated: bool = False


class PurgeResponse(SuccessResponse):
    """STREAM.PURGE."""

    purged: Uint64 = always(0)


class StoredMessage(Wire):
    """A message of a stream; headers and payload in base64."""

    subject: str = always("")
    seq: Uint64 = always(0)
    hdrs: bytes = b""
    data: bytes = b""
    time: Time = always("")


class MessageGetResponse(Response):
    """STREAM.MSG.GET."""

    message: StoredMessage | None = None


class SequenceInfo(Wire):
    """A position of a consumer."""

    consumer_seq: int = always(0)
    stream_seq: int = always(0)
    last_active: Time = ""


class WaitReason(Wire):
    """Why a consumer delivers nothing at the moment; "": it delivers."""

    reason: str = always("")
    text: str = always("")
    until: Time = ""
    count: int = 0
    seq: int = 0


class PriorityGroupState(Wire):
    """A priority group, and who is pinned in it."""

    group: str = always("")
    pinned_client_id: str = ""
    pinned_ts: Time = always("")


class ConsumerInfo(Response):
    """A consumer: element of a list, and body of CONSUMER.CREATE and INFO."""

    stream_name: str = ""
    name: str = ""
    created: Time = ""
    config: ConsumerConfig | None = None
    delivered: SequenceInfo | None = None
    ack_floor: SequenceInfo | None = None
    num_ack_pending: int | None = None
    num_redelivered: int | None = None
    num_waiting: int | None = None
    num_pending: int | None = None
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Int64 = 0
    ts: Time = ""
    priority_groups: list[PriorityGroupState] = msgspec.field(default_factory=list)
    waits: WaitReason | None = None
    """Only for those who ask for it."""


class ConsumerResetResponse(ConsumerInfo):
    """CONSUMER.RESET."""

    reset_seq: Uint64 = always(0)


class ConsumerLag(Wire):
    """How far a consumer is behind: messages to be delivered and acked, and how long ago (ns) the
    first of each was stored."""

    messages: int = always(0)
    age: int = always(0)
    seq: int = 0
    unacked: int = always(0)
    unacked_age: int = always(0)
    unacked_seq: int = 0


class ConsumerWaits(Response):
    """JSSERVER.CONSUMER.WAITS."""

    stream_name: str = ""
    name: str = ""
    waits: WaitReason | None = None
    lag: ConsumerLag | None = None


class PendingMessage(Wire):
    """A message that was delivered and is not acked; `since` its last delivery, `due` when it is
    delivered again."""

    seq: int = always(0)
    subject: str = always("")
    deliveries: int = always(0)
    since: Time = always("")
    idle: int = always(0)
    due: Time = ""
    queued: bool = False


class ConsumerPending(Response):
    """JSSERVER.CONSUMER.PENDING; `next`: where the next page begins."""

    stream_name: str = ""
    name: str = ""
    num_ack_pending: int | None = None
    messages: list[PendingMessage] = msgspec.field(default_factory=list)
    next: int = 0


class ConsumerReleased(Response):
    """JSSERVER.CONSUMER.RELEASE and CLAIM."""

    stream_name: str = ""
    name: str = ""
    seqs: list[int] = msgspec.field(default_factory=list)


class ConsumerNames(PagedResponse):
    """CONSUMER.NAMES."""

    consumers: list[str] = msgspec.field(default_factory=lambda: [])


class ConsumerList(PagedResponse):
    """CONSUMER.LIST."""

    consumers: list[ConsumerInfo] = msgspec.field(default_factory=lambda: [])
    missing: list[str] | None = None
    offline: dict[str, str] | None = None


class ConsumerPauseResponse(Response):
    """CONSUMER.PAUSE."""

    paused: bool = always(False)
    pause_until: Time = always("")
    pause_remaining: Int64 = 0
