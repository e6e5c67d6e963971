"""Keeping an archive: what verify finds, what compact merges, what expire removes."""

import json
from pathlib import Path

import pytest

from jsserver_spark.archive import layout, manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import ArchiveError
from jsserver_spark.archive.reader import ArchiveSplit, check_file, read_split
from jsserver_spark.archive.writer import Limits, write_range
from jsserver_spark.errors import DataLossError
from jsserver_spark.jobs.compact import CompactOptions, CompactResult, compact
from jsserver_spark.jobs.expire import expire
from jsserver_spark.jobs.verify import VerifyOptions, VerifyResult, verify
from jsserver_spark.options import RowOptions
from pipeline.tests.jobs_world import (
    DAY_NS,
    NOON,
    Row,
    add,
    api,
    batches,
    create,
    done,
    info,
    job,
    new_archive,
    publish,
    some_messages,
)
from pipeline.tests.test_jobs_archive import archived
from tests.servers import Server


def verified(server: Server, stream: str, root: Path, processes: int = 1) -> VerifyResult:
    options = VerifyOptions(servers=(server.url,), stream=stream)
    return verify(options, str(root), processes=processes)


def compacted(root: Path, flush_rows: int = 1000, before: str = "") -> CompactResult:
    options = CompactOptions(stream="S", flush_rows=flush_rows)
    return compact(options, str(root), before=before, processes=1)


def seqs(root: Path, stream: str = "S", first: int = 1) -> list[int]:
    found = read_split(RowOptions(), ArchiveSplit(str(root), stream, first, 1 << 60))
    return [seq for batch in found for seq in batch.column("seq").to_pylist()]


# ---- verify ------------------------------------------------------------------------------------


def test_an_archive_is_equal_to_its_stream(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "SAME")
    publish(js_server, "SAME", some_messages(5000, "SAME"))
    archived(js_server, "SAME", tmp_path, flush_rows=900)
    publish(js_server, "SAME", some_messages(7, "SAME"))
    result = verified(js_server, "SAME", tmp_path, processes=2)
    assert result.equal
    assert (result.found.rows, result.found.removed, result.behind) == (5000, 0, 7)


def test_what_the_stream_no_longer_holds_is_no_difference(
    js_server: Server, tmp_path: Path
) -> None:
    create(js_server, "LESS")
    publish(js_server, "LESS", some_messages(1000, "LESS"))
    archived(js_server, "LESS", tmp_path, flush_rows=300)
    api(js_server, "STREAM.PURGE.LESS", {"seq": 401})
    for seq in (500, 501, 1000):
        api(js_server, "STREAM.MSG.DELETE.LESS", {"seq": seq})
    result = verified(js_server, "LESS", tmp_path)
    assert result.equal
    assert (result.found.rows, result.found.removed) == (597, 403)
    api(js_server, "STREAM.PURGE.LESS")
    result = verified(js_server, "LESS", tmp_path)
    assert (result.equal, result.found.rows, result.found.removed) == (True, 0, 1000)


def test_differences_are_named(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "DIFF")
    publish(js_server, "DIFF", some_messages(100, "DIFF"))
    archived(js_server, "DIFF", tmp_path / "good")
    good = RowOptions(include_nanos=True, include_headers=True, headers_format="raw")
    rows = []
    for batch in read_split(good, ArchiveSplit(str(tmp_path / "good"), "DIFF", 1, 100)):
        for row in batch.to_pylist():
            micros = round(row["timestamp"].timestamp() * 1e6)
            ts = micros * 1000 + row["ts_nanos"]
            rows.append(Row(row["seq"], ts, row["subject"], row["headers"] or b"", row["data"]))
    rows[9] = rows[9]._replace(data=b"changed")
    rows[10] = rows[10]._replace(header=b"NATS/1.0\r\nNew: 1\r\n\r\n")
    rows[20] = rows[20]._replace(subject="DIFF.changed")
    rows[21] = rows[21]._replace(ts=rows[21].ts + 1)
    del rows[50:53]
    created = info(js_server, "DIFF").created
    place = Place(str(tmp_path / "bad"))
    add(place, new_archive(place, "DIFF", created=created), rows, 100)
    found = verified(js_server, "DIFF", tmp_path / "bad")
    assert not found.equal
    assert found.found.missing == [(51, 53)]
    assert found.found.different == [(10, 11), (21, 22)]
    assert (found.found.rows, found.found.different_rows, found.found.missing_rows) == (93, 4, 3)
    words = (str(tmp_path / "bad"), "--stream", "DIFF", "--servers", js_server.url)
    code, out, err = done(job("verify", *words, "--processes", "1"))
    assert (code, err) == (1, "")
    assert "3 messages are not in the archive: 51-53" in out and "NOT equal" in out
    code, out, _ = done(job("verify", *words, "--json", "--processes", "1"))
    assert (code, json.loads(out)["equal"]) == (1, False)


