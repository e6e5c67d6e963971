"""Writing format `nats`: what Spark's tasks publish, and when the driver calls a batch finished.

A streaming write is exactly-once: every row has a message id made of sinkId, batch, partition and
row, so that what a task writes again is dropped by the stream, and a fence keeps a finished batch
from being written again after the stream forgot its ids. This holds if a partition's rows come in
the same order again (they do from files, from format `nats` and from sorted data), or if
`idColumn` names them. A batch write is at-least-once without ids, and exactly-once within the
streams' duplicate_window with sinkId and runId, or with `idColumn`. With `atomic`, each
thousand of a task's rows is stored whole or not at all.
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

from jsserver.spark.errors import NatsError, OptionError
from jsserver.spark.jetstream import JetStream, Patient
from jsserver.spark.options import SinkOptions
from jsserver.spark.write import outgoing
from jsserver.spark.write.atomic import AtomicPublisher
from jsserver.spark.write.fence import (
    KEPT,
    Begun,
    Fence,
    FenceError,
    Mark,
    Seen,
    check_same,
    finished,
)
from jsserver.spark.write.publisher import Publisher
from jsserver.spark.write.targets import Targets
from jsserver.spark.write.templates import Template

log = logging.getLogger(__name__)

NAME = "jsserver-spark-sink"
"""Of the connections, for the server's lists."""
KAFKA_NAMES = {"value": "data", "key": "subject", "topic": "stream"}
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
        used = {*self.template.columns, *([options.id_column] if options.id_column else [])}
        names = schema.fieldNames()
        if missing := sorted(used.difference(names)):
            raise OptionError(
                f"column {missing[0]!r} is not in the input; the options subject and idColumn name"
                f" {', '.join(map(repr, sorted(used)))}, the input has {', '.join(names)}"
            )
        for name in names:
            target = KAFKA_NAMES.get(name, name)
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
        if options.id_column:
            self._sources["msg_id"] = options.id_column
        if "data" not in self._sources:
            raise OptionError("there is no column 'data' (or 'value') to write")
        if "subject" not in self._sources and not options.subject:
            raise OptionError("rows need a subject: a column 'subject', or the option 'subject'")

    @property
    def bring_ids(self) -> bool:
        return "msg_id" in self._sources

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
        ids = taken.get("msg_id")
        if ids is not None and ids.null_count:
            row = first_row + pc.index(pc.is_null(ids), True).as_py()
            name = self._sources["msg_id"]
            raise NatsError(f"row {row}: column {name!r} is null, and it holds message ids")
        return pa.RecordBatch.from_arrays(list(taken.values()), names=list(taken))


