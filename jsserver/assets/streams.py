"""Stream configurations: defaults, validation in the documented order, rules of updates.

The order of the checks and their texts are nats-server 2.14's: clients compare both.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from jsserver.cext.bytes import (
    any_overlap,
    subject_covers,
    subject_is_valid,
    subjects_overlap,
)
from jsserver.text import goformat, transforms
from jsserver.text.transforms import TransformError
from jsserver.wire import errcodes, options
from jsserver.wire.errors import ApiError
from jsserver.wire.types import StreamConfig

from . import patterns, sources
from .limits import AccountLimits, ServerSettings
from .names import is_believed, is_valid_name

MAX_NAME = 255
MAX_DESCRIPTION = 4096
MAX_METADATA = 128 * 1024
MAX_REPLICAS = 5
HIGHEST_START = 1 << 61
"""Where a stream may be told to go on at most: files hold sequences below twice as much."""
DEFAULT_DUPLICATE_WINDOW = 2 * goformat.MINUTE
SMALLEST_WINDOW = 100 * goformat.MILLISECOND

NAME_CHARACTERS = "can not contain '.', '*', '>', '\\', '/'"
"""How error texts name the rule for names."""

REQUIRED_LEVEL = "_nats.req.level"
DYNAMIC_KEYS = ("_nats.ver", "_nats.level")
"""Metadata of responses only."""
SERVER_KEYS = (REQUIRED_LEVEL, *DYNAMIC_KEYS)
_OF_SERVER = "$*>"
"""What a subject begins with that may overlap with one of the server's own."""

_invalid = errcodes.STREAM_INVALID_CONFIG


class Terms(NamedTuple):
    """What a configuration is judged by."""

    settings: ServerSettings
    limits: AccountLimits
    pedantic: bool
    """What would be corrected silently is an error too."""
    find: sources.Find
    """Gives the account's other streams."""


def normalise(request: StreamConfig, terms: Terms) -> StreamConfig:
    """The configuration with every default filled in; ApiError for the first thing wrong with it
    in itself."""
    config = StreamConfig(**{f: getattr(request, f) for f in StreamConfig.__struct_fields__})
    config.metadata = stored_metadata(config.metadata, required_level(config))
    for rule in VALID:
        rule(config, terms)
    config.metadata = stored_metadata(config.metadata, required_level(config))
    return config


def raise_to_least(config: msgspec.Struct, kind: type[msgspec.Struct], pedantic: bool) -> None:
    """Puts the least value in the place of numbers below it; with `pedantic` that is an error."""
    for field, least in options.least_of(kind):
        value = getattr(config, field)
        if value < least.value:
            if pedantic:
                text = (
                    "must not be negative" if least.value == 0 else f"must be set to {least.value}"
                )
                raise errcodes.PEDANTIC(err=f"{field} {text}")
        elif value != 0 or not least.also_zero:
            continue
        setattr(config, field, least.value)


def _check_texts(config: StreamConfig, _: Terms) -> None:
    if not is_valid_name(config.name):
        raise _invalid(err=f"stream name is required and {NAME_CHARACTERS}")
    if len(config.name.encode()) > MAX_NAME:
        raise _invalid(err=f"stream name is too long, maximum allowed is {MAX_NAME}")
    if len(config.description.encode()) > MAX_DESCRIPTION:
        raise _invalid(err=f"stream description is too long, maximum allowed is {MAX_DESCRIPTION}")
    if metadata_size(config.metadata) > MAX_METADATA:
        raise _invalid(err=f"stream metadata exceeds maximum size of {MAX_METADATA} bytes")


def _check_replicas(config: StreamConfig, _: Terms) -> None:
    if config.num_replicas == 0:
        config.num_replicas = 1
    if config.num_replicas > MAX_REPLICAS:
        raise _invalid(err=f"maximum replicas is {MAX_REPLICAS}")
    if config.num_replicas < 0:
        raise errcodes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()


def _check_least(config: StreamConfig, terms: Terms) -> None:
    raise_to_least(config, StreamConfig, terms.pedantic)


def _check_first_seq(config: StreamConfig, _: Terms) -> None:
    check_first_seq(config)


def check_first_seq(config: StreamConfig) -> None:
    """Raises if messages of the stream would get sequences that its files cannot hold."""
    if config.first_seq > HIGHEST_START:
        raise _invalid(err=f"first sequence can not be larger than {HIGHEST_START}")


