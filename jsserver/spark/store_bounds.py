"""Which part of a stream on disk is asked for, by options and by filters of the query."""

import dataclasses
import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from jsserver.cext.bytes import subject_matches
from jsserver.spark.errors import OptionError
from jsserver.spark.jetstream import nanos_of
from jsserver.spark.options import StoreOptions
from jsserver.spark.schema import Table

MAX_SEQ = (1 << 64) - 1
MIN_TIME, MAX_TIME = -(1 << 63), (1 << 63) - 1
_MICRO = 1000
_MILLI = 1_000_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NEVER_NULL = ("stream", "subject", "seq", "timestamp", "partition")


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Both ends count; times are ns since 1970. `subjects`: patterns, None for all. Pickled."""

    first: int = 0
    last: int = MAX_SEQ
    min_ts: int = MIN_TIME
    max_ts: int = MAX_TIME
    subjects: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return self.first > self.last or self.min_ts > self.max_ts

    def narrowed(self, **limits: int) -> "Bounds":
        """With other ends where they leave less."""
        ends: dict[str, Any] = {}
        for name, value in limits.items():
            low = name in ("first", "min_ts")
            ends[name] = (max if low else min)(getattr(self, name), value)
        return dataclasses.replace(self, **ends)

    def of_subject(self, subject: str) -> "Bounds":
        """Only messages with exactly that subject."""
        matched = not self.subjects or any(subject_matches(p, subject) for p in self.subjects)
        if not matched:
            return dataclasses.replace(self, first=1, last=0)
        return dataclasses.replace(self, subjects=(subject,))


def bounds_of(options: StoreOptions, stream: str) -> Bounds:
    """What the options ask for; OptionError names the one that cannot be understood."""
    first = _offset(options.starting_offsets, "startingOffsets", stream)
    last = _offset(options.ending_offsets, "endingOffsets", stream)
    min_ts = _time(options.starting_timestamp, "startingTimestamp")
    max_ts = _time(options.ending_timestamp, "endingTimestamp")
    bounds = Bounds(subjects=options.filter_subjects)
    if first is not None:
        bounds = bounds.narrowed(first=first)
    if last is not None:
        bounds = bounds.narrowed(last=last - 1)
    if min_ts is not None:
        bounds = bounds.narrowed(min_ts=min_ts)
    if max_ts is not None:
        bounds = bounds.narrowed(max_ts=max_ts - 1)
    return bounds


def _offset(given: str, name: str, stream: str) -> int | None:
    """A sequence: a number, a word, or JSON with the stream's."""
    text = given.strip()
    if text.lower() in ("", "earliest" if name == "startingOffsets" else "latest"):
        return None
    if text.startswith("{"):
        try:
            by_stream = msgspec.json.decode(text, type=dict[str, int])
        except msgspec.DecodeError as error:
            raise OptionError(f"option {name!r} is {given!r}: {error}") from None
        if stream not in by_stream:
            raise OptionError(f"option {name!r} is {given!r}: it does not name stream {stream!r}")
        text = str(by_stream[stream])
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise OptionError(
            f"option {name!r} is {given!r}: must be a sequence number, JSON such as"
            f' {{"{stream}": 1000}}, or'
            f" {'earliest' if name == 'startingOffsets' else 'latest'}"
        )
    return int(text)


def _time(given: str, name: str) -> int | None:
    """Nanoseconds of a number of milliseconds since 1970 or a time in RFC 3339."""
    text = given.strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text) * _MILLI
    try:
        return nanos_of(text)
    except ValueError:
        raise OptionError(
            f"option {name!r} is {given!r}: must be milliseconds since 1970 or a time such as"
            " 2026-11-21T10:00:00Z"
        ) from None


# ---- filters of a query ------------------------------------------------------------------------


def pushed(
    bounds: Bounds, filters: Iterable[Filter], table: Table, stream: str
) -> tuple[Bounds, list[Filter]]:
    """The bounds that the filters leave, and those filters that Spark still has to apply."""
    sources = {column.name.lower(): column.source for column in table.columns}
    left = []
    for one in filters:
        attribute: Sequence[str] = getattr(one, "attribute", ())
        source = sources.get(attribute[0].lower()) if len(attribute) == 1 else None
        narrowed = None if source is None else _narrowed(bounds, one, source, stream)
        if narrowed is None:
            left.append(one)
        else:
            bounds = narrowed
    return bounds, left


def _narrowed(bounds: Bounds, one: Filter, source: str, stream: str) -> Bounds | None:
    """The bounds with a filter applied exactly, None when it cannot be."""
    if isinstance(one, IsNotNull):
        return bounds if source in _NEVER_NULL else None
    value = getattr(one, "value", None)
    if source == "seq" and isinstance(value, int):
        return _ranged(bounds, one, "first", "last", value, value)
    if source == "timestamp" and isinstance(value, datetime.datetime) and value.tzinfo:
        micros = (value - _EPOCH) // datetime.timedelta(microseconds=1)
        low = micros * _MICRO
        return _ranged(bounds, one, "min_ts", "max_ts", low, low + _MICRO - 1)
    if isinstance(one, EqualTo | EqualNullSafe):
        text = _text(value)
        if text is not None and source == "subject" and "*" not in text and ">" not in text:
            return bounds.of_subject(text)
        if text is not None and source == "stream":
            return bounds if text == stream else dataclasses.replace(bounds, first=1, last=0)
    return None


def _ranged(bounds: Bounds, one: Filter, low: str, high: str, at: int, to: int) -> Bounds | None:
    """A comparison with a value that stands for at..to."""
    if isinstance(one, EqualTo | EqualNullSafe):
        return bounds.narrowed(**{low: at, high: to})
    if isinstance(one, GreaterThan):
        return bounds.narrowed(**{low: to + 1})
    if isinstance(one, GreaterThanOrEqual):
        return bounds.narrowed(**{low: at})
    if isinstance(one, LessThan):
        return bounds.narrowed(**{high: at - 1})
    if isinstance(one, LessThanOrEqual):
        return bounds.narrowed(**{high: to})
    return None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None
