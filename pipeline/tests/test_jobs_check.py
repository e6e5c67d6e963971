"""What is wrong with an installation, said in words; the jobs' command lines and exit codes."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from jsserver_spark.errors import NatsError
from jsserver_spark.jobs import check, command, main, runner
from jsserver_spark.jobs.check import Machine, executor_problems, java_problems, machine_problems
from jsserver_spark.jobs.progress import Progress, amount, duration
from jsserver_spark.jobs.runner import Local, Processes, runner_of
from jsserver_spark.options import ConnectionOptions
from pipeline.tests.paths import PYTHONPATH
from tests.servers import Server, Servers

GOOD = Machine(
    "driver",
    "one",
    "3.11.7",
    "/usr/bin/python3",
    "0.1.0",
    {
        "pyspark": "4.3.0",
        "pyarrow": "26.0.1",
        "numpy": "2.4.6",
        "msgspec": "0.22.0",
        "pynacl": "1.6.2",
        "cryptography": "46.0.3",
    },
    {"nats": "", "nats-store": ""},
)


def other(**changes: object) -> Machine:
    fields = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    return Machine(**{**fields, "where": "executor two", **changes})  # type: ignore[arg-type]


def test_a_good_machine_has_no_problems() -> None:
    assert machine_problems(GOOD) == []
    assert executor_problems(GOOD, [other()]) == []
    assert java_problems("17.0.15") == [] and java_problems("21") == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "3.10.2"}, "Python 3.10.2 is too old"),
        ({"python": "3.12.1"}, "set PYSPARK_PYTHON"),
        ({"packages": {**GOOD.packages, "pyarrow": ""}}, "it comes with `pip install`"),
        ({"packages": {**GOOD.packages, "pyspark": "4.0.1"}}, "pyspark 4.0.1 is too old"),
        ({"packages": {**GOOD.packages, "pyarrow": "18.1.0"}}, "pyarrow 18.1.0 is too old"),
        ({"packages": {**GOOD.packages, "pyarrow": "25.0"}}, "install the same version"),
        ({"jsserver_spark": "0.0.9"}, "has jsserver-spark 0.0.9"),
        ({"formats": {"nats": "no such module", "nats-store": ""}}, "format 'nats' is not found"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, object], said: str) -> None:
    wrong = executor_problems(GOOD, [other(**changes)])
    assert any(said in line and "executor two" in line for line in wrong), wrong


def test_java() -> None:
    assert "no Java" in java_problems("")[0]
    assert "too old" in java_problems("11.0.2")[0]


def test_a_server_is_looked_at(
    js_server: Server, core_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "FORMATS", {})
    found = check.check(ConnectionOptions(servers=(js_server.url,)), "", spark=False)
    assert found.server is not None and found.server.jetstream
    assert found.problems == []
    found = check.check(ConnectionOptions(servers=(core_server.url,)), "", spark=False)
    assert any("JetStream does not answer" in problem for problem in found.problems)
    found = check.check(ConnectionOptions(servers=("nats://127.0.0.1:1",)), "", spark=False)
    assert found.server is None
    assert any("no server: cannot connect" in problem for problem in found.problems)


def test_the_command(
    js_server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "FORMATS", {})
    words = ["--no-spark", "--servers", js_server.url]
    assert check.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["driver"]["executable"] == sys.executable and found["problems"] == []
    assert check.main(words) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    monkeypatch.setattr(check, "FORMATS", {"nats": "no_such_module"})
    assert check.main(words) == 1
    assert "wrong: driver: format 'nats' is not found" in capsys.readouterr().out


# ---- command lines -----------------------------------------------------------------------------


@pytest.mark.parametrize("job", main.JOBS)
def test_every_job_has_help_and_exit_codes(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([job, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"jsserver-spark {job}" in out and "exit codes:" in out and "--json" in out


WITHOUT = """
import sys
for name in ("pyspark", "pyarrow", "numpy", "cryptography", "nacl"):
    sys.modules[name] = None
