"""Mirrors and sources: their rules, what a source is known by, and the consumers that they ask for.

The order of the checks and their texts are nats-server 2.14's. A source is known by its stream,
filter and transforms: that stands in the header `Nats-Stream-Source` of every message it brought.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from jsserver.cext.bytes import (
    subject_is_literal,
    subject_is_valid,
    subjects_overlap,
)
from jsserver.text import goformat, transforms
from jsserver.text.identity import short_hash
from jsserver.text.transforms import TransformError
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError, ErrorTemplate
from jsserver.wire.types import (
    ConsumerConfig,
    ConsumerCreateRequest,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

from . import patterns
from .names import is_valid_name

API = "$JS.API"
HEARTBEAT = goformat.SECOND
SILENCE = 10 * goformat.SECOND
"""How long nothing comes until a consumer is asked for anew; its inactive threshold."""
ACK_WAIT = 22 * goformat.HOUR

Find = Callable[[str], StreamConfig | None]
"""The configuration of a stream of the account, or None."""

_invalid = errcodes.STREAM_INVALID_CONFIG


def of_stream(config: StreamConfig) -> list[StreamSource]:
    """What a stream reads from: its mirror, or its sources."""
    return [config.mirror] if config.mirror is not None else config.sources


def weight(config: StreamConfig) -> int:
    """How much there is to what a stream reads from: sources, and their transforms."""
    return sum(1 + len(source.subject_transforms) for source in of_stream(config))


# ---- identity ------------------------------------------------------------------------------------


def _reached(source: StreamSource) -> str:
    """The stream's name, with the way to it."""
    if source.external is None:
        return source.name
    return f"{source.name}:{short_hash(source.external.api)}"


def header_parts(source: StreamSource) -> tuple[str, str]:
    """What stands in `Nats-Stream-Source` before the origin's sequence, and between it and the
    origin's subject."""
    mapped = source.subject_transforms
    if mapped:
        wanted = "\f".join(t.src or ">" for t in mapped)
        becomes = "\f".join(t.dest or ">" for t in mapped)
    else:
        wanted, becomes = source.filter_subject or ">", ">"
    name = _reached(source)
    if source.consumer is not None:
        name += f":C={short_hash(source.consumer.name)}"
    return f"{name} ", f" {wanted} {becomes} "


def identity(source: StreamSource) -> str:
    """What no other source of a stream may have."""
    head, tail = header_parts(source)
    return head + tail.strip(" ")


# ---- consumers -----------------------------------------------------------------------------------


def repeated(config: StreamConfig) -> set[str]:
    """The names of streams that several sources read."""
    counts = Counter(source.name for source in config.sources)
    return {name for name, count in counts.items() if count > 1}


def consumer_name(
    config: StreamConfig, source: StreamSource, account: str, domain: str, alone: bool
) -> str:
    """The name of the consumer that a mirror or source asks for; `alone`: no other source reads a
    stream of its stream's name."""
    stable = short_hash(" ".join([config.name, account, *([domain] if domain else [])]))
    if config.mirror is not None:
        return f"JS_MIRROR_{stable}"
    if not alone:
        stable += f" {identity(source)}"
    return f"JS_SRC_{short_hash(stable)}"


def deliver_subject(source: StreamSource, mirror: bool, token: str) -> str:
    """Where deliveries go, of which `token` is the last part."""
    kind = "M" if mirror else "S"
    if source.external is not None and source.external.deliver:
        return f"{source.external.deliver}.{kind}.{token}".replace("..", ".")
    return f"$JS.{kind}.{token}"


def api_subject(source: StreamSource, request: str) -> str:
    """The subject of a request to the API that serves the origin."""
    if source.external is None:
        return f"{API}.{request}"
    return f"{source.external.api}.{request}".replace("..", ".")


