"""Writing format `nats`: what Spark's tasks publish, and when the driver calls a batch finished.

A streaming write is exactly-once: every row has a message id, so that what a task writes again is
dropped by the stream, and a fence keeps a finished batch from being written again after the stream
forgot its ids. Ids are what `idColumn` names, or stream and sequence of rows of format `nats`, or
else made of sinkId, batch, partition and row. The latter hold if a partition has the same rows in
the same order again: so these are noted before any of them is written, and a batch that comes
otherwise is refused. A batch write with sinkId and runId is a batch of its own in all this;
without, it is at-least-once, or exactly-once within the streams' duplicate_window with ids of the
rows' own. With `atomic`, each thousand of a task's rows is stored whole or not at all.
"""

import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jetstream import JetStream, Patient
from jsserver_spark.options import SinkOptions
from jsserver_spark.write import outgoing
from jsserver_spark.write.atomic import AtomicPublisher
from jsserver_spark.write.doubles import Doubles
from jsserver_spark.write.fence import (
    KEPT,
    Begun,
    Fence,
    FenceError,
    Mark,
    Seen,
    check_same,
    check_same_run,
    finished,
    hex_digest,
)
from jsserver_spark.write.publisher import Publisher
from jsserver_spark.write.spool import Spool, spooling
from jsserver_spark.write.targets import Targets
from jsserver_spark.write.templates import Template

log = logging.getLogger(__name__)

NAME = "jsserver-spark-sink"
"""Of the connections, for the server's lists."""
KAFKA_NAMES = {"value": "data", "key": "subject", "topic": "stream"}
ORIGIN = ("stream", "seq")
"""Columns of format `nats` that say which message a row is."""
BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""A query's jobs are grouped by its run."""

_SINK_ID = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*")
"""A key of a bucket (ADR-8)."""
_RUN_ID = re.compile(r"[!-~]{1,200}")


@dataclass
class Written(WriterCommitMessage):
    """What one task did. `seen` is the fence that it found, None without one.

    `came` and `digest`: the rows that it had to write, published or skipped. `left_out`: headers
    of them that are not theirs to set.
    """

    rows: int = 0
    duplicates: int = 0
    last_seq: int = 0
    query: str = ""
    skipped: bool = False
    seen: Seen | None = None
    came: int = 0
    digest: int = 0
    left_out: set[str] = field(default_factory=set)


