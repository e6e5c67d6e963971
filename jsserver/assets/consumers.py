"""Consumer configurations: defaults, validation in the documented order, rules of updates.

The order of the checks and their texts are nats-server 2.14's: clients compare both.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from jsserver.cext.bytes import (
    any_overlap,
    subject_is_literal,
    subject_is_valid,
)
from jsserver.text import goformat
from jsserver.wire import errcodes, options
from jsserver.wire.errors import ApiError
from jsserver.wire.types import NO_PRIORITY, ConsumerConfig, StreamConfig

from . import patterns
from .limits import AccountLimits, ServerSettings
from .names import is_believed
from .streams import (
    MAX_DESCRIPTION,
    MAX_METADATA,
    MAX_NAME,
    NAME_CHARACTERS,
    metadata_size,
    raise_to_least,
    stored_metadata,
    user_metadata,
)

DEAD_LETTERS = "jsserver.dead_letter_subject"
"""The metadata that names a subject for messages that died: delivered as often as they may be, or
terminated."""
DEFAULT_ACK_WAIT = 30 * goformat.SECOND
DEFAULT_MAX_WAITING = 512
DEFAULT_MAX_ACK_PENDING = 1000
DEFAULT_PRIORITY_TIMEOUT = 120 * goformat.SECOND
DEFAULT_INACTIVE_THRESHOLD = 5 * goformat.SECOND
"""Of ephemeral consumers."""

_NOT_IN_NAMES = frozenset(" \t\r\n\f.*>")
_GROUP_NAME = re.compile(r"[A-Za-z0-9/_=-]{1,16}")

_POLICY_TEXT = {
    "all": "all",
    "last": "last",
    "new": "new",
    "last_per_subject": "last per subject",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
}


def filters(config: ConsumerConfig) -> list[str]:
    """The subjects that a consumer wants; none means all."""
    return [config.filter_subject] if config.filter_subject else config.filter_subjects


def wanted(config: ConsumerConfig) -> list[str]:
    """Subjects that stand for all messages that a consumer gets."""
    return filters(config) or [">"]


def is_of_source(config: ConsumerConfig) -> bool:
    """Whether a mirror or a source made it."""
    return config.direct or config.sourcing


def for_source(config: ConsumerConfig, stream: StreamConfig, suffix: str) -> ConsumerConfig:
    """What becomes of a consumer that a mirror or a source asks for: where messages stay until
    they are acked one that is kept, and whose flow control acks; else one with a name of its
    own."""
    if not (config.direct and config.sourcing and config.name):
        return config
    if stream.retention == "limits":
        return msgspec.structs.replace(config, name=f"{config.name}-{suffix}")
    return msgspec.structs.replace(
        config,
        direct=False,
        durable_name=config.name,
        ack_policy="flow_control",
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
    )


def with_threshold(config: ConsumerConfig) -> ConsumerConfig:
    """An ephemeral consumer's configuration, with the default threshold if it names none."""
    if config.inactive_threshold > 0:
        return config
    return msgspec.structs.replace(config, inactive_threshold=DEFAULT_INACTIVE_THRESHOLD)


def pause_time(config: ConsumerConfig) -> int:
    """pause_until in nanoseconds; 0 if not given or the zero time."""
    if not config.pause_until:
        return 0
    return max(goformat.instant(config.pause_until), 0)


def pause_left(config: ConsumerConfig, now: int) -> int:
    """Nanoseconds until a pause ends, at most what 64 bits can tell; 0 if there is none."""
    if not config.pause_until:
        return 0
    left = goformat.parse_rfc3339(config.pause_until) - now
    return min(max(left, 0), goformat.MAX_DURATION)


def pause_end(text: str) -> str:
    """The end that a request to pause asks for, in UTC; empty: none."""
    if not text or options.is_zero_time(text):
        return ""
    return goformat.rfc3339_nano(goformat.parse_rfc3339(text))


