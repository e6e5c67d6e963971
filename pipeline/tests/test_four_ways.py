"""One stream read live, from its store, from a backup and from its archive: the same rows.

`FOUR_WAYS_MESSAGES` (100,000) says how many messages there are.
"""

import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from jsserver_spark.jobs.main import main
from jsserver_spark.options import SinkOptions
from jsserver_spark.write.publisher import Publisher
from pipeline.tests.site import Site
from pipeline.tests.store_world import snapshot
from tests.servers import Server, Servers

MESSAGES = int(os.environ.get("FOUR_WAYS_MESSAGES", "100000"))
DELETED = 300
BATCH = 10_000


def fill(server: Server) -> None:
    """Messages of many sizes over a thousand subjects, a third of them with headers; deletes."""
    site = Site(server)
    site.create("S")
    rnd = random.Random(7)
    noise = rnd.randbytes(1 << 16)
    with Publisher(SinkOptions(servers=(server.url,)), "a test") as publisher:
        for first in range(0, MESSAGES, BATCH):
            numbers = range(first, min(first + BATCH, MESSAGES))
            columns = {
                "subject": [f"S.{number % 1000}" for number in numbers],
                "headers_raw": [
                    None if number % 3 else b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number
                    for number in numbers
                ],
                "data": [noise[(at := rnd.randrange(65000)) : at + at % 200] for _ in numbers],
            }
            publisher.publish(pa.RecordBatch.from_pydict(columns))
        publisher.flush()
    site.delete("S", *rnd.sample(range(1, MESSAGES + 1), DELETED))
    site.js.api("STREAM.PURGE.S", {"filter": "S.7"})
    site.purge("S", 11)


def digest(frame: DataFrame, headers: str = "headers") -> Row:
    """Counts, bounds and a hash over all that a row holds."""
    row = frame.selectExpr(
        "count(*) as rows",
        "count(distinct seq) as seqs",
        "min(seq) as first",
        "max(seq) as last",
        "sum(cast(xxhash64(stream, subject, seq, timestamp, ts_nanos,"
        f" {headers}, data) as decimal(38))) as hash",
    ).collect()[0]
    assert isinstance(row, Row)
    return row


@pytest.mark.timeout(300 + MESSAGES // 5000)
@pytest.mark.parametrize("kind", ["jsserver", "nats-server"])
def test_one_stream_read_four_ways(
    kind: str,
    spark: SparkSession,
    servers: Servers,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    if kind == "jsserver":
        server = servers.under_test(jetstream=True)
    else:
        request.getfixturevalue("peer_present")
        server = servers.peer(jetstream=True)
    fill(server)
    shape = {"includeNanos": "true", "includeHeaders": "true", "headersFormat": "raw"}
    shape |= {"stream": "S", "minPartitions": "3", "splitBytes": "4MiB"}

    live = digest(spark.read.format("nats").options(**shape).option("servers", server.url).load())
    assert live.rows == live.seqs > MESSAGES * 0.99 - DELETED - 20
    store = spark.read.format("nats-store").options(**shape)
    assert digest(store.load(str(server.store))) == live, "the store of a running server"

    root = str(tmp_path / "archive")
    assert main(["archive", "--servers", server.url, "--stream", "S", root]) == 0
    files = f"{root}/stream=S/date=*/*.parquet"
    assert digest(spark.read.parquet(files), "headers_raw") == live, "the archive"
    both = spark.read.format("nats").options(**shape).option("servers", server.url)
    assert digest(both.option("archivePath", root).load()) == live, "archive and stream"

    backup = tmp_path / "backup"
    if kind == "nats-server":
        snapshot(server, backup)
    else:  # which makes no backups yet: a copy of its store is one
        server.stop()
        shutil.copytree(server.store, backup)
    assert digest(store.load(str(backup))) == live, "the backup"