class Columns:
    """Which input column is what. OptionError names columns that are unknown or missing."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.template = Template(options.subject)
        self._sources: dict[str, str] = {}
        names = schema.fieldNames()
        self._ids = options.id_column
        self._id_prefix = ""
        if not self._ids and "msg_id" not in names and {*ORIGIN} <= {*names}:
            self._ids = ORIGIN
            self._id_prefix = f"{options.sink_id}-" if options.sink_id else ""
        used = {*self.template.columns, *self._ids}
        if missing := sorted(used.difference(names)):
            raise OptionError(
                f"column {missing[0]!r} is not in the input; the options subject and idColumn name"
                f" {', '.join(map(repr, sorted(used)))}, the input has {', '.join(names)}"
            )
        for name in names:
            target = KAFKA_NAMES.get(name, name)
            if name == "stream" and name in self._ids:
                continue  # where the row comes from, not where it goes
            if target in outgoing.COLUMNS:
                if target in self._sources:
                    raise OptionError(f"columns {self._sources[target]!r} and {name!r} are one")
                self._sources[target] = name
            elif name not in used:
                raise OptionError(
                    f"unknown column {name!r}; a row to write has {', '.join(outgoing.COLUMNS)}"
                    f" (or Kafka's {', '.join(KAFKA_NAMES)}): select those, or name the column in"
                    " the options subject or idColumn"
                )
        if "data" not in self._sources:
            raise OptionError("there is no column 'data' (or 'value') to write")
        if "subject" not in self._sources and not options.subject:
            raise OptionError("rows need a subject: a column 'subject', or the option 'subject'")

    @property
    def bring_ids(self) -> bool:
        return bool(self._ids) or "msg_id" in self._sources

    @property
    def default_subject(self) -> str:
        return "" if self.template.columns else self.template.text

    @property
    def fix_streams(self) -> bool:
        """Whether it is known before the first row where they go, if the option stream is not."""
        return not {"subject", "stream"} & self._sources.keys() and not self.template.columns

    def of(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The rows as an Outbox takes them. NatsError."""
        taken = {name: rows.column(source) for name, source in self._sources.items()}
        if self.template.columns:
            made = self.template.fill(rows, first_row)
            given = taken.get("subject")
            taken["subject"] = made if given is None else pc.coalesce(given.cast(made.type), made)
        if self.bring_ids:
            names = self._ids or (self._sources["msg_id"],)
            taken["msg_id"] = self._ids_of(names, rows, first_row)
        return pa.RecordBatch.from_arrays(list(taken.values()), names=list(taken))

    def _ids_of(self, names: Sequence[str], rows: pa.RecordBatch, first_row: int) -> pa.Array:
        """Message ids: one column as it is, or several with a - between them. NatsError."""
        for name in names:
            if rows.column(name).null_count:
                row = first_row + pc.index(pc.is_null(rows.column(name)), True).as_py()
                raise NatsError(f"row {row}: column {name!r} is null, and it holds message ids")
        if len(names) == 1 and not self._id_prefix:
            return rows.column(names[0])
        texts = []
        for name in names:
            try:
                texts.append(rows.column(name).cast(pa.large_string()))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise NatsError(f"column {name!r} cannot be part of an id: {error}") from None
        joined = pc.binary_join_element_wise(*texts, pa.scalar("-", pa.large_string()))
        if not self._id_prefix:
            return joined
        prefix, nothing = (pa.scalar(text, pa.large_string()) for text in (self._id_prefix, ""))
        return pc.binary_join_element_wise(prefix, joined, nothing)


