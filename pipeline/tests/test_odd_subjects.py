"""Subjects that servers store and nobody should use: not UTF-8, control characters, wildcards."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jsserver_spark.archive.reader import read_files
from jsserver_spark.errors import NatsError
from jsserver_spark.jobs.page import page
from jsserver_spark.jobs.replay import ReplayOptions, replay
from jsserver_spark.jobs.replaying import ReplayResult
from jsserver_spark.jobs.report import ReportOptions, report, tables
from jsserver_spark.jobs.survey import readable
from pipeline.tests.jobs_world import (
    NOON,
    Msg,
    Place,
    Row,
    add,
    connected,
    create,
    done,
    info,
    job,
    new_archive,
)
from pipeline.tests.jobs_world import publish as publish_to
from pipeline.tests.sink_world import create as create_target
from pipeline.tests.sink_world import rows_of, stored, write_batch
from pipeline.tests.test_jobs_archive import archived, equal
from tests.servers import Server, Servers

SUBJECTS = ["a\udcff", "a\x01", "b\x7f", "\udcc3(.x", "*", ">", "c\x00d", "plain", "ä.b"]


@pytest.fixture(scope="module", params=["jsserver", "peer"])
def server(request: pytest.FixtureRequest, module_servers: Servers) -> Server:
    if request.param == "jsserver":
        return module_servers.under_test(jetstream=True)
    request.getfixturevalue("peer_present")
    return module_servers.peer(jetstream=True)


@pytest.fixture
def odd(server: Server, request: pytest.FixtureRequest) -> str:
    """A stream with a message of each subject."""
    name = "O" + "".join(c for c in request.node.originalname if c.isalnum())
    create(server, name)
    messages = [Msg(f"{name}.{s}", b"", b"%d" % i) for i, s in enumerate(SUBJECTS)]
    publish_to(server, name, messages)
    return name


def replayed(server: Server, stream: str, root: Path, to: str, **more: Any) -> ReplayResult:
    return replay(ReplayOptions(servers=(server.url,), stream=stream), str(root), to=to, **more)


def test_they_are_archived_and_published_again(server: Server, odd: str, tmp_path: Path) -> None:
    assert archived(server, odd, tmp_path / "one").rows == len(SUBJECTS)
    assert equal(server, odd, tmp_path / "one")
    given: dict[str, Any] = {"to": "COPY", "subject_prefix": "copy.", "create": True}
    result = replayed(server, odd, tmp_path / "one", **given)
    assert (result.rows, result.before, result.passed_over) == (len(SUBJECTS), 0, 0)
    again = replayed(server, odd, tmp_path / "one", **given)
    assert (again.rows, again.before) == (0, len(SUBJECTS))
    archived(server, "COPY", tmp_path / "two")
    found = subjects_in(tmp_path / "two", "COPY")
    assert found == [f"copy.{odd}.{s}".encode("utf8", "surrogateescape") for s in SUBJECTS]


def subjects_in(root: Path, stream: str) -> list[bytes]:
    batches = read_files(Place(str(root)), stream, 1, 1 << 60, ("seq", "subject"))
    return [s for batch in batches for s in batch["subject"].cast(pa.binary()).to_pylist()]


def test_a_report_shows_them(server: Server, odd: str, tmp_path: Path) -> None:
    archived(server, odd, tmp_path)
    options = ReportOptions(servers=(server.url,), stream=odd)
    for made in (report(options, str(tmp_path), processes=1), report(options, processes=1)):
        names = {f"{odd}.{s}" for s in ("a\\xff", "a\\x01", "b\\x7f", "\\xc3(.x", "*", "c\\x00d")}
        assert names < made.found.subjects.keys()
        for text in (tables(made), page(made)):
            assert not set(text) & set("\x00\x01\x7f\ufffd")
            assert f"{odd}.a\\x01" in text


def test_readable() -> None:
    assert readable(b"a.\xc3\xa4") == "a.ä"
    assert readable(b"a\xff\x1b[1m\xc2\x85") == "a\\xff\\x1b[1m\\x85"


def test_a_sink_with_ids_finds_their_streams(server: Server) -> None:
    js = connected(server)
    create_target(js, "T")
    rows = rows_of(data=["1", "2", "3"], subject=pa.array([b"T.\xff", b"T.b", b"T.\xff"]))
    assert write_batch(server, rows, sinkId="s", runId="1").rows == 3
    assert [row[2] for row in stored(js, "T")] == ["1", "2", "3"]
    text = pa.Array.from_buffers(pa.string(), 3, rows["subject"].buffers())
    assert write_batch(server, rows.set_column(1, "subject", text), sinkId="s", runId="2").rows == 3
    with pytest.raises(NatsError, match="no stream takes the subject 'U"):
        bad = rows_of(data=["1"], subject=pa.array([b"U.\xff"]))
        write_batch(server, bad, sinkId="s", runId="3")


def test_what_nobody_can_publish_is_passed_over_when_asked_to(
    js_server: Server, tmp_path: Path
) -> None:
    place = Place(str(tmp_path))
    rows = [Row(i, NOON, "S.a", b"", b"%d" % i) for i in range(1, 11)]
    rows[0] = Row(1, NOON, "S.a b", b"", b"1")
    rows[4] = Row(5, NOON, "S.a", b"NATS/1.0\r\n\r\nmore\r\n\r\n", b"5")
    rows[9] = Row(10, NOON, "S.a", b"", b"x" * (1 << 21))
    add(place, new_archive(place), rows, 10)
    create(js_server, "SKIP", subjects=["S.>"])
    with pytest.raises(NatsError, match=r"blank or a control character.*--skip-unpublishable"):
        replayed(js_server, "S", tmp_path, "SKIP")
    result = replayed(js_server, "S", tmp_path, "SKIP", skip_unpublishable=True)
    assert (result.rows, result.before, result.passed_over) == (7, 0, 3)
    again = replayed(js_server, "S", tmp_path, "SKIP", skip_unpublishable=True)
    assert (again.rows, again.before, again.passed_over) == (0, 7, 3)
    assert info(js_server, "SKIP").state.messages == 7
    words = (str(tmp_path), "--stream", "S", "--to", "SKIP", "--servers", js_server.url)
    code, out, err = done(job("replay", *words, "--skip-unpublishable", "--json"))
    assert code == 0 and json.loads(out)["passed_over"] == 3
    assert "sequence 1 is passed over: there is a blank" in err
