"""Which part of a stream on disk is asked for, by options and by filters of the query."""

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

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
from jsserver.spark.options import StoreOptions
from jsserver.spark.positions import EARLIEST, LATEST, nanos_at, nanos_of, sequences
from jsserver.spark.schema import Table

MAX_SEQ = (1 << 64) - 1
MIN_TIME, MAX_TIME = -(1 << 63), (1 << 63) - 1
_MICRO = 1000
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
    bounds = Bounds(subjects=options.filter_subjects)
    text = options.starting_offsets or "earliest"
    first = sequences([stream], "startingOffsets", text, LATEST)[stream]
    text = options.ending_offsets or "latest"
    end = sequences([stream], "endingOffsets", text, EARLIEST)[stream]
    if first != EARLIEST:
        bounds = bounds.narrowed(first=first)
    if end != LATEST:
        bounds = bounds.narrowed(last=end - 1)
    if options.starting_timestamp:
        since = nanos_at(options.starting_timestamp, "startingTimestamp")
        bounds = bounds.narrowed(min_ts=since)
    if options.ending_timestamp:
        bounds = bounds.narrowed(max_ts=nanos_at(options.ending_timestamp, "endingTimestamp") - 1)
    return bounds


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
        low = nanos_of(value)
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
