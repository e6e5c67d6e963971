"""What the data plane is handed of a stream's or consumer's configuration."""

from jsserver.assets import consumers
from jsserver.text import goformat, transforms
from jsserver.wire.types import ConsumerConfig, StreamConfig

from . import backend

_RETENTION = {
    "limits": backend.Retention.LIMITS,
    "interest": backend.Retention.INTEREST,
    "workqueue": backend.Retention.WORKQUEUE,
}


def _transform(config: StreamConfig) -> backend.SubjectTransform | None:
    given = config.subject_transform
    transform = transforms.parse_mapping(given.src, given.dest) if given else None
    return transform.compiled() if transform else None


def _republish(config: StreamConfig) -> backend.SubjectTransform | None:
    given = config.republish
    transform = transforms.parse(given.src, given.dest) if given else None
    return transform.compiled() if transform else None


def _origin(config: StreamConfig) -> bytes:
    if config.mirror is None or not config.mirror_direct:
        return b""
    return config.mirror.name.encode()


def of_stream(config: StreamConfig) -> backend.StreamParams:
    """What the data plane needs of a normalised configuration. TransformError."""
    return backend.StreamParams(
        name=config.name.encode(),
        subjects=tuple(s.encode() for s in config.subjects),
        retention=_RETENTION[config.retention],
        storage=backend.Storage.MEMORY if config.storage == "memory" else backend.Storage.FILE,
        discard=backend.Discard.NEW if config.discard == "new" else backend.Discard.OLD,
        discard_new_per_subject=config.discard_new_per_subject,
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_msgs_per_subject=config.max_msgs_per_subject,
        max_msg_size=config.max_msg_size,
        max_age=backend.span(config.max_age),
        duplicate_window=backend.span(config.duplicate_window),
        first_seq=config.first_seq,
        no_ack=config.no_ack,
        early_acks=config.persist_mode == "async",
        allow_direct=config.allow_direct,
        allow_rollup=config.allow_rollup_hdrs,
        sealed=config.sealed,
        deny_delete=config.deny_delete,
        deny_purge=config.deny_purge,
        allow_atomic=config.allow_atomic,
        allow_batched=config.allow_batched,
        allow_ttl=config.allow_msg_ttl,
        allow_counter=config.allow_msg_counter,
        allow_schedules=config.allow_msg_schedules,
        marker_ttl=backend.span(config.subject_delete_marker_ttl),
        transform=_transform(config),
        republish=_republish(config),
        origin=_origin(config),
        republish_headers_only=config.republish is not None and config.republish.headers_only,
    )


_DELIVER = {
    "all": backend.DeliverPolicy.ALL,
    "last": backend.DeliverPolicy.LAST,
    "new": backend.DeliverPolicy.NEW,
    "by_start_sequence": backend.DeliverPolicy.BY_START_SEQUENCE,
    "by_start_time": backend.DeliverPolicy.BY_START_TIME,
    "last_per_subject": backend.DeliverPolicy.LAST_PER_SUBJECT,
}
_ACK = {
    "none": backend.AckPolicy.NONE,
    "all": backend.AckPolicy.ALL,
    "explicit": backend.AckPolicy.EXPLICIT,
    "flow_control": backend.AckPolicy.FLOW_CONTROL,
}
_PRIORITY = {
    "none": backend.PriorityPolicy.NONE,
    "prioritized": backend.PriorityPolicy.PRIORITIZED,
    "overflow": backend.PriorityPolicy.OVERFLOW,
    "pinned_client": backend.PriorityPolicy.PINNED_CLIENT,
}


def of_consumer(config: ConsumerConfig, name: str) -> backend.ConsumerParams:
    """What the data plane needs of a normalised configuration."""
    original = config.replay_policy == "original"
    untimed = config.ack_policy == "flow_control"
    return backend.ConsumerParams(
        name=name.encode(),
        durable=bool(config.durable_name),
        deliver_policy=_DELIVER[config.deliver_policy],
        opt_start_seq=config.opt_start_seq,
        opt_start_time=goformat.instant(config.opt_start_time) if config.opt_start_time else 0,
        ack_policy=_ACK[config.ack_policy],
        ack_wait=backend.LONGEST if untimed else backend.span(config.ack_wait),
        max_deliver=config.max_deliver,
        backoff=tuple(map(backend.span, config.backoff)),
        filters=tuple(f.encode() for f in consumers.filters(config)),
        replay_policy=backend.ReplayPolicy.ORIGINAL if original else backend.ReplayPolicy.INSTANT,
        rate_limit=config.rate_limit_bps,
        sample_percent=consumers.sample_percent(config),
        max_waiting=config.max_waiting,
        max_ack_pending=config.max_ack_pending,
        headers_only=config.headers_only,
        max_batch=config.max_batch,
        max_expires=backend.span(config.max_expires),
        max_bytes=config.max_bytes,
        deliver_subject=config.deliver_subject.encode(),
        deliver_group=config.deliver_group.encode(),
        flow_control=config.flow_control,
        idle_heartbeat=backend.span(config.idle_heartbeat),
        inactive_threshold=backend.span(config.inactive_threshold),
        mem_storage=config.mem_storage,
        direct=config.direct,
        pause_until=consumers.pause_time(config),
        priority_policy=_PRIORITY[config.priority_policy],
        priority_groups=tuple(g.encode() for g in config.priority_groups),
        dead_subject=consumers.dead_subject(config).encode(),
        priority_timeout=backend.span(config.priority_timeout),
    )