def consumer_request(
    config: StreamConfig,
    source: StreamSource,
    name: str,
    account: str,
    domain: str,
    deliver: str,
    start: ConsumerConfig,
) -> tuple[str, ConsumerCreateRequest]:
    """The request for the consumer of this name that a mirror or source asks for; `start` says
    where it starts."""
    mirror = config.mirror is not None
    kind = "mirror" if mirror else "src"
    metadata = {f"_nats.{kind}.acc": account}
    if domain:
        metadata[f"_nats.{kind}.domain"] = domain
    metadata[f"_nats.{kind}.stream"] = config.name
    wanted = [t.src for t in source.subject_transforms]
    alone = wanted[0] if len(wanted) == 1 else source.filter_subject
    asked = msgspec.structs.replace(
        start,
        name=name,
        deliver_subject=deliver,
        ack_policy="none",
        ack_wait=ACK_WAIT,
        max_deliver=1,
        idle_heartbeat=HEARTBEAT,
        flow_control=True,
        direct=True,
        sourcing=True,
        inactive_threshold=SILENCE,
        metadata=metadata,
        filter_subject=alone,
        filter_subjects=wanted if len(wanted) > 1 else [],
    )
    subject = f"CONSUMER.CREATE.{source.name}"
    if alone:
        subject += f".{asked.name}.{alone}"
    request = ConsumerCreateRequest(stream_name=source.name, config=asked)
    return api_subject(source, subject), request


# ---- rules ---------------------------------------------------------------------------------------


def check(config: StreamConfig, find: Find, pedantic: bool) -> None:
    """Raises ApiError for the first thing wrong with a mirror or with sources; a mirror serves
    direct gets if its origin does."""
    if config.mirror is not None:
        _check_mirror(config, config.mirror)
        _check_origin(config, config.mirror, find, errcodes.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG)
        _inherit_direct(config, config.mirror, find, pedantic)
    if config.sources:
        _check_sources(config, find)
    _check_prefixes(config, find)
    _check_cycle(config, find)


def check_filters(config: StreamConfig) -> None:
    """Raises ApiError for filters that are no subjects."""
    for source in of_stream(config):
        wanted = source.filter_subject
        if source.subject_transforms or not wanted or subject_is_valid(wanted):
            continue
        if config.mirror is not None:
            text = f"subject filter '{wanted}' for the mirror invalid subject"
        else:
            text = f"subject filter '{wanted}' for the source: invalid subject"
        raise errcodes.STREAM_CREATE(err=text)


def _check_mirror(config: StreamConfig, mirror: StreamSource) -> None:
    for present, error in (
        (config.first_seq > 0, errcodes.MIRROR_WITH_FIRST_SEQ),
        (config.subjects, errcodes.MIRROR_WITH_SUBJECTS),
        (config.sources, errcodes.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, errcodes.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, errcodes.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, errcodes.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, errcodes.MIRROR_WITH_MSG_SCHEDULES),
        (not _consumer_is_valid(mirror), errcodes.MIRROR_DURABLE_CONSUMER_CFG_INVALID),
        (
            mirror.filter_subject and mirror.subject_transforms,
            errcodes.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED,
        ),
    ):
        if present:
            raise error()
    if config.subject_delete_marker_ttl:
        raise _invalid(err="subject delete markers forbidden on mirrors")
    wrong, end = _wrong_transform(
        mirror.subject_transforms,
        errcodes.MIRROR_INVALID_SUBJECT_FILTER,
        errcodes.MIRROR_INVALID_TRANSFORM_DESTINATION,
    )
    if patterns.first_overlap([t.src for t in mirror.subject_transforms], end) is not None:
        raise errcodes.MIRROR_OVERLAPPING_SUBJECT_FILTERS()
    if wrong is not None:
        raise wrong
    if mirror.external is None and not is_valid_name(mirror.name):
        raise errcodes.MIRROR_INVALID_STREAM_NAME()


def _check_sources(config: StreamConfig, find: Find) -> None:
    if config.allow_msg_schedules:
        raise errcodes.SOURCE_WITH_MSG_SCHEDULES()
    known: set[str] = set()
    consumers: set[tuple[str, str]] = set()
    for source in config.sources:
        if not is_valid_name(source.name):
            raise errcodes.SOURCE_INVALID_STREAM_NAME()
        if identity(source) in known:
            raise errcodes.SOURCE_DUPLICATE_DETECTED()
        known.add(identity(source))
        mapped = source.subject_transforms
        if source.filter_subject and mapped:
            raise errcodes.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED()
        check_transforms(
            mapped,
            errcodes.SOURCE_INVALID_SUBJECT_FILTER,
            errcodes.SOURCE_INVALID_TRANSFORM_DESTINATION,
        )
        if patterns.first_covered([t.src for t in mapped], len(mapped)) is not None:
            raise errcodes.SOURCE_OVERLAPPING_SUBJECT_FILTERS()
        if not _consumer_is_valid(source):
            raise errcodes.SOURCE_DURABLE_CONSUMER_CFG_INVALID()
        if source.consumer is not None:
            used = (_reached(source), source.consumer.name)
            if used in consumers:
                raise errcodes.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED()
            consumers.add(used)
        _check_origin(config, source, find, errcodes.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)


