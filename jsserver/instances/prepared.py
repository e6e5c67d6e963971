"""What is made of a stream's or consumer's configuration before the data plane takes it. The fields
that it takes as they are it reads from the configuration itself (tools/gen_options.py)."""

from jsserver.assets import consumers
from jsserver.text import goformat, transforms
from jsserver.wire.types import ConsumerConfig, StreamConfig

from .backend import PreparedConsumer, PreparedStream, SubjectTransform


def _transform(config: StreamConfig) -> SubjectTransform | None:
    given = config.subject_transform
    transform = transforms.parse_mapping(given.src, given.dest) if given else None
    return transform.compiled() if transform else None


def _republish(config: StreamConfig) -> SubjectTransform | None:
    given = config.republish
    transform = transforms.parse(given.src, given.dest) if given else None
    return transform.compiled() if transform else None


def stream(config: StreamConfig) -> PreparedStream:
    """Of a normalised configuration. TransformError."""
    return PreparedStream(
        config=config,
        subject_transform=_transform(config),
        republish=_republish(config),
        republish_headers_only=config.republish is not None and config.republish.headers_only,
        mirror_direct=config.mirror.name if config.mirror and config.mirror_direct else "",
    )


def consumer(config: ConsumerConfig, name: str) -> PreparedConsumer:
    """Of a normalised configuration."""
    untimed = config.ack_policy == "flow_control"
    return PreparedConsumer(
        config=config,
        name=name,
        opt_start_time=goformat.instant(config.opt_start_time) if config.opt_start_time else 0,
        ack_wait=goformat.MAX_DURATION if untimed else config.ack_wait,
        filters=consumers.filters(config),
        sample_percent=consumers.sample_percent(config),
        dead_subject=consumers.dead_subject(config),
        pause_until=consumers.pause_time(config),
    )
