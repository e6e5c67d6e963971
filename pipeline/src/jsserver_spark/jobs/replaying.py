"""How a replay goes: where the target stands, what comes next, and what happens when it breaks."""

import base64
import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive
from jsserver_spark.archive.reader import TIME_MAX, TIME_MIN, ArchiveSplit, overlapping, read_split
from jsserver_spark.archive.writer import READ
from jsserver_spark.cext.columns import ROW_FAULTS
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import NOT_FOUND, ApiError, JetStream, StreamInfo
from jsserver_spark.jobs.progress import Progress
from jsserver_spark.options import RowOptions, SinkOptions
from jsserver_spark.schema import Table
from jsserver_spark.write.publisher import Fit, Publisher
from jsserver_spark.write.refusals import BadRow, PublishError

log = logging.getLogger(__name__)

SOURCE_HEADER = "Nats-Replay-Source"
ACTING = (
    "Nats-Msg-Id",
    "Nats-Expected-Stream",
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Expected-Last-Subject-Sequence-Subject",
    "Nats-Expected-Last-Msg-Id",
    "Nats-Rollup",
    "Nats-TTL",
    "Nats-Incr",
    "Nats-Schedule",
    "Nats-Schedule-Target",
    "Nats-Schedule-TTL",
    "Nats-Schedule-Source",
    "Nats-Schedule-Time-Zone",
    "Nats-Schedule-Rollup",
    "Nats-Batch-Id",
    "Nats-Batch-Sequence",
    "Nats-Batch-Commit",
)
"""Headers that a server acts on when a message is published."""

PATIENCE_S = 60.0
"""How long a replay gets nowhere before it fails."""
SETTLE_S = 0.3
SLEEP_MAX_S = 0.2

_TABLE = Table(tuple(column for column in READ.columns if column.name != "headers"))


class ReplayResult(msgspec.Struct):
    """What a replay published."""

    stream: str
    to: str
    rows: int = 0
    """Acked in this run."""
    before: int = 0
    """The target had already."""
    duplicates: int = 0
    """With ids: acked, and there already."""
    passed_over: int = 0
    """Could not be published, and were to be passed over then."""
    seconds: float = 0.0
    complete: bool = True
    """False when it was asked to stop before it was done."""


