"""Users who may do just what the guide says that readers and sinks need."""

import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.jobs.archive import ArchiveOptions, archive
from jsserver_spark.jobs.report import ReportOptions, report
from jsserver_spark.jobs.verify import VerifyOptions, verify
from jsserver_spark.options import ConnectionOptions
from jsserver_spark.source import NatsSource
from pipeline.tests.paths import ROOT
from pipeline.tests.sink_world import Query, rows_of, write_batch
from pipeline.tests.site import table_of
from tests.servers import Server, Servers

READER = {"user": "reader", "password": "readers"}
SINK = {"user": "sink", "password": "sinks"}
ADMIN = {"user": "admin", "password": "admins"}
AT_ONCE_S = 4.0
"""Less than any patience."""


def config(*denied: str) -> str:
    """The guide's, with a user who may do all; `denied`: subjects that are taken out."""
    guide = (ROOT / "docs" / "spark.md").read_text()
    found = re.search(r"<!-- permissions -->\n```\n(.*?)```", guide, re.DOTALL)
    assert found is not None
    text = found[1].replace("users: [", "users: [{ user: admin, password: admins }", 1)
    for subject in denied:
        assert f'"{subject}"' in text
        text = text.replace(f'"{subject}"', '"nothing"')
    return text


def started(servers: Servers, kind: str, *denied: str) -> Server:
    """A server with ORDERS, which has nine messages, and LARGE."""
    begin = servers.under_test if kind == "jsserver" else servers.peer
    server = begin(jetstream=True, config=config(*denied))
    js = JetStream(ConnectionOptions(servers=(server.url,), **ADMIN))
    body: dict[str, Any] = {"name": "ORDERS", "subjects": ["orders.>"], "allow_direct": True}
    js.api("STREAM.CREATE.ORDERS", body)
    js.api(
        "STREAM.CREATE.LARGE",
        {"name": "LARGE", "subjects": ["large.>"], "duplicate_window": 1800 * 10**9},
    )
    for i in range(9):
        js.request(f"orders.{i % 3}", b"%d" % i)
    js.close()
    return server


@pytest.fixture(scope="module", params=["jsserver", "peer"])
def server(request: pytest.FixtureRequest, module_servers: Servers) -> Server:
    if request.param == "peer":
        request.getfixturevalue("peer_present")
    return started(module_servers, request.param)


def read(server: Server, **options: str) -> pa.Table:
    source = NatsSource({"servers": server.url, "stream": "ORDERS", **READER, **options})
    reader = source.reader(source.schema())
    return table_of(reader, reader.partitions())


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 9),
        ({"filterSubjects": "orders.1"}, 3),
        ({"filterSubjects": "orders.1,orders.2"}, 6),
        ({"includeData": "false"}, 9),
        ({"startingTimestamp": "2020-01-01"}, 9),
        ({"endingOffsets": "4"}, 3),
    ],
)
def test_the_reader_reads(server: Server, options: dict[str, str], rows: int) -> None:
    assert read(server, **options).num_rows == rows


def test_the_reader_runs_queries_and_jobs(server: Server, tmp_path: Path) -> None:
    source = NatsSource(
        {"servers": server.url, "stream": "ORDERS", "startingOffsets": "earliest", **READER}
    )
    stream = source.streamReader(source.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert table_of(stream, stream.partitions(start, end)).num_rows == 9
    stream.stop()
    given: Any = {"servers": (server.url,), "stream": "ORDERS", **READER}
    assert archive(ArchiveOptions(**given), str(tmp_path), processes=1).rows == 9
    assert verify(VerifyOptions(**given), str(tmp_path), processes=1).equal
    assert report(ReportOptions(**given), processes=1).found.total.messages == 9


def test_the_sink_writes(server: Server) -> None:
    rows = rows_of(data=["a", "b"], id=["1", "2"])
    for given in ({"subject": "large.x", "stream": "LARGE"}, {"subject": "large.{id}"}):
        query = Query(server, sinkId=f"to-{len(given)}", **given, **SINK)
        plain = rows if len(given) == 1 else rows.select(["data"])
        assert query.run_batch(0, plain).rows == 2
        assert query.run_batch(0, plain).skipped


@pytest.mark.parametrize("kind", ["jsserver", "peer"])
def test_a_permission_that_is_denied_is_an_error_at_once(servers: Servers, kind: str) -> None:
    """Filtered reads ask for the end; a sink asks for its stream."""
    denied = ("$JS.API.STREAM.MSG.GET.ORDERS", "$JS.API.STREAM.INFO.LARGE")
    server = started(servers, kind, *denied, "$JS.API.CONSUMER.CREATE.ORDERS.>")
    begun = time.monotonic()
    for options, subject in [
        ({"filterSubjects": "orders.1"}, denied[0]),
        ({"filterSubjects": "orders.1,orders.2"}, "$JS.API.CONSUMER.CREATE.ORDERS."),
        ({"stream": "OTHER"}, "$JS.API.STREAM.INFO.OTHER"),
    ]:
        with pytest.raises(NatsError, match=re.escape(subject)) as caught:
            read(server, **options)
        assert "ermissions" in str(caught.value) and "has to be allowed" in str(caught.value)
    query = Query(server, subject="large.x", stream="LARGE", **SINK)
    with pytest.raises(NatsError, match=re.escape(denied[1])):
        query.run_batch(0, rows_of(data=["a"]))
    with pytest.raises(NatsError, match=r'ermissions Violation.*"orders\.x"'):
        write_batch(server, rows_of(data=["a"]), subject="orders.x", **SINK)
    assert time.monotonic() - begun < AT_ONCE_S