class _Writer:
    """What both writers do in a task, and when the batch is done."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        if options.sink_id and not _SINK_ID.fullmatch(options.sink_id):
            raise OptionError(
                f"option 'sinkId' is {options.sink_id!r}: it must be a key of a bucket, made of"
                " letters, digits, -, _, =, / and single dots within"
            )
        if options.run_id and not _RUN_ID.fullmatch(options.run_id):
            raise OptionError("option 'runId' must be at most 200 letters without blanks")
        self.options = options
        self.columns = Columns(options, schema)
        self.attempt = secrets.token_hex(8)
        """Tasks of one attempt to write a batch have copies of one writer."""

    def targets(self, server: Patient) -> Targets:
        """The streams that are known before the first row. NatsError when one does not do."""
        targets = Targets(server, self.options)
        if self.options.stream:
            targets.check_stream(self.options.stream)
        elif self.columns.fix_streams:
            targets.check_subject(self.columns.default_subject)
        return targets

    @property
    def lazily(self) -> bool:
        """Whether only the rows tell which streams they go to."""
        return not self.options.stream and not self.columns.fix_streams

    # ---- a task --------------------------------------------------------------------------------

    def write_once(self, batches: Iterable[pa.RecordBatch], mine: Begun, prefix: str) -> Written:
        """Writes a task's part of a batch that may come again. NatsError.

        `prefix`: of the message ids, where rows bring none. With a fence, a finished batch is
        passed over, and one whose ids are made of the rows' places has to have them as before.
        """
        with Patient(self.options, NAME) as server:
            seen, done = self._look(server, mine)
            rows = self.rows(batches)
            if done:
                written = self._skip(rows)
            else:
                targets = self.targets(server)
                if self.options.fence:
                    self._begin(server, mine, targets)
                if self.options.fence and not self.columns.bring_ids:
                    with spooling() as spool:
                        self._agree(server, mine, targets, rows, spool)
                        written = self.publish(spool, server, targets, prefix)
                else:
                    written = self.publish(rows, server, targets, prefix)
        written.query = mine.query
        written.seen = seen
        return written

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As an Outbox takes them."""
        came = 0
        for batch in batches:
            yield self.columns.of(batch, came)
            came += batch.num_rows

    def _look(self, server: Patient, mine: Begun) -> tuple[Seen | None, bool]:
        """The fence as it is, and whether it says that the batch is finished."""

        def look(js: JetStream) -> tuple[Seen, bool]:
            fence = self.fence(js)
            seen = fence.read()
            return seen, fence.is_finished(seen, mine.query, mine.batch)

        return server.ask(look) if self.options.fence else (None, False)

    def fence(self, js: JetStream) -> Fence:
        options = self.options
        return Fence(js, options.fence_bucket, options.sink_id, options.run_id)

    def _begin(self, server: Patient, mine: Begun, targets: Targets) -> None:
        again = _task().attemptNumber() > 0
        window, replicas = targets.window, targets.replicas
        server.ask(lambda js: self.fence(js).begin(mine, window, again=again, replicas=replicas))

    def _agree(
        self,
        server: Patient,
        mine: Begun,
        targets: Targets,
        rows: Iterable[pa.RecordBatch],
        spool: Spool,
    ) -> None:
        """Takes all rows, and notes which they are before any of them is written."""
        came = digest = 0
        for batch in rows:
            if self.lazily:
                targets.check_rows(batch, self.columns.default_subject)
            digest += outgoing.digest(batch, first_row=came)
            came += batch.num_rows
            spool.add(batch)
        partition, said = _task().partitionId(), hex_digest([digest])
        server.ask(lambda js: self.fence(js).agree(mine, partition, came, said))

    def publish(
        self,
        rows: Iterable[pa.RecordBatch],
        server: Patient,
        targets: Targets | None,
        id_prefix: str | None,
    ) -> Written:
        """Publishes a task's rows and waits for all acks; `targets` have to know ids. NatsError."""
        columns = self.columns
        if not self.lazily:
            server.close()  # it was asked everything
        doubles = Doubles(self.options, NAME, strict=not self.options.id_column)
        with (AtomicPublisher if self.options.atomic else Publisher)(
            self.options,
            NAME,
            id_prefix=None if columns.bring_ids else id_prefix,
            subject=columns.default_subject,
            doubles=doubles if targets is not None else None,
        ) as publisher:
            digest = 0
            for batch in rows:
                digest += outgoing.digest(batch)
                if targets and self.lazily:
                    targets.check_rows(batch, columns.default_subject)
                publisher.publish(batch)
            publisher.flush()
            return Written(
                publisher.acked,
                publisher.duplicates,
                publisher.last_seq,
                came=publisher.rows,
                digest=digest,
                left_out=publisher.left_out,
            )

    def _skip(self, rows: Iterable[pa.RecordBatch]) -> Written:
        """Looks at a task's rows, and publishes none. NatsError."""
        done = Written(skipped=True)
        for batch in rows:
            done.digest += outgoing.digest(batch)
            done.came += batch.num_rows
        return done

    # ---- a batch -------------------------------------------------------------------------------

    def finish(self, done: Sequence[Written], number: int) -> None:
        """Moves the fence behind the batch, unless it stands there already. NatsError.

        FenceError when it stands there, and the batch had other rows then; or when an attempt
        before had partitions that are not there now.
        """
        options = self.options
        wrote = [message for message in done if not message.skipped]
        batch = finished(number, sum(m.came for m in done), (m.digest for m in done))
        if not wrote:
            seen = done[0].seen
            if seen is not None and seen.mark is not None:
                if options.run_id:
                    check_same_run(seen.mark, batch, options.sink_id)
                else:
                    check_same(seen.mark, batch, options.fence_bucket, options.sink_id)
            return
        if any(message.seen != wrote[0].seen for message in done):
            raise FenceError(
                f"sinkId {options.sink_id!r}: another writer moved the fence while batch {number}"
                f" of query {wrote[0].query} was written. Does the same query, or a copy of its"
                " checkpoint, run twice?"
            )
        seen = wrote[0].seen or Seen(None, 0)
        before = seen.mark.finished[1 - KEPT :] if seen.mark is not None else ()
        mark = Mark(wrote[0].query, number, secrets.token_hex(8), (*before, batch))
        mine = Begun(mark.query, number, 0.0, "")

        def move(js: JetStream) -> None:
            fence = self.fence(js)
            if not self.columns.bring_ids:
                fence.check_parts(mine, len(done))
            fence.move(seen, mark)

        with Patient(options, NAME) as server:
            server.ask(move)


