"""What a query filters by, as bounds and subjects that are asked of the server."""

import dataclasses
import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from jsserver.cext.bytes import subject_covers
from jsserver.goformat import SECOND
from jsserver.spark.options import RowOptions
from jsserver.spark.positions import nanos_of
from jsserver.spark.schema import table_of

SEQ_MAX = (1 << 63) - 1
SLACK_NANOS = 60 * SECOND
"""Clocks step back: sequences this much around a time are read too."""
SUBJECTS_MAX = 64
"""Values of an IN that become filter subjects."""

_NEVER_NULL = frozenset(("stream", "subject", "seq", "timestamp", "ts_nanos", "data", "partition"))


@dataclass(frozen=True)
class Narrowed:
    """A read made smaller: sequences first to last, messages since <= time < until, subjects."""

    first: int = 0
    last: int = SEQ_MAX
    since: int | None = None
    until: int | None = None
    """Nanoseconds since 1970, with slack: these only prune."""
    subjects: tuple[str, ...] = ()
    streams: tuple[str, ...] | None = None

    def takes(self, stream: str) -> bool:
        return self.streams is None or stream in self.streams


def narrowed_by(filters: Sequence[Filter], options: RowOptions) -> tuple[Narrowed, list[Filter]]:
    """What the filters narrow, and those that have still to be applied to the rows."""
    sources = {column.name: column.source for column in table_of(options).columns}
    narrowed = Narrowed()
    left = []
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        source = sources.get(attribute[0], "") if len(attribute) == 1 else ""
        narrowed, exact = _one(narrowed, one, source, options)
        if not exact:
            left.append(one)
    return narrowed, left


def _one(
    narrowed: Narrowed, one: Filter, source: str, options: RowOptions
) -> tuple[Narrowed, bool]:
    if isinstance(one, IsNotNull):
        return narrowed, source in _NEVER_NULL
    if source == "seq":
        return _by_seq(narrowed, one)
    if source == "timestamp":
        return _by_time(narrowed, one), False
    if source == "stream":
        return _by_stream(narrowed, one)
    if source == "subject":
        return _by_subject(narrowed, one, options.filter_subjects)
    return narrowed, False


def _by_seq(narrowed: Narrowed, one: Filter) -> tuple[Narrowed, bool]:
    low, high, exact = 0, SEQ_MAX, True
    match one:
        case EqualTo(_, int(value)):
            low = high = value
        case GreaterThan(_, int(value)):
            low = value + 1
        case GreaterThanOrEqual(_, int(value)):
            low = value
        case LessThan(_, int(value)):
            high = value - 1
        case LessThanOrEqual(_, int(value)):
            high = value
        case In(_, values) if values and all(isinstance(value, int) for value in values):
            low, high, exact = min(values), max(values), False
        case _:
            return narrowed, False
    return (
        dataclasses.replace(
            narrowed, first=max(narrowed.first, low), last=min(narrowed.last, high)
        ),
        exact,
    )


def _by_time(narrowed: Narrowed, one: Filter) -> Narrowed:
    since, until = narrowed.since, narrowed.until
    value = getattr(one, "value", None)
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return narrowed
    nanos = nanos_of(value)
    if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
        since = max(since or 0, nanos - SLACK_NANOS)
    if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
        until = min(until or SEQ_MAX, nanos + SLACK_NANOS)
    return dataclasses.replace(narrowed, since=since, until=until)


def _by_stream(narrowed: Narrowed, one: Filter) -> tuple[Narrowed, bool]:
    names: tuple[str, ...]
    match one:
        case EqualTo(_, str(value)):
            names = (value,)
        case In(_, values) if all(isinstance(value, str) for value in values):
            names = tuple(values)
        case _:
            return narrowed, False
    names = tuple(name for name in names if narrowed.takes(name))
    return dataclasses.replace(narrowed, streams=names), True


def _by_subject(narrowed: Narrowed, one: Filter, given: tuple[str, ...]) -> tuple[Narrowed, bool]:
    """The first such filter becomes filter subjects, where those that were given let it through."""
    exact = True
    match one:
        case EqualTo(_, value):
            subjects = [_subject(value)]
        case In(_, values) if 0 < len(values) <= SUBJECTS_MAX:
            subjects = [_subject(value) for value in values]
        case StringStartsWith(_, str(value)):
            subjects = [_prefix(value)]
            exact = value.endswith(".")
        case _:
            return narrowed, False
    if narrowed.subjects or not all(subjects):
        return narrowed, False
    if given and not all(
        any(subject_covers(outer, subject) for outer in given) for subject in subjects
    ):
        return narrowed, False
    return dataclasses.replace(narrowed, subjects=tuple(dict.fromkeys(subjects))), exact


def _subject(value: object) -> str:
    """The value as a literal subject; nothing where it is none."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return ""
    if not isinstance(value, str) or any(c in value for c in " \t\r\n\0\f"):
        return ""
    tokens = value.split(".")
    return "" if any(token in ("", "*", ">") for token in tokens) else value


def _prefix(value: str) -> str:
    """The wildcard that takes in every subject that starts so; nothing where there is none."""
    whole, dot, _ = value.rpartition(".")
    return f"{whole}.>" if dot and _subject(whole) else ""
