"""Writes a range of a stream's rows as Parquet files, rolled by rows, bytes and days."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

from jsserver_spark.archive import layout
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import GAPS_MAX, FileEntry
from jsserver_spark.options import RowOptions
from jsserver_spark.schema import TIMESTAMP, Column, Table, table_of

ROW_GROUP_BYTES = 64 << 20
"""Of rows in memory: headers are there twice."""
DAY_US = 86_400_000_000

_HEADERS = table_of(RowOptions(columns=("headers",))).columns[0]

READ = Table(
    (
        Column("subject", "subject", pa.string(), StringType()),
        Column("seq", "seq", pa.int64(), LongType()),
        Column("timestamp", "timestamp", TIMESTAMP, TimestampType()),
        Column("ts_nanos", "ts_nanos", pa.int32(), IntegerType()),
        _HEADERS,
        Column("headers_raw", "headers_raw", pa.binary(), BinaryType()),
        Column("data", "data", pa.binary(), BinaryType()),
    )
)
"""What is read of a stream to archive it."""

SCHEMA = pa.schema([pa.field("stream", pa.string()), *READ.arrow_schema()])
"""What a file holds."""


class Limits(msgspec.Struct, frozen=True):
    """When a file is full: its rows, or the bytes of its subjects, headers and payloads."""

    rows: int = 1_000_000
    bytes: int = 128 << 20


def variable_bytes(array: pa.Array) -> int:
    """Bytes of the values of an array of strings or binaries."""
    if not len(array):
        return 0
    at = np.frombuffer(array.buffers()[1], np.int32)
    return int(at[array.offset + len(array)] - at[array.offset])


def message_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of subjects, headers and payloads of rows as READ has them."""
    names = ("subject", "headers_raw", "data")
    return sum(variable_bytes(batch.column(name)) for name in names)


def gap_runs(seqs: np.ndarray[Any, Any], after: int) -> tuple[list[tuple[int, int]], int]:
    """Runs of sequences that are missing between `after` and the last of `seqs` (int64, rising),
    and how many they hold together."""
    before = np.concatenate(([after], seqs[:-1]))
    at = np.flatnonzero(seqs - before > 1)
    runs = [(int(before[i]) + 1, int(seqs[i]) - 1) for i in at]
    return runs, sum(last - first + 1 for first, last in runs)


