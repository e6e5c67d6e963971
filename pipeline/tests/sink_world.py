"""A sink as Spark calls it, pickled between the steps, and what the streams hold then."""

import base64
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from jsserver_spark.jetstream import JetStream
from jsserver_spark.options import SinkOptions
from jsserver_spark.text.goformat import SECOND
from jsserver_spark.write.publisher import Publisher
from jsserver_spark.write.sink import BATCH_ID, QUERY_ID, RUN_ID, BatchSink, StreamSink, Written
from pipeline.tests.jobs_world import connected
from tests.servers import Server
from tests.waiting import wait_until


class Task:
    """What a writer asks a TaskContext for."""

    def __init__(self, partition: int = 0, attempt: int = 0, **properties: str) -> None:
        self._partition = partition
        self._attempt = attempt
        self._properties = properties

    def partitionId(self) -> int:
        return self._partition

    def attemptNumber(self) -> int:
        return self._attempt

    def getLocalProperty(self, key: str) -> str | None:
        return self._properties.get(key)


class Query:
    """A streaming query and its batches, as Spark runs them: a writer for each step."""

    def __init__(self, server: Server, query: str = "q1", run: str = "r1", **given: str) -> None:
        self.given = {"servers": server.url, "sinkId": "sink", "subject": "S.x", "retries": "1"}
        self.given.update(given)
        self.query = query
        self.run = run

    def sink(self, rows: pa.RecordBatch) -> StreamSink:
        """Of the query's run: every run tries each batch once."""
        sink = StreamSink(options(self.given), schema_of(rows), False)
        sink._writer.attempt = self.run
        return sink

    def write(
        self, batch: int, rows: pa.RecordBatch, partition: int = 0, attempt: int = 0
    ) -> Written:
        sink = self.sink(rows)
        return self.write_by(
            sink, batch, iter([rows.slice(0, 3), rows.slice(3)]), partition, attempt
        )

    def write_by(
        self,
        sink: StreamSink,
        batch: int,
        rows: Iterator[pa.RecordBatch],
        partition: int = 0,
        attempt: int = 0,
    ) -> Written:
        sink = pickle.loads(pickle.dumps(sink))
        properties = {QUERY_ID: self.query, BATCH_ID: str(batch), RUN_ID: self.run}
        with running(Task(partition, attempt, **properties)):
            message = sink.write(rows)
        return pickle.loads(pickle.dumps(message))  # type: ignore[no-any-return]

    def commit(self, batch: int, *messages: WriterCommitMessage | None) -> None:
        self.sink(ROWS).commit(list(messages), batch)

    def run_batch(self, batch: int, rows: pa.RecordBatch) -> Written:
        written = self.write(batch, rows)
        self.sink(rows).commit([written], batch)
        return written


class running:
    """The task that TaskContext.get() gives."""

    def __init__(self, task: Task | None) -> None:
        self.task = task

    def __enter__(self) -> None:
        TaskContext._taskContext = self.task  # type: ignore[assignment]

    def __exit__(self, *exc: object) -> None:
        TaskContext._taskContext = None


class Torn(Exception):
    """A task that was killed."""


def torn_after(patch: pytest.MonkeyPatch, count: int) -> None:
    """Tasks are killed when so many rows were published, all of which are stored then."""
    publish = Publisher.publish

    def some(self: Publisher, rows: pa.RecordBatch) -> None:
        left = count - self.rows
        publish(self, rows.slice(0, left))
        if left <= len(rows):
            self.flush()
            raise Torn

    patch.setattr(Publisher, "publish", some)


def options(given: dict[str, str]) -> SinkOptions:
    return SinkOptions.read(given, "writing format nats")


def schema_of(rows: pa.RecordBatch) -> StructType:
    fields = [{"name": n, "type": "string", "nullable": True, "metadata": {}} for n in names(rows)]
    return StructType.fromJson({"type": "struct", "fields": fields})


def names(rows: pa.RecordBatch) -> list[str]:
    return list(rows.schema.names)


def rows_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


ROWS = rows_of(data=[str(i) for i in range(10)])
OTHER = rows_of(data=[f"other {i}" for i in range(10)])


def is_gone(server: Server, stream: str) -> bool:
    """Whether nothing of a stream is on disk: nats-server renames the folder, and
    leaves what it holds where that of an earlier removal is still there."""
    folder = server.store / "jetstream" / "$G" / "streams"
    return not (folder / stream).exists() and not (folder / f".{stream}").exists()


def emptied(server: Server) -> JetStream:
    """A connection to the server, which has the stream S alone."""
    js = connected(server)
    for name in [info.name for info in js.stream_infos()]:
        js.api(f"STREAM.DELETE.{name}")
        wait_until(partial(is_gone, server, name), f"{name} is removed")
    create(js, "S")
    return js


def create(js: JetStream, name: str, **config: Any) -> None:
    window = 600 * SECOND
    config = {"name": name, "subjects": [f"{name}.>"], "duplicate_window": window, **config}
    js.api(f"STREAM.CREATE.{name}", config)
    # On a loaded machine nats-server may bring back what a deleted stream of that name held.
    if js.stream_info(name).state.messages:
        js.api(f"STREAM.DELETE.{name}")
        js.api(f"STREAM.CREATE.{name}", config)


def stored(js: JetStream, name: str = "S") -> list[tuple[str, str, str]]:
    """Subject, header block and payload of all messages."""
    found = []
    state = js.stream_info(name).state
    for seq in range(max(state.first_seq, 1), state.last_seq + 1):
        message = js.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
        parts = [base64.b64decode(message.get(key, "")).decode() for key in ("hdrs", "data")]
        found.append((message["subject"], parts[0], parts[1]))
    return found


def payloads(js: JetStream, name: str = "S") -> list[str]:
    return [row[2] for row in stored(js, name)]


def write_batch(server: Server, rows: pa.RecordBatch, overwrite: bool = False, **given: str) -> Any:
    sink = BatchSink(
        options({"servers": server.url, "retries": "1", **given}), schema_of(rows), overwrite
    )
    with running(Task()):
        message = pickle.loads(pickle.dumps(sink)).write(iter([rows]))
    message = pickle.loads(pickle.dumps(message))
    sink.commit([message])
    return message


def write_parts(
    server: Server, parts: list[pa.RecordBatch], torn: int | None = None, **given: str
) -> list[Written]:
    """A batch write of several tasks, one after the other; what they did.

    The last one is `torn` after so many of its rows.
    """
    sink = BatchSink(
        options({"servers": server.url, "retries": "1", **given}), schema_of(parts[0]), False
    )
    messages = []
    for partition, rows in enumerate(parts):
        with running(Task(partition)), pytest.MonkeyPatch.context() as patch:
            if torn is not None and partition == len(parts) - 1:
                torn_after(patch, torn)
            messages.append(pickle.loads(pickle.dumps(sink)).write(iter([rows])))
    sink.commit(messages)
    return messages
