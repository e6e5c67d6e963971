"""Blocks decoded into rows: what counts as a message, bounds, full batches, damage."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver_spark.cext.columns import (
    WALK_BAD,
    WALK_DONE,
    WALK_FULL,
    BlockReader,
    Buffer,
    Plain,
    Rows,
    Wanted,
)
from pipeline.tests.unit.blocks import plain
from tests.unit.records import (
    ERASED,
    TOMB,
    erased,
    key,
    marker,
    record,
    runs,
    short_marker,
    tombstone,
)

TTL = b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n"
SECOND = 1_000_000_000


def rows(max_rows: int = 1000) -> Rows:
    return Rows(["seq", "data"], "S", max_rows, 1 << 20)


def part(of_column: Buffer | int | None) -> Buffer:
    assert isinstance(of_column, Buffer)
    return of_column


def seqs(batch: Rows) -> list[int]:
    n, buffers = batch.take()
    found = memoryview(part(buffers["seq"][0])).cast("q").tolist() if n else []
    assert len(found) == n
    return found


def read(block: Plain, gone: bytes = b"", **wanted: Any) -> list[int]:
    batch = rows()
    reader = BlockReader(block, key(), Wanted(**wanted), gone)
    assert reader.fill(batch) == WALK_DONE
    return seqs(batch)


def test_only_messages_are_rows() -> None:
    block = plain(
        short_marker(),
        record(1),
        tombstone(1),
        record(2, b"k.two", b"payload", header=b"NATS/1.0\r\nA: b\r\n\r\n"),
        erased(3, 77),
        marker(),
        record(5),
        record(5, data=b"again"),
        record(4, data=b"out of order"),
        record(0),
        record(9 | TOMB | ERASED, b""),
        record(10),
    )
    assert read(block) == [1, 2, 5, 10]


def test_vectors_of_the_format() -> None:
    """Written by nats-server 2.14.5 for stream S1."""
    message = "27000000010000000000000000002a36fe9c9717040073312e6168656c6c6f98a64c71c674b6e6"
    headed = (
        "3d000080020000000000000001002a36fe9c9717040073312e61120000004e4154532f312e300d0a413a2062"
        "0d0a0d0a68656c6c6f510ec0b65d9163fc"
    )
    tomb = "1e000000010000000000004000002a36fe9c97170000f62badd92e603ddb"
    from jsserver_spark.cext.columns import block_key

    block = plain(*map(bytes.fromhex, (message, headed, tomb)))
    batch = Rows(["subject", "seq", "headers_raw", "data"], "S1", 10, 1 << 20)
    reader = BlockReader(block, block_key("S1-1"), Wanted())
    assert reader.fill(batch) == WALK_DONE
    n, buffers = batch.take()
    assert n == 2
    assert bytes(part(buffers["subject"][1])) == b"s1.as1.a"
    assert bytes(part(buffers["data"][1])) == b"hellohello"
    assert bytes(part(buffers["headers_raw"][2])) == b"NATS/1.0\r\nA: b\r\n\r\n"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"first": 2, "last": 4}, [2, 3, 4]),
        ({"min_ts": 2_000_000, "max_ts": 3_999_999}, [2, 3]),
        ({"subjects": ["k.even"]}, [2, 4]),
        ({"subjects": ["*.odd", "k.even"]}, [1, 2, 3, 4, 5]),
        ({"subjects": ["other.>"]}, []),
        ({"first": 6}, []),
    ],
)
def test_bounds(wanted: dict[str, Any], found: list[int]) -> None:
    block = plain(*(record(i, b"k.even" if i % 2 == 0 else b"k.odd") for i in range(1, 6)))
    assert read(block, **wanted) == found


def test_deleted_runs() -> None:
    block = plain(*(record(i) for i in range(1, 11)))
    assert read(block, runs((1, 2), (4, 4), (7, 9), (50, 60))) == [3, 5, 6, 10]
    assert read(block, runs((1, 100))) == []


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [(b"5", 5), (b"2s", 2), (b"1m30s", 90), (b"1.5h", 5400), (b"1500ms", 1.5), (b"1h0m0s", 3600)],
)
def test_lives_of_messages(ttl: bytes, seconds: float) -> None:
    block = plain(record(1, ts=SECOND, header=TTL % ttl))
    end = SECOND + int(seconds * SECOND)
    assert read(block) == [1]
    assert read(block, ttl_now=end - 1) == [1]
    assert read(block, ttl_now=end) == []


@pytest.mark.parametrize("ttl", [b"never", b"", b"s", b"5x", b"1.2.3s", b"-4", b"0"])
def test_lives_without_end(ttl: bytes) -> None:
    assert read(plain(record(1, header=TTL % ttl)), ttl_now=1 << 62) == [1]


def test_full_batches_are_taken_and_filled_again() -> None:
    block = plain(*(record(i, data=b"x" * i) for i in range(1, 11)))
    batch = rows(4)
    reader = BlockReader(block, key(), Wanted())
    found = []
    while reader.fill(batch) == WALK_FULL:
        found.append(seqs(batch))
    found.append(seqs(batch))
    assert found == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_damage_is_found_and_passed_over() -> None:
    parts = [record(i, b"k", b"d" * i) for i in range(1, 6)]
    bad = bytearray(parts[2])
    bad[25] ^= 1
    block = plain(parts[0], parts[1], bytes(bad), *parts[3:], b"\0" * 100)
    batch = rows()
    reader = BlockReader(block, key(), Wanted())
    assert reader.fill(batch) == WALK_BAD
    assert (reader.offset, reader.last_seq) == (len(parts[0] + parts[1]), 2)
    assert reader.skip() == len(bad)
    assert reader.fill(batch) == WALK_BAD
    assert reader.skip() == 100
    assert reader.fill(batch) == WALK_DONE
    assert seqs(batch) == [1, 2, 4, 5]


def test_another_blocks_records_do_not_count() -> None:
    reader = BlockReader(plain(record(1, block=2)), key(1), Wanted())
    assert reader.fill(rows()) == WALK_BAD


WHOLE = b"".join(record(i, b"k.%d" % i, b"d" * (i * 7 % 90)) for i in range(1, 20))


@given(st.integers(0, len(WHOLE)), st.lists(st.integers(0, len(WHOLE) * 8 - 1), max_size=3))
@settings(max_examples=200)
def test_nothing_damaged_harms(cut: int, flips: list[int]) -> None:
    """What is found are true messages, in order."""
    code = bytearray(WHOLE[:cut])
    for bit in flips:
        if bit // 8 < len(code):
            code[bit // 8] ^= 1 << bit % 8
    batch = rows()
    reader = BlockReader(plain(bytes(code)), key(), Wanted())
    while reader.fill(batch) == WALK_BAD:
        assert reader.skip() > 0
    found = seqs(batch)
    assert found == sorted(set(found))
    assert set(found) <= set(range(1, 20))
    assert len(found) >= max(0, WHOLE[:cut].count(b"k.") - 1 - len(flips) * 2)


def test_random_bytes() -> None:
    reader = BlockReader(plain(random.Random(1).randbytes(100_000)), key(), Wanted())
    batch = rows()
    assert reader.fill(batch) == WALK_BAD
    assert reader.skip() == 100_000
    assert reader.fill(batch) == WALK_DONE
    assert len(batch) == 0


@pytest.mark.parametrize(("k", "gone"), [(b"short", b""), (bytes(32), b"123")])
def test_what_is_no_key_or_run(k: bytes, gone: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        BlockReader(plain(), k, Wanted(), gone)