def test_damaged_files_are_found(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "DAMAGE")
    publish(js_server, "DAMAGE", some_messages(1000, "DAMAGE"))
    archived(js_server, "DAMAGE", tmp_path, flush_rows=300)
    files = manifest.require(Place(str(tmp_path)), "DAMAGE").files
    one, other = Path(tmp_path / files[0].name), Path(tmp_path / files[2].name)
    data = bytearray(one.read_bytes())
    data[len(data) // 3] ^= 1
    one.write_bytes(data)
    other.unlink()
    result = verified(js_server, "DAMAGE", tmp_path)
    assert not result.equal
    damage = "\n".join(result.found.damaged)
    assert "SHA-256" in damage and "is not there" in damage


def test_verify_needs_the_same_stream(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "NEEDS")
    publish(js_server, "NEEDS", some_messages(1, "NEEDS"))
    archived(js_server, "NEEDS", tmp_path)
    api(js_server, "STREAM.DELETE.NEEDS")
    create(js_server, "NEEDS")
    with pytest.raises(ArchiveError, match=r"made anew.*--accept-recreated"):
        verified(js_server, "NEEDS", tmp_path)
    words = ("--stream", "NEEDS", "--servers", js_server.url)
    code, _, err = done(job("verify", str(tmp_path / "none"), *words))
    assert code == 2 and "no archive of stream 'NEEDS'" in err and "Traceback" not in err


# ---- compact and expire ------------------------------------------------------------------------


def small_files(root: Path, days: int = 3, files: int = 5, rows: int = 20) -> None:
    """An archive of days with small files each, and a gap at every file's end."""
    place = Place(str(root))
    archive = new_archive(place)
    for day in range(days):
        for _ in range(files):
            first = archive.last + 1
            some = [
                Row(seq, NOON + day * DAY_NS + seq, f"S.{seq % 3}", b"", b"%d" % seq)
                for seq in range(first, first + rows)
            ]
            archive = add(place, archive, some, first + rows)


def test_small_files_of_a_day_become_one(tmp_path: Path) -> None:
    small_files(tmp_path)
    place = Place(str(tmp_path))
    before, wanted = manifest.require(place, "S"), seqs(tmp_path)
    result = compacted(tmp_path)
    assert (result.merged, result.into, result.rows, result.removed) == (15, 3, 300, 15)
    after = manifest.require(place, "S")
    assert [(f.date, f.rows) for f in after.files] == [
        ("2024-10-04", 100),
        ("2024-10-05", 100),
        ("2024-10-06", 100),
    ]
    assert (after.first, after.last, after.gaps()) == (before.first, before.last, before.gaps())
    assert seqs(tmp_path) == wanted
    assert all(check_file(place, f) == "" for f in after.files)
    assert sorted(place.names("stream=S", deep=True)) == sorted(
        [f.name for f in after.files]
        + [layout.entry_name("S", n) for n in range(1, 17)]
        + ["stream=S/_manifest/lock"]
    )
    assert compacted(tmp_path).merged == 0
    longer = add(place, after, [Row(after.last + 1, NOON + 9 * DAY_NS)], after.last + 1)
    assert manifest.load(place, "S") == longer


def test_only_days_that_are_over_and_files_that_fit(tmp_path: Path) -> None:
    small_files(tmp_path)
    wanted = seqs(tmp_path)
    assert compacted(tmp_path, before="2024-10-05").merged == 5
    result = compacted(tmp_path, flush_rows=45)
    assert (result.merged, result.into) == (8, 4)
    assert seqs(tmp_path) == wanted


def test_compact_removes_what_killed_runs_left(tmp_path: Path) -> None:
    small_files(tmp_path, days=1, files=1)
    place = Place(str(tmp_path))
    write_range(place, "S", "killed", 22, 30, Limits(), batches([Row(22, NOON)]))
    Path(place.path(f"stream=S/date=2024-10-04/S-{22:020d}-{30:020d}.parquet")).write_bytes(b"half")
    assert compacted(tmp_path).removed == 2
    assert place.names("stream=S/_temporary", deep=True) == []
    assert len(place.names("stream=S/date=2024-10-04")) == 1


def test_compact_stops_at_a_damaged_file(tmp_path: Path) -> None:
    small_files(tmp_path)
    place = Place(str(tmp_path))
    before = manifest.require(place, "S")
    path = Path(place.path(before.files[7].name))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ArchiveError, match="SHA-256"):
        compacted(tmp_path)
    assert manifest.require(place, "S") == before


def test_expire_takes_days_away_and_the_archiver_goes_on(tmp_path: Path) -> None:
    small_files(tmp_path)
    place = Place(str(tmp_path))
    result = expire(str(tmp_path), "S", "2024-10-06")
    assert (result.files, result.rows, result.first, result.last) == (10, 200, 211, 315)
    assert all(file.date == "2024-10-06" for file in manifest.require(place, "S").files)
    assert place.names("stream=S/date=2024-10-04") == []
    with pytest.raises(DataLossError):
        seqs(tmp_path)
    assert len(seqs(tmp_path, first=211)) == 100
    result = expire(str(tmp_path), "S", "2030-01-01")
    assert (result.files, result.first, result.last) == (5, 316, 315)
    longer = add(place, manifest.require(place, "S"), [Row(316, NOON)], 316)
    assert manifest.load(place, "S") == longer


def test_the_only_stream_need_not_be_named(tmp_path: Path) -> None:
    for name in ("compact", "expire"):
        root = tmp_path / name
        place = Place(str(root))
        archive = new_archive(place)
        for day in range(3):
            archive = add(place, archive, [Row(day + 1, NOON + day * DAY_NS)], day + 1)
        words = ["--before", "2024-10-05"] if name == "expire" else []
        code, out, err = done(job(name, str(root), *words))
        assert (code, err) == (0, "") and out.startswith("S: ")
        new_archive(place, "T")
        add(place, new_archive(place, "T"), [Row(1, NOON, "T.a")], 1)
        code, _, err = done(job(name, str(root), *words))
        assert code == 2 and "'stream' is missing: archived are S, T" in err


def test_the_commands(tmp_path: Path) -> None:
    small_files(tmp_path)
    words = (str(tmp_path), "--stream", "S")
    code, out, err = done(job("compact", *words))
    assert (code, err) == (0, "") and "15 files became 3" in out
    code, out, err = done(job("expire", *words, "--before", "2024-10-05", "--json"))
    assert (code, err) == (0, "") and json.loads(out)["rows"] == 100
    code, out, err = done(job("expire", *words, "--before", "yesterday"))
    assert (code, out) == (2, "") and "no day such as" in err
