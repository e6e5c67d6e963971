"""Measures the Spark pipeline: reads, blocks, archive, replay and sink, in rows a second.

Beside the figures stand a plain nats-py loop, measured in the same run, and the Kafka connector's,
which were taken on such a machine before (Spark 4.0, Kafka 4.1, payloads of 128 bytes).
Writes RESULTS.md beside it; with --scenario it only prints.
"""

import argparse
import asyncio
import contextlib
import fnmatch
import io
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
import pyspark
from nats.js.api import AckPolicy, ConsumerConfig
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.servers import OWN_NAME, PEER_NAME, Server, machine, process_tree, version_of
from jsserver.bench.wire import BenchError, Connection
from jsserver_spark.batches import Batches
from jsserver_spark.options import RowOptions, SinkOptions
from jsserver_spark.schema import table_of
from jsserver_spark.write.publisher import Publisher

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
STREAM = "BENCH"
LOOP_MESSAGES = 20_000
"""For the plain loops, which are slow."""
BATCH = 10_000
PARQUET = "archive"
ROWS = "rows"

# Rows a second of the Kafka connector with one task and with two.
KAFKA = {"aggregate": (820_000, 890_000), "noop": (750_000, 1_180_000)}
KAFKA |= {"to Parquet": (460_000, 390_000), "write": (450_000, 320_000)}


