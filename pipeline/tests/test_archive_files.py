"""The archive's files without a server: rolled, committed, read back as any table, never half."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark.archive import layout, manifest, reader
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import ArchiveError
from jsserver_spark.archive.reader import ArchiveSplit, read_split
from jsserver_spark.archive.writer import Limits, publish_drafts, write_range
from jsserver_spark.errors import DataLossError, NatsError, OptionError
from jsserver_spark.options import RowOptions
from jsserver_spark.schema import table_of
from pipeline.tests.jobs_world import DAY_NS, NOON, Row, add, batches, new_archive
from pipeline.tests.paths import PYTHONPATH

HEADER = b"NATS/1.0\r\nA: 1\r\nB: x\r\nB: y\r\n\r\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "archive"))


def some_rows(count: int, first: int = 1) -> list[Row]:
    return [
        Row(
            seq,
            NOON + seq * 1_000_001,
            f"S.{seq % 5}",
            HEADER if seq % 3 == 0 else b"",
            b"data %d" % seq,
        )
        for seq in range(first, first + count)
    ]


def read(place: Place, first: int = 1, last: int = 1 << 60, **options: Any) -> pa.Table:
    chosen = RowOptions(**options)
    found = list(read_split(chosen, ArchiveSplit(place.uri, "S", first, last)))
    return pa.Table.from_batches(found, table_of(chosen).arrow_schema())


def seqs(table: pa.Table) -> list[int]:
    return list(table.column("seq").to_pylist())


# ---- files -------------------------------------------------------------------------------------


def test_what_is_archived_is_read_back(place: Place) -> None:
    rows = some_rows(1000)
    archive = add(place, new_archive(place), rows, 1000)
    assert manifest.load(place, "S") == archive
    found = read(place, include_nanos=True, include_headers=True, headers_format="raw")
    got = found.to_pylist()
    assert [row["seq"] for row in got] == [row.seq for row in rows]
    assert [row["subject"] for row in got] == [row.subject for row in rows]
    assert [row["headers"] or b"" for row in got] == [row.header for row in rows]
    assert [row["data"] for row in got] == [row.data for row in rows]
    micros = found.column("timestamp").cast(pa.int64()).to_pylist()
    nanos = found.column("ts_nanos").to_pylist()
    assert [m * 1000 + n for m, n in zip(micros, nanos, strict=True)] == [row.ts for row in rows]
    assert set(found.column("stream").to_pylist()) == {"S"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"include_headers": True},
        {"include_headers": True, "headers_format": "array"},
        {"include_headers": True, "schema_mode": "kafka"},
        {"columns": ("seq", "subject")},
        {"include_data": False},
        {"partition_token": 2},
    ],
)
def test_every_table_is_what_a_stream_would_give(place: Place, options: dict[str, Any]) -> None:
    add(place, new_archive(place), some_rows(50), 50)
    chosen = RowOptions(**options)
    found = next(read_split(chosen, ArchiveSplit(place.uri, "S", 1, 50)))
    assert found.schema == table_of(chosen).arrow_schema()
    assert len(found) == 50
    if options.get("headers_format") == "array":
        third = found.column("headers")[2].as_py()
        assert [(e["key"], e["value"]) for e in third] == [("A", b"1"), ("B", b"x"), ("B", b"y")]
    elif options == {"include_headers": True}:
        assert found.column("headers")[2].as_py() == [("A", ["1"]), ("B", ["x", "y"])]
        assert found.column("headers")[0].as_py() is None
    elif "partition_token" in options:
        assert found.column("partition").to_pylist() == [seq % 5 for seq in range(1, 51)]


def test_subjects_and_bounds_are_filtered(place: Place) -> None:
    add(place, new_archive(place), some_rows(100), 100)
    assert seqs(read(place, 10, 20)) == list(range(10, 21))
    assert seqs(read(place, filter_subjects=("S.1", "S.3"))) == [
        seq for seq in range(1, 101) if seq % 5 in (1, 3)
    ]
    split = ArchiveSplit(
        place.uri, "S", 1, 100, since=NOON + 10 * 1_000_001, until=NOON + 12_000_012
    )
    assert [s for b in read_split(RowOptions(), split) for s in b.column("seq").to_pylist()] == [
        10,
        11,
        12,
    ]


def test_a_parquet_reader_sees_plain_columns(place: Place) -> None:
    archive = add(place, new_archive(place), some_rows(10), 10)
    name = archive.files[0].name
    assert name == f"stream=S/date=2024-10-04/S-{1:020d}-{10:020d}.parquet"
    file = pq.ParquetFile(place.path(name))
    group = file.metadata.row_group(0)
    by_path = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert by_path["seq"].compression == "ZSTD"
    assert (by_path["seq"].statistics.min, by_path["seq"].statistics.max) == (1, 10)
    assert by_path["subject"].has_dictionary_page
    assert not by_path["data"].has_dictionary_page
    assert file.schema_arrow.names == [
        "stream",
        "subject",
        "seq",
        "timestamp",
        "ts_nanos",
        "headers",
        "headers_raw",
        "data",
    ]


def test_files_roll_by_rows_and_bytes_and_cover_everything(place: Place) -> None:
    archive = add(place, new_archive(place), some_rows(250), 260, Limits(rows=100))
    assert [(f.first, f.last, f.rows) for f in archive.files] == [
        (1, 100, 100),
        (101, 200, 100),
        (201, 260, 50),
    ]
    assert archive.files[-1].gaps == ((251, 260),)
    big = [Row(seq, NOON, "S.a", b"", b"x" * 1000) for seq in range(261, 461)]
    archive = add(place, archive, big, 460, Limits(bytes=100_000))
    assert [f.rows for f in archive.files[3:]] == [100, 100]
    assert seqs(read(place)) == [*range(1, 251), *range(261, 461)]
    assert archive.gaps() == [(251, 260)]


def test_midnight_ends_a_file_and_a_clock_that_went_back_does_not(place: Place) -> None:
    night = NOON + DAY_NS // 2
    times = [night - 2, night - 1, night, night + 1, night - 5, night + 2, night + DAY_NS]
    rows = [Row(i + 1, ts) for i, ts in enumerate(times)]
    archive = add(place, new_archive(place), rows, 7)
    assert [(f.date, f.rows) for f in archive.files] == [
        ("2024-10-04", 2),
        ("2024-10-05", 4),
        ("2024-10-06", 1),
    ]
    assert archive.files[1].min_time == night - 5
    assert reader.first_since(place, archive, night) == 3
    assert reader.first_since(place, archive, night + 2) == 6
    assert reader.first_since(place, archive, night + 2 * DAY_NS) is None


def test_a_range_without_rows_is_covered_without_a_file(place: Place) -> None:
    archive = add(place, new_archive(place), [], 50)
    assert (archive.first, archive.last, archive.files) == (1, 50, ())
    archive = add(place, archive, some_rows(5, 51), 55)
    assert manifest.load(place, "S") == archive
    assert archive.gaps() == [(1, 50)]
    assert seqs(read(place)) == [51, 52, 53, 54, 55]


def test_too_many_gaps_are_counted_only(place: Place) -> None:
    rows = [Row(seq, NOON) for seq in range(1, 5001, 2)]
    archive = add(place, new_archive(place), rows, 5000)
    assert archive.files[0].gaps is None
    assert archive.files[0].missing == 2500


@given(data=st.data())
@settings(max_examples=40)
def test_any_rows_come_back_in_order(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Place(str(tmp_path_factory.mktemp("any")))
    archive = new_archive(place)
    written: list[Row] = []
    for _ in range(data.draw(st.integers(1, 3))):
        last = archive.last + data.draw(st.integers(1, 60))
        picked = data.draw(st.sets(st.integers(archive.last + 1, last)))
        rows = [
            Row(
                seq,
                NOON + data.draw(st.integers(0, 3)) * DAY_NS // 2,
                data.draw(st.sampled_from(["S.a", "S.b.c", "S.é"])),
                data.draw(st.sampled_from([b"", HEADER])),
                data.draw(st.binary(max_size=20)),
            )
            for seq in sorted(picked)
        ]
        limits = Limits(rows=data.draw(st.integers(1, 30)), bytes=data.draw(st.integers(1, 500)))
        archive = add(place, archive, rows, last, limits)
        written += rows
    assert manifest.load(place, "S") == archive
    at = 0
    for file in archive.files:
        assert at < file.first <= file.last and reader.check_file(place, file) == ""
        at = file.last
    found = read(place, include_headers=True, headers_format="raw").to_pylist()
    assert [(r["seq"], r["subject"], r["headers"] or b"", r["data"]) for r in found] == [
        (r.seq, r.subject, r.header, r.data) for r in written
    ]
    here = {row.seq for row in written}
    gone = {seq for first, last in archive.gaps() for seq in range(first, last + 1)}
    assert gone == set(range(1, archive.last + 1)) - here


# ---- the manifest ------------------------------------------------------------------------------


def test_files_that_no_entry_names_are_not_there(place: Place) -> None:
    archive = add(place, new_archive(place), some_rows(10), 10)
    path = Path(place.path(archive.files[0].name))
    shutil.copy(path, path.with_name(f"S-{11:020d}-{20:020d}.parquet"))
    write_range(place, "S", "killed", 11, 20, Limits(), batches(some_rows(10, 11)))
    assert seqs(read(place)) == list(range(1, 11))


def test_two_writers_cannot_commit_the_same_entry(place: Place) -> None:
    archive = add(place, new_archive(place), some_rows(10), 10)
    manifest.commit(place, archive, "add", [], 11, 20)
    with pytest.raises(ArchiveError, match="another writer is at work"):
        manifest.commit(place, archive, "add", [], 11, 30)
    assert manifest.require(place, "S").last == 20


def test_a_store_without_links_checks_before_it_commits(place: Place) -> None:
    place.local = False
    archive = add(place, new_archive(place), some_rows(10), 10)
    assert manifest.load(place, "S") == archive
    manifest.commit(place, archive, "add", [], 11, 20)
    with pytest.raises(ArchiveError, match="another writer is at work"):
        manifest.commit(place, archive, "add", [], 11, 20)
    with manifest.writing(place, "S"), manifest.writing(place, "S"):
        pass


def test_one_writer_at_a_time(place: Place) -> None:
    with (
        manifest.writing(place, "S"),
        pytest.raises(ArchiveError, match="another process is writing"),
        manifest.writing(place, "S"),
    ):
        pass
    with manifest.writing(place, "S"):
        pass


def test_an_entry_for_all_stands_for_what_was_before(place: Place) -> None:
    archive = new_archive(place)
    for _ in range(4):
        archive = add(place, archive, some_rows(10, archive.last + 1), archive.last + 10)
    kept = archive.files[2:]
    short = manifest.commit(place, archive, "all", kept, kept[0].first, archive.last)
    for number in (1, 2, 3):
        Path(place.path(layout.entry_name("S", number))).unlink()
    assert manifest.load(place, "S") == short
    assert (short.first, short.last, short.rows) == (21, 40, 20)
    longer = add(place, short, some_rows(5, 41), 45)
    assert manifest.load(place, "S") == longer
    with pytest.raises(DataLossError, match="starts at sequence 21"):
        read(place)
    assert seqs(read(place, fail_on_data_loss=False)) == list(range(21, 46))


def test_every_so_often_an_entry_names_all_files(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "WHOLE_EVERY", 20)
    archive = new_archive(place)
    for _ in range(47):
        archive = add(place, archive, some_rows(2, archive.last + 1), archive.last + 2)
    for number in range(1, 40):
        Path(place.path(layout.entry_name("S", number))).unlink()
    assert manifest.load(place, "S") == archive
    assert seqs(read(place)) == list(range(1, 95))
    Path(place.path(layout.entry_name("S", 43))).unlink()
    with pytest.raises(ArchiveError, match=r"00000043\.json is missing"):
        manifest.load(place, "S")


LOAD_ANEW = """
import importlib, sys
from jsserver_spark.archive import layout, manifest
sys.setswitchinterval(1e-6)
for _ in range(100):
    importlib.reload(manifest)
    manifest.load(layout.Place(sys.argv[1]), "S")