def _consumer_is_valid(source: StreamSource) -> bool:
    """Whether a consumer that was made beforehand may be meant, if one is."""
    made = source.consumer
    if made is None:
        return True
    where = made.deliver_subject
    valid = is_valid_name(made.name) and subject_is_literal(where) and subject_is_valid(where)
    starts = source.opt_start_seq or source.opt_start_time
    return valid and not starts and not source.filter_subject


def check_transforms(
    given: list[SubjectTransform], source: ErrorTemplate, destination: ErrorTemplate
) -> None:
    """Raises one of these errors for a transform that is none."""
    wrong, _ = _wrong_transform(given, source, destination)
    if wrong is not None:
        raise wrong


def _wrong_transform(
    given: list[SubjectTransform], source: ErrorTemplate, destination: ErrorTemplate
) -> tuple[ApiError | None, int]:
    """The error of the first transform that is none, and its number; None and how many there are,
    if all are."""
    for at, transform in enumerate(given):
        try:
            transforms.check_source(transform.src)
        except TransformError as error:
            return source(err=str(error)), at
        try:
            transforms.parse_mapping(transform.src, transform.dest)
        except TransformError as error:
            return destination(err=str(error)), at
    return None, len(given)


def _check_origin(
    config: StreamConfig, source: StreamSource, find: Find, too_small: ErrorTemplate
) -> None:
    origin = find(source.name) if source.external is None else None
    if origin is not None and 0 < config.max_msg_size < origin.max_msg_size:
        raise too_small()


def _inherit_direct(config: StreamConfig, mirror: StreamSource, find: Find, pedantic: bool) -> None:
    origin = find(mirror.name) if mirror.external is None else None
    if origin is None:
        return
    if pedantic and config.mirror_direct != origin.allow_direct:
        raise errcodes.PEDANTIC(err="origin stream has direct get set, mirror has it disabled")
    config.mirror_direct = origin.allow_direct


def _check_prefixes(config: StreamConfig, find: Find) -> None:
    external = [s.external for s in of_stream(config) if s.external is not None]
    near = [find(s.name) for s in of_stream(config) if s.external is None]
    subjects = [subject for origin in near if origin is not None for subject in origin.subjects]
    for prefix in (e.deliver for e in external if e.deliver):
        if not _is_sendable(prefix):
            raise errcodes.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(prefix=prefix)
        for subject in subjects:
            if subjects_overlap(subject, f"{prefix}.{subject}"):
                raise errcodes.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS(prefix=prefix, subject=subject)
    for prefix in (e.api for e in external if e.api):
        if not _is_sendable(prefix):
            what = f"stream external api prefix {goformat.quote(prefix)}"
            raise _invalid(err=f"{what} must be a valid subject without wildcards")
        if subjects_overlap(prefix, API):
            raise errcodes.STREAM_EXTERNAL_API_OVERLAP(prefix=prefix, subject=API)


def _is_sendable(subject: str) -> bool:
    return subject_is_valid(subject) and subject_is_literal(subject)


def _check_cycle(config: StreamConfig, find: Find) -> None:
    """Raises where messages would come back to the stream, as far as this account shows."""
    queue, visited = [config], set()
    while queue:
        one = queue.pop(0)
        if one.name in visited:
            continue  # several sources may lead to it
        visited.add(one.name)
        for source in of_stream(one):
            if source.external is not None:
                continue
            wanted = source.filter_subject if one.mirror is None else ""
            if source.name in visited:
                if not wanted or any(subjects_overlap(s, wanted) for s in one.subjects):
                    raise _invalid(err="detected cycle")
            elif (origin := find(source.name)) is not None:
                queue.append(origin)
