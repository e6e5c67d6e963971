"""The format nats-store on stores written by hand: places, bounds, damage, losses, filters."""

import logging
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from jsserver_spark.errors import DataLossError, NatsError, OptionError
from jsserver_spark.files.source import StoreSource, plan, read_split
from jsserver_spark.schema import table_of
from pipeline.tests.store_world import options, read, state_of, write_stream
from tests.unit.records import erased, record, tombstone

MILLI = 1_000_000


def block(number: int, *seqs: int) -> bytes:
    return b"".join(
        record(seq, b"k.%d" % (seq % 3), b"data %d" % seq, block=number) for seq in seqs
    )


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Ten messages, one of them deleted, in three blocks; the message of sequence n is n ms old."""
    blocks = {
        1: block(1, 1, 2, 3, 4),
        3: block(3, 5, 6, 7),
        4: tombstone(2, block=4) + block(4, 8, 9, 10),
    }
    return write_stream(tmp_path / "jetstream" / "$G" / "streams" / "S", blocks)


def seqs(path: Path, **more: str) -> list[int]:
    return sorted(read(options(path, **more))[0])


ALL = [1, 3, 4, 5, 6, 7, 8, 9, 10]


# ---- where it lies -----------------------------------------------------------------------------


def test_every_path_that_leads_there(stream: Path) -> None:
    account = stream.parents[1]
    for path in (stream, account, account.parent, account.parents[1]):
        assert seqs(path) == ALL
        assert seqs(path, stream="S") == ALL
        assert seqs(Path(f"file:{path}"), stream="S") == ALL


@pytest.mark.parametrize(
    ("path", "more", "text"),
    [
        ("nowhere", {}, "option 'path': there is no"),
        ("jetstream/$G/streams/S/msgs", {}, "no store directory, no stream's directory"),
        (".", {"stream": "T"}, "option 'stream' is 'T'; .* has the streams S"),
        (".", {"account": "A"}, r"option 'account' is 'A'; .* has the accounts \$G, B"),
        ("jetstream/$G/streams/S", {"stream": "T"}, "option 'stream' is 'T', but"),
        ("jetstream/B", {}, "option 'stream' is missing; .* has the streams S, U"),
    ],
)
def test_what_is_not_there(stream: Path, tmp_path: Path, path: str, more: dict, text: str) -> None:
    for name in ("S", "U"):
        shutil.copytree(stream, tmp_path / "jetstream" / "B" / "streams" / name)
    with pytest.raises(OptionError, match=text):
        plan(options(tmp_path / path, **more))


def test_paths_that_are_no_files() -> None:
    with pytest.raises(OptionError, match="files are opened directly"):
        plan(options(Path("s3://bucket/store")))
    with pytest.raises(OptionError, match="option 'path' is missing"):
        StoreSource({}).schema()


def test_a_configuration_that_does_not_fit(stream: Path) -> None:
    (stream / "meta.sum").write_text("0123456789abcdef")
    with pytest.raises(NatsError, match=r"meta\.sum is not the checksum .* mode=PERMISSIVE"):
        plan(options(stream))
    assert seqs(stream, mode="PERMISSIVE") == ALL


def test_a_file_that_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "stream.tar.s2"
    path.write_bytes(b"no stream at all")
    with pytest.raises(NatsError, match="is damaged: no S2 or Snappy stream"):
        plan(options(tmp_path))


# ---- what is read ------------------------------------------------------------------------------


def test_rows_are_whole(stream: Path) -> None:
    found, planned = read(options(stream))
    assert found[7] == ("k.1", b"data 7")
    assert sorted(found) == ALL
    assert (planned.stream, planned.source, planned.tail_bytes_ignored) == ("S", "blocks", 0)


def test_nothing_is_changed(stream: Path) -> None:
    before = state_of(stream)
    seqs(stream)
    assert state_of(stream) == before


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, ALL),
        ({"startingOffsets": "4", "endingOffsets": "6"}, [4, 5]),
        ({"startingOffsets": '{"S": 9}'}, [9, 10]),
        ({"startingOffsets": '{"S": -2}', "endingOffsets": '{"S": -1}'}, ALL),
        ({"startingOffsets": "11"}, []),
        ({"startingTimestamp": "1970-01-01T00:00:00.009Z"}, [9, 10]),
        ({"startingTimestamp": "1970-01-01T00:00:00.008000001"}, [9, 10]),
        ({"startingTimestamp": "1970-01-01T01:00:00.008000000+01:00"}, [8, 9, 10]),
        ({"startingTimestamp": "3", "endingTimestamp": "5"}, [3, 4]),
        ({"filterSubjects": "k.1"}, [1, 4, 7, 10]),
        ({"filterSubjects": "k.1,*.2"}, [1, 4, 5, 7, 8, 10]),
        ({"filterSubjects": "other.>"}, []),
        ({"splitBytes": "65536", "minPartitions": "3"}, ALL),
    ],
)
def test_bounds(stream: Path, more: dict, found: list[int]) -> None:
    assert seqs(stream, **more) == found


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"startingOffsets": "x"}, "option 'startingOffsets' is 'x': must be earliest, latest"),
        ({"endingOffsets": '{"T": 9}'}, "'S' is missing"),
        ({"startingOffsets": "latest"}, "must not be 'latest'"),
        ({"endingOffsets": '{"S": -2}'}, "must not be 'earliest'"),
        ({"startingTimestamp": "soon"}, "option 'startingTimestamp' is 'soon'"),
        ({"startingOfsets": "1"}, "did you mean 'startingOffsets'"),
    ],
)
def test_bounds_that_are_none(stream: Path, more: dict, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        plan(options(stream, **more))


def test_splits_are_whole_blocks(stream: Path) -> None:
    assert len(plan(options(stream)).splits) == 1
    each = plan(options(stream, minPartitions="3")).splits
    assert [[part.number for part in split.blocks] for split in each] == [[1], [3], [4]]
    pruned = plan(options(stream, startingOffsets="6")).splits
    assert [[part.number for part in split.blocks] for split in pruned] == [[3, 4]]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"schemaMode": "kafka", "includeHeaders": "true"},
        {"includeHeaders": "true", "headersFormat": "raw", "includeNanos": "true"},
        {"includeData": "false", "partitionToken": "2"},
    ],
)
def test_batches_are_what_the_schema_says(stream: Path, more: dict) -> None:
    chosen = options(stream, batchRows="4", **{"columns": "", **more})
    (split,) = plan(chosen).splits
    batches = list(read_split(chosen, split))
    assert [batch.num_rows for batch in batches] == [4, 4, 1]
    for batch in batches:
        assert batch.schema.equals(table_of(chosen).arrow_schema())
        batch.validate(full=True)


def test_max_age_counts_now(tmp_path: Path) -> None:
    import time

    now = time.time_ns()
    hour = 3600 * 1_000_000_000
    code = record(1, ts=now - 2 * hour) + record(2, ts=now - hour // 2)
    stream = write_stream(tmp_path / "S", {1: code}, max_age=hour)
    assert seqs(stream) == [2]


def test_an_empty_stream(tmp_path: Path) -> None:
    assert plan(options(write_stream(tmp_path / "S", {}))).splits == []
    assert plan(options(write_stream(tmp_path / "T" / "S", {1: b""}))).splits == []


# ---- purges that were interrupted --------------------------------------------------------------


def test_a_purge_whose_block_was_moved(stream: Path) -> None:
    fresh = stream / "__new_msgs__"
    fresh.mkdir()
    (fresh / "9.blk").write_bytes(tombstone(10, block=9) + block(9, 11))
    before = state_of(stream)
    assert seqs(stream) == [11]
    assert state_of(stream) == before


def test_a_purge_whose_key_alone_was_moved(stream: Path) -> None:
    fresh = stream / "__new_msgs__"
    fresh.mkdir()
    (fresh / "9.key").write_bytes(b"")
    (stream / "msgs" / "9.blk").write_bytes(tombstone(10, block=9) + block(9, 11))
    assert seqs(stream) == ALL


def test_a_purge_that_is_nearly_done(stream: Path) -> None:
    shutil.copytree(stream / "msgs", stream / "__msgs__")
    for name in ("3.blk", "4.blk"):
        (stream / "msgs" / name).unlink()
    assert seqs(stream) == [1, 2, 3, 4]


# ---- damage and losses -------------------------------------------------------------------------


def test_the_growing_end_is_left_out(stream: Path) -> None:
    path = stream / "msgs" / "4.blk"
    whole = path.read_bytes()
    for tail in (block(4, 11)[:-1], b"\x01" * 40, block(4, 11)[:10]):
        path.write_bytes(whole + tail)
        found, planned = read(options(stream))
        assert sorted(found) == ALL
        assert planned.tail_bytes_ignored == len(tail)
    path.write_bytes(whole + bytes(5000))
    assert read(options(stream))[1].tail_bytes_ignored == 0


def test_what_came_after_planning_is_not_read(stream: Path) -> None:
    chosen = options(stream)
    (split,) = plan(chosen).splits
    path = stream / "msgs" / "4.blk"
    path.write_bytes(path.read_bytes() + block(4, 11) + b"torn")
    assert sum(batch.num_rows for batch in read_split(chosen, split)) == len(ALL)


@pytest.mark.parametrize("number", [1, 4])
def test_damage_inside(stream: Path, number: int, caplog: pytest.LogCaptureFixture) -> None:
    path = stream / "msgs" / f"{number}.blk"
    code = bytearray(path.read_bytes())
    at = code.index(b"data 3" if number == 1 else b"data 9")
    code[at] ^= 1
    path.write_bytes(code)
    with pytest.raises(NatsError, match=rf"{number}\.blk is damaged at offset \d+: .*PERMISSIVE"):
        plan(options(stream))
    with caplog.at_level(logging.WARNING, "jsserver_spark.store"):
        found = seqs(stream, mode="PERMISSIVE")
    assert found == [seq for seq in ALL if seq != (3 if number == 1 else 9)]
    assert f"{number}.blk: " in caplog.text
    assert "are lost" in caplog.text


def test_damage_after_planning(stream: Path) -> None:
    chosen = options(stream)
    (split,) = plan(chosen).splits
    path = stream / "msgs" / "3.blk"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NatsError, match=r"3\.blk is damaged at offset"):
        list(read_split(chosen, split))


def test_a_compressed_block_that_is_damaged(stream: Path) -> None:
    (stream / "msgs" / "3.blk").write_bytes(b"cmp\x01\x10garbage and more of it")
    with pytest.raises(NatsError, match=r"3\.blk is damaged at offset 0: no S2"):
        plan(options(stream))
    assert seqs(stream, mode="PERMISSIVE") == [1, 3, 4, 8, 9, 10]


def test_a_block_that_is_gone(stream: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = options(stream)
    (split,) = plan(chosen).splits
    (stream / "msgs" / "3.blk").unlink()
    with pytest.raises(DataLossError, match=r"3\.blk is gone.*failOnDataLoss=false"):
        list(read_split(chosen, split))
    chosen = options(stream, failOnDataLoss="false")
    rows = [row for batch in read_split(chosen, split) for row in batch["seq"].to_pylist()]
    assert rows == [1, 3, 4, 8, 9, 10]
    assert "3.blk is gone" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_block_that_may_not_be_read(stream: Path) -> None:
    (stream / "msgs" / "3.blk").chmod(0)
    with pytest.raises(NatsError, match=r"3\.blk: Permission denied"):
        plan(options(stream))


def test_erased_messages(tmp_path: Path) -> None:
    code = block(1, 1) + erased(2, 60) + block(1, 3) + tombstone(2)
    assert seqs(write_stream(tmp_path / "S", {1: code})) == [1, 3]


def test_another_table(stream: Path) -> None:
    """Archives ask for columns that options do not name."""
    chosen = options(stream)
    table = table_of(options(stream, columns="seq,headers", headersFormat="raw"))
    (split,) = plan(chosen).splits
    batch = pa.Table.from_batches(read_split(chosen, split, table))
    assert batch.column_names == ["seq", "headers"]
    assert batch["seq"].to_pylist() == ALL