def kept(asked: ConsumerConfig, there: ConsumerConfig) -> ConsumerConfig:
    """What is asked for of a consumer that is there: it stays paused or not, and a source's goes on
    where it stands."""
    asked = msgspec.structs.replace(asked, pause_until=there.pause_until)
    if asked.sourcing and asked.durable_name:
        asked.deliver_policy = there.deliver_policy
        asked.opt_start_seq, asked.opt_start_time = there.opt_start_seq, there.opt_start_time
    return asked


# ---- defaults ------------------------------------------------------------------------------------


def normalise(
    request: ConsumerConfig,
    stream: StreamConfig,
    settings: ServerSettings,
    limits: AccountLimits,
    pedantic: bool,
) -> ConsumerConfig:
    """The configuration with the defaults filled in, but for the threshold of ephemerals.

    With `pedantic`, a value that would be corrected is an error instead."""
    config = msgspec.structs.replace(request)
    note_level(config)  # by what was asked for: nats-server counts a negative timeout
    raise_to_least(config, ConsumerConfig, pedantic)
    if config.max_deliver == 0:
        config.max_deliver = -1
    if not config.deliver_subject and config.max_waiting == 0:
        config.max_waiting = DEFAULT_MAX_WAITING
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config.ack_wait = DEFAULT_ACK_WAIT
    if config.backoff:
        if pedantic and config.ack_wait != config.backoff[0]:
            raise errcodes.PEDANTIC(err="first backoff value has to equal batch AckWait")
        config.ack_wait = config.backoff[0]
    _default_max_ack_pending(config, stream, settings, limits, pedantic)
    _default_threshold(config, stream, pedantic)
    if not config.deliver_subject and config.max_batch == 0 and settings.max_request_batch > 0:
        if pedantic:
            raise errcodes.PEDANTIC(
                err="max_request_batch must be set if it's JetStream limits are set"
            )
        config.max_batch = settings.max_request_batch
    if config.priority_policy == NO_PRIORITY:
        config.priority_policy = NO_PRIORITY  # the default itself, which is left out of answers
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = DEFAULT_PRIORITY_TIMEOUT
    if config.ack_policy == "flow_control" and not pedantic:
        config.flow_control, config.idle_heartbeat = True, goformat.SECOND
    return config


def note_level(config: ConsumerConfig) -> None:
    """Puts the API level that a server needs for this consumer into its metadata."""
    level = options.level_of(config, ConsumerConfig)
    config.metadata = stored_metadata(config.metadata, level)


def _default_max_ack_pending(
    config: ConsumerConfig,
    stream: StreamConfig,
    settings: ServerSettings,
    limits: AccountLimits,
    pedantic: bool,
) -> None:
    if config.max_ack_pending != 0:
        return
    limit = stream.consumer_limits.max_ack_pending
    if limit:
        if pedantic and limit > 0:
            raise errcodes.PEDANTIC(
                err="max_ack_pending must be set if it's configured in stream limits"
            )
        config.max_ack_pending = limit
    elif config.ack_policy != "none":
        ceilings = (settings.max_ack_pending, limits.max_ack_pending)
        config.max_ack_pending = min([DEFAULT_MAX_ACK_PENDING, *(c for c in ceilings if c > 0)])


def _default_threshold(config: ConsumerConfig, stream: StreamConfig, pedantic: bool) -> None:
    limit = stream.consumer_limits.inactive_threshold
    if config.inactive_threshold == 0 and limit:
        if pedantic and limit > 0:
            raise errcodes.PEDANTIC(
                err="inactive_threshold must be set if it's configured in stream limits"
            )
        config.inactive_threshold = limit


# ---- validation ----------------------------------------------------------------------------------


class Terms(NamedTuple):
    """What a configuration is judged by."""

    stream: StreamConfig
    settings: ServerSettings
    limits: AccountLimits


def check(
    config: ConsumerConfig, stream: StreamConfig, settings: ServerSettings, limits: AccountLimits
) -> None:
    """Raises ApiError for the first thing that is wrong with a normalised configuration."""
    terms = Terms(stream, settings, limits)
    for rule in VALID:
        rule(config, terms)


