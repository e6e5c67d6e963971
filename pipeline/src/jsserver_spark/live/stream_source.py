"""Structured Streaming's side of a live server: offsets, limits and lag, from a cache of states."""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jetstream import StreamInfo
from jsserver_spark.live.batch_source import fetch_task
from jsserver_spark.live.missing import missing_in
from jsserver_spark.live.offsets import check_names, first_sequences
from jsserver_spark.live.progress import Offset, Place, advance, read_offset
from jsserver_spark.live.states import States
from jsserver_spark.options import SourceOptions
from jsserver_spark.positions import LATEST
from jsserver_spark.splits import Span, tasks_of

log = logging.getLogger(__name__)

_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One in the driver for the life of a query; copies of it read in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        check_streaming(options)
        self._options = options
        self._forget()

    def _forget(self) -> None:
        self._states = States(self._options)
        self._initial: dict[str, Any] | None = None
        self._target: Offset | None = None
        self._ended: Offset | None = None
        """Where the latest batch of this run ends."""
        self._held_since: float | None = None

    def __getstate__(self) -> SourceOptions:
        """A copy has the options, never a connection."""
        return self._options

    def __setstate__(self, options: SourceOptions) -> None:
        self._options = options
        self._forget()

    # ---- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts: the same at each call."""
        if self._initial is None:
            infos = self._states.now()
            starts = self._states.server.ask_once(
                lambda js: first_sequences(js, self._options, infos, LATEST)
            )
            places = {}
            for info in infos:
                first, earliest = starts[info.name]
                places[info.name] = Place(info.created, first - 1, 0, first, earliest)
            self._initial = Offset(places).write()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Up to where the next batch reads; `start` itself when there is nothing to read."""
        begun = read_offset(start)
        infos = self._states.recent()
        end = advance(begun, infos, self._options, self._target)
        if isinstance(limit, ReadMaxRows):
            end = end.limited(begun, rows=limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            end = end.limited(begun, size=limit.max_bytes)
        elif not isinstance(limit, ReadAllAvailable | ReadMinRows):
            raise OptionError(f"format nats knows no limit {type(limit).__name__}")
        if end.rows_since(begun) == 0 and end.same_streams(begun):
            return start
        if not isinstance(limit, ReadAllAvailable) and self._too_few(end.rows_since(begun)):
            return start
        self._ended = end = end.counted(self._missing(begun, end, infos))
        return end.write()

    def _missing(self, begun: Offset, end: Offset, infos: Sequence[StreamInfo]) -> dict[str, int]:
        """How many sequences between have no message, by stream, as far as that can be told."""
        missing = {}
        for info in infos:
            place = end.places.get(info.name)
            if place is None:
                continue
            first, last = begun.first_of(info.name, place), place.seq
            try:
                found = self._states.server.ask_once(
                    partial(missing_in, info=info, first=first, last=last)
                )
            except NatsError as error:  # it is only told: no batch fails for it
                log.warning("messages of stream %r are not counted: %s", info.name, error)
                found = None
            if found:
                missing[info.name] = found
                log.warning(
                    "stream %r has no message for %d of the sequences %d to %d",
                    *(info.name, found, first, last),
                )
        return missing

    def _too_few(self, rows: int) -> bool:
        """Whether to wait for more, by minOffsetsPerTrigger and maxTriggerDelay."""
        if rows >= self._options.min_offsets_per_trigger or self._target is not None:
            self._held_since = None
            return False
        now = self._states.clock()
        if self._held_since is None:
            self._held_since = now
        if now - self._held_since < self._options.max_trigger_delay:
            return True
        self._held_since = None
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The streams' ends as known, for the progress report's lag."""
        return Offset(
            {info.name: Place(info.created, info.state.last_seq) for info in self._states.recent()}
        ).write()

    def prepareForTriggerAvailableNow(self) -> None:
        """The streams' ends now are where the query stops."""
        self._target = Offset(
            {info.name: Place(info.created, info.state.last_seq) for info in self._states.now()}
        )

    # ---- a batch -------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Splits of what lies between, from the offsets alone: a replay gets the same ones."""
        begun, ended = read_offset(start), read_offset(end)
        anew = ended == self._ended
        spans = [
            Span(
                name,
                place.created,
                begun.first_of(name, place),
                place.seq,
                place.seq_bytes,
                anew and place.earliest and begun.is_unread(name, place),
            )
            for name, place in ended.places.items()
        ]
        return tasks_of(spans, self._options.split_bytes, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the task's splits, in order of sequence."""
        return fetch_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the checkpoint owns the progress."""

    def stop(self) -> None:
        self._states.server.close()


def check_streaming(options: SourceOptions) -> None:
    """OptionError for what a streaming read cannot take."""
    check_names(options)
    for name in _BATCH_ONLY:
        if options.given(name):
            raise OptionError(f"option {name!r} is for batch reads")
    if options.archive_path:
        raise OptionError("option 'archivePath' is for batch reads")
