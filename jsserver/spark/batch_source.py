"""Batch reads of a live server: bounds and splits made once, in the driver."""

import dataclasses
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from jsserver.spark.errors import OptionError
from jsserver.spark.fetch import fetch
from jsserver.spark.filters import Narrowed, narrowed_by
from jsserver.spark.jetstream import JetStream, StreamInfo
from jsserver.spark.offsets import (
    check_names,
    end_sequences,
    first_sequences,
    sequence_at,
    streams_of,
)
from jsserver.spark.options import SourceOptions
from jsserver.spark.positions import EARLIEST
from jsserver.spark.splits import Span, Split, splits_of

_STREAMING_ONLY = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)


class BatchReader(DataSourceReader):
    """Reads streams from the starting to the ending offsets, earliest to latest by default."""

    def __init__(self, options: SourceOptions) -> None:
        check_batch(options)
        self._options = options
        self._narrowed = Narrowed()

    def partitions(self) -> list[InputPartition]:
        """Splits of the range as it is now."""
        options = self._options
        js = JetStream(options, "jsserver-spark-plan")
        try:
            names, infos = self._streams(js)
            firsts = first_sequences(js, options, names, infos, EARLIEST)
            ends = end_sequences(js, options, names, infos)
            spans = [self._span(js, info, firsts[info.name], ends[info.name]) for info in infos]
        finally:
            js.close()
        return list(splits_of(spans, options.split_bytes, options.min_partitions))

    def _streams(self, js: JetStream) -> tuple[list[str], list[StreamInfo]]:
        """The names of the streams that the options name, and those that filters leave."""
        named = streams_of(js, self._options)
        taken = [info for info in named if self._narrowed.takes(info.name)]
        return [info.name for info in named], taken

    def _span(self, js: JetStream, info: StreamInfo, first: int, end: int) -> Span:
        narrowed = self._narrowed
        if narrowed.since is not None:
            first = max(first, sequence_at(js, info, narrowed.since) or end)
        if narrowed.until is not None:
            end = min(end, sequence_at(js, info, narrowed.until) or end)
        return Span(
            info.name,
            info.created,
            max(first, narrowed.first),
            min(end - 1, narrowed.last),
            seq_bytes(info),
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The split's rows, in order of sequence."""
        assert isinstance(partition, Split)
        options = self._options
        if self._narrowed.subjects:
            options = dataclasses.replace(options, filter_subjects=self._narrowed.subjects)
        return fetch(
            options, partition.stream, partition.first, partition.last, None, partition.created
        )


class FilteringReader(BatchReader):
    """With `pushdown=true`: what a query filters by narrows what is asked of the server."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Those that Spark has still to apply."""
        self._narrowed, left = narrowed_by(filters, self._options)
        return left


def seq_bytes(info: StreamInfo) -> float:
    """Mean bytes a sequence, deleted ones between the first and the last counted."""
    state = info.state
    return state.bytes / max(state.last_seq - state.first_seq + 1, 1)


def check_batch(options: SourceOptions) -> None:
    """OptionError for what a batch read cannot take."""
    check_names(options)
    for name in _STREAMING_ONLY:
        if options.given(name):
            raise OptionError(f"option {name!r} is for streaming reads")
