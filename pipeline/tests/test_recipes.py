"""The guide's recipes, run as they stand there."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from jsserver_spark.jobs.main import main
from jsserver_spark.text.goformat import SECOND
from pipeline.tests.site import Site
from tests.servers import Servers

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
MESSAGES = 200


def recipe_text(name: str) -> str:
    found = re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```", GUIDE.read_text(), re.S)
    assert found, f"the guide has no recipe {name}"
    return found[1]


def recipe(name: str) -> dict[str, Any]:
    """What the recipe's code defines."""
    names: dict[str, Any] = {}
    exec(recipe_text(name), names)
    return names


@pytest.fixture
def filled(servers: Servers) -> Site:
    site = Site(servers.under_test(jetstream=True))
    site.create("S")
    site.fill("S", MESSAGES)
    return site


def test_a_query_fills_a_delta_table_once(
    spark: SparkSession, filled: Site, tmp_path: Path
) -> None:
    write = recipe("delta")["into_delta"](str(tmp_path / "table"), "orders")
    read = spark.readStream.format("nats").option("servers", filled.server.url)
    read = read.option("stream", "S").option("startingOffsets", "earliest")
    rows = read.option("maxOffsetsPerTrigger", "150").load()

    def twice(frame: Any, batch: int) -> None:
        write(frame, batch)
        write(frame, batch)  # as a restarted query would

    for expected in (MESSAGES, MESSAGES + 50):
        query = rows.writeStream.foreachBatch(twice).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
        assert sorted(table.column("seq").to_pylist()) == list(range(1, expected + 1))
        filled.fill("S", 50)


def test_a_query_in_mode_update_writes_its_batches_once(
    spark: SparkSession, filled: Site, tmp_path: Path
) -> None:
    filled.create("totals", duplicate_window=600 * SECOND)
    write = recipe("update")["into_totals"](filled.server.url)
    read = spark.readStream.format("nats").option("servers", filled.server.url)
    read = read.option("stream", "S").option("startingOffsets", "earliest")
    totals = read.option("maxOffsetsPerTrigger", "150").load().groupBy("subject").count()

    def twice(frame: Any, batch: int) -> None:
        write(frame, batch)
        write(frame, batch)  # as a restarted query would

    query = totals.writeStream.outputMode("update").foreachBatch(twice).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    rows = filled.read(stream="totals").to_pylist()
    assert [row["subject"] for row in rows].count("totals.S.0") == 2
    last = {row["subject"]: json.loads(row["data"])["count"] for row in rows}
    assert (len(rows), sum(last.values())) == (6, MESSAGES)


def test_a_thread_writes_with_an_active_session(spark: SparkSession, filled: Site) -> None:
    filled.create("threads")
    rows = spark.createDataFrame([("threads.x", b"a")], "subject string, data binary")
    outcomes: list[str] = []

    def write(line: str) -> None:
        exec(line, {"spark": spark})
        writer = rows.write.format("nats").mode("append").option("servers", filled.server.url)
        try:
            writer.save()
            outcomes.append("saved")
        except Exception as error:
            outcomes.append(str(error))

    for line in ("", recipe_text("thread")):
        thread = threading.Thread(target=write, args=(line,))
        thread.start()
        thread.join()
    assert "DATA_SOURCE_NOT_FOUND" in outcomes[0] and outcomes[1] == "saved"


def test_an_archive_becomes_an_iceberg_table(filled: Site, tmp_path: Path) -> None:
    catalog = load_catalog(
        "lake",
        type="sql",
        uri=f"sqlite:///{tmp_path}/catalog.db",
        warehouse=f"file://{tmp_path}/lake",
    )
    catalog.create_namespace("nats")
    into_iceberg = recipe("iceberg")["into_iceberg"]
    root = str(tmp_path / "archive")
    job = ["archive", "--servers", filled.server.url, "--stream", "S", "--processes", "1", root]
    for expected in (MESSAGES, MESSAGES + 50):
        assert main(job) == 0
        for _ in range(2):
            table = into_iceberg(root, "S", catalog, "nats.orders").scan().to_arrow()
            assert sorted(table.column("seq").to_pylist()) == list(range(1, expected + 1))
        filled.fill("S", 50)
