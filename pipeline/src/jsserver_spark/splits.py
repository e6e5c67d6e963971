"""How a read is cut into tasks: a pure function of sequences and sizes."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

SMALL_BYTES = 256 << 10
"""What a stream weighs at least in a task: it has a connection of its own."""


@dataclass(frozen=True)
class Span:
    """Sequences first to last of one stream; none when first > last."""

    stream: str
    created: int
    """Of the stream, nanoseconds since 1970."""
    first: int
    last: int
    seq_bytes: float
    """Mean bytes a sequence, deleted ones counted: where many are missing, splits are wider."""
    earliest: bool = False
    """It starts with whatever comes first when it is read: what is gone by then is no loss."""

    @property
    def width(self) -> int:
        return max(self.last - self.first + 1, 0)

    @property
    def bytes(self) -> float:
        return self.width * self.seq_bytes


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads: the sequences first to last of a stream."""

    stream: str
    created: int
    first: int
    last: int
    earliest: bool = field(default=False, compare=False)
    """As in a Span."""

    def __reduce__(self) -> tuple[type["Split"], tuple[str, int, int, int, bool]]:
        """Thousands of them are sent about: without the fields' names."""
        return Split, (self.stream, self.created, self.first, self.last, self.earliest)


@dataclass(frozen=True)
class Bundle(InputPartition):
    """What one task reads, one after the other: a task costs more than a small stream."""

    splits: tuple[Split, ...]


def tasks_of(spans: Sequence[Span], split_bytes: int, min_partitions: int) -> list[Split | Bundle]:
    """Splits of about `split_bytes`, small ones of neighbouring streams together; at least
    `min_partitions` tasks where there are as many sequences.

    Never an empty list: where there is nothing to read, one split says so.
    """
    sizes = {span.stream: span.bytes for span in spans}
    splits = splits_of(spans, split_bytes, min_partitions)
    counts = Counter(split.stream for split in splits)
    spare = len(splits) - min_partitions
    tasks: list[list[Split]] = []
    held = 0.0
    for split in splits:
        size = max(sizes.get(split.stream, 0.0) / counts[split.stream], SMALL_BYTES)
        if tasks and spare > 0 and held + size <= split_bytes:
            tasks[-1].append(split)
            held += size
            spare -= 1
        else:
            tasks.append([split])
            held = size
    return [task[0] if len(task) == 1 else Bundle(tuple(task)) for task in tasks]


def splits_of(spans: Sequence[Span], split_bytes: int, min_partitions: int) -> list[Split]:
    """Every stream's splits; never none."""
    full = [span for span in spans if span.width]
    counts = [max(math.ceil(span.bytes / split_bytes), 1) for span in full]
    missing = min_partitions - sum(counts)
    if missing > 0:
        whole = sum(span.bytes for span in full) or 1.0
        shares = [span.bytes / whole for span in full]
        counts = [
            max(count, math.ceil(min_partitions * share))
            for count, share in zip(counts, shares, strict=True)
        ]
    splits = [
        split for span, count in zip(full, counts, strict=True) for split in _cut(span, count)
    ]
    if not splits:
        stream, created = (spans[0].stream, spans[0].created) if spans else ("", 0)
        return [Split(stream, created, 1, 0)]
    return splits


def _cut(span: Span, count: int) -> list[Split]:
    count = min(count, span.width)
    edges = [span.first + span.width * i // count for i in range(count + 1)]
    return [
        Split(span.stream, span.created, edges[i], edges[i + 1] - 1, span.earliest)
        for i in range(count)
    ]