class BatchSink(DataSourceArrowWriter):
    """`df.write.format("nats")`. With `overwrite`, the stream is purged before anything is written.

    NatsError when the options, the columns or the streams do not allow it.
    """

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        self._writer = _Writer(options, schema)
        exact = bool(options.run_id) or self._writer.columns.bring_ids
        if options.run_id and not options.sink_id:
            raise OptionError("option 'runId' needs 'sinkId': message ids are made of both")
        if options.sink_id and not exact:
            raise OptionError(
                "option 'sinkId' needs 'runId' in a batch write: message ids are made of both, and"
                " a run that is repeated has the same ones; or name ids by 'idColumn'"
            )
        if overwrite:
            self._purge(exact)

    def _purge(self, exact: bool) -> None:
        options = self._writer.options
        if not options.allow_purge or not options.stream:
            raise OptionError(
                "mode overwrite removes every message of the stream first; allow that by the option"
                " 'allowPurge' = true, and name it by 'stream' (or write in mode append)"
            )
        if exact:
            raise OptionError(
                "mode overwrite excludes message ids (options 'runId', 'idColumn', columns msg_id,"
                " stream and seq): a purged stream still knows the ids of a former run, and would"
                " drop its rows"
            )
        js = JetStream(options)
        try:
            js.api(f"STREAM.PURGE.{options.stream}")
        finally:
            js.close()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        writer, options = self._writer, self._writer.options
        if options.run_id:
            prefix = f"{options.sink_id}-{options.run_id}-{_task().partitionId()}-"
            mine = Begun(options.run_id, 0, time.time(), writer.attempt, writer.attempt)
            return writer.write_once(iterator, mine, prefix)
        with Patient(options, NAME) as server:
            targets = writer.targets(server) if writer.columns.bring_ids else None
            return writer.publish(writer.rows(iterator), server, targets, None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every row was acked; a run is noted as finished. NatsError."""
        done = [cast(Written, message) for message in messages if message is not None]
        _warn_of_headers(done)
        if self._writer.options.run_id and self._writer.options.fence and done:
            self._writer.finish(done, 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was published stays; a repeated run with the same ids adds what is missing."""


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream.format("nats")`. NatsError when options or columns do not allow it."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if not options.sink_id:
            raise OptionError(
                "option 'sinkId' is missing: a name of this sink, unique among all queries that"
                " write to the server; message ids start with it"
            )
        if options.run_id:
            raise OptionError("option 'runId' is for batch writes; a query's batches have numbers")
        if overwrite:
            raise OptionError("output mode complete cannot be written: streams are appended to")
        self._writer = _Writer(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        query, number = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if not query or number is None:
            raise NatsError(f"Spark tells no {QUERY_ID} and {BATCH_ID}: not a streaming write")
        run, attempt = task.getLocalProperty(RUN_ID) or "", self._writer.attempt
        mine = Begun(query, int(number), time.time(), run, attempt)
        prefix = f"{self._writer.options.sink_id}-{number}-{task.partitionId()}-"
        return self._writer.write_once(iterator, mine, prefix)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Moves the fence behind the batch, unless it stands there already. NatsError."""
        done = [cast(Written, message) for message in messages if message is not None]
        if not self._writer.options.fence or not done:
            return
        if batchId == 0:
            _warn_of_headers(done)
        self._writer.finish(done, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """What was published stays, and so does the fence: the batch written again has its ids."""


def _warn_of_headers(messages: Iterable[Written]) -> None:
    names = set().union(*(message.left_out for message in messages))
    if names:
        log.warning(
            "headers %s of the rows are left out: columns and options stand for them (msg_id, ttl,"
            " stream, ...), or they would remove messages",
            ", ".join(sorted(names)),
        )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise NatsError("rows are written in Spark's tasks only")
    return task
