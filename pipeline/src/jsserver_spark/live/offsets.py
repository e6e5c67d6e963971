"""From the options' bounds (offsets and times) to sequences of streams as they are now."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from jsserver_spark import positions
from jsserver_spark.errors import DataLossError, NatsError, OptionError
from jsserver_spark.jetstream import JetStream, StreamInfo, is_fence
from jsserver_spark.options import SourceOptions
from jsserver_spark.positions import EARLIEST, LATEST
from jsserver_spark.text.goformat import rfc3339_nano

SequenceAt: TypeAlias = Callable[[JetStream, StreamInfo, int], int | None]
"""From a time to the first sequence at or after it."""

_BUCKETS = ("KV_", "OBJ_")
"""How names of the streams start that hold buckets and object stores (ADR-8, ADR-20)."""


# ---- which streams -----------------------------------------------------------------------------


def streams_of(js: JetStream, options: SourceOptions) -> list[StreamInfo]:
    """The streams that are to be read, by name. NatsError names one that is missing."""
    if options.stream_pattern:
        found = matching(js.stream_infos(), options)
        if not found:
            raise NatsError(
                f"no stream's name matches option 'streamPattern', {options.stream_pattern!r}"
            )
        return found
    return [js.stream_info(name) for name in names_of(options)]


def matching(infos: Iterable[StreamInfo], options: SourceOptions) -> list[StreamInfo]:
    """Those whose names match option 'streamPattern'.

    Streams of buckets and object stores only where the pattern names them, and fences of sinks
    never: what a query writes would be what it reads next.
    """
    pattern = pattern_of(options)
    hidden = tuple(prefix for prefix in _BUCKETS if prefix not in options.stream_pattern)
    return [
        info
        for info in infos
        if pattern.fullmatch(info.name) and not info.name.startswith(hidden) and not is_fence(info)
    ]


def names_of(options: SourceOptions) -> tuple[str, ...]:
    """The streams that the options name; none with a pattern."""
    if options.stream_pattern:
        return ()
    return tuple(dict.fromkeys(options.streams or (options.stream,)))


def pattern_of(options: SourceOptions) -> re.Pattern[str]:
    try:
        return re.compile(options.stream_pattern)
    except re.error as error:
        raise OptionError(
            f"option 'streamPattern' is {options.stream_pattern!r}: no regular expression: {error}"
        ) from None


def check_names(options: SourceOptions) -> None:
    """OptionError where a stream or a subject cannot be one: they become parts of subjects."""
    for name in names_of(options):
        if not name or re.search(r"[\s.*>/\\\x00]", name):
            raise OptionError(f"no stream can have the name {name!r}")
    for subject in options.filter_subjects:
        tokens = subject.split(".")
        if re.search(r"[\s\x00]", subject) or not all(tokens) or ">" in tokens[:-1]:
            raise OptionError(f"option 'filterSubjects' names {subject!r}, which is no subject")


# ---- bounds ------------------------------------------------------------------------------------


class Start(NamedTuple):
    """The first sequence to read; it may be the one behind the last.

    `earliest`: it is whatever comes first when it is read, and may be gone by then.
    """

    seq: int
    earliest: bool


def first_sequences(
    js: JetStream,
    options: SourceOptions,
    infos: Sequence[StreamInfo],
    default: int,
    at: SequenceAt | None = None,
) -> dict[str, Start]:
    """Where to start reading each of `infos`.

    `default`: EARLIEST in batch reads, which cannot start at the latest, LATEST in streaming ones.
    `at` finds a time's sequence (default: sequence_at).
    """
    names = [info.name for info in infos]
    times = _times(
        names,
        "startingTimestamp",
        options.starting_timestamp,
        "startingOffsetsByTimestamp",
        options.starting_offsets_by_timestamp,
    )
    if times is not None:
        if options.starting_offsets:
            raise OptionError(
                "options 'startingOffsets' and 'startingOffsetsByTimestamp' exclude each other"
            )
        found = at or sequence_at
        return {
            info.name: _start(
                info, _first_at(options, info, times[info.name], found(js, info, times[info.name]))
            )
            for info in infos
        }
    asked = dict.fromkeys(names, default)
    if options.starting_offsets:
        refused = LATEST if default == EARLIEST else None
        text = options.starting_offsets
        asked = positions.sequences(names, "startingOffsets", text, refused)
    starts = {}
    for info in infos:
        seq = _resolved(info, asked[info.name], options, "startingOffsets")
        starts[info.name] = Start(seq, asked[info.name] == EARLIEST)
    return starts


def _start(info: StreamInfo, seq: int) -> Start:
    """Where a time leads to; all that is as late may be there no more."""
    return Start(seq, seq <= info.state.first_seq)


def end_sequences(
    js: JetStream,
    options: SourceOptions,
    infos: Sequence[StreamInfo],
    at: SequenceAt | None = None,
) -> dict[str, int]:
    """The sequence behind the last to read of each of `infos`."""
    names = [info.name for info in infos]
    times = _times(
        names,
        "endingTimestamp",
        options.ending_timestamp,
        "endingOffsetsByTimestamp",
        options.ending_offsets_by_timestamp,
    )
    if times is not None:
        if options.ending_offsets:
            raise OptionError(
                "options 'endingOffsets' and 'endingOffsetsByTimestamp' exclude each other"
            )
        found = {info.name: (at or sequence_at)(js, info, times[info.name]) for info in infos}
        return {info.name: found[info.name] or info.state.last_seq + 1 for info in infos}
    text = options.ending_offsets or "latest"
    asked = positions.sequences(names, "endingOffsets", text, EARLIEST)
    return {
        info.name: _resolved(info, asked[info.name], options, "endingOffsets") for info in infos
    }


def _first_at(options: SourceOptions, info: StreamInfo, nanos: int, found: int | None) -> int:
    if found is None:
        if options.timestamp_strategy == "error":
            raise NatsError(
                f"stream {info.name!r} has no message at or after {rfc3339_nano(nanos)}, the"
                " starting time (startingOffsetsByTimestampStrategy=latest starts behind its last"
                " message)"
            )
        return info.state.last_seq + 1
    return found


def _resolved(info: StreamInfo, asked: int, options: SourceOptions, option: str) -> int:
    first, behind = max(info.state.first_seq, 1), info.state.last_seq + 1
    if asked == EARLIEST:
        return first
    if asked == LATEST:
        return behind
    if first <= asked <= behind or (option == "endingOffsets" and asked <= behind):
        return asked
    if options.fail_on_data_loss:
        holds = f"{first} to {behind - 1}" if first < behind else f"none, the next is {behind}"
        raise DataLossError(
            f"option {option!r} is {asked} for stream {info.name!r}, whose sequences are {holds}"
            " (failOnDataLoss=false reads what is there)"
        )
    return min(max(asked, first), behind)


def _times(
    names: Sequence[str], one: str, moment: str, each: str, moments: str
) -> dict[str, int] | None:
    """Nanoseconds since 1970 for each stream, where one of the two options is given."""
    if moment and moments:
        raise OptionError(f"options {one!r} and {each!r} exclude each other")
    if moment:
        return dict.fromkeys(names, positions.nanos_at(moment, one))
    return positions.times(names, each, moments) if moments else None


# ---- times -------------------------------------------------------------------------------------


def sequence_at(js: JetStream, info: StreamInfo, nanos: int) -> int | None:
    """The first message at or after a time, None when there is none."""
    if info.state.messages == 0:
        return None
    if info.config.allow_direct:
        body = json.dumps({"start_time": rfc3339_nano(nanos)}).encode()
        answer = js.request(f"{js.prefix}.DIRECT.GET.{info.name}", body)
        by = re.findall(rb"\r\nNats-Stream: ([^\r]*)\r\n", answer.header)
        found = re.findall(rb"\r\nNats-Sequence: (\d+)\r\n", answer.header)
        if found and by and by[-1] == info.name.encode():
            return int(found[-1])
    # No direct gets, or a mirror or a replica that lags answered.
    return _searched(js, info, nanos)


def _searched(js: JetStream, info: StreamInfo, nanos: int) -> int | None:
    """The same from the stream itself, by halves."""
    found = None
    low, high = info.state.first_seq, info.state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        message = js.message_from(info.name, middle)
        if message is None:
            high = middle
        elif message.ts >= nanos:
            found, high = message.seq, middle
        else:
            low = message.seq + 1
    return found