class _Hashed:
    """A file that keeps the SHA-256 and the size of what is written to it."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self._file.write(data)
        size = len(memoryview(data))
        self.size += size
        return size

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        self.closed = True
        self._file.close()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class _File:
    """One file in the making, under its draft's name."""

    def __init__(self, place: Place, draft: str, stream: str, first: int) -> None:
        self.first = first
        self.rows = 0
        self.bytes = 0
        self.day = -1
        self._place = place
        self._draft = draft
        self._stream = stream
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._last = first - 1
        self._gaps: list[tuple[int, int]] = []
        self._missing = 0
        self._min_time = (1 << 63) - 1
        self._max_time = -(1 << 63)
        self._sink = _Hashed(place.create(draft))
        self._parquet = pq.ParquetWriter(
            self._sink,
            SCHEMA,
            compression="zstd",
            use_dictionary=["stream", "subject"],
            column_encoding={"seq": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
            write_statistics=["seq", "timestamp"],
            write_page_index=True,
            sorting_columns=[pq.SortingColumn(SCHEMA.get_field_index("seq"))],
        )

    def add(self, batch: pa.RecordBatch, days: np.ndarray[Any, Any]) -> None:
        size = message_bytes(batch)
        self._look(batch, days)
        self.rows += len(batch)
        self.bytes += size
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def _look(self, batch: pa.RecordBatch, days: np.ndarray[Any, Any]) -> None:
        seqs = batch.column("seq").to_numpy()
        runs, missing = gap_runs(seqs, self._last)
        self._missing += missing
        self._gaps += runs[: GAPS_MAX + 1 - len(self._gaps)]
        self._last = int(seqs[-1])
        self.day = max(self.day, int(days.max()))
        micros = batch.column("timestamp").to_numpy().view(np.int64)
        nanos = micros * 1000 + batch.column("ts_nanos").to_numpy()
        self._min_time = min(self._min_time, int(nanos.min()))
        self._max_time = max(self._max_time, int(nanos.max()))

    def _write_group(self) -> None:
        read = pa.Table.from_batches(self._pending)
        name = pa.repeat(pa.scalar(self._stream, pa.string()), len(read))
        table = pa.Table.from_arrays([name, *read.columns], schema=SCHEMA)
        self._pending = []
        self._pending_bytes = 0
        self._parquet.write_table(table, row_group_size=len(table))

    @property
    def last(self) -> int:
        """The sequence of its last row."""
        return self._last

    def close(self, last: int) -> FileEntry:
        """Finishes the file; it covers up to `last`."""
        if self._pending:
            self._write_group()
        self._parquet.close()
        self._sink.close()
        self._place.sync(self._draft)
        if last > self._last:
            self._missing += last - self._last
            self._gaps.append((self._last + 1, last))
        date = layout.date_of(self.day * DAY_US * 1000)
        return FileEntry(
            name=layout.file_name(self._stream, date, self.first, last),
            date=date,
            first=self.first,
            last=last,
            rows=self.rows,
            bytes=self.bytes,
            size=self._sink.size,
            min_time=self._min_time,
            max_time=self._max_time,
            sha256=self._sink.hexdigest(),
            missing=self._missing,
            gaps=tuple(self._gaps) if len(self._gaps) <= GAPS_MAX else None,
        )

    def drop(self) -> None:
        """Leaves an unfinished file behind, closed."""
        with contextlib.suppress(OSError, pa.ArrowException):  # it may be why it is dropped
            self._sink.close()


class RangeWriter:
    """The files of one range of sequences, first to last; rows come in order of their sequence.

    A file's day is the latest of its rows': a row of an earlier day behind it (a server's clock was
    set back) stays in the file, so that days never go back along the sequences.
    """

    def __init__(
        self, place: Place, stream: str, run: str, first: int, last: int, limits: Limits
    ) -> None:
        self._place = place
        self._stream = stream
        self._run = run
        self._next = first
        self._last = last
        self._limits = limits
        self._file: _File | None = None
        self._entries: list[FileEntry] = []
        place.make_folder(layout.draft_name(stream, run, first).rpartition("/")[0])

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows as READ has them."""
        while len(batch):
            batch = self._added(batch)

    def _added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Takes what the open file still takes; the rest."""
        days = batch.column("timestamp").to_numpy().view(np.int64) // DAY_US
        if self._file is not None and (
            self._file.rows >= self._limits.rows
            or self._file.bytes >= self._limits.bytes
            or days[0] > self._file.day
        ):
            self._roll(self._file.last)
        if self._file is None:
            draft = layout.draft_name(self._stream, self._run, self._next)
            self._file = _File(self._place, draft, self._stream, self._next)
        file = self._file
        later = np.flatnonzero(days > max(file.day, int(days[0])))
        size = min(len(batch), self._limits.rows - file.rows)
        if len(later):
            size = min(size, int(later[0]))
        file.add(batch.slice(0, size), days[:size])
        return batch.slice(size)

    def _roll(self, last: int) -> None:
        assert self._file is not None
        self._entries.append(self._file.close(last))
        self._next = last + 1
        self._file = None

    def finish(self) -> list[FileEntry]:
        """Closes the last file, which covers what is left of the range; none where no row came."""
        if self._file is not None:
            self._roll(self._last)
        return self._entries

    def drop(self) -> None:
        """Gives up after an error."""
        if self._file is not None:
            self._file.drop()


def write_range(
    place: Place,
    stream: str,
    run: str,
    first: int,
    last: int,
    limits: Limits,
    batches: Iterable[pa.RecordBatch],
    told: Callable[[int], None] | None = None,
) -> list[FileEntry]:
    """Writes rows as READ has them as the drafts of files; `told` hears how many rows came."""
    writer = RangeWriter(place, stream, run, first, last, limits)
    try:
        for batch in batches:
            with place.named(layout.folder_of(stream)):
                writer.add(batch)
            if told is not None:
                told(len(batch))
        with place.named(layout.folder_of(stream)):
            return writer.finish()
    except BaseException:
        writer.drop()
        raise


def publish_drafts(place: Place, stream: str, run: str, files: Iterable[FileEntry]) -> None:
    """Gives the drafts their names. Nobody sees the files before a manifest entry names them."""
    for file in files:
        place.make_folder(file.name.rpartition("/")[0])
        place.move(layout.draft_name(stream, run, file.first), file.name)
        place.sync(file.name)
