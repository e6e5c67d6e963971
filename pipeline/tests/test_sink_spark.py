"""The sinks under Spark itself: batch writes, streaming queries, repeated tasks and batches."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter
from pyspark.sql.types import StructType

from jsserver_spark.jetstream import JetStream
from jsserver_spark.options import SinkOptions
from jsserver_spark.source import NatsSource
from jsserver_spark.text.goformat import SECOND
from jsserver_spark.write.sink import BatchSink, Written
from pipeline.tests.jobs_world import connected
from tests.servers import Server

ROWS = 20_000


@pytest.fixture
def js(spark: SparkSession, js_server: Server) -> Iterator[JetStream]:
    """The module's server with the stream S alone."""
    spark.dataSource.register(NatsSource)
    js = connected(js_server)
    for name in [info.name for info in js.stream_infos()]:
        js.api(f"STREAM.DELETE.{name}")
    config = {"name": "S", "subjects": ["S.>"], "duplicate_window": 600 * SECOND}
    js.api("STREAM.CREATE.S", config)
    yield js
    js.close()


def rows(spark: SparkSession, partitions: int = 3) -> DataFrame:
    return spark.range(0, ROWS, 1, partitions).selectExpr(
        "cast(id as string) as data", "concat('S.', id % 7) as subject"
    )


def written(js: JetStream) -> int:
    return js.stream_info("S").state.messages


def test_a_batch_write_with_a_run_id_is_written_once(
    spark: SparkSession, js_server: Server, js: JetStream
) -> None:
    for _ in range(2):
        writer = rows(spark).write.format("nats").mode("append").option("servers", js_server.url)
        writer.option("sinkId", "batch").option("runId", "1").save()
        assert written(js) == ROWS
    assert js.stream_info("S").raw["state"]["num_subjects"] == 7


def test_overwrite_purges_once_before_the_rows_come(
    spark: SparkSession, js_server: Server, js: JetStream
) -> None:
    for _ in range(2):
        writer = rows(spark).write.format("nats").mode("overwrite")
        writer.option("servers", js_server.url).option("stream", "S")
        writer.option("allowPurge", "true").save()
        assert written(js) == ROWS


class BreakingSink(BatchSink):
    """The first try of partition 1 breaks when some of its rows are written."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return super().write(self._some(iterator))

    def _some(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for n, batch in enumerate(batches):
            if n == 1 and task.partitionId() == 1 and task.attemptNumber() == 0:
                raise RuntimeError("a task that breaks")
            yield batch


class BreakingFormat(DataSource):
    """The writing half of format `nats`, with such a sink."""

    @classmethod
    def name(cls) -> str:
        return "breaking"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BreakingSink(SinkOptions.read(self.options, "writing"), schema, overwrite)


def test_a_task_that_is_tried_again_writes_its_rows_once(
    spark: SparkSession, js_server: Server, js: JetStream
) -> None:
    spark.dataSource.register(BreakingFormat)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        writer = rows(spark).write.format("breaking").mode("append")
        writer = writer.option("servers", js_server.url)
        writer.option("sinkId", "batch").option("runId", "2").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert written(js) == ROWS


def test_an_error_reaches_the_user_with_row_and_reason(
    spark: SparkSession, js_server: Server, js: JetStream
) -> None:
    frame = rows(spark, 1).selectExpr("data", "if(data = '17', 'S. ', subject) as subject")
    writer = frame.write.format("nats").mode("append").option("servers", js_server.url)
    with pytest.raises(PySparkException, match=r"row 17 \(subject 'S\. '\): there is a blank"):
        writer.save()
    with pytest.raises(PySparkException, match="unknown column 'id'"):
        spark.range(3).write.format("nats").mode("append").save()


class Files:
    """A streaming query from a folder of text files into the stream S."""

    def __init__(self, spark: SparkSession, server: Server, folder: Path) -> None:
        self.session = spark
        self.server = server
        self.input = folder / "input"
        self.checkpoint = folder / "checkpoint"
        self.input.mkdir()
        self.count = 0

    def add(self, lines: int) -> None:
        names = [self.input / f".{self.count}-{half}" for half in (0, 1)]
        for half, name in enumerate(names):
            name.write_text("".join(f"{self.count}-{half}-{i}\n" for i in range(lines)))
            name.rename(name.with_name(name.name[1:] + ".txt"))
        self.count += 1

    def run(self, checkpoint: Path | None = None, **given: Any) -> None:
        """Writes what there is, two files a batch."""
        source = self.session.readStream.option("maxFilesPerTrigger", 2)
        frame = source.text(str(self.input)).withColumnRenamed("value", "data")
        writer = frame.writeStream.format("nats").option("servers", self.server.url)
        writer = writer.option("sinkId", "files").option("subject", "S.x")
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60), "the query does not end"
        finally:
            query.stop()

    def without_last_commit(self) -> Path:
        """A copy of the checkpoint as a driver leaves it that is killed before Spark's commit."""
        copy = self.checkpoint.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.checkpoint, copy)
        commits = sorted((copy / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)
        return copy


@pytest.fixture
def files(spark: SparkSession, js_server: Server, js: JetStream, tmp_path: Path) -> Files:
    return Files(spark, js_server, tmp_path)


def test_a_query_writes_every_row_once_over_restarts(files: Files, js: JetStream) -> None:
    for batch in range(2):
        files.add(50)
        files.run()
        assert written(js) == 100 * (batch + 1)
    # Finished, but Spark does not know: the batch comes again, and the fence stops it.
    files.run(files.without_last_commit())
    assert written(js) == 200
    # Written, but not finished: the fence is one batch back, and ids stop the rows.
    js.api("STREAM.PURGE.KV_jsserver_spark_fence", {"filter": "$KV.jsserver_spark_fence.fence.*"})
    files.run(files.without_last_commit())
    assert written(js) == 200


def test_a_query_with_a_new_checkpoint_needs_a_new_sink_id(
    files: Files, js: JetStream, tmp_path: Path
) -> None:
    files.add(10)
    files.run()
    with pytest.raises(PySparkException, match="sinkId 'files' belongs to query"):
        files.run(tmp_path / "new")
    assert written(js) == 20


def test_a_server_that_dies_in_a_batch_costs_nothing(
    files: Files, js_server: Server, js: JetStream
) -> None:
    files.add(10)
    files.run()
    files.add(10)
    js_server.kill()
    with pytest.raises(PySparkException, match="see the option servers"):
        files.run()
    js_server.start()
    files.run()
    with contextlib.closing(connected(js_server)) as again:
        assert written(again) == 40