from jsserver_spark.jobs.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_spark(*words: str) -> subprocess.CompletedProcess[str]:
    """A job where nothing of Spark can be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("job", main.JOBS)
def test_help_needs_nothing_of_spark(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([job, "--help"]) == 0
    done = without_spark(job, "--help")
    assert (done.returncode, done.stdout, done.stderr) == (0, capsys.readouterr().out, "")


def test_a_job_without_spark_says_what_is_missing(tmp_path: Path) -> None:
    done = without_spark("archive", str(tmp_path), "--stream", "S")
    assert done.returncode == 2 and done.stdout == ""
    assert "which is not installed here: `pip install`" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_list_of_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {job} " in out for job in main.JOBS)
    assert main.main([]) == 2
    assert "usage" in capsys.readouterr().err
    assert main.main(["archiv"]) == 2
    assert "no job 'archiv'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive"], "ROOT"),
        (["archive", "x", "--stream", "S", "--user", "a", "--token", "b"], "exclude each other"),
        (["archive", "x", "--stream", "S", "--processes", "0"], "no whole number"),
        (["archive", "x", "--stream", "S", "--follow", "--until-seq", "3"], "exclude each other"),
        (["archive", "x", "--stream", "S", "--flush-interval", "3s"], "is for --follow"),
        (["archive", "x"], "option 'stream' is missing"),
        (["archive", "x", "--stream", "S", "--servers", "nats://127.0.0.1:1"], "cannot connect"),
        (["replay", "x", "--stream", "S", "--starting-timestamp", "noon"], "no archive"),
        (["report", "--stream", "S", "--live"], "--live needs ROOT"),
        (["compact", "ftp://x", "--stream", "S"], "cannot be used"),
    ],
)
def test_bad_command_lines_are_one_clear_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_flags_are_named_like_options() -> None:
    assert command.flag_of("tls.caFile") == "--tls-ca-file"
    assert command.flag_of("flushRows") == "--flush-rows"


# ---- progress and runners ----------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_at_a_terminal_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        shown = Progress("archiving S", 1000, stream)
        shown.add(250)
        shown.close()
    assert "archiving S: 250 of 1,000 rows (25 %)" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert pipe.getvalue() == ""
    assert Progress("x", 100, pipe).line(0) == "x: 0 of 100 rows (0 %), 0/s, 0:00 left"
    assert (duration(3723), duration(59.6)) == ("1:02:03", "1:00")
    assert (amount(0), amount(1536), amount(5 << 40)) == ("0 B", "1.5 KiB", "5.0 TiB")


def twice(part: int) -> int:
    if part == 7:
        raise command.Wrong("seven is not wanted")
    return 2 * part


def test_runners_keep_the_order_and_pass_errors_on() -> None:
    assert isinstance(runner_of(processes=1), Local)
    pool = runner_of(processes=2)
    assert isinstance(pool, Processes)
    try:
        assert list(pool.map(twice, range(6))) == [0, 2, 4, 6, 8, 10]
        with pytest.raises(command.Wrong, match="seven"):
            list(pool.map(twice, range(20)))
        assert list(pool.map(twice, [])) == []
    finally:
        pool.close()


class ConnectSession:
    """What Spark Connect's session says of what only Spark's own has."""

    @property
    def sparkContext(self) -> Any:
        raise PySparkAttributeError(
            errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED",
            messageParameters={"attr_name": "sparkContext"},
        )


def test_with_spark_connect_jobs_run_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", ConnectSession)
    monkeypatch.setattr(runner, "cores", lambda: 2)
    pool = runner_of()
    assert isinstance(pool, Processes)
    pool.close()
    builder = type("Builder", (), {"getOrCreate": lambda _: ConnectSession()})()
    builder.appName = builder.config = builder.master = lambda *_: builder
    monkeypatch.setattr(SparkSession, "builder", builder)
    with pytest.raises(NatsError, match="Spark Connect runs no tasks"):
        runner_of("sc://127.0.0.1")


def test_a_server_without_jetstream_is_named(servers: Servers, tmp_path: Path) -> None:
    server = servers.under_test()
    code = main.main(["archive", str(tmp_path), "--stream", "S", "--servers", server.url])
    assert code == 2
