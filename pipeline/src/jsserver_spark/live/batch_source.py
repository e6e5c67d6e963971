"""Batch reads of a live server: bounds and splits made once, in the driver."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from jsserver_spark.errors import OptionError
from jsserver_spark.jetstream import JetStream, StreamInfo
from jsserver_spark.live.fetch import fetch
from jsserver_spark.live.offsets import (
    check_names,
    end_sequences,
    first_sequences,
    streams_of,
)
from jsserver_spark.options import SourceOptions
from jsserver_spark.positions import EARLIEST
from jsserver_spark.splits import Bundle, Span, Split, tasks_of

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

    def partitions(self) -> list[InputPartition]:
        """Splits of the range as it is now."""
        options = self._options
        js = JetStream(options, "jsserver-spark-plan")
        try:
            infos = streams_of(js, options)
            starts = first_sequences(js, options, infos, EARLIEST)
            ends = end_sequences(js, options, infos)
            spans = [
                Span(
                    info.name,
                    info.created,
                    starts[info.name].seq,
                    ends[info.name] - 1,
                    seq_bytes(info),
                    starts[info.name].earliest,
                )
                for info in infos
            ]
        finally:
            js.close()
        return list(tasks_of(spans, options.split_bytes, options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the task's splits, in order of sequence."""
        return fetch_task(self._options, partition)


def fetch_task(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """What one task reads."""
    assert isinstance(task, Split | Bundle)
    splits = task.splits if isinstance(task, Bundle) else (task,)
    for split in splits:
        yield from _fetch_split(options, split)


def _fetch_split(options: SourceOptions, split: Split) -> Iterator[pa.RecordBatch]:
    """A task that is repeated must read what it read before."""
    task = TaskContext.get()
    again = task is not None and task.attemptNumber() > 0
    return fetch(
        options,
        split.stream,
        split.first,
        split.last,
        created=split.created,
        earliest=split.earliest and not again,
    )


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