@dataclass
class Source:
    """What is replayed, and how its messages change on the way."""

    place: Place
    archive: Archive
    first: int
    last: int
    subjects: tuple[str, ...] = ()
    since: int = TIME_MIN
    until: int = TIME_MAX
    prefix: str = ""
    plain: bool = False
    ids: bool = False
    mark: bool = False
    fit: Fit | None = None
    """Where what cannot be published is passed over."""
    passed_over: int = 0
    """So many of the rows that were last read."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Headers that are not published."""
        return ACTING if self.plain else ("Nats-Msg-Id",) if self.ids else ()

    def total(self) -> int:
        """About how many messages there are."""
        return sum(f.rows for f in overlapping(self.archive, self.first, self.last))

    def rows(self, skip: int = 0, after: int = 0) -> Iterator[pa.RecordBatch]:
        """What is archived behind `after`, without the first `skip` messages."""
        first = max(self.first, after + 1)
        all_of_them = self.since == TIME_MIN and self.until == TIME_MAX and self.fit is None
        if not self.subjects and all_of_them:
            for file in overlapping(self.archive, first, self.last):
                if file.first < first or skip < file.rows:
                    break
                skip -= file.rows
                first = file.last + 1
        split = ArchiveSplit(
            self.place.uri, self.archive.stream, first, self.last, self.since, self.until
        )
        self.passed_over = 0
        for batch in read_split(RowOptions(filter_subjects=self.subjects), split, _TABLE):
            if self.fit is not None:
                batch = self._fitting(batch, self.fit)
            if skip < len(batch):
                yield batch.slice(skip)
            skip = max(0, skip - len(batch))

    def _fitting(self, batch: pa.RecordBatch, fit: Fit) -> pa.RecordBatch:
        faults = np.frombuffer(fit.faults(self.outgoing(batch)), dtype=np.uint8)
        at = np.flatnonzero(faults)
        if not len(at):
            return batch
        if not self.passed_over:
            seq = batch.column("seq")[int(at[0])].as_py()
            log.warning("sequence %d is passed over: %s", seq, ROW_FAULTS[int(faults[at[0]])])
        self.passed_over += len(at)
        return batch.filter(pa.array(faults == 0))

    def outgoing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are published."""
        columns = {
            "subject": batch.column("subject"),
            "headers_raw": batch.column("headers_raw"),
            "data": batch.column("data"),
        }
        if self.prefix:
            columns["subject"] = pc.binary_join_element_wise(self.prefix, columns["subject"], "")
        seqs = batch.column("seq").cast(pa.string())
        if self.mark:
            columns["headers_raw"] = self._marked(columns["headers_raw"], seqs)
        if self.ids:
            origin = f"{self.archive.source}-{self.archive.created}"
            columns["msg_id"] = pc.binary_join_element_wise(origin, seqs, "-")
        return pa.RecordBatch.from_pydict(columns)

    def _marked(self, blocks: pa.Array, seqs: pa.Array) -> pa.Array:
        head = pc.fill_null(pc.binary_slice(blocks, 0, -2), b"NATS/1.0\r\n")
        line = pc.binary_join_element_wise(
            f"{SOURCE_HEADER}: {self.archive.stream}/", seqs, "\r\n\r\n", ""
        )
        return pc.binary_join_element_wise(head, line.cast(pa.binary()), b"")


class Position(NamedTuple):
    """Where a replay goes on: so many messages are there, or everything to a sequence is."""

    skip: int = 0
    after: int = 0


class Replay:
    """One run of a replay into stream `to`."""

    def __init__(
        self,
        options: SinkOptions,
        source: Source,
        to: str,
        stop: threading.Event,
        progress: Progress | None,
        *,
        skip: bool = False,
    ) -> None:
        """`skip`: what cannot be published is passed over."""
        self._options = options
        self._skip = skip
        self._source = source
        self._to = to
        self._stop = stop
        self._progress = progress
        self._result = ReplayResult(source.archive.stream, to)
        self._moved = time.monotonic()
        self._pace: _Pace | None = None

    def run(self, *, paced: bool, create: bool) -> ReplayResult:
        """Until everything is acked, or it is asked to stop. NatsError."""
        started = time.monotonic()
        position = self._prepared(create)
        self._result.before = position.skip
        if self._progress is not None:
            self._progress.total = self._source.total() - position.skip
        if paced:
            self._pace = _Pace(self._stop)
        while True:
            try:
                self._attempt(position)
                break
            except NatsError as error:
                if self._source.ids or not error.passes:  # with ids the publisher tried again
                    raise
                position = self._again(error)
        self._result.complete = not self._stop.is_set()
        self._result.seconds = time.monotonic() - started
        return self._result

    def _attempt(self, position: Position) -> None:
        with Publisher(
            self._options, "jsserver-spark-replay", left_out=self._source.left_out, exact=True
        ) as publisher:
            acked = 0
            try:
                for batch in self._source.rows(position.skip, position.after):
                    for part in self._pace.parts(batch) if self._pace else (batch,):
                        publisher.publish(self._source.outgoing(part))
                        acked = self._count(publisher, acked)
                        if self._pace:
                            publisher.flush()
                    if self._stop.is_set():
                        break
                publisher.flush()
                self._result.passed_over = self._source.passed_over
            except PublishError as error:
                if error.passes:
                    raise
                raise NatsError(f"{error}{self._hint(error)}") from None
            finally:
                self._count(publisher, acked)
            if publisher.duplicates and not self._source.ids:
                raise NatsError(self._dropped())

    def _hint(self, error: PublishError) -> str:
        if isinstance(error, BadRow):
            return "; --skip-unpublishable passes over such messages, and counts them"
        if self._source.plain:
            return ""
        return (
            "; where one of the message's own headers is the reason, --headers plain publishes"
            " without those that a server acts on (--help names them)"
        )

    def _dropped(self) -> str:
        return (
            f"stream {self._to!r} dropped messages as duplicates by their own Nats-Msg-Id: it does"
            " not hold what was archived. Purge it and lower its duplicate_window (100 ms at"
            " least), or replay with --headers plain"
        )

    def _count(self, publisher: Publisher, before: int) -> int:
        """Tells how many were acked; the publisher's count."""
        acked = publisher.acked
        if publisher.duplicates and not self._source.ids:
            raise NatsError(self._dropped())
        if acked > before:
            self._moved = time.monotonic()
            self._result.rows += acked - before
            if self._progress is not None:
                self._progress.add(acked - before)
        if self._source.ids:
            self._result.duplicates = publisher.duplicates
        return acked

    def _again(self, error: NatsError) -> Position:
        """After what may pass: where the target stands once nothing moves any more."""
        while time.monotonic() - self._moved < PATIENCE_S and not self._stop.is_set():
            try:
                last = -1
                while (now := self._last_seq()) != last:
                    last = now
                    time.sleep(SETTLE_S)
                return self._position()
            except NatsError as again:
                if not again.passes:
                    raise
                error = again
                time.sleep(SETTLE_S)
        raise error

    def _last_seq(self) -> int:
        api = JetStream(self._options, "jsserver-spark-replay")
        try:
            return api.stream_info(self._to).state.last_seq
        finally:
            api.close()

    # ---- the target ----------------------------------------------------------------------------

    def _prepared(self, create: bool) -> Position:
        if create:
            self._create()
        api = JetStream(self._options, "jsserver-spark-replay")
        try:
            if self._skip:
                self._source.fit = Fit(
                    int(api.connection.info["max_payload"]), self._source.left_out
                )
            first = next(self._source.rows(), None)
            if first is not None:
                self._check_subject(api, self._source.outgoing(first.slice(0, 1)))
        finally:
            api.close()
        return self._position()

    def _create(self) -> None:
        api = JetStream(self._options, "jsserver-spark-replay")
        try:
            api.stream_info(self._to)
        except ApiError:
            config = dict(self._source.archive.config)
            for name in ("mirror", "sources", "first_seq", "placement", "republish"):
                config.pop(name, None)
            config["name"] = self._to
            prefix = self._source.prefix
            config["subjects"] = [prefix + subject for subject in config.get("subjects") or [">"]]
            api.api(f"STREAM.CREATE.{self._to}", config)
        finally:
            api.close()

    def _check_subject(self, api: JetStream, row: pa.RecordBatch) -> None:
        subject = _text(row.column("subject"))
        api.stream_info(self._to)
        names = api.api("STREAM.NAMES", {"subject": subject}).get("streams") or []
        if self._to not in names:
            takes = f"stream {names[0]!r} does" if names else "no stream does"
            raise NatsError(
                f"stream {self._to!r} does not take subject {subject!r}, {takes} (see --to,"
                " --subject-prefix and the target's subjects)"
            )

    def _position(self) -> Position:
        """Where to go on; NatsError when the target holds something else."""
        api = JetStream(self._options, "jsserver-spark-replay")
        try:
            info = api.stream_info(self._to)
            if self._source.ids or not info.state.messages:
                return Position()
            return self._marked(api, info) or self._compared(api, info)
        finally:
            api.close()

    def _marked(self, api: JetStream, info: StreamInfo) -> Position | None:
        """Where the last message says that it comes from."""
        if not self._source.mark:
            return None
        message = _message(api, self._to, info.state.last_seq)
        found = message.header.rpartition(f"{SOURCE_HEADER}: ".encode())[2].partition(b"\r\n")[0]
        stream, slash, seq = found.decode(errors="replace").rpartition("/")
        if not slash or stream != self._source.archive.stream or not seq.isdigit():
            raise self._mismatch("its last message bears no mark of this replay")
        return Position(after=int(seq))

    def _compared(self, api: JetStream, info: StreamInfo) -> Position:
        state = info.state
        last = _message(api, self._to, state.last_seq)
        for held, whole in ((state.last_seq - state.first_seq + 1, True), (state.last_seq, False)):
            if not self._same(held - 1, last):
                continue
            if not whole or self._same(0, _message(api, self._to, state.first_seq)):
                return Position(skip=held)
        raise self._mismatch(f"its message {state.last_seq} is not the one that was archived")

    def _same(self, index: int, message: "_Stored") -> bool:
        batch = next(self._source.rows(index), None)
        if batch is None:
            return False
        row = self._source.outgoing(batch.slice(0, 1))
        if _text(row.column("subject")) != _shown(message.subject):
            return False
        if row.column("data")[0].as_py() != message.data:
            return False
        return self._source.plain or (row.column("headers_raw")[0].as_py() or b"") == message.header

    def _mismatch(self, why: str) -> NatsError:
        """The target holds something else."""
        return NatsError(
            f"stream {self._to!r} holds other messages than the start of this replay: {why}. Replay"
            " into an empty stream, or add to this one with --ids"
        )


