"""The jobs as tasks of Spark: in a session that is there, and through spark-submit."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from jsserver_spark.errors import NatsError
from jsserver_spark.jobs import check
from jsserver_spark.jobs.archive import ArchiveOptions, archive
from jsserver_spark.jobs.report import ReportOptions, report
from jsserver_spark.jobs.runner import Spark, runner_of
from jsserver_spark.jobs.verify import VerifyOptions, verify
from jsserver_spark.source import NatsSource
from pipeline.tests.jobs_world import api, create, publish, some_messages
from pipeline.tests.paths import PYTHONPATH, SOURCES
from pipeline.tests.test_jobs_archive import rows_of
from tests.servers import Server


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    built = (
        SparkSession.builder.master("local[2]")
        .appName("jobs")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", PYTHONPATH)
        .getOrCreate()
    )
    yield built
    built.stop()


def test_jobs_run_in_the_session_that_is_there(
    session: SparkSession, js_server: Server, tmp_path: Path
) -> None:
    create(js_server, "TASKS")
    messages = some_messages(10_000, "TASKS")
    publish(js_server, "TASKS", messages)
    servers = (js_server.url,)
    options = ArchiveOptions(servers=servers, stream="TASKS", flush_rows=2500)
    assert archive(options, str(tmp_path)).rows == 10_000
    assert rows_of(tmp_path, "TASKS") == list(enumerate(messages, 1))
    assert verify(VerifyOptions(servers=servers, stream="TASKS"), str(tmp_path)).equal
    made = report(ReportOptions(servers=servers, stream="TASKS"), str(tmp_path))
    assert made.found.total.messages == 10_000
    assert session.range(3).count() == 3


def fails(part: int) -> int:
    if part == 2:
        raise NatsError("part two is bad")
    if part == 3:
        raise ValueError("part three broke")
    return part


def test_errors_of_tasks_are_the_users_own(session: SparkSession) -> None:
    runner = runner_of()
    assert isinstance(runner, Spark)
    try:
        assert list(runner.map(abs, [-1, -2, -3])) == [1, 2, 3]
        with pytest.raises(NatsError, match=r"^part two is bad$"):
            list(runner.map(fails, [1, 2]))
        with pytest.raises(NatsError, match="a task of Spark failed"):
            list(runner.map(fails, [3]))
    finally:
        runner.close()
    assert session.range(3).count() == 3


def test_spark_reads_the_files_by_itself(
    session: SparkSession, js_server: Server, tmp_path: Path
) -> None:
    create(js_server, "PLAIN")
    publish(js_server, "PLAIN", some_messages(1000, "PLAIN"))
    options = ArchiveOptions(servers=(js_server.url,), stream="PLAIN", flush_rows=300)
    archive(options, str(tmp_path), processes=1)
    frame = session.read.parquet(str(tmp_path))
    assert frame.count() == 1000
    row = frame.where("seq = 1").select("stream", "subject", "headers", "data").first()
    assert row is not None
    assert row["stream"] == "PLAIN"
    assert row["headers"] == {"Trace": ["0"], "Tag": ["a", "b"]}


def test_archive_and_stream_are_one_table(
    session: SparkSession, js_server: Server, tmp_path: Path
) -> None:
    create(js_server, "UNION")
    publish(js_server, "UNION", some_messages(700, "UNION"))
    options = ArchiveOptions(servers=(js_server.url,), stream="UNION", flush_rows=300)
    archive(options, str(tmp_path), processes=1)
    publish(js_server, "UNION", some_messages(300, "UNION"))
    api(js_server, "STREAM.PURGE.UNION", {"seq": 501})
    session.dataSource.register(NatsSource)
    reader = session.read.format("nats").option("servers", js_server.url)
    frame = reader.option("stream", "UNION").option("archivePath", str(tmp_path)).load()
    found = [row["seq"] for row in frame.select("seq").sort("seq").collect()]
    assert found == list(range(1, 1001))


def test_executors_are_looked_at(session: SparkSession) -> None:
    answers = session.sparkContext.parallelize(range(2), 2).map(check._on_executor).collect()
    assert all(b'"executable"' in answer for answer in answers)


def test_spark_submit_runs_a_job(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "SUBMIT")
    messages = some_messages(3000, "SUBMIT")
    publish(js_server, "SUBMIT", messages)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = [str(submit), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    words += [str(SOURCES / "jsserver_spark" / "jobs" / "archive.py"), str(tmp_path), "--json"]
    words += ["--stream", "SUBMIT", "--servers", js_server.url, "--flush-rows", "1000"]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_GATEWAY")},
        "PYTHONPATH": PYTHONPATH,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=180, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 3000
    assert rows_of(tmp_path, "SUBMIT") == list(enumerate(messages, 1))
