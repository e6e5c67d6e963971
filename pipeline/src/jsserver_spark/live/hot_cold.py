"""Batch reads with `archivePath`: the archive to its last sequence, the live stream behind it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive
from jsserver_spark.archive.reader import ArchiveSplit, first_since, read_split, splits
from jsserver_spark.errors import DataLossError
from jsserver_spark.jetstream import JetStream, StreamInfo
from jsserver_spark.live.batch_source import BatchReader, seq_bytes
from jsserver_spark.live.offsets import end_sequences, first_sequences, sequence_at, streams_of
from jsserver_spark.positions import EARLIEST
from jsserver_spark.splits import Span, tasks_of


@dataclass(frozen=True)
class ColdSplit(InputPartition):
    """What one task reads of the archive."""

    split: ArchiveSplit


class HotColdReader(BatchReader):
    """Reads what is archived from the archive, and the rest from the server."""

    def partitions(self) -> list[InputPartition]:
        """Splits of the archive's files, then of the stream as it is now."""
        options = self._options
        place = Place(options.archive_path)
        js = JetStream(options, "jsserver-spark-plan")
        try:
            live = streams_of(js, options)
            archives = {info.name: _archive_of(place, info) for info in live}
            infos = [_joined(info, archives[info.name]) for info in live]
            times = _Times(place, archives, live)
            starts = first_sequences(js, options, infos, EARLIEST, times.sequence_at)
            ends = end_sequences(js, options, infos, times.sequence_at)
            cold: list[InputPartition] = []
            hot = []
            for info in live:
                archive = archives[info.name]
                start, last = starts[info.name], ends[info.name] - 1
                cold += self._cold(place, archive, start.seq, min(last, archive.last))
                behind = max(start.seq, archive.last + 1)
                self._check_between(info, archive, behind, last)
                earliest = start.earliest and not archive.files  # else the archive comes first
                size = seq_bytes(info)
                hot.append(Span(info.name, info.created, behind, last, size, earliest))
        finally:
            js.close()
        if cold and not any(span.width for span in hot):
            return cold
        fewest = max(options.min_partitions - len(cold), 1)
        return [*cold, *tasks_of(hot, options.split_bytes, fewest)]

    def _cold(self, place: Place, archive: Archive, first: int, last: int) -> list[ColdSplit]:
        found = splits(archive, place.uri, first, last, self._options.split_bytes)
        return [ColdSplit(split) for split in found]

    def _check_between(self, info: StreamInfo, archive: Archive, first: int, last: int) -> None:
        """What was asked for is in the archive or in the stream."""
        held = info.state.first_seq
        if self._options.fail_on_data_loss and archive.last + 1 == first < held and first <= last:
            raise DataLossError(
                f"stream {info.name!r} starts at sequence {held}, its archive ends at"
                f" {archive.last}: what was between is gone (failOnDataLoss=false reads what is"
                " there)"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The split's rows, in order of sequence."""
        if not isinstance(partition, ColdSplit):
            return super().read(partition)
        return read_split(self._options, partition.split)


class _Times:
    """Times as sequences: the archive knows those that the stream no longer holds."""

    def __init__(
        self, place: Place, archives: dict[str, Archive], live: Sequence[StreamInfo]
    ) -> None:
        self._place = place
        self._archives = archives
        self._live = {info.name: info for info in live}

    def sequence_at(self, js: JetStream, info: StreamInfo, nanos: int) -> int | None:
        """The first message at or after a time, None when there is none."""
        found = first_since(self._place, self._archives[info.name], nanos)
        return sequence_at(js, self._live[info.name], nanos) if found is None else found


def _archive_of(place: Place, info: StreamInfo) -> Archive:
    archive = manifest.require(place, info.name)
    if archive.created != info.created:
        advice = (
            "Where it holds the same messages, as a restored backup does, `jsserver-spark archive"
            " --accept-recreated` goes on with the archive; else read the archive's Parquet files"
            " apart from the stream (see the option archivePath)"
        )
        raise manifest.of_another(place, archive, info.created, advice)
    return archive


def _joined(info: StreamInfo, archive: Archive) -> StreamInfo:
    """The stream as if it still held what is archived."""
    state = info.state
    if not archive.files:
        return info
    first = min(archive.first, state.first_seq)
    last = max(archive.last, state.last_seq)
    return msgspec.structs.replace(
        info, state=msgspec.structs.replace(state, first_seq=first, last_seq=last)
    )
