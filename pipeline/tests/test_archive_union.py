"""Archive and live stream as one table: every message once, whatever either of them lacks."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader

from jsserver_spark.archive.manifest import ArchiveError
from jsserver_spark.errors import DataLossError
from jsserver_spark.source import NatsSource
from jsserver_spark.text.goformat import rfc3339_nano
from pipeline.tests.jobs_world import api, create, publish, some_messages
from pipeline.tests.test_jobs_archive import archived
from tests.servers import Server


def reader_of(server: Server, stream: str, root: Path, **options: str) -> DataSourceReader:
    given = {"servers": server.url, "stream": stream, "archivePath": str(root), **options}
    source = NatsSource(given)
    return source.reader(source.schema())


def rows(reader: DataSourceReader) -> pa.Table:
    """As Spark reads: planned in one process, read in others."""
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
    copy = pickle.loads(pickle.dumps(reader))
    found = [batch for part in parts for batch in copy.read(part)]
    return pa.Table.from_batches(
        found, found[0].schema if found else pa.schema([("seq", pa.int64())])
    )


def seqs(reader: DataSourceReader) -> list[int]:
    return list(rows(reader).column("seq").to_pylist())


@pytest.fixture
def half(js_server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """A stream of 1 to 1000: 1 to 600 are archived, 401 to 1000 are still there."""
    stream = "U" + "".join(c for c in request.node.name if c.isalnum())
    create(js_server, stream)
    publish(js_server, stream, some_messages(600, stream))
    archived(js_server, stream, tmp_path, flush_rows=100)
    publish(js_server, stream, some_messages(400, stream))
    api(js_server, f"STREAM.PURGE.{stream}", {"seq": 401})
    return stream, tmp_path


def test_every_message_comes_once(js_server: Server, half: tuple[str, Path]) -> None:
    stream, root = half
    table = rows(reader_of(js_server, stream, root, includeHeaders="true"))
    assert table.column("seq").to_pylist() == list(range(1, 1001))
    wanted = some_messages(600, stream) + some_messages(400, stream)
    assert table.column("data").to_pylist() == [m.data for m in wanted]
    assert table.column("subject").to_pylist() == [m.subject for m in wanted]
    assert [bool(h) for h in table.column("headers").to_pylist()] == [
        bool(m.header) for m in wanted
    ]


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingOffsets": '{"STREAM": 50}'}, 50, 1000),
        ({"startingOffsets": '{"STREAM": 700}'}, 700, 1000),
        ({"endingOffsets": '{"STREAM": 300}'}, 1, 299),
        ({"startingOffsets": '{"STREAM": 590}', "endingOffsets": '{"STREAM": 611}'}, 590, 610),
        ({"splitBytes": "64KiB", "minPartitions": "9"}, 1, 1000),
    ],
)
def test_bounds(
    js_server: Server, half: tuple[str, Path], options: dict[str, str], first: int, last: int
) -> None:
    stream, root = half
    given = {name: value.replace("STREAM", stream) for name, value in options.items()}
    assert seqs(reader_of(js_server, stream, root, **given)) == list(range(first, last + 1))


def test_times(js_server: Server, half: tuple[str, Path]) -> None:
    stream, root = half
    table = rows(reader_of(js_server, stream, root, includeNanos="true"))
    micros = table.column("timestamp").cast(pa.int64()).to_pylist()
    for seq in (1, 250, 600, 601, 950):
        start = rfc3339_nano(micros[seq - 1] * 1000)
        wanted = [i + 1 for i, m in enumerate(micros) if m >= micros[seq - 1]]
        assert seqs(reader_of(js_server, stream, root, startingTimestamp=start)) == wanted
        before = seqs(reader_of(js_server, stream, root, endingTimestamp=start))
        assert before == list(range(1, wanted[0]))


def test_everything_archived_and_nothing_live(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "UALL")
    publish(js_server, "UALL", some_messages(100, "UALL"))
    archived(js_server, "UALL", tmp_path)
    assert seqs(reader_of(js_server, "UALL", tmp_path)) == list(range(1, 101))
    api(js_server, "STREAM.PURGE.UALL")
    assert seqs(reader_of(js_server, "UALL", tmp_path)) == list(range(1, 101))


def test_what_neither_has_is_data_loss(js_server: Server, half: tuple[str, Path]) -> None:
    stream, root = half
    api(js_server, f"STREAM.PURGE.{stream}", {"seq": 701})
    with pytest.raises(DataLossError, match="its archive ends at 600"):
        seqs(reader_of(js_server, stream, root))
    found = seqs(reader_of(js_server, stream, root, failOnDataLoss="false"))
    assert found == [*range(1, 601), *range(701, 1001)]


def test_another_stream_of_that_name_is_refused(js_server: Server, half: tuple[str, Path]) -> None:
    stream, root = half
    api(js_server, f"STREAM.DELETE.{stream}")
    create(js_server, stream)
    with pytest.raises(ArchiveError, match="deleted and made anew"):
        reader_of(js_server, stream, root).partitions()
    with pytest.raises(ArchiveError, match="no archive of stream"):
        reader_of(js_server, stream, root / "elsewhere").partitions()
