"""Archiving a live stream: complete, resumable, and in nobody's way."""

import json
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import ArchiveError
from jsserver_spark.archive.reader import ArchiveSplit, check_file, read_split
from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jobs.archive import ArchiveOptions, ArchiveResult, archive
from jsserver_spark.jobs.progress import Progress
from jsserver_spark.jobs.verify import VerifyOptions, verify
from jsserver_spark.options import RowOptions
from pipeline.tests.jobs_world import Msg, api, create, done, info, job, publish, some_messages
from tests.servers import Server, Servers
from tests.waiting import wait_until

WAIT_S = 20


def archived(
    server: Server, stream: str, root: Path, *, flush_rows: int = 1000, **more: object
) -> ArchiveResult:
    options = ArchiveOptions(servers=(server.url,), stream=stream, flush_rows=flush_rows)
    return archive(options, str(root), **{"processes": 1, **more})  # type: ignore[arg-type]


def rows_of(root: Path, stream: str) -> list[tuple[int, Msg]]:
    chosen = RowOptions(include_headers=True, headers_format="raw")
    out = []
    for batch in read_split(chosen, ArchiveSplit(str(root), stream, 1, 1 << 60)):
        names = ("seq", "subject", "headers", "data")
        columns = (batch.column(name).to_pylist() for name in names)
        out += [(n, Msg(s, h or b"", d)) for n, s, h, d in zip(*columns, strict=True)]
    return out


def equal(server: Server, stream: str, root: Path) -> bool:
    options = VerifyOptions(servers=(server.url,), stream=stream)
    return verify(options, str(root), processes=1).equal


def test_a_stream_is_archived_whole_and_then_what_came(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "WHOLE")
    messages = some_messages(3500, "WHOLE")
    publish(js_server, "WHOLE", messages[:2500])
    first = archived(js_server, "WHOLE", tmp_path)
    assert (first.rows, first.first, first.last, first.files) == (2500, 1, 2500, 3)
    assert first.complete and first.bytes > first.size > 0
    publish(js_server, "WHOLE", messages[2500:])
    second = archived(js_server, "WHOLE", tmp_path)
    assert (second.rows, second.first, second.last) == (1000, 1, 3500)
    third = archived(js_server, "WHOLE", tmp_path)
    assert (third.rows, third.files) == (0, 0)
    assert rows_of(tmp_path, "WHOLE") == list(enumerate(messages, 1))
    assert equal(js_server, "WHOLE", tmp_path)


def test_gaps_are_known(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "GAPS")
    publish(js_server, "GAPS", some_messages(300, "GAPS"))
    for seq in (10, 11, 12, 200, 300):
        api(js_server, "STREAM.MSG.DELETE.GAPS", {"seq": seq})
    api(js_server, "STREAM.PURGE.GAPS", {"seq": 5})
    result = archived(js_server, "GAPS", tmp_path, flush_rows=100)
    assert (result.rows, result.missing) == (291, 5)
    found = manifest.require(Place(str(tmp_path)), "GAPS")
    assert (found.first, found.last) == (5, 300)
    assert found.gaps() == [(10, 12), (200, 200), (300, 300)]
    assert equal(js_server, "GAPS", tmp_path)


def test_what_retention_took_between_two_runs_is_a_gap(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "LOST")
    publish(js_server, "LOST", some_messages(100, "LOST"))
    archived(js_server, "LOST", tmp_path)
    publish(js_server, "LOST", some_messages(100, "LOST"))
    api(js_server, "STREAM.PURGE.LOST", {"seq": 151})
    result = archived(js_server, "LOST", tmp_path)
    assert (result.rows, result.lost, result.missing) == (50, 50, 50)
    assert manifest.require(Place(str(tmp_path)), "LOST").gaps() == [(101, 150)]
    api(js_server, "STREAM.PURGE.LOST")
    publish(js_server, "LOST", some_messages(1, "LOST"))
    api(js_server, "STREAM.PURGE.LOST")
    result = archived(js_server, "LOST", tmp_path)
    assert (result.rows, result.last) == (0, 201)