def _check_windows(config: StreamConfig, terms: Terms) -> None:
    """max_age and duplicate_window, which depend on each other."""
    pedantic = terms.pedantic
    if config.max_age < 0:
        raise _invalid(err="max age can not be negative")
    if 0 < config.max_age < SMALLEST_WINDOW:
        raise _invalid(err="max age needs to be >= 100ms")
    limit = terms.settings.duplicate_window
    if config.duplicate_window == 0 and config.mirror is None and not config.sources:
        window = DEFAULT_DUPLICATE_WINDOW
        if 0 < limit < window:
            if pedantic:
                raise errcodes.PEDANTIC(
                    err="duplicate window limits are higher than current limits"
                )
            window = limit
        if 0 < config.max_age < window:
            if pedantic:
                raise errcodes.PEDANTIC(err="duplicate window cannot be bigger than max age")
            window = config.max_age
        config.duplicate_window = window
    if config.duplicate_window < 0:
        raise _invalid(err="duplicates window can not be negative")
    if 0 < config.max_age < config.duplicate_window:
        raise _invalid(err="duplicates window can not be larger then max age")
    if 0 < limit < config.duplicate_window:
        most = goformat.duration(limit)
        raise _invalid(err=f"duplicates window can not be larger then server limit of {most}")
    if 0 < config.duplicate_window < SMALLEST_WINDOW:
        raise _invalid(err="duplicates window needs to be >= 100ms")