class Bench:
    """A filled server, a second one to write to, and a Spark session."""

    def __init__(self, folder: Path, messages: int, size: int) -> None:
        self.folder = folder
        self.messages = messages
        self.size = size
        self.source = Server(OWN_NAME, folder / "source")
        self.target = Server(OWN_NAME, folder / "target")
        self.source.start()
        self.target.start()
        self.peak = 0
        fill(self.source.url, messages, size)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self.spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("ERROR")

    def close(self) -> None:
        self.spark.stop()
        self.source.stop()
        self.target.stop()

    def live(self, tasks: int) -> DataFrame:
        read = self.spark.read.format("nats").option("servers", self.source.url)
        read = read.option("stream", STREAM).option("minPartitions", tasks)
        return read.option("splitBytes", "1g").load()

    def blocks(self, path: Path, tasks: int) -> DataFrame:
        split = max(self.messages * (self.size + 60) // tasks, 1 << 20)
        read = self.spark.read.format("nats-store").option("path", str(path))
        return read.option("stream", STREAM).option("splitBytes", split).load()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Keeps the peak of the largest executor Python."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.1):
                self.peak = max(self.peak, *(resident(p) for p in workers()), 0)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def workers() -> list[int]:
    """The Python processes in which Spark reads and writes."""
    found = [0]
    for pid in process_tree(os.getpid()):
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            # A JVM that has just forked, to start Python, has the JVM's memory and any name.
            python = os.readlink(process / "exe").rpartition("/")[2].startswith("python")
            if python and b"pyspark" in (process / "cmdline").read_bytes():
                found.append(pid)
    return found


def resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    if "VmHWM:" not in text:
        return 0
    return int(text.split("VmHWM:")[1].split()[0]) << 10


def fill(url: str, messages: int, size: int, **config: Any) -> None:
    """Small JSON events of `size` bytes over a thousand subjects, each acked."""
    with Connection(url) as connection:
        connection.api(
            f"STREAM.CREATE.{STREAM}",
            {"name": STREAM, "subjects": ["bench.>"], "allow_direct": True, **config},
        )
    with Publisher(SinkOptions(servers=(url,)), "bench") as publisher:
        for first in range(0, messages, BATCH):
            numbers = range(first, min(first + BATCH, messages))
            columns = {
                "subject": [f"bench.{number % 1000}" for number in numbers],
                "data": [event(number).ljust(size - 2) + b'"}' for number in numbers],
            }
            publisher.publish(pa.RecordBatch.from_pydict(columns))
        publisher.flush()


def event(number: int) -> bytes:
    return b'{"id":%d,"region":"eu-%d","amount":%d.%02d,"note":"' % (
        number,
        number % 7,
        number * 7919 % 10_000,
        number % 100,
    )


class ReadyMade(DataSource):
    """Batches made beforehand: what Spark and its Python workers do by themselves."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> StructType:
        return table_of(RowOptions()).spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyMadeReader(int(self.options["rows"]), int(self.options["size"]))


class ReadyMadeReader(DataSourceReader):
    def __init__(self, rows: int, size: int) -> None:
        self.rows = rows
        self.size = size

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batches = Batches.of(STREAM, RowOptions())
        for number in range(BATCH):
            batches.rows.add(b"bench.1", number, number, b"", b"x" * self.size)
        batch = batches.take()
        for _ in range(self.rows // BATCH):
            yield batch


# ---- what is measured: each returns the rows it handled ----------------------------------------


def aggregate(frame: DataFrame) -> int:
    row = frame.selectExpr("count(*)", "sum(length(data))", "max(seq)").collect()[0]
    return int(row[0])


def ready_made(bench: Bench) -> int:
    bench.spark.dataSource.register(ReadyMade)
    read = bench.spark.read.format("ready-made").option("rows", bench.messages)
    return aggregate(read.option("size", bench.size).load())


def noop(frame: DataFrame) -> int:
    frame.write.format("noop").mode("overwrite").save()
    return 0


def to_parquet(frame: DataFrame, folder: Path) -> int:
    frame.write.mode("overwrite").parquet(str(folder))
    return 0


def nats_py_read(bench: Bench) -> int:
    async def run() -> int:
        client = await nats.connect(bench.source.url)
        unacked = ConsumerConfig(ack_policy=AckPolicy.NONE)
        js = client.jetstream()
        found = await js.pull_subscribe("bench.>", stream=STREAM, config=unacked)
        count = min(LOOP_MESSAGES, bench.messages)
        seen = 0
        while seen < count:
            seen += len(await found.fetch(500))
        await client.close()
        return seen

    return asyncio.run(run())


def nats_py_write(bench: Bench) -> int:
    async def run() -> int:
        client = await nats.connect(bench.target.url)
        js = client.jetstream()
        payload = b"x" * bench.size
        for _ in range(0, LOOP_MESSAGES, 500):
            waiting = [js.publish(f"bench.{number}", payload) for number in range(500)]
            await asyncio.gather(*waiting)
        await client.close()
        return LOOP_MESSAGES

    empty_target(bench)
    return asyncio.run(run())


def empty_target(bench: Bench) -> None:
    with Connection(bench.target.url) as connection:
        with contextlib.suppress(BenchError):
            connection.api(f"STREAM.DELETE.{STREAM}")
        connection.api(
            f"STREAM.CREATE.{STREAM}",
            {
                "name": STREAM,
                "subjects": ["bench.>"],
                "allow_direct": True,
                "duplicate_window": 1800 * 10**9,
            },
        )


def rows_and_empty_target(bench: Bench) -> None:
    """Rows in a Parquet file: making them in Spark would cost more than writing them."""
    rows = bench.folder / ROWS
    if not rows.exists():
        bench.spark.range(0, bench.messages, 1, 2).selectExpr(
            "concat('bench.', id % 1000) as subject",
            f"encode(rpad(cast(id as string), {bench.size}, 'x'), 'utf-8') as data",
        ).write.parquet(str(rows))
    empty_target(bench)


def sink(bench: Bench) -> int:
    frame = bench.spark.read.parquet(str(bench.folder / ROWS)).coalesce(2)
    write = frame.write.format("nats").mode("append").option("servers", bench.target.url)
    write = write.option("stream", STREAM).option("sinkId", "bench").option("runId", "1")
    write.save()
    with Connection(bench.target.url) as connection:
        there = connection.api(f"STREAM.INFO.{STREAM}")["state"]["messages"]
    if there != bench.messages:
        raise BenchError(f"the sink wrote {there} messages of {bench.messages}")
    return bench.messages


def job(bench: Bench, *words: str) -> int:
    from jsserver_spark.jobs.main import main

    with contextlib.redirect_stdout(io.StringIO()):
        code = main([*words, "--json"])
    if code != 0:
        raise BenchError(f"jsserver-spark {' '.join(words)} ended with {code}")
    return bench.messages


def archive(bench: Bench) -> int:
    root = bench.folder / PARQUET
    return job(bench, "archive", "--servers", bench.source.url, "--stream", STREAM, str(root))


def replay(bench: Bench) -> int:
    root = bench.folder / PARQUET
    return job(bench, "replay", "--servers", bench.target.url, "--stream", STREAM, str(root))


Scenario = tuple[str, str, Callable[[Bench], int], Callable[[Bench], None]]


def nothing(bench: Bench) -> None:
    """Before a scenario that needs no preparation."""


def forget_archive(bench: Bench) -> None:
    shutil.rmtree(bench.folder / PARQUET, ignore_errors=True)


def scenarios(compressed: Path | None) -> list[Scenario]:
    """Name, the Kafka figure beside it, what runs, what comes before."""
    found: list[Scenario] = [
        ("nats-py: pull and fetch(500)", "", nats_py_read, nothing),
        ("batches made beforehand → aggregate, 1 task", "", ready_made, nothing),
    ]
    for tasks in (1, 2):
        found += [
            (
                f"live → aggregate, {tasks} task{'s'[: tasks - 1]}",
                "aggregate",
                _live(aggregate, tasks),
                nothing,
            ),
            (f"live → noop, {tasks} task{'s'[: tasks - 1]}", "noop", _live(noop, tasks), nothing),
            (
                f"live → Spark's Parquet, {tasks} task{'s'[: tasks - 1]}",
                "to Parquet",
                _parquet(tasks),
                nothing,
            ),
            (
                f"blocks → aggregate, {tasks} task{'s'[: tasks - 1]}",
                "",
                _blocks(None, tasks),
                nothing,
            ),
        ]
        if compressed is not None:
            name = f"S2 blocks of nats-server → aggregate, {tasks} task{'s'[: tasks - 1]}"
            found.append((name, "", _blocks(compressed, tasks), nothing))
    found += [
        ("archive job, in-process", "to Parquet", archive, forget_archive),
        ("replay job", "write", replay, empty_target),
        ("Parquet → sink with ids, 2 tasks", "write", sink, rows_and_empty_target),
        ("nats-py: publish, 500 at once", "", nats_py_write, nothing),
    ]
    return found


def _live(action: Callable[[DataFrame], int], tasks: int) -> Callable[[Bench], int]:
    return lambda bench: action(bench.live(tasks)) or bench.messages


def _parquet(tasks: int) -> Callable[[Bench], int]:
    return lambda b: to_parquet(b.live(tasks), b.folder / "spark-parquet") or b.messages


def _blocks(path: Path | None, tasks: int) -> Callable[[Bench], int]:
    return lambda bench: aggregate(bench.blocks(path or bench.source.store, tasks))


def compressed_store(folder: Path, messages: int, size: int) -> Path | None:
    """A store of nats-server's with S2 blocks; None where there is no nats-server."""
    server = Server(PEER_NAME, folder / "compressed")
    server.start()
    try:
        fill(server.url, messages, size, compression="s2")
    finally:
        server.stop()
    return server.store


# ---- running it --------------------------------------------------------------------------------


def measure(bench: Bench, chosen: list[Scenario], rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, kafka, run, prepare in chosen:
        rates = []
        bench.peak = 0
        for number in range(rounds + 1):  # the first warms Spark and the page cache up
            if sys.stderr.isatty():
                print(f"\r\x1b[K{name}, {number}", end="", file=sys.stderr, flush=True)
            prepare(bench)
            with bench.watched():
                begin = time.monotonic()
                handled = run(bench)
                seconds = time.monotonic() - begin
            if number:
                rates.append(handled / seconds)
        rows.append(
            {
                "scenario": name,
                "rows_per_second": statistics.median(rates),
                "least": min(rates),
                "most": max(rates),
                "executor_peak_bytes": bench.peak,
                "kafka": KAFKA[kafka][1 if "2 task" in name else 0] if kafka else None,
            }
        )
    return rows


def markdown(rows: list[dict[str, Any]], facts: list[str]) -> str:
    lines = ["# The Spark pipeline, measured", "", *(f"- {fact}" for fact in facts), ""]
    lines += [
        "| | thousand rows/s | least to most | Kafka's connector | executor Python, MiB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        kafka = f"{row['kafka'] / 1e3:.0f}" if row["kafka"] else ""
        peak = f"{row['executor_peak_bytes'] / (1 << 20):.0f}" if row["executor_peak_bytes"] else ""
        span = f"{row['least'] / 1e3:.0f} to {row['most'] / 1e3:.0f}"
        rate = f"{row['rows_per_second'] / 1e3:.0f}"
        lines.append(f"| {row['scenario']} | {rate} | {span} | {kafka} | {peak} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="pipeline/bench.py", description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000_000, help="default 3,000,000")
    parser.add_argument("--size", type=int, default=128, help="bytes a payload, default 128")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="with * and ?")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--output", type=Path, help="write the table to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as name:
        folder = Path(name)
        compressed = compressed_store(folder, given.messages, given.size)
        chosen = [
            s
            for s in scenarios(compressed)
            if not given.scenario or any(fnmatch.fnmatch(s[0], p) for p in given.scenario)
        ]
        bench = Bench(folder, given.messages, given.size)
        try:
            rows = measure(bench, chosen, given.rounds)
        finally:
            bench.close()
    facts = [machine(), version_of(OWN_NAME), f"PySpark {pyspark.__version__}"]
    facts.append(f"{given.messages} messages of {given.size} bytes, medians of {given.rounds}")
    text = markdown(rows, facts)
    print(json.dumps(rows, indent=1) if given.json else text)
    output = given.output or (None if given.scenario else RESULTS)
    if output is not None:
        output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
