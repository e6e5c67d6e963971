"""Configurations and requests of the JetStream API, each declared once.

The order of the fields is the order on the wire. A field with a plain default is left out of JSON
while it has that default; one declared with `always` is written in any case. Durations are
nanoseconds, times RFC 3339 texts ("" = not given). Fields of configurations declare more where
there is more to say: the API level that they need, least values, what an update may change
(options.py).
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from . import errcodes
from .errors import ErrorBody
from .options import (
    CONTROL,
    Allows,
    Least,
    Made,
    Option,
    is_time,
    keeps_or_ends,
    keeps_work_queue,
    rule,
    same_moment,
    stays_on,
    stays_pull,
    stays_push,
    unchanged,
)

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
    Literal["none", "prioritized", "overflow", "pinned_client"],
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


def _is_positive(value: int) -> bool:
    return value > 0


def _is_async(mode: PersistMode) -> bool:
    return mode == "async"


def _is_flow_control(policy: AckPolicy) -> bool:
    return policy == "flow_control"


def _is_grouped(policy: PriorityPolicy) -> bool:
    return policy != NO_PRIORITY


def _limit(place: int, **more: Any) -> Option:
    """A number that limits nothing where it is -1, as are 0 and what is below."""
    return Option(least=Least(-1, place, also_zero=True), **more)


def _update(place: int, allows: Allows, text: str, **more: Any) -> Option:
    """A field of a stream of which an update may not change everything."""
    return Option(rules=(rule(place, allows, errcodes.STREAM_INVALID_CONFIG, text),), **more)


def _denies(place: int, allows: Allows, what: str, **more: Any) -> Option:
    return _update(place, allows, f"stream configuration update can not {what}", **more)


def _keeps(place: int, what: str, allows: Allows = unchanged, **more: Any) -> Option:
    """A field of a consumer that an update may not change."""
    error = errcodes.CONSUMER_CREATE
    return Option(rules=(rule(place, allows, error, f"{what} can not be updated"),), **more)


class StreamConfig(Wire):
    """A stream's configuration."""

    name: str = always("")
    description: Annotated[str, CONTROL] = ""
    subjects: list[str] = []
    retention: Annotated[
        Retention, _denies(2, keeps_work_queue, "change retention policy to/from workqueue")
    ] = always("limits")
    max_consumers: Annotated[Int64, _limit(5, plane=())] = always(0)
    max_msgs: Annotated[Int64, _limit(1)] = always(0)
    max_bytes: Annotated[Int64, _limit(3)] = always(0)
    max_age: Duration = always(0)
    max_msgs_per_subject: Annotated[Int64, _limit(2)] = always(0)
    max_msg_size: Annotated[Int32, _limit(4)] = always(0)
    discard: Discard = always("old")
    storage: Annotated[Storage, _denies(1, unchanged, "change storage type")] = always("file")
    num_replicas: Annotated[Int64, CONTROL] = always(0)
    no_ack: bool = False
    duplicate_window: Duration = 0
    placement: Annotated[Placement | None, CONTROL] = None
    mirror: Annotated[
        StreamSource | None,
        Option(rules=(rule(6, keeps_or_ends, errcodes.STREAM_MIRROR_NOT_UPDATABLE),), plane=()),
    ] = None
    sources: Annotated[list[StreamSource], CONTROL] = []
    compression: Compression = always("none")
    first_seq: Uint64 = 0
    subject_transform: Annotated[
        SubjectTransform | None, Option(plane=(Made("Transform*"),))
    ] = None
    republish: Annotated[
        Republish | None,
        Option(plane=(Made("Transform*"), Made("flag", "republish_headers_only"))),
    ] = None
    allow_direct: bool = always(False)
    mirror_direct: Annotated[bool, Option(plane=(Made("Span"),))] = always(False)
    discard_new_per_subject: bool = False
    sealed: Annotated[bool, _denies(3, stays_on, "unseal a sealed stream")] = always(False)
    deny_delete: Annotated[bool, _denies(4, stays_on, "cancel deny message deletes")] = always(
        False
    )
    deny_purge: Annotated[bool, _denies(5, stays_on, "cancel deny purge")] = always(False)
    allow_rollup_hdrs: bool = always(False)
    consumer_limits: Annotated[ConsumerLimits, CONTROL] = msgspec.field(
        default_factory=ConsumerLimits
    )
    allow_msg_ttl: Annotated[
        bool, _update(7, stays_on, "message TTL status can not be disabled", level=1)
    ] = always(False)
    subject_delete_marker_ttl: Annotated[Duration, Option(level=1, is_used=_is_positive)] = 0
    allow_msg_counter: Annotated[
        bool, _denies(8, unchanged, "change message counter setting", level=2)
    ] = False
    allow_atomic: Annotated[bool, Option(level=2)] = False
    allow_msg_schedules: Annotated[
        bool, _update(9, stays_on, "message schedules can not be disabled", level=2)
    ] = False
    persist_mode: Annotated[
        PersistMode, _denies(10, unchanged, "change persist mode", level=2, is_used=_is_async)
    ] = ""
    allow_batched: Annotated[bool, Option(level=4)] = False
    metadata: Annotated[dict[str, str], CONTROL] = {}


