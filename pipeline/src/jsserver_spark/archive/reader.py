"""Reads an archive back: its own columns, or any table that a stream can be."""

import bisect
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Absent, Place
from jsserver_spark.archive.manifest import Archive, ArchiveError, FileEntry
from jsserver_spark.batches import Batches
from jsserver_spark.cext.columns import Archived
from jsserver_spark.errors import DataLossError, NatsError
from jsserver_spark.options import RowOptions
from jsserver_spark.schema import Table, table_of

BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20
READ_BYTES = 1 << 20
"""Of a column at a time: not its whole row group."""
HASH_BYTES = 1 << 20
RETRIES = 3
TIME_MIN = -(1 << 63)
TIME_MAX = (1 << 63) - 1

_ROW_COLUMNS = ("subject", "seq", "timestamp", "ts_nanos", "headers_raw", "data")


class ArchiveSplit(msgspec.Struct, frozen=True):
    """A part of an archive for one task: the rows of its sequences and times, bounds included."""

    root: str
    stream: str
    first: int
    last: int
    since: int = TIME_MIN
    until: int = TIME_MAX


def overlapping(archive: Archive, first: int, last: int) -> Sequence[FileEntry]:
    """The files that cover some of first to last, in order."""
    files = archive.files
    start = bisect.bisect_left(files, first, key=lambda file: file.last)
    end = bisect.bisect_right(files, last, key=lambda file: file.first)
    return files[start:end]


def splits(
    archive: Archive,
    root: str,
    first: int,
    last: int,
    split_bytes: int,
) -> list[ArchiveSplit]:
    """Cuts first to last at the files' bounds into parts of about `split_bytes` of messages."""
    found: list[ArchiveSplit] = []
    held = 0
    for file in overlapping(archive, first, last):
        start, end = max(file.first, first), min(file.last, last)
        if found and held + file.bytes <= split_bytes and found[-1].last + 1 == start:
            found[-1] = msgspec.structs.replace(found[-1], last=end)
            held += file.bytes
        else:
            found.append(ArchiveSplit(root, archive.stream, start, end))
            held = file.bytes
    return found


def read_files(
    place: Place,
    stream: str,
    first: int,
    last: int,
    columns: Sequence[str],
    *,
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The rows of first to last with some of the archive's columns, in order; `seq` is one of them.

    Goes on in the files that took their place when files are merged meanwhile. DataLossError when
    what is asked for was expired.
    """
    archive = manifest.require(place, stream)
    at = first
    for attempt in range(RETRIES):
        if at < archive.first and fail_on_data_loss:
            raise DataLossError(
                f"{place}: the archive of stream {stream!r} starts at sequence {archive.first},"
                f" {at} was asked for; failOnDataLoss=false reads on behind the loss"
            )
        try:
            for file in overlapping(archive, at, last):
                for batch in read_file(place, file, columns, max(at, file.first), last):
                    yield batch
                    at = batch.column("seq")[len(batch) - 1].as_py() + 1
                at = max(at, file.last + 1)
            return
        except Absent as error:
            renewed = manifest.require(place, stream)
            if renewed.number == archive.number or attempt == RETRIES - 1:
                raise ArchiveError(
                    f"{place}: the manifest of stream {stream!r} names a file that is not"
                    f" there: {error}"
                ) from None
            archive = renewed


def read_file(
    place: Place, file: FileEntry, columns: Sequence[str], first: int, last: int
) -> Iterator[pa.RecordBatch]:
    """The rows of one file from first to last; batches are never empty. Absent."""
    rows = max(1, min(BATCH_ROWS, BATCH_BYTES * file.rows // max(file.bytes, 1)))
    with place.open(file.name) as opened:
        try:
            parquet = pq.ParquetFile(opened, pre_buffer=False, buffer_size=READ_BYTES)
            groups = _row_groups(parquet, first, last)
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=list(columns)):
                batch = _clipped(batch, first, last)
                if len(batch):
                    yield batch
        except (pa.ArrowException, OSError) as error:
            raise ArchiveError(f"{place}/{file.name}: {error}") from None


def _row_groups(parquet: pq.ParquetFile, first: int, last: int) -> list[int]:
    """Those that may hold some of first to last, by their statistics."""
    wanted = []
    column = parquet.schema_arrow.get_field_index("seq")
    leaf = _leaf(parquet, "seq") if column >= 0 else -1
    for group in range(parquet.metadata.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(leaf).statistics
        if statistics is None or (statistics.min <= last and statistics.max >= first):
            wanted.append(group)
    return wanted


def _leaf(parquet: pq.ParquetFile, path: str) -> int:
    names = [parquet.schema.column(i).path for i in range(len(parquet.schema))]
    return names.index(path)


def _clipped(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    seqs = batch.column("seq").to_numpy()
    start = int(np.searchsorted(seqs, first))
    end = int(np.searchsorted(seqs, last, "right"))
    return batch if end - start == len(batch) else batch.slice(start, end - start)


def read_split(
    options: RowOptions, split: ArchiveSplit, table: Table | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows as the options ask for them: their columns, headers in their format, their subjects."""
    batches = Batches(table or table_of(options), split.stream, options)
    found = read_files(
        Place(split.root),
        split.stream,
        split.first,
        split.last,
        _ROW_COLUMNS,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    for batch in found:
        rows = _archived(batch, options.filter_subjects, split)
        while not rows.pour(batches.rows):
            yield batches.take()
    if len(batches.rows):
        yield batches.take()


def _archived(batch: pa.RecordBatch, patterns: Sequence[str], split: ArchiveSplit) -> Archived:
    def parts(name: str) -> tuple[Any, ...]:
        column = batch.column(name)
        buffers = column.buffers()
        if name in ("subject", "headers_raw", "data"):
            valid = buffers[0] if column.null_count else None
            return (column.offset, valid, buffers[1], buffers[2])
        return (column.offset, buffers[1])

    return Archived(
        len(batch),
        parts("subject"),
        parts("headers_raw"),
        parts("data"),
        parts("seq"),
        parts("timestamp"),
        parts("ts_nanos"),
        patterns=patterns,
        first=split.first,
        last=split.last,
        since=split.since,
        until=split.until,
    )


def first_since(place: Place, archive: Archive, nanos: int) -> int | None:
    """The first sequence of a row at or behind a time (ns since 1970); None where there is none."""
    for file in archive.files:
        if file.max_time < nanos:
            continue
        for batch in read_file(
            place, file, ("seq", "timestamp", "ts_nanos"), file.first, file.last
        ):
            micros = batch.column("timestamp").to_numpy().view(np.int64)
            at = np.flatnonzero(micros * 1000 + batch.column("ts_nanos").to_numpy() >= nanos)
            if len(at):
                return int(batch.column("seq")[int(at[0])].as_py())
    return None


def check_file(place: Place, file: FileEntry) -> str:
    """What is wrong with a file's bytes, in words; empty when they are what was committed."""
    found = hashlib.sha256()
    size = 0
    try:
        with place.open(file.name) as opened:
            while data := opened.read(HASH_BYTES):
                found.update(data)
                size += len(data)
    except Absent:
        return "is not there"
    except (OSError, NatsError) as error:
        return f"cannot be read: {error}"
    if size != file.size:
        return f"has {size} bytes, {file.size} were written"
    if found.hexdigest() != file.sha256:
        return "has other bytes than were written (SHA-256 differs)"
    return ""