def test_an_empty_stream_and_one_that_is_not_there(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "EMPTY")
    result = archived(js_server, "EMPTY", tmp_path)
    assert (result.rows, result.first, result.last) == (0, 1, 0)
    with pytest.raises(NatsError, match="no stream 'NONE'"):
        archived(js_server, "NONE", tmp_path)
    with pytest.raises(OptionError, match="stream"):
        ArchiveOptions.read({}, "x")
    with pytest.raises(NatsError, match="servers"):
        archive(ArchiveOptions(servers=("nats://127.0.0.1:1",), stream="X"), str(tmp_path))


def test_a_stream_made_anew_is_refused(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "ANEW")
    publish(js_server, "ANEW", some_messages(20, "ANEW"))
    archived(js_server, "ANEW", tmp_path)
    api(js_server, "STREAM.DELETE.ANEW")
    create(js_server, "ANEW")
    publish(js_server, "ANEW", some_messages(30, "ANEW"))
    with pytest.raises(ArchiveError, match="made anew"):
        archived(js_server, "ANEW", tmp_path)
    assert archived(js_server, "ANEW", tmp_path, name="ANEW-2").rows == 30
    assert archived(js_server, "ANEW", tmp_path, accept_recreated=True).rows == 10
    found = manifest.require(Place(str(tmp_path)), "ANEW")
    assert found.created == info(js_server, "ANEW").created
    api(js_server, "STREAM.DELETE.ANEW")
    create(js_server, "ANEW")
    with pytest.raises(ArchiveError, match="does not hold what was archived"):
        archived(js_server, "ANEW", tmp_path, accept_recreated=True)


def test_a_second_archiver_fails_clearly(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "TWO")
    publish(js_server, "TWO", some_messages(200, "TWO"))
    with (
        manifest.writing(Place(str(tmp_path)), "TWO"),
        pytest.raises(ArchiveError, match="another process"),
    ):
        archived(js_server, "TWO", tmp_path)
    archived(js_server, "TWO", tmp_path)
    assert equal(js_server, "TWO", tmp_path)


def test_several_processes_archive_in_order(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "MANY")
    messages = some_messages(20_000, "MANY")
    publish(js_server, "MANY", messages)
    result = archived(js_server, "MANY", tmp_path, flush_rows=1500, processes=2)
    assert result.rows == 20_000
    assert rows_of(tmp_path, "MANY") == list(enumerate(messages, 1))