def _text(subjects: pa.Array) -> str:
    """The first of them as the API shows it, which marks what is not UTF-8."""
    return _shown(subjects.cast(pa.binary())[0].as_py().decode(errors="replace"))


def _shown(subject: str) -> str:
    """With one mark where servers put different numbers of them."""
    return re.sub("\ufffd+", "\ufffd", subject)


class _Stored(NamedTuple):
    subject: str
    header: bytes
    data: bytes


def _message(api: JetStream, stream: str, seq: int) -> _Stored:
    try:
        found: dict[str, Any] = api.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})["message"]
    except ApiError as error:
        if error.code == NOT_FOUND:
            return _Stored("", b"", b"")
        raise
    return _Stored(
        found["subject"],
        base64.b64decode(found.get("hdrs", "")),
        base64.b64decode(found.get("data", "")),
    )


class _Pace:
    """Rows at the distances they once came in."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._origin: float | None = None

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in pieces, each when it is due; ends early when it is to stop."""
        micros = batch.column("timestamp").to_numpy().view(np.int64)
        # A clock that was set back makes nobody wait: what is older comes with what is before it.
        due = np.maximum.accumulate(micros) / 1e6
        if self._origin is None:
            self._origin = time.monotonic() - float(due[0])
        at = 0
        while at < len(batch) and not self._stop.is_set():
            now = time.monotonic() - self._origin
            end = int(np.searchsorted(due, now, "right"))
            if end > at:
                yield batch.slice(at, end - at)
                at = end
            else:
                self._stop.wait(min(float(due[at]) - now, SLEEP_MAX_S))