def _check_options(config: StreamConfig, terms: Terms) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise _invalid(err="roll-ups require the purge permission")
    if config.allow_msg_counter:
        if config.discard == "new":
            raise _invalid(err="counter stream cannot use discard new")
        if config.allow_msg_ttl:
            raise _invalid(err="counter stream cannot use message TTLs")
        if config.allow_msg_schedules:
            raise _invalid(err="counter stream cannot use message schedules")
        if config.retention != "limits":
            raise _invalid(err="counter stream can only use limits retention")
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise _invalid(err="discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise _invalid(err="discard new per subject requires max msgs per subject > 0")
    _check_delete_markers(config, terms.pedantic)
    if config.allow_msg_schedules:
        if config.discard == "new":
            raise _invalid(err="message scheduling cannot use discard new")
        if not config.allow_rollup_hdrs:
            if terms.pedantic:
                raise _invalid(err="message scheduling cannot be set if roll-ups are disabled")
            config.allow_rollup_hdrs, config.deny_purge = True, False
    if config.persist_mode == "default":
        config.persist_mode = ""
    if config.persist_mode == "async":
        if config.storage != "file":
            raise _invalid(err="async persist mode is only supported on file storage")
        if config.num_replicas > 1:
            raise _invalid(err="async persist mode is not supported on replicated streams")
        if config.allow_atomic:
            raise _invalid(err="async persist mode is not supported with atomic batch publish")


def _check_delete_markers(config: StreamConfig, pedantic: bool) -> None:
    marker = config.subject_delete_marker_ttl
    if marker < 0:
        raise _invalid(err="subject delete marker TTL must not be negative")
    if marker == 0:
        return
    if marker < goformat.SECOND:
        raise _invalid(err="subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise _invalid(err="subject delete marker cannot be set if message TTLs are disabled")
        config.allow_msg_ttl = True
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise _invalid(err="subject delete marker cannot be set if roll-ups are disabled")
        config.allow_rollup_hdrs, config.deny_purge = True, False


def _check_sources(config: StreamConfig, terms: Terms) -> None:
    sources.check(config, terms.find, terms.pedantic)


def _check_subjects(config: StreamConfig, _: Terms) -> None:
    if config.mirror is None and not config.sources and not config.subjects:
        config.subjects = [config.name]
    subjects = config.subjects
    wrong: ApiError | None = None
    end = len(subjects)
    for at, subject in enumerate(subjects):
        wrong = _wrong_with(subject, config.no_ack)
        if wrong is not None:
            end = at
            break
    found = patterns.first_overlap(subjects, end)
    if found is not None:
        one, other = (goformat.quote(subjects[at]) for at in found)
        raise _invalid(err=f"subject {one} overlaps with {other}")
    if wrong is not None:
        raise wrong


def _wrong_with(subject: str, no_ack: bool) -> ApiError | None:
    """Why a stream may not have this subject; None: it may."""
    if not subject_is_valid(subject):
        return _invalid(err="invalid subject")
    if not no_ack and subject[0] in _OF_SERVER:
        return _reserved(patterns.widened(subject))
    return None


def _check_transform(config: StreamConfig, _: Terms) -> None:
    transform = config.subject_transform
    if transform is not None:
        sources.check_transforms(
            [transform],
            errcodes.STREAM_TRANSFORM_INVALID_SOURCE,
            errcodes.STREAM_TRANSFORM_INVALID_DESTINATION,
        )


def _check_republish(config: StreamConfig, terms: Terms) -> None:
    republish, pedantic = config.republish, terms.pedantic
    if republish is None:
        return
    if not republish.src and pedantic:
        raise errcodes.PEDANTIC(err="republish source can not be empty")
    source, destination = republish.src or ">", republish.dest
    transform = config.subject_transform
    if source == destination == ">" and transform and config.subjects == [transform.src]:
        if pedantic:
            raise errcodes.PEDANTIC(err="implicit republish based on subject transform")
        source = destination = transform.dest
    config.republish = msgspec.structs.replace(republish, src=source, dest=destination)
    if any_overlap(config.subjects, destination):
        raise _invalid(err="stream configuration for republish destination forms a cycle")
    if is_believed(destination):
        what = f"republish destination '{destination}' is a subject of the server's own"
        raise _invalid(err=f"stream configuration for {what}")
    try:
        transforms.parse(source, destination)
    except TransformError:
        what = f"republish with transform from '{source}' to '{destination}' not valid"
        raise _invalid(err=f"stream configuration for {what}") from None


def _reserved(subject: str) -> ApiError | None:
    """The error of subjects of the server's own, whose answers a PubAck would get in the way of."""
    if subject == ">":
        return _invalid(err="capturing all subjects requires no-ack to be true")
    if any(subjects_overlap(subject, own) for own in ("$JS.>", "$JSC.>", "$NRG.>")) and (
        not subject_covers("$JS.EVENT.>", subject)
    ):
        return _invalid(err="subjects that overlap with jetstream api require no-ack to be true")
    if subjects_overlap(subject, "$SYS.>") and not subject_covers("$SYS.ACCOUNT.>", subject):
        return _invalid(err="subjects that overlap with system api require no-ack to be true")
    return None


def _check_max_bytes(config: StreamConfig, terms: Terms) -> None:
    limits = terms.limits
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise errcodes.STREAM_MAX_BYTES_REQUIRED()
    most = (
        limits.memory_max_stream_bytes
        if config.storage == "memory"
        else limits.storage_max_stream_bytes
    )
    if most > 0 and config.max_bytes > most:
        raise errcodes.STREAM_MAX_STREAM_BYTES_EXCEEDED()


def _check_placement(config: StreamConfig, _: Terms) -> None:
    placement = config.placement
    if placement is None:
        return
    if placement.preferred:
        raise _invalid(err="preferred server not permitted in placement")
    if not placement.cluster and not placement.tags:
        config.placement = None


VALID: tuple[Callable[[StreamConfig, Terms], None], ...] = (
    _check_texts,
    _check_replicas,
    _check_least,
    _check_first_seq,
    _check_windows,
    _check_options,
    _check_sources,
    _check_subjects,
    _check_transform,
    _check_republish,
    _check_max_bytes,
    _check_placement,
)
"""What a configuration has to be in itself, in the order in which clients see it. A rule fills in
the defaults of its options, and raises ApiError for what is wrong with them."""


def metadata_size(metadata: dict[str, str]) -> int:
    """Bytes that count against the limit of metadata."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in metadata.items())


def required_level(config: StreamConfig) -> int:
    """The API level that a server needs to serve this stream."""
    return options.level_of(config, StreamConfig)


def stored_metadata(given: dict[str, str], level: int) -> dict[str, str]:
    """A client's metadata as it is stored: without our keys, with the required level, sorted."""
    kept = {k: v for k, v in given.items() if k not in DYNAMIC_KEYS}
    kept[REQUIRED_LEVEL] = str(level)
    return dict(sorted(kept.items()))


def same(a: StreamConfig, b: StreamConfig) -> bool:
    """Whether two normalised configurations are equal but for the server's metadata."""
    return msgspec.structs.replace(a, metadata={}) == msgspec.structs.replace(
        b, metadata={}
    ) and user_metadata(a.metadata) == user_metadata(b.metadata)


def user_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata without the keys that servers set."""
    return {k: v for k, v in metadata.items() if k not in SERVER_KEYS}


def check_update(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """The configuration that replaces `old`; both are normalised. ApiError if it may not."""
    if new.allow_msg_counter and new.allow_msg_ttl:  # also by a delete marker
        raise _invalid(err="counter stream cannot use message TTLs")
    options.check_rules(old, new, StreamConfig)
    _check_updated_republish(new)
    if new.sealed:
        new = msgspec.structs.replace(
            new,
            max_age=0,
            discard="new",
            deny_delete=True,
            deny_purge=True,
            allow_rollup_hdrs=False,
        )
    return new


def _check_updated_republish(config: StreamConfig) -> None:
    """Where an update leaves the destination empty, nats-server looks at `>` in its place."""
    republish = config.republish
    if republish is None or republish.dest:
        return
    try:
        transforms.parse(republish.src, ">")
    except TransformError:
        what = f"republish from '{republish.src}' to '>': invalid subject"
        raise errcodes.STREAM_UPDATE(err=f"stream configuration for {what}") from None


def violating(limits: StreamConfig, consumers: Iterable[tuple[str, int, int]]) -> list[str]:
    """Names of the consumers (name, inactive_threshold, max_ack_pending) above the limits."""
    threshold = limits.consumer_limits.inactive_threshold
    pending = limits.consumer_limits.max_ack_pending
    return [
        name
        for name, inactive, most in consumers
        if (threshold > 0 and inactive > threshold) or (pending > 0 and most > pending)
    ]
