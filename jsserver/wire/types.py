"""Configurations and requests of the JetStream API, each declared once.

The order of the fields is the order on the wire. A field with a plain default is left out of JSON
while it has that default; one declared with `always` is written in any case. Durations are
nanoseconds, times RFC 3339 texts ("" = not given).
"""

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from .errors import ErrorBody

T = TypeVar("T")


def always(value: T) -> T:
    """A default that is written out too: msgspec omits only what is its plain default."""
    default: T = msgspec.field(default_factory=lambda: value)
    return default


def _integer(name: str, low: int, high: int) -> Meta:
    return Meta(title=name, extra={"low": low, "high": high})


Int64 = Annotated[int, _integer("int64", -(1 << 63), (1 << 63) - 1)]
Int32 = Annotated[int, _integer("int32", -(1 << 31), (1 << 31) - 1)]
Uint64 = Annotated[int, _integer("uint64", 0, (1 << 64) - 1)]
Duration = Annotated[int, _integer("time.Duration", -(1 << 63), (1 << 63) - 1)]
Time = Annotated[str, Meta(title="time.Time")]

Retention = Literal["limits", "interest", "workqueue"]
Discard = Annotated[Literal["old", "new"], Meta(extra={"fold": True})]
Storage = Literal["file", "memory"]
Compression = Annotated[
    Literal["none", "s2"], Meta(extra={"error": "unknown compression algorithm"})
]
PersistMode = Literal["", "default", "async"]
DeliverPolicy = Literal[
    "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"
]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Annotated[
    Literal["none", "overflow", "pinned_client", "prioritized"],
    Meta(extra={"error": "unknown priority policy: {value}"}),
]
NO_PRIORITY: PriorityPolicy = "none"
ConsumerAction = Annotated[
    Literal["", "create", "update"], Meta(extra={"error": "unknown consumer action: {value}"})
]