def _check_names(config: ConsumerConfig, _: Terms) -> None:
    for name, what in ((config.name, "name"), (config.durable_name, "durable name")):
        if not _NOT_IN_NAMES.isdisjoint(name):
            raise errcodes.STREAM_INVALID_CONFIG(err=f"consumer {what} {NAME_CHARACTERS}")
        if not name.isprintable() and any("\ud800" <= c <= "\udfff" for c in name):
            raise errcodes.STREAM_INVALID_CONFIG(err=f"consumer {what} is no UTF-8 text")


def _check_replicas(config: ConsumerConfig, terms: Terms) -> None:
    stream = terms.stream
    if config.num_replicas > stream.num_replicas:
        raise errcodes.CONSUMER_REPLICAS_EXCEEDS_STREAM()
    if config.num_replicas < 0:
        raise errcodes.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if stream.retention != "limits" and config.num_replicas not in (0, stream.num_replicas):
        raise errcodes.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM()


def _check_waits(config: ConsumerConfig, _: Terms) -> None:
    if any(delay < 0 for delay in config.backoff):
        raise errcodes.CONSUMER_BACK_OFF_NEGATIVE()
    if config.ack_wait < 0:
        raise errcodes.CONSUMER_ACK_WAIT_NEGATIVE()


def _check_flow_control_acks(config: ConsumerConfig, _: Terms) -> None:
    if config.ack_policy != "flow_control":
        return
    for wrong, error in (
        (not config.deliver_subject, errcodes.CONSUMER_ACK_FC_REQUIRES_PUSH),
        (not config.flow_control, errcodes.CONSUMER_ACK_FC_REQUIRES_FC),
    ):
        if wrong:
            raise error()
    if config.idle_heartbeat != goformat.SECOND:
        raise errcodes.STREAM_INVALID_CONFIG(err="flow control ack policy heartbeat needs to be 1s")
    for wrong, error in (
        (config.max_ack_pending <= 0, errcodes.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING),
        (
            config.ack_wait != 0 or bool(config.backoff),
            errcodes.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT,
        ),
        (config.max_deliver > 0, errcodes.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER),
    ):
        if wrong:
            raise error()


def _check_deliveries(config: ConsumerConfig, _: Terms) -> None:
    if len(config.backoff) > config.max_deliver != -1:
        raise errcodes.CONSUMER_MAX_DELIVER_BACKOFF()


def _check_description(config: ConsumerConfig, _: Terms) -> None:
    if len(config.description.encode()) > MAX_DESCRIPTION:
        raise errcodes.CONSUMER_DESCRIPTION_TOO_LONG(max=MAX_DESCRIPTION)


def _check_push(config: ConsumerConfig, terms: Terms) -> None:
    target = config.deliver_subject
    if not target:
        return
    if not subject_is_literal(target):
        raise errcodes.CONSUMER_DELIVER_TO_WILDCARDS()
    if not subject_is_valid(target) or is_believed(target):
        raise errcodes.CONSUMER_INVALID_DELIVER_SUBJECT()
    if any_overlap(terms.stream.subjects, target):
        raise errcodes.CONSUMER_DELIVER_CYCLE()
    if config.max_waiting != 0:
        raise errcodes.CONSUMER_PUSH_MAX_WAITING()
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errcodes.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED()
    if 0 < config.idle_heartbeat < 100 * goformat.MILLISECOND:
        raise errcodes.CONSUMER_SMALL_HEARTBEAT()


def _check_pull(config: ConsumerConfig, terms: Terms) -> None:
    if config.deliver_subject:
        return
    if config.ack_policy == "none" and terms.stream.retention == "workqueue":
        raise errcodes.CONSUMER_PULL_REQUIRES_ACK()
    if config.rate_limit_bps > 0:
        raise errcodes.CONSUMER_PULL_WITH_RATE_LIMIT()
    if config.idle_heartbeat > 0:
        raise errcodes.CONSUMER_HB_REQUIRES_PUSH()
    if config.flow_control:
        raise errcodes.CONSUMER_FC_REQUIRES_PUSH()
    if 0 < config.max_expires < goformat.MILLISECOND:
        raise errcodes.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL()
    limit = terms.settings.max_request_batch
    if 0 < limit < config.max_batch:
        raise errcodes.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(limit=limit)


