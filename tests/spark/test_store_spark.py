"""The format nats-store in a Spark session: found by its name, counted, filtered, written on."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jsserver.spark.store_source import StoreSource
from tests.spark.store_world import write_stream
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


def test_filters_are_pushed_down(spark: SparkSession, store: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = spark.read.format("nats-store").option("path", str(store))
        table = reader.option("pushdown", "true").load()
        where = "seq > 4990 and subject = 'k.0' and timestamp < '2026-01-01' and stream = 'S'"
        assert [r.seq for r in table.where(where).collect()] == [4991, 4998]
        assert table.where("seq > 100000").count() == 0
        assert table.where("data = X'37'").count() == 1
        kafka = reader.option("schemaMode", "kafka").option("pushdown", "true").load()
        assert kafka.where("offset <= 10 and key = X'6b2e33'").count() == 2
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_errors_say_what_to_do(spark: SparkSession, store: Path) -> None:
    reader = spark.read.format("nats-store").option("path", str(store))
    with pytest.raises(PySparkException, match="option 'stream' is 'T'"):
        reader.option("stream", "T").load().count()
    with pytest.raises(PySparkException, match="unknown option 'pth'"):
        spark.read.format("nats-store").option("pth", str(store)).load()