class Wire(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Base of everything that goes over the wire."""


class Placement(Wire):
    """Where a cluster should put a stream."""

    cluster: str = ""
    tags: list[str] = []
    preferred: str = ""


class FeatureFlags(Wire):
    """Options of later releases of nats-server, all off."""

    js_ack_fc_v2: bool = always(False)
    js_raft_delete_range: bool = always(False)


class SubjectTransform(Wire):
    """A mapping of subjects."""

    src: str = always("")
    dest: str = always("")


class ExternalStream(Wire):
    """How to reach a stream of another account or domain."""

    api: str = always("")
    deliver: str = always("")


class SourceConsumer(Wire):
    """A consumer made beforehand for a mirror or source."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(Wire):
    """What a mirror or source reads from."""

    name: str = always("")
    opt_start_seq: Uint64 = 0
    opt_start_time: Time = ""
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None


class Republish(Wire):
    """Where stored messages are published again."""

    src: str = ""
    dest: str = always("")
    headers_only: bool = False


class ConsumerLimits(Wire):
    """Defaults and ceilings for the consumers of a stream."""

    inactive_threshold: Duration = 0
    max_ack_pending: Int64 = 0


class StreamConfig(Wire):
    """A stream's configuration."""

    name: str = always("")
    description: str = ""
    subjects: list[str] = []
    retention: Retention = always("limits")
    max_consumers: Int64 = always(0)
    max_msgs: Int64 = always(0)
    max_bytes: Int64 = always(0)
    max_age: Duration = always(0)
    max_msgs_per_subject: Int64 = always(0)
    max_msg_size: Int32 = always(0)
    discard: Discard = always("old")
    storage: Storage = always("file")
    num_replicas: Int64 = always(0)
    no_ack: bool = False
    duplicate_window: Duration = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = []
    compression: Compression = always("none")
    first_seq: Uint64 = 0
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_direct: bool = always(False)
    mirror_direct: bool = always(False)
    discard_new_per_subject: bool = False
    sealed: bool = always(False)
    deny_delete: bool = always(False)
    deny_purge: bool = always(False)
    allow_rollup_hdrs: bool = always(False)
    consumer_limits: ConsumerLimits = msgspec.field(default_factory=ConsumerLimits)
    allow_msg_ttl: bool = always(False)
    subject_delete_marker_ttl: Duration = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: PersistMode = ""
    allow_batched: bool = False
    metadata: dict[str, str] = {}


class ConsumerConfig(Wire):
    """A consumer's configuration."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = always("all")
    opt_start_seq: Uint64 = 0
    opt_start_time: Time = ""
    ack_policy: AckPolicy = always("none")
    ack_wait: Duration = 0
    max_deliver: Int64 = 0
    backoff: list[Duration] = []
    filter_subject: str = ""
    filter_subjects: list[str] = []
    replay_policy: ReplayPolicy = always("instant")
    rate_limit_bps: Uint64 = 0
    sample_freq: str = ""
    max_waiting: Int64 = 0
    max_ack_pending: Int64 = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Int64 = 0
    max_expires: Duration = 0
    max_bytes: Int64 = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Duration = 0
    inactive_threshold: Duration = 0
    num_replicas: Int64 = always(0)
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: Time = ""
    priority_groups: list[str] = []
    priority_policy: PriorityPolicy = NO_PRIORITY
    priority_timeout: Duration = 0


class StoredStream(StreamConfig):
    """What a stream's meta.inf holds."""

    Created: Time = always("")


class StoredConsumer(ConsumerConfig):
    """What a consumer's meta.inf holds; the inner name is that of the directory."""

    Created: Time = always("")
    Name: str = always("")


class StreamConfigRequest(StreamConfig):
    """STREAM.CREATE and STREAM.UPDATE."""

    pedantic: bool = False


class StorageRequest(Wire):
    """What STREAM.CREATE itself says about storage."""

    storage: Literal["", "file", "memory"] = ""


class StreamInfoRequest(Wire):
    """STREAM.INFO."""

    offset: Int64 = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class SourceInfo(Wire):
    """What a mirror or a source has to do with its origin."""

    name: str = always("")
    external: ExternalStream | None = None
    lag: Uint64 = always(0)
    active: Duration = always(-1)
    """Nanoseconds since something came; -1: nothing ever did."""
    error: ErrorBody | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []


class StreamPageRequest(Wire):
    """STREAM.NAMES and STREAM.LIST."""

    offset: Int64 = 0
    subject: str = ""


class PurgeRequest(Wire):
    """STREAM.PURGE."""

    seq: Uint64 = 0
    filter: str = ""
    keep: Uint64 = 0


class LostMessages(Wire):
    """Messages that cannot be served because the files are damaged."""

    msgs: list[Uint64] | None = always(None)
    bytes: Uint64 = always(0)


class StreamStateInfo(Wire):
    """Counts of a stream."""

    messages: Uint64 = always(0)
    bytes: Uint64 = always(0)
    first_seq: Uint64 = always(0)
    first_ts: Time = always("")
    last_seq: Uint64 = always(0)
    last_ts: Time = always("")
    num_subjects: Uint64 = 0
    subjects: dict[str, Uint64] | None = None
    num_deleted: Uint64 = 0
    deleted: list[Uint64] | None = None
    lost: LostMessages | None = None
    consumer_count: Uint64 = always(0)


class RestoreRequest(Wire):
    """STREAM.RESTORE."""

    config: StreamConfig = msgspec.field(default_factory=StreamConfig)
    state: StreamStateInfo = msgspec.field(default_factory=StreamStateInfo)


class SnapshotRequest(Wire):
    """STREAM.SNAPSHOT."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: Int64 = 0
    window_size: Int64 = 0
    jsck: bool = False


class MessageGetRequest(Wire):
    """STREAM.MSG.GET."""

    seq: Uint64 = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: Int64 = 0
    max_bytes: Int64 = 0
    start_time: Time = ""
    multi_last: list[str] = []
    up_to_seq: Uint64 = 0
    up_to_time: Time = ""
    no_hdr: bool = False


class MessageDeleteRequest(Wire):
    """STREAM.MSG.DELETE."""

    seq: Uint64 = 0
    no_erase: bool = False


class ConsumerCreateRequest(Wire):
    """CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    stream_name: str = ""
    config: ConsumerConfig = msgspec.field(default_factory=ConsumerConfig)
    action: ConsumerAction = ""
    pedantic: bool = False


class ConsumerPageRequest(Wire):
    """CONSUMER.NAMES and CONSUMER.LIST."""

    offset: Int64 = 0


class ConsumerResetRequest(Wire):
    """CONSUMER.RESET."""

    seq: Uint64 = 0


class ConsumerPendingRequest(Wire):
    """JSSERVER.CONSUMER.PENDING: messages from `seq` on that are `idle` for so long."""

    seq: Uint64 = 0
    limit: Int64 = 0
    idle: Duration = 0


class ConsumerReleaseRequest(Wire):
    """JSSERVER.CONSUMER.RELEASE: these messages, or up to `limit`, that are `idle` for so long."""

    seqs: list[Uint64] = []
    limit: Int64 = 0
    idle: Duration = 0


class ConsumerClaimRequest(ConsumerReleaseRequest):
    """JSSERVER.CONSUMER.CLAIM: they are delivered to this subject."""

    deliver: str = ""


class ConsumerUnpinRequest(Wire):
    """CONSUMER.UNPIN."""

    group: str = ""


class ConsumerPauseRequest(Wire):
    """CONSUMER.PAUSE."""

    pause_until: Time = ""