def test_the_command_tells_and_resumes(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "CLI")
    publish(js_server, "CLI", some_messages(500, "CLI"))
    words = (str(tmp_path), "--stream", "CLI", "--servers", js_server.url, "--processes", "1")
    code, out, err = done(job("archive", *words, "--until-seq", "400", "--json"))
    assert (code, err) == (0, "")
    assert json.loads(out)["last"] == 400
    code, out, err = done(job("archive", *words))
    assert (code, err) == (0, "")
    assert "100 rows in 1 files" in out and "covers sequences 1 to 500" in out
    code, out, err = done(job("archive", str(tmp_path), "--strem", "CLI"))
    assert (code, out) == (2, "") and "--strem" in err and "Traceback" not in err
    code, out, err = done(job("archive", *words, "--flush-rows", "none"))
    assert code == 2 and "flushRows" in err


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_archiver_loses_and_doubles_nothing(
    js_server: Server, tmp_path: Path, seed: int
) -> None:
    stream = f"KILL{seed}"
    create(js_server, stream)
    messages = some_messages(30_000, stream, seed)
    publish(js_server, stream, messages)
    rnd = random.Random(seed)
    words = (str(tmp_path), "--stream", stream, "--servers", js_server.url)
    words += ("--flush-rows", "700", "--processes", str(1 + seed % 2))
    entries = tmp_path / f"stream={stream}" / "_manifest"
    killed = 0
    for _ in range(3):
        process = job("archive", *words)
        wanted = len(list(entries.glob("*.json"))) + rnd.randrange(1, 12)
        end = time.monotonic() + WAIT_S
        while process.poll() is None and len(list(entries.glob("*.json"))) < wanted:
            assert time.monotonic() < end
            time.sleep(0.001)
        time.sleep(rnd.random() * 0.03)  # when it is killed
        process.send_signal(signal.SIGKILL)
        killed += process.wait(WAIT_S) == -signal.SIGKILL
        process.communicate()
    assert killed >= 2
    code, _, err = done(job("archive", *words))
    assert (code, err) == (0, "")
    assert rows_of(tmp_path, stream) == list(enumerate(messages, 1))
    place = Place(str(tmp_path))
    assert all(check_file(place, f) == "" for f in manifest.require(place, stream).files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_follow_archives_what_comes_until_it_is_told_to_stop(
    js_server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    stream = f"FOLLOW{number.name}"
    create(js_server, stream)
    publish(js_server, stream, some_messages(250, stream))
    words = (str(tmp_path), "--stream", stream, "--servers", js_server.url, "--follow")
    process = job("archive", *words, "--flush-rows", "100", "--flush-interval", "1s", "--json")
    wait_for(tmp_path, stream, 250)
    publish(js_server, stream, some_messages(30, stream))
    wait_for(tmp_path, stream, 280)
    process.send_signal(number)
    code, out, err = done(process)
    assert (code, err) == (0, "")
    assert json.loads(out)["last"] == 280
    assert equal(js_server, stream, tmp_path)


@pytest.mark.parametrize("fail", [False, True])
def test_follow_counts_what_was_gone_before_it_came(
    js_server: Server, tmp_path: Path, fail: bool
) -> None:
    stream = f"OVERRUN{fail}".upper()
    create(js_server, stream, max_msgs=100)
    publish(js_server, stream, some_messages(80, stream))
    words = [str(tmp_path), "--stream", stream, "--servers", js_server.url, "--follow", "--json"]
    words += ["--flush-rows", "50", "--flush-interval", "1s"]
    words += ["--fail-on-data-loss"] if fail else []
    process = job("archive", *words)
    wait_for(tmp_path, stream, 80)
    publish(js_server, stream, some_messages(5000, stream))
    if not fail:
        wait_for(tmp_path, stream, 5080)
        process.send_signal(signal.SIGTERM)
    code, out, err = done(process)
    result = json.loads(out)
    assert code == (1 if fail else 0)
    assert result["lost"] == result["missing"] > 3000
    assert "were gone before they could be archived" in err
    assert equal(js_server, stream, tmp_path)


def test_a_run_that_finds_messages_gone_ends_with_one_when_asked_to(
    js_server: Server, tmp_path: Path
) -> None:
    create(js_server, "GONE")
    words = (str(tmp_path), "--stream", "GONE", "--servers", js_server.url, "--fail-on-data-loss")
    publish(js_server, "GONE", some_messages(100, "GONE"))
    assert done(job("archive", *words))[0] == 0
    publish(js_server, "GONE", some_messages(100, "GONE"))
    api(js_server, "STREAM.MSG.DELETE.GONE", {"seq": 180})
    api(js_server, "STREAM.PURGE.GONE", {"seq": 151})
    code, out, err = done(job("archive", *words, "--json"))
    assert code == 1 and "50 messages of sequences 101 to 150 were gone" in err
    assert (json.loads(out)["lost"], json.loads(out)["missing"]) == (50, 51)
    assert done(job("archive", *words))[0] == 0


@pytest.mark.parametrize("kill", [False, True])
def test_follow_bears_a_restart_of_the_server(servers: Servers, tmp_path: Path, kill: bool) -> None:
    server = servers.under_test(jetstream=True)
    create(server, "BEAR")
    publish(server, "BEAR", some_messages(100, "BEAR"))
    stop = threading.Event()
    found: list[ArchiveResult] = []
    options = ArchiveOptions(servers=(server.url,), stream="BEAR", flush_interval=0.2)
    thread = threading.Thread(
        target=lambda: found.append(
            archive(options, str(tmp_path), follow=True, processes=1, stop=stop)
        )
    )
    thread.start()
    try:
        wait_for(tmp_path, "BEAR", 100)
        server.restart(kill=kill)
        publish(server, "BEAR", some_messages(50, "BEAR"))
        wait_for(tmp_path, "BEAR", 150)
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert found[0].rows == 150
    assert equal(server, "BEAR", tmp_path)


class Heard(Progress):
    """Notes every count that it is told, and does something at the first."""

    def __init__(self, at_first: Callable[[], object] = lambda: None) -> None:
        super().__init__("test")
        self.counts: list[int] = []
        self._at_first = at_first

    def add(self, rows: int) -> None:
        if not self.counts:
            self._at_first()
        self.counts.append(rows)
        super().add(rows)


@pytest.mark.parametrize("kill", [False, True])
def test_a_run_bears_a_restart_of_the_server(servers: Servers, tmp_path: Path, kill: bool) -> None:
    server = servers.under_test(jetstream=True)
    create(server, "MIDST")
    publish(server, "MIDST", some_messages(2500, "MIDST"))
    progress = Heard(lambda: server.restart(kill=kill))
    result = archived(server, "MIDST", tmp_path, progress=progress)
    assert (result.rows, result.complete, progress.rows) == (2500, True, 2500)
    assert equal(server, "MIDST", tmp_path)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_tells_how_far_it_is(js_server: Server, tmp_path: Path, processes: int) -> None:
    stream = f"TOLD{processes}"
    create(js_server, stream)
    publish(js_server, stream, some_messages(2500, stream))
    progress = Heard()
    archived(js_server, stream, tmp_path, processes=processes, progress=progress)
    assert progress.total == sum(progress.counts) == 2500 and len(progress.counts) >= 3


def wait_for(root: Path, stream: str, last: int) -> None:
    def archived() -> bool:
        found = manifest.load(Place(str(root)), stream)
        return found is not None and found.last >= last

    wait_until(archived, f"{stream}: sequence {last} is archived", WAIT_S)


def test_workers_do_not_outlive_a_killed_archiver(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "ORPHAN")
    publish(js_server, "ORPHAN", some_messages(20_000, "ORPHAN"))
    words = (str(tmp_path), "--stream", "ORPHAN", "--servers", js_server.url, "--processes", "2")
    process = job("archive", *words, "--flush-rows", "100")
    wait_for(tmp_path, "ORPHAN", 100)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.kill()
    process.communicate()
    workers = [Path(f"/proc/{child}") for child in children]
    wait_until(lambda: not any(path.exists() for path in workers), "no worker is left", WAIT_S)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_disk_that_takes_no_more_is_one_line(
    js_server: Server, tmp_path: Path, processes: str
) -> None:
    stream = f"DISK{processes}"
    create(js_server, stream)
    publish(js_server, stream, some_messages(4000, stream))
    words = (str(tmp_path), "--stream", stream, "--servers", js_server.url, "--flush-rows", "2000")
    full = job("archive", *words, "--processes", processes, file_limit=20_000)
    code, out, err = done(full)
    assert (code, out) == (2, "")
    assert err.startswith(f"{tmp_path}/stream={stream}: ") and "File too large" in err
    assert err.count("\n") == 1
    code, _, err = done(job("archive", *words))
    assert (code, err) == (0, "")
    assert [seq for seq, _ in rows_of(tmp_path, stream)] == list(range(1, 4001))