def _check_limits(config: ConsumerConfig, terms: Terms) -> None:
    stream, settings, limits = terms
    for limit in (
        settings.max_ack_pending,
        limits.max_ack_pending,
        stream.consumer_limits.max_ack_pending,
    ):
        if 0 < limit < config.max_ack_pending:
            raise errcodes.CONSUMER_MAX_PENDING_ACK_EXCESS(limit=limit)
    limit = stream.consumer_limits.inactive_threshold
    if 0 < limit < config.inactive_threshold:
        raise errcodes.CONSUMER_INACTIVE_THRESHOLD_EXCESS(limit=goformat.duration(limit))


def _check_direct(config: ConsumerConfig, _: Terms) -> None:
    if not config.direct:
        return
    if not config.deliver_subject:
        raise errcodes.CONSUMER_DIRECT_REQUIRES_PUSH()
    if config.durable_name:
        raise errcodes.CONSUMER_DIRECT_REQUIRES_EPHEMERAL()


def _check_filters(config: ConsumerConfig, _: Terms) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errcodes.CONSUMER_DUPLICATE_FILTER_SUBJECTS()
    wanted = filters(config)
    if "" in wanted:
        raise errcodes.CONSUMER_EMPTY_FILTER()
    end = next((at for at, s in enumerate(wanted) if not subject_is_valid(s)), len(wanted))
    if patterns.first_covered(wanted, end) is not None:
        raise errcodes.CONSUMER_OVERLAPPING_SUBJECT_FILTERS()
    if end < len(wanted):
        raise errcodes.STREAM_INVALID_CONFIG(err="invalid subject")


def _check_start(config: ConsumerConfig, _: Terms) -> None:
    policy = config.deliver_policy

    def refuse(what: str) -> ApiError:
        return errcodes.CONSUMER_INVALID_POLICY(
            err=f"consumer delivery policy is deliver {_POLICY_TEXT[policy]}, "
            f"but optional {what} set"
        )

    if policy == "by_start_sequence":
        if config.opt_start_seq == 0:
            raise refuse("start sequence is not")
        if config.opt_start_time:
            raise refuse("start time is also")
    elif policy == "by_start_time":
        if not config.opt_start_time:
            raise refuse("start time is not")
        if config.opt_start_seq:
            raise refuse("start start sequence is also")
    else:
        if config.opt_start_seq:
            raise refuse("start sequence is also")
        if config.opt_start_time:
            raise refuse("start time is also")
        if policy == "last_per_subject" and not filters(config):
            raise refuse("filter subject is not")


def _check_sampling(config: ConsumerConfig, _: Terms) -> None:
    sample_percent(config)


def sample_percent(config: ConsumerConfig) -> int:
    """Percentage of acknowledgements that produce a metric; ApiError if it is no number."""
    text = config.sample_freq.removesuffix("%")
    if not config.sample_freq:
        return 0
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        quoted = goformat.quote(text)
        raise errcodes.CONSUMER_INVALID_SAMPLING(
            err=f"strconv.Atoi: parsing {quoted}: invalid syntax"
        )
    value = int(text)
    if value < 0:
        raise errcodes.CONSUMER_INVALID_SAMPLING(err="<nil>")
    return min(value, 100)


def is_group_name(name: str) -> bool:
    """Whether a priority group may have this name."""
    return _GROUP_NAME.fullmatch(name) is not None


def _check_heartbeat(config: ConsumerConfig, _: Terms) -> None:
    if config.flow_control and config.idle_heartbeat == 0:
        raise errcodes.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS()


def _check_durable_name(config: ConsumerConfig, _: Terms) -> None:
    if config.durable_name and config.name and config.durable_name != config.name:
        raise errcodes.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH()


def _check_metadata(config: ConsumerConfig, _: Terms) -> None:
    if metadata_size(config.metadata) > MAX_METADATA:
        raise errcodes.CONSUMER_METADATA_LENGTH(limit="128KB")