class _Writer:
    """What both writers do in a task."""

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

    def publish(
        self,
        batches: Iterable[pa.RecordBatch],
        server: Patient,
        targets: Targets | None,
        id_prefix: str | None,
    ) -> Written:
        """Publishes a task's rows and waits for all acks; `targets` have to know ids. NatsError."""
        columns = self.columns
        if not self.lazily:
            server.close()  # it was asked everything
        with (AtomicPublisher if self.options.atomic else Publisher)(
            self.options,
            NAME,
            id_prefix=None if columns.bring_ids else id_prefix,
            subject=columns.default_subject,
        ) as publisher:
            digest = 0
            for batch in batches:
                rows = columns.of(batch, publisher.rows)
                digest += outgoing.digest(rows)
                if targets and self.lazily:
                    targets.check_rows(rows, columns.default_subject)
                publisher.publish(rows)
            publisher.flush()
            return Written(
                publisher.acked,
                publisher.duplicates,
                publisher.last_seq,
                came=publisher.rows,
                digest=digest,
                left_out=publisher.left_out,
            )

    def skip(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Looks at a task's rows, and publishes none. NatsError."""
        done = Written(skipped=True)
        for batch in batches:
            done.digest += outgoing.digest(self.columns.of(batch, done.came))
            done.came += batch.num_rows
        return done


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
                " a run that is repeated has the same ones"
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
                "mode overwrite excludes message ids (options 'runId', 'idColumn', column msg_id):"
                " a purged stream still knows the ids of a former run, and would drop its rows"
            )
        js = JetStream(options)
        try:
            js.api(f"STREAM.PURGE.{options.stream}")
        finally:
            js.close()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        options = self._writer.options
        prefix = None
        if options.run_id:
            prefix = f"{options.sink_id}-{options.run_id}-{_task().partitionId()}-"
        exact = prefix is not None or self._writer.columns.bring_ids
        with Patient(options, NAME) as server:
            targets = self._writer.targets(server) if exact else None
            return self._writer.publish(iterator, server, targets, prefix)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: every row was acked."""
        _warn_of_headers(cast(Written, message) for message in messages if message is not None)

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
        options = self._writer.options
        task = _task()
        query, number = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if not query or number is None:
            raise NatsError(f"Spark tells no {QUERY_ID} and {BATCH_ID}: not a streaming write")
        batch = int(number)
        mine = Begun(query, batch, time.time(), task.getLocalProperty(RUN_ID) or "")
        again = task.attemptNumber() > 0
        prefix = f"{options.sink_id}-{batch}-{task.partitionId()}-"
        with Patient(options, NAME) as server:
            seen, done = self._look(server, mine)
            if done:
                written = self._writer.skip(iterator)
            else:
                targets = self._writer.targets(server)
                if options.fence:
                    server.ask(
                        lambda js: self._fence(js).begin(
                            mine, targets.window, again=again, replicas=targets.replicas
                        )
                    )
                written = self._writer.publish(iterator, server, targets, prefix)
        written.query = query
        written.seen = seen
        return written

    def _look(self, server: Patient, mine: Begun) -> tuple[Seen | None, bool]:
        """The fence as it is, and whether it says that the batch is finished."""

        def look(js: JetStream) -> tuple[Seen, bool]:
            fence = self._fence(js)
            seen = fence.read()
            return seen, fence.is_finished(seen, mine.query, mine.batch)

        return server.ask(look) if self._writer.options.fence else (None, False)

    def _fence(self, js: JetStream) -> Fence:
        options = self._writer.options
        return Fence(js, options.fence_bucket, options.sink_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Moves the fence behind the batch, unless it stands there already. NatsError.

        FenceError when it stands there, and the batch had other rows then.
        """
        options = self._writer.options
        done = [cast(Written, message) for message in messages if message is not None]
        wrote = [message for message in done if not message.skipped]
        if not options.fence or not done:
            return
        batch = finished(batchId, sum(m.came for m in done), (m.digest for m in done))
        if batchId == 0:
            _warn_of_headers(done)
        if not wrote:
            seen = done[0].seen
            if seen is not None and seen.mark is not None:
                check_same(seen.mark, batch, options.fence_bucket, options.sink_id)
            return
        if any(message.seen != wrote[0].seen for message in done):
            raise FenceError(
                f"sinkId {options.sink_id!r}: another writer moved the fence while batch {batchId}"
                f" of query {wrote[0].query} was written. Does the same query, or a copy of its"
                " checkpoint, run twice?"
            )
        seen = wrote[0].seen or Seen(None, 0)
        before = seen.mark.finished[1 - KEPT :] if seen.mark is not None else ()
        mark = Mark(wrote[0].query, batchId, secrets.token_hex(8), (*before, batch))
        with Patient(options, NAME) as server:
            server.ask(lambda js: self._fence(js).move(seen, mark))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """What was published stays, and so does the fence: the batch written again has its ids."""


def _warn_of_headers(messages: Iterable[Written]) -> None:
    names = set().union(*(message.left_out for message in messages))
    if names:
        log.warning(
            "headers %s of the rows are left out: columns and options stand for them (msg_id, ttl,"
            " stream, ...)",
            ", ".join(sorted(names)),
        )


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise NatsError("rows are written in Spark's tasks only")
    return task
