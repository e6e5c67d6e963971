"""The format `nats` in a Spark session: batch reads, filters, and queries with checkpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.tests.site import Site

COUNT = 5000


@pytest.fixture(scope="module")
def filled(site: Site, spark: SparkSession) -> Site:
    for name in ("orders", "bills"):
        site.create(name)
        site.fill(name, COUNT)
    site.delete("orders", 5, 6, 4000)
    return site


def load(spark: SparkSession, site: Site, **options: str) -> DataFrame:
    return spark.read.format("nats").options(servers=site.server.url, **options).load()


def test_a_stream_is_a_table(filled: Site, spark: SparkSession) -> None:
    """The format is found by itself."""
    table = load(spark, filled, stream="orders", includeHeaders="true", minPartitions="3")
    assert table.rdd.getNumPartitions() == 3
    row = table.agg(
        F.count("*").alias("rows"),
        F.count_distinct("seq").alias("seqs"),
        F.sum(F.length("data")).alias("bytes"),
        F.count("headers").alias("with_headers"),
        F.count_if(F.col("headers")["Number"][0] == F.col("seq")).alias("right_headers"),
    ).first()
    assert row is not None
    numbers = [i for i in range(1, COUNT + 1) if i not in (5, 6, 4000)]
    assert row.rows == row.seqs == len(numbers)
    assert row.bytes == sum(len(f"message {i}") for i in numbers)
    assert row.with_headers == row.right_headers == sum(i % 3 == 0 for i in numbers)


def test_streams_as_kafka_users_know_them(filled: Site, spark: SparkSession) -> None:
    table = load(spark, filled, subscribe="orders,bills", schemaMode="kafka", includeHeaders="true")
    counted = {row.topic: row["count"] for row in table.groupBy("topic").count().collect()}
    assert counted == {"orders": COUNT - 3, "bills": COUNT}
    first = table.where("topic = 'bills' and offset = 3").collect()[0]
    assert bytes(first.value) == b"message 3" and bytes(first.key) == b"bills.0"
    assert [(h.key, bytes(h.value)) for h in first.headers] == [("Number", b"3")]


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_queries_of_one_table_do_not_know_of_each_other(
    filled: Site, spark: SparkSession, pushed: str
) -> None:
    """Whatever was asked before: rows are those of the query's own filters."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        asked_in_turn(load(spark, filled, stream="bills"), "bills")
        spark.sql(
            "create or replace temporary view bills using nats options"
            f" (servers '{filled.server.url}', stream 'bills')"
        )
        asked_in_turn(spark.table("bills"), "bills")
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def asked_in_turn(table: DataFrame, stream: str) -> None:
    """Queries with and without filters of a stream of COUNT messages over three subjects."""
    assert table.count() == COUNT
    assert table.where("seq > 3000").count() == COUNT - 3000
    assert table.count() == COUNT
    subject = f"{stream}.1"
    chosen = table.where(f"subject = '{subject}' and seq between 10 and 40")
    assert sorted(row.seq for row in chosen.collect()) == [*range(10, 41, 3)]
    assert table.where("timestamp > '2020-01-01'").count() == COUNT
    ends = table.where("seq <= 100").union(table.where(f"seq > {COUNT - 1000}"))
    assert ends.count() == 1100
    assert sorted(row.seq for row in table.select("seq").limit(2).collect()) == [1, 2]


@pytest.mark.parametrize("form", ["nats", "nats-store"])
def test_filters_of_queries_are_not_taken(spark: SparkSession, form: str) -> None:
    """PySpark keeps a reader's filters for the next query of its table."""
    reader = spark.read.format(form).option("pushdown", "true")
    with pytest.raises(Exception, match="'pushdown' is not there: Spark keeps the filters"):
        reader.load()


def test_errors_reach_the_user(filled: Site, spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no stream 'nowhere'"):
        load(spark, filled, stream="nowhere").count()
    with pytest.raises(Exception, match="did you mean"):
        load(spark, filled, stream="orders", filterSubject="a")
    with pytest.raises(Exception, match=r"leave .schema\(...\) out"):
        reader = spark.read.format("nats").schema("seq long")
        reader.options(servers=filled.server.url, stream="orders").load().count()


# ---- queries -----------------------------------------------------------------------------------


Run = Callable[..., None]


@pytest.fixture
def run(site: Site, spark: SparkSession, tmp_path: Path) -> Run:
    """Everything that is there now goes to Parquet, from where the checkpoint says."""

    def once(**options: str) -> None:
        query = (
            spark.readStream.format("nats")
            .options(servers=site.server.url, startingOffsets="earliest", **options)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "rows"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    return once


def seqs_in(spark: SparkSession, folder: Path) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row in spark.read.parquet(str(folder)).select("stream", "seq").collect():
        rows.setdefault(row.stream, []).append(row.seq)
    return {stream: sorted(seqs) for stream, seqs in rows.items()}


def test_a_query_goes_on_from_its_checkpoint(
    site: Site, spark: SparkSession, tmp_path: Path, run: Run
) -> None:
    """Limited batches, several streams, restarts: every row once."""
    for name in ("runa", "runb"):
        site.create(name)
        site.fill(name, 40)
    run(streams="runa,runb", maxOffsetsPerTrigger="50", minPartitions="2")
    site.fill("runa", 25)
    site.delete("runa", 50, 51)
    run(streams="runa,runb")
    run(streams="runa,runb")
    assert seqs_in(spark, tmp_path / "rows") == {
        "runa": [i for i in range(1, 66) if i not in (50, 51)],
        "runb": list(range(1, 41)),
    }


def test_a_query_notices_a_stream_made_anew(
    site: Site, spark: SparkSession, tmp_path: Path, run: Run
) -> None:
    site.create("again")
    site.fill("again", 5)
    run(stream="again")
    site.remove("again")
    site.create("again")
    site.fill("again", 3)
    with pytest.raises(Exception, match="deleted and made anew"):
        run(stream="again")
    run(stream="again", failOnDataLoss="false")
    assert seqs_in(spark, tmp_path / "rows") == {"again": [1, 1, 2, 2, 3, 3, 4, 5]}


def test_a_running_query_shows_its_lag(site: Site, spark: SparkSession) -> None:
    site.create("lagging")
    site.fill("lagging", 10)
    seen: list[Any] = []
    query = (
        spark.readStream.format("nats")
        .options(servers=site.server.url, stream="lagging", startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", "4")
        .load()
        .writeStream.foreachBatch(lambda rows, number: seen.append((number, rows.count())))
        .start()
    )
    try:
        query.processAllAvailable()
        first = query.recentProgress[0]
        assert [rows for _, rows in seen] == [4, 4, 2]
        assert '"seq": 10' in first["sources"][0]["latestOffset"].replace('":10', '": 10')
    finally:
        query.stop()