def _check_priority(config: ConsumerConfig, _: Terms) -> None:
    groups = config.priority_groups
    if config.priority_policy != NO_PRIORITY:
        if config.deliver_subject:
            raise errcodes.CONSUMER_PUSH_WITH_PRIORITY_GROUP()
        if not groups:
            raise errcodes.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP()
        for group in groups:
            if not group:
                raise errcodes.CONSUMER_EMPTY_GROUP_NAME()
            if not is_group_name(group):
                raise errcodes.CONSUMER_INVALID_GROUP_NAME()
        return
    if groups:
        raise errcodes.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE()
    if config.priority_timeout > 0:
        raise errcodes.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE()


def dead_subject(config: ConsumerConfig) -> str:
    """Where messages are stored that died; "": nowhere."""
    return config.metadata.get(DEAD_LETTERS, "")


def _check_dead_letters(config: ConsumerConfig, terms: Terms) -> None:
    target = dead_subject(config)
    if not target:
        return
    wrong = ""
    if not subject_is_literal(target) or not subject_is_valid(target):
        wrong = "is not a subject"
    elif target.startswith("$"):
        wrong = "may not begin with $"
    elif config.ack_policy != "explicit":
        wrong = "requires explicit ack"
    elif any_overlap(terms.stream.subjects, target) and any_overlap(wanted(config), target):
        wrong = "forms a cycle: the consumer itself would be sent what is stored there"
    if wrong:
        raise errcodes.STREAM_INVALID_CONFIG(err=f"{DEAD_LETTERS} {wrong}")


VALID: tuple[Callable[[ConsumerConfig, Terms], None], ...] = (
    _check_names,
    _check_replicas,
    _check_waits,
    _check_flow_control_acks,
    _check_deliveries,
    _check_description,
    _check_push,
    _check_pull,
    _check_limits,
    _check_direct,
    _check_filters,
    _check_start,
    _check_sampling,
    _check_heartbeat,
    _check_durable_name,
    _check_metadata,
    _check_priority,
    _check_dead_letters,
)
"""What a normalised configuration has to be in itself, in the order in which clients see it."""


# ---- existing consumers --------------------------------------------------------------------------


def same(a: ConsumerConfig, b: ConsumerConfig) -> bool:
    """Whether two normalised configurations are equal but for the server's metadata."""
    return msgspec.structs.replace(a, metadata={}) == msgspec.structs.replace(
        b, metadata={}
    ) and user_metadata(a.metadata) == user_metadata(b.metadata)


def check_update(old: ConsumerConfig, new: ConsumerConfig) -> None:
    """Raises if `new` changes what may not change in a consumer."""
    options.check_rules(old, new, ConsumerConfig)


def check_reset(config: ConsumerConfig, seq: int, at_time: Callable[[int], int]) -> None:
    """Raises if a consumer may not be reset to this sequence, 0 being the one behind its ack floor;
    `at_time` gives the first sequence of a time."""
    if seq == 0 or config.deliver_policy == "all":
        return
    if config.deliver_policy == "by_start_sequence":
        if seq < config.opt_start_seq:
            raise errcodes.CONSUMER_INVALID_RESET(err="below start seq")
    elif config.deliver_policy == "by_start_time":
        if seq < at_time(goformat.instant(config.opt_start_time)):
            raise errcodes.CONSUMER_INVALID_RESET(err="below start time")
    else:
        raise errcodes.CONSUMER_INVALID_RESET(err="not allowed")


def check_workqueue(config: ConsumerConfig) -> None:
    """What a consumer of a workqueue stream must be, whatever other consumers there are."""
    if config.ack_policy not in ("explicit", "flow_control"):
        raise errcodes.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK()
    if config.deliver_policy != "all":
        raise errcodes.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL()


def check_stored_name(config: ConsumerConfig, name: str) -> None:
    """Whether the name fits a file system's."""
    if len(name.encode()) > MAX_NAME:
        if config.durable_name:
            raise errcodes.CONSUMER_NAME_TOO_LONG(max=MAX_NAME)
        raise errcodes.CONSUMER_CREATE(err="error creating store for consumer")