_PUSHED_OR_PULLED = Option(
    rules=tuple(
        rule(place, allows, errcodes.CONSUMER_CREATE, f"can not update {text} based")
        for place, allows, text in (
            (9, stays_pull, "pull consumer to push"),
            (10, stays_push, "push consumer to pull"),
        )
    )
)


class ConsumerConfig(Wire):
    """A consumer's configuration."""

    durable_name: Annotated[str, CONTROL] = ""
    name: Annotated[str, Option(plane=(Made("Span"),))] = ""
    description: Annotated[str, CONTROL] = ""
    deliver_policy: Annotated[DeliverPolicy, _keeps(1, "deliver policy")] = always("all")
    opt_start_seq: Annotated[Uint64, _keeps(3, "start sequence")] = 0
    opt_start_time: Annotated[
        Time, _keeps(4, "start time", same_moment, plane=(Made("int64_t"),))
    ] = ""
    ack_policy: Annotated[AckPolicy, _keeps(5, "ack policy", level=4, is_used=_is_flow_control)] = (
        always("none")
    )
    ack_wait: Annotated[Duration, Option(plane=(Made("duration"),))] = 0
    max_deliver: Annotated[Int64, Option(least=Least(-1, 1))] = 0
    backoff: list[Duration] = []
    filter_subject: Annotated[str, CONTROL] = ""
    filter_subjects: Annotated[list[str], Option(plane=(Made("Span[]", "filters"),))] = []
    replay_policy: Annotated[ReplayPolicy, _keeps(6, "replay policy")] = always("instant")
    rate_limit_bps: Uint64 = 0
    sample_freq: Annotated[str, Option(plane=(Made("uint32_t", "sample_percent"),))] = ""
    max_waiting: Annotated[Int64, _keeps(11, "max waiting", least=Least(0, 2))] = 0
    max_ack_pending: Annotated[Int64, Option(least=Least(-1, 3))] = 0
    flow_control: Annotated[bool, _keeps(8, "flow control")] = False
    headers_only: bool = False
    max_batch: Annotated[Int64, Option(least=Least(0, 4))] = 0
    max_expires: Annotated[Duration, Option(least=Least(0, 5))] = 0
    max_bytes: Annotated[Int64, Option(least=Least(0, 6))] = 0
    deliver_subject: Annotated[str, _PUSHED_OR_PULLED] = ""
    deliver_group: str = ""
    idle_heartbeat: Annotated[Duration, _keeps(7, "heart beats", least=Least(0, 7))] = 0
    inactive_threshold: Annotated[Duration, Option(least=Least(0, 8))] = 0
    num_replicas: Annotated[Int64, CONTROL] = always(0)
    mem_storage: Annotated[bool, _keeps(2, "storage type")] = False
    direct: bool = False
    sourcing: Annotated[bool, CONTROL] = False
    metadata: Annotated[dict[str, str], Option(plane=(Made("Span", "dead_subject"),))] = {}
    pause_until: Annotated[
        Time, Option(level=1, is_used=is_time, plane=(Made("int64_t"),))
    ] = ""
    priority_groups: Annotated[list[str], Option(level=1)] = []
    priority_policy: Annotated[PriorityPolicy, Option(level=1, is_used=_is_grouped)] = NO_PRIORITY
    priority_timeout: Annotated[Duration, Option(level=1, least=Least(0, 9))] = 0


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


class StreamAlternate(Wire):
    """A stream that has a stream's messages: itself, or a mirror."""

    name: str = always("")
    domain: str = ""
    cluster: str = always("")


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


class ClusterInfo(Wire):
    """Who serves an asset, and in which cluster."""

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: Time = ""
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[Wire] = msgspec.field(default_factory=list)


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