"""


def test_entries_are_read_by_threads_that_know_nothing_of_them_yet(place: Place) -> None:
    archive = new_archive(place)
    for _ in range(20):
        archive = add(place, archive, some_rows(1, archive.last + 1), archive.last + 1)
    command = [sys.executable, "-c", LOAD_ANEW, place.uri]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    assert subprocess.run(command, env=environment, timeout=60).returncode == 0


def test_a_broken_manifest_is_told_apart(place: Place) -> None:
    archive = new_archive(place)
    for _ in range(3):
        archive = add(place, archive, some_rows(10, archive.last + 1), archive.last + 10)
    second = Path(place.path(layout.entry_name("S", 2)))
    text = second.read_text()
    second.unlink()
    with pytest.raises(ArchiveError, match=r"00000002\.json is missing"):
        manifest.load(place, "S")
    second.write_text("{")
    with pytest.raises(ArchiveError, match="no manifest entry"):
        manifest.load(place, "S")
    second.write_text(text.replace('"created": "', '"created": "the day after '))
    with pytest.raises(ArchiveError, match="no manifest entry"):
        manifest.load(place, "S")
    second.write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(ArchiveError, match="has version 2"):
        manifest.load(place, "S")
    second.write_text(text.replace('"first": 11', '"first": 12'))
    with pytest.raises(ArchiveError, match="two writers"):
        manifest.load(place, "S")


def test_what_is_not_there_is_named(place: Place, tmp_path: Path) -> None:
    add(place, new_archive(place), some_rows(10), 10)
    assert manifest.load(place, "T") is None
    with pytest.raises(ArchiveError, match=r"no archive of stream 'T'; there are: S"):
        manifest.require(place, "T")
    with pytest.raises(OptionError, match="no stream's name"):
        manifest.load(place, "a/b")
    with pytest.raises(OptionError, match="cannot be used"):
        Place("nonsense://x")
    with pytest.raises(OptionError, match="root is missing"):
        Place("")
    (tmp_path / "file").write_text("")
    with pytest.raises(NatsError, match="file"):
        Place(str(tmp_path / "file")).make_folder("stream=S")


def test_an_archive_can_be_looked_for_while_it_is_made(place: Place) -> None:
    folder = Path(place.path(layout.manifest_of("S")))
    folder.parent.mkdir(parents=True)
    done = threading.Event()

    def make() -> None:
        while not done.is_set():
            folder.mkdir()
            folder.rmdir()

    maker = threading.Thread(target=make)
    maker.start()
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            assert manifest.load(place, "S") is None
    finally:
        done.set()
        maker.join()


def test_a_damaged_file_is_found(place: Place) -> None:
    archive = add(place, new_archive(place), some_rows(1000), 1000)
    file = archive.files[0]
    path = Path(place.path(file.name))
    good = path.read_bytes()
    assert reader.check_file(place, file) == ""
    path.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
    assert "SHA-256" in reader.check_file(place, file)
    path.write_bytes(good[:-10])
    assert "bytes" in reader.check_file(place, file)
    with pytest.raises(ArchiveError, match="parquet"):
        read(place)
    path.unlink()
    assert reader.check_file(place, file) == "is not there"
    with pytest.raises(ArchiveError, match="not there"):
        read(place)


def test_a_read_goes_on_when_files_are_merged_meanwhile(place: Place) -> None:
    archive = new_archive(place)
    for _ in range(3):
        archive = add(place, archive, some_rows(10, archive.last + 1), archive.last + 10)
    found = reader.read_files(place, "S", 1, 30, ("seq",))
    got = next(found).column("seq").to_pylist()
    files = write_range(place, "S", "merge", 1, 30, Limits(), batches(some_rows(30)))
    publish_drafts(place, "S", "merge", files)
    manifest.commit(place, archive, "all", files, 1, 30)
    for file in archive.files:
        place.remove(file.name)
    for batch in found:
        got += batch.column("seq").to_pylist()
    assert got == list(range(1, 31))


def test_splits_follow_files(place: Place) -> None:
    archive = add(place, new_archive(place), some_rows(100), 120, Limits(rows=10))
    size = sum(f.bytes for f in archive.files[:3])
    parts = reader.splits(archive, place.uri, 5, 115, size)
    assert parts[0].first == 5 and parts[-1].last == 115
    assert 3 <= len(parts) <= 5
    for one, other in itertools.pairwise(parts):
        assert one.last + 1 == other.first
    found: Iterator[pa.RecordBatch] = (b for p in parts for b in read_split(RowOptions(), p))
    assert [s for b in found for s in b.column("seq").to_pylist()] == list(range(5, 101))
