"""How far the reading of a range is, and whether what is missing in it may be missing."""

import logging
from collections.abc import Iterator

import pyarrow as pa

from jsserver_spark.batches import Batches
from jsserver_spark.cext.bytes import subject_covers, subject_is_literal
from jsserver_spark.errors import DataLossError, NatsError
from jsserver_spark.jetstream import NOT_FOUND, ApiError, JetStream, StreamInfo
from jsserver_spark.live.answers import Interrupted
from jsserver_spark.options import SourceOptions
from jsserver_spark.schema import Table

log = logging.getLogger(__name__)


class Range:
    """The sequences first to last of one stream, and the batches made of them."""

    def __init__(
        self,
        options: SourceOptions,
        table: Table,
        stream: str,
        first: int,
        last: int,
        created: int = 0,
        earliest: bool = False,
    ) -> None:
        self.options = options
        self.table = table
        self.stream = stream
        self.first = first
        self.last = last
        self.created = created
        self.earliest = earliest
        """Whether the range starts with whatever comes first when it is read."""
        self.done = first - 1
        """Everything up to here was given out, or is not there."""
        self._singles = 0
        self.own = False
        """Whether the stream itself is asked, and no direct get."""
        self.filters: tuple[str, ...] = ()
        self.info: StreamInfo
        self._control: JetStream | None = None

    def open(self, info: StreamInfo) -> None:
        """Before each attempt: the stream as it is now. DataLossError."""
        self.info = info
        self.filters = needed_filters(self.options.filter_subjects)
        if self.created and info.created != self.created:
            self._lost(
                f"stream {self.stream!r} was deleted and made anew since the read was planned"
            )
            self.done = self.last
            return
        self._judge_start(info)
        if info.state.last_seq < self.last:
            self._lost(
                f"stream {self.stream!r} ends at sequence {info.state.last_seq}, but"
                f" {self.last} was to be read"
            )

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    @property
    def mean_bytes(self) -> float:
        """Of a message of the stream."""
        return self.info.state.bytes / max(self.info.state.messages, 1)

    def batches(self) -> Batches:
        return Batches(self.table, self.stream, self.options)

    def take(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        batch = batches.take()
        if batch.num_rows:
            yield batch

    def reached(self, seq: int) -> None:
        self.done = max(self.done, min(seq, self.last))

    def fell_silent(self, messages: int) -> None:
        """Behind so many messages nothing came in time. NatsError when that was a single one, and
        not for the first time."""
        self._singles += messages == 1
        if self._singles > 1:
            raise NatsError(
                f"one answer came of several: stream {self.stream!r} is read by requests that many"
                " messages answer. Where JetStream's API is imported from another account, its"
                " export needs `response: stream`"
            )

    # ---- what is missing -----------------------------------------------------------------------

    def check_gap(self) -> None:
        """Behind `done` sequences are missing: they were deleted singly, or retention took them."""
        bucket = self.info.config.max_msgs_per_subject == 1
        if bucket or self.earliest or not self.options.fail_on_data_loss:
            return
        self._judge_start(self.control().stream_info(self.stream))

    def end_or_lag(self) -> None:
        """The answering server knows nothing behind `done`; Interrupted when the leader does."""
        for subject in self.filters or (">",):
            try:
                found = self.control().api(
                    f"STREAM.MSG.GET.{self.stream}", {"seq": self.done + 1, "next_by_subj": subject}
                )
            except ApiError as error:
                if error.code == NOT_FOUND:
                    continue
                raise
            if int(found["message"]["seq"]) <= self.last:
                raise Interrupted(
                    f"a replica of stream {self.stream!r} ends at sequence {self.done}, its leader"
                    " does not"
                )
        self.check_gap()
        self.done = self.last

    def control(self) -> JetStream:
        """A connection of its own: on the other one answers are under way."""
        if self._control is None:
            self._control = JetStream(self.options, "jsserver-spark-control")
        return self._control

    def _judge_start(self, info: StreamInfo) -> None:
        first = info.state.first_seq
        if first <= self.done + 1:
            return
        what = f"stream {self.stream!r} begins at sequence {first}, but {self.done + 1} was"
        if self.earliest:
            log.warning("%s first when the read was planned", what)
        elif info.config.max_msgs_per_subject == 1:
            log.warning("%s to be read: only the newest of a subject is kept", what)
        elif self._may_compact(info):
            log.warning("%s to be read: newer messages of their subjects took their place", what)
        else:
            self._lost(
                f"{what} to be read: messages were removed by the stream's limits, by a purge or by"
                " acks"
            )

    def _lost(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{what} (failOnDataLoss=false reads what is there)")
        log.warning("%s; reading what is there", what)

    def _may_compact(self, info: StreamInfo) -> bool:
        """Whether all that is missing has given way to newer messages of its subjects, or would
        have by now: there are as many of each as the stream keeps.

        What subjects the missing messages had nobody knows, unless filters without wildcards name
        them.
        """
        kept = info.config.max_msgs_per_subject
        if kept <= 0 or not self.filters or not all(map(subject_is_literal, self.filters)):
            return False
        return all(self._count(subject) >= kept for subject in self.filters)

    def _count(self, subject: str) -> int:
        """Messages of one subject."""
        answer = self.control().api(f"STREAM.INFO.{self.stream}", {"subjects_filter": subject})
        return int((answer["state"].get("subjects") or {}).get(subject, 0))


def needed_filters(filters: tuple[str, ...]) -> tuple[str, ...]:
    """Without those that another one covers; none when one lets everything through.

    What a stream takes now says nothing of what it holds: its subjects may have changed.
    """
    needed = tuple(
        one
        for one in dict.fromkeys(filters)
        if not any(other != one and subject_covers(other, one) for other in filters)
    )
    return () if needed == (">",) else needed
