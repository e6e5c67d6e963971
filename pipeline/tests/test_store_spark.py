"""The format nats-store in a Spark session: found by its name, counted, filtered, written on."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jsserver_spark.files.source import StoreSource
from pipeline.tests.store_world import write_stream
from tests.unit.records import record, tombstone

N = 5000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """N messages in ten blocks, every hundredth deleted."""
    blocks: dict[int, bytes] = {}
    for seq in range(1, N + 1):
        number = (seq - 1) // (N // 10) + 1
        header = b"NATS/1.0\r\nA: b\r\n\r\n" if seq % 2 else b""
        code = record(seq, b"k.%d" % (seq % 7), b"%d" % seq, header=header, block=number)
        blocks[number] = blocks.get(number, b"") + code
    blocks[10] += b"".join(tombstone(seq, block=10) for seq in range(100, N + 1, 100))
    root = tmp_path_factory.mktemp("store")
    return write_stream(root / "jetstream" / "$G" / "streams" / "S", blocks).parents[3]


def test_a_table(spark: SparkSession, store: Path) -> None:
    spark.dataSource.register(StoreSource)
    reader = spark.read.format("nats-store").option("path", str(store))
    table = reader.option("minPartitions", 4).option("includeHeaders", "true").load()
    assert table.count() == N - N // 100
    row = table.where("seq = 101").first()
    assert (row.stream, row.subject, row.seq, bytes(row.data)) == ("S", "k.3", 101, b"101")
    assert row.headers == {"A": ["b"]}
    assert table.where("seq = 100").count() == 0
    grouped = {r.subject: r["count"] for r in table.groupBy("subject").count().collect()}
    assert sum(grouped.values()) == N - N // 100
    assert table.rdd.getNumPartitions() > 1


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_queries_of_one_table_do_not_know_of_each_other(
    spark: SparkSession, store: Path, pushed: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        table = spark.read.format("nats-store").option("path", str(store)).load()
        spark.sql(
            f"create or replace temporary view stored using `nats-store` options (path '{store}')"
        )
        for one in (table, spark.table("stored")):
            whole = N - N // 100
            assert one.count() == whole
            where = "seq > 4990 and subject = 'k.0' and timestamp < '2026-01-01' and stream = 'S'"
            assert [row.seq for row in one.where(where).collect()] == [4991, 4998]
            assert one.count() == whole
            assert one.where("seq <= 50").union(one.where("seq > 4950")).count() == 99
            assert [row.seq for row in one.select("seq").limit(2).collect()] == [1, 2]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_errors_say_what_to_do(spark: SparkSession, store: Path) -> None:
    reader = spark.read.format("nats-store").option("path", str(store))
    with pytest.raises(PySparkException, match="option 'stream' is 'T'"):
        reader.option("stream", "T").load().count()
    with pytest.raises(PySparkException, match="unknown option 'pth'"):
        spark.read.format("nats-store").option("pth", str(store)).load()
