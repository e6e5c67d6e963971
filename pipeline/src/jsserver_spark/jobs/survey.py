"""What a run of messages adds up to: rates over time, sizes, subjects and gaps, part by part."""

import re
from collections.abc import Iterable
from typing import TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jsserver_spark.archive.manifest import joined
from jsserver_spark.archive.writer import gap_runs

SUBJECTS_MAX = 10_000
"""Subjects that are told apart; what is beyond adds up as one."""
BUCKETS_MAX = 240
"""Spans of time; where there are more, neighbours become one."""
RUNS_MAX = 1000
SPAN_US = 1_000_000
"""The shortest span of time: a second."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Ints: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Key = TypeVar("Key", int, str)


class Count(msgspec.Struct):
    """Messages, and their bytes: subjects, headers and payloads."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


class Survey(msgspec.Struct):
    """Sums over messages; two of neighbouring ranges add up."""

    total: Count = msgspec.field(default_factory=Count)
    span_us: int = SPAN_US
    times: dict[int, Count] = {}
    """By the number of the span since 1970."""
    sizes: dict[int, int] = {}
    """Messages by payload: n stands for 2^(n-1) to 2^n - 1 bytes, 0 for none."""
    subjects: dict[str, Count] = {}
    others: Count = msgspec.field(default_factory=Count)
    """Of subjects beyond SUBJECTS_MAX."""
    with_headers: int = 0
    largest: int = 0
    """Payload in bytes."""
    gaps: list[tuple[int, int]] = []
    missing: int = 0

    def add(self, other: "Survey") -> None:
        """Adds what comes behind."""
        self.total.add(other.total.messages, other.total.bytes)
        self.with_headers += other.with_headers
        self.largest = max(self.largest, other.largest)
        self.others.add(other.others.messages, other.others.bytes)
        self.missing += other.missing
        self.gaps = joined(self.gaps + other.gaps)[:RUNS_MAX]
        for size, messages in other.sizes.items():
            self.sizes[size] = self.sizes.get(size, 0) + messages
        while self.span_us < other.span_us:
            self._coarsen()
        ratio = self.span_us // other.span_us
        for span, count in other.times.items():
            _into(self.times, span // ratio, count)
        self._bound_times()
        for subject, count in other.subjects.items():
            _into(self.subjects, subject, count)
        self._bound_subjects()

    def _coarsen(self) -> None:
        self.span_us *= 2
        times: dict[int, Count] = {}
        for span, count in self.times.items():
            _into(times, span // 2, count)
        self.times = times

    def _bound_times(self) -> None:
        while self.times and max(self.times) - min(self.times) >= BUCKETS_MAX:
            self._coarsen()

    def _bound_subjects(self) -> None:
        if len(self.subjects) <= 2 * SUBJECTS_MAX:
            return
        ranked = sorted(self.subjects.items(), key=lambda item: -item[1].messages)
        for _, count in ranked[SUBJECTS_MAX:]:
            self.others.add(count.messages, count.bytes)
        self.subjects = dict(ranked[:SUBJECTS_MAX])

    def batch(self, rows: pa.RecordBatch) -> None:
        """Adds rows: subject, timestamp, headers_raw, data."""
        payloads = pc.binary_length(rows.column("data")).to_numpy().astype(np.int64)
        headers = rows.column("headers_raw")
        heads = pc.fill_null(pc.binary_length(headers), 0).to_numpy().astype(np.int64)
        names = pc.binary_length(rows.column("subject")).to_numpy()
        sizes = payloads + heads + names
        self.total.add(len(rows), int(sizes.sum()))
        self.with_headers += len(rows) - headers.null_count
        self.largest = max(self.largest, int(payloads.max()))
        self._add_sizes(payloads)
        self._add_times(rows.column("timestamp").to_numpy().view(np.int64), sizes)
        self._add_subjects(rows.column("subject"), sizes)

    def _add_sizes(self, payloads: Ints) -> None:
        classes = np.frexp(payloads.astype(np.float64))[1]
        for size, messages in zip(*np.unique(classes, return_counts=True), strict=True):
            self.sizes[int(size)] = self.sizes.get(int(size), 0) + int(messages)

    def _add_times(
        self,
        micros: Ints,
        sizes: Ints,
    ) -> None:
        spans, which = np.unique(micros // self.span_us, return_inverse=True)
        messages = np.bincount(which)
        totals = np.bincount(which, weights=sizes)
        for span, some, size in zip(spans, messages, totals, strict=True):
            _into(self.times, int(span), Count(int(some), int(size)))
        self._bound_times()

    def _add_subjects(self, subjects: pa.Array, sizes: Ints) -> None:
        coded = subjects.dictionary_encode()
        which = coded.indices.to_numpy()
        messages = np.bincount(which)
        totals = np.bincount(which, weights=sizes)
        words = coded.dictionary.cast(pa.binary()).to_pylist()
        for word, some, size in zip(words, messages, totals, strict=True):
            _into(self.subjects, readable(word), Count(int(some), int(size)))
        self._bound_subjects()


def readable(subject: bytes) -> str:
    """A subject to be shown, with what is no text in it escaped."""
    text = subject.decode(errors="backslashreplace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _into(counts: dict[Key, Count], key: Key, more: Count) -> None:
    found = counts.get(key)
    if found is None:
        counts[key] = Count(more.messages, more.bytes)
    else:
        found.add(more.messages, more.bytes)


def survey(batches: Iterable[pa.RecordBatch], first: int, last: int) -> Survey:
    """Adds up rows (seq, subject, timestamp, headers_raw, data) of the sequences first to last."""
    out = Survey()
    at = first - 1
    for rows in batches:
        out.batch(rows)
        runs, missing = gap_runs(rows.column("seq").to_numpy(), at)
        at = int(rows.column("seq")[len(rows) - 1].as_py())
        out.gaps = joined(out.gaps + runs)[:RUNS_MAX]
        out.missing += missing
    if at < last:
        out.gaps = joined([*out.gaps, (at + 1, last)])[:RUNS_MAX]
        out.missing += last - at
    return out
