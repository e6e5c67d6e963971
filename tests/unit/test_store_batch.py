"""Batches: changes that are on disk as a whole or not at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore

BATCH = 8
"""The kind of damage: a batch that was never finished."""
MARKER = 104
LAZY = 120 * 10**9
Rows = list[tuple[str, bytes]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


def rows(n: int, size: int, word: bytes) -> Rows:
    return [(f"s.{i % 3}", word + b"%d" % i + b"." * size) for i in range(n)]


def contents(s: PyStore) -> dict[int, tuple[str, bytes]]:
    state = s.state()
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        try:
            _, _, subject, _, data = s.load(seq)
        except KeyError:
            continue
        found[seq] = (subject, data)
    assert len(found) == state["msgs"]
    return found


def opened(directory: Path, **given: Any) -> PyStore:
    return PyStore(directory, commit="manual", max_msgs=60, **given)  # blocks of 32,000 bytes


def lengths(size: int) -> Iterator[int]:
    """Where a kill may have ended a write: everywhere near the ends, and now and then between."""
    for at in range(size):
        if at % 997 == 0 or (size - at < 220 and at % 9 == 0) or (at < 700 and at % 17 == 0):
            yield at


@pytest.mark.parametrize("interval", [0, LAZY])
@pytest.mark.parametrize("many", [3, 12, 50])
def test_what_a_kill_leaves_of_a_batch_goes(directory: Path, many: int, interval: int) -> None:
    s = opened(directory, sync_interval=interval)
    for i in range(4):
        s.append("s.9", b"old%d" % i)
    s.commit()
    before = contents(s)
    s.batch(rows(many, 1500, b"new"), remove=[2])
    after = contents(s)
    s.commit()
    files = sorted((directory / "msgs").glob("*.blk"), key=lambda f: int(f.stem))
    whole = [f.read_bytes() for f in files]
    whole[:-1] = [content[:-MARKER] for content in whole[:-1]]  # it closes a block behind the sync
    s.abandon()
    start = whole[0].index(b"new0") - 25
    for k, content in enumerate(whole):
        for size in lengths(len(content.rstrip(b"\0"))):
            if k == 0 and size < start:
                continue
            for f, then in zip(files, whole, strict=True):
                f.write_bytes(then)
            files[k].write_bytes(content[:size])
            for f in files[k + 1 :]:
                f.unlink()
            s = opened(directory, sync_interval=interval)
            assert contents(s) == before, (k, size)
            lost = s.lost()
            assert lost["msgs"] == []
            assert size == start or BATCH in [place[0] for place in lost["places"]]
            s.abandon()
            s = opened(directory, sync_interval=interval)  # nothing is left to do
            assert (contents(s), s.lost()["damage"]) == (before, 0)
            s.abandon()
    for f, then in zip(files, whole, strict=True):
        f.write_bytes(then)
    s = opened(directory, sync_interval=interval)
    assert (contents(s), s.lost()["damage"]) == (after, 0)
    s.close()


@pytest.mark.parametrize("interval", [0, LAZY])
def test_what_stays_of_it_is_kept_aside(directory: Path, interval: int) -> None:
    s = opened(directory, sync_interval=interval)
    s.append("s.1", b"old")
    s.batch(rows(12, 3000, b"new"))
    s.commit()
    s.abandon()
    first, last = directory / "msgs" / "1.blk", directory / "msgs" / "2.blk"
    first.write_bytes(first.read_bytes()[:-MARKER])
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-200])
    s = opened(directory, sync_interval=interval)
    assert [data for _, data in contents(s).values()] == [b"old"]
    assert b"new3" in (directory / "msgs" / "damaged-1.tail").read_bytes()
    assert b"new11" in (directory / "msgs" / "damaged-2.tail").read_bytes()
    s.batch(rows(12, 3000, b"again"))
    s.commit()
    again = contents(s)
    s.close()
    s = opened(directory, sync_interval=interval)
    assert contents(s) == again and len(again) == 13
    s.close()


@pytest.mark.parametrize("interval", [0, LAZY])
def test_a_batch_that_others_follow_is_damaged_as_anything_else(
    directory: Path, interval: int
) -> None:
    s = opened(directory, sync_interval=interval)
    s.batch(rows(5, 50, b"new"))
    s.commit()
    s.append("s.1", b"next")
    s.commit()
    s.abandon()
    block = directory / "msgs" / "1.blk"
    content = bytearray(block.read_bytes())
    content[content.index(b"new3")] ^= 1
    block.write_bytes(content)
    s = opened(directory, sync_interval=interval)
    assert list(contents(s)) == [1, 2, 3, 5, 6]
    assert s.lost()["msgs"] == [4]
    s.close()


def test_what_nats_server_has_served_of_a_batch_stays(directory: Path) -> None:
    s = opened(directory)
    s.append("s.1", b"old")
    s.commit()
    s.batch(rows(5, 50, b"new"))
    s.commit()
    s.abandon()
    block = directory / "msgs" / "1.blk"
    content = block.read_bytes()
    block.write_bytes(content[: content.index(b"new3") - 25])
    (directory / "msgs" / "index.db").write_bytes(b"its own")
    s = opened(directory)
    assert [data[:4] for _, data in contents(s).values()] == [b"old", b"new0", b"new1", b"new2"]
    s.close()


@pytest.mark.parametrize("interval", [0, LAZY])
@pytest.mark.parametrize("upkeep", [False, True])
def test_blocks_of_a_batch_may_leave_in_any_order(
    directory: Path, upkeep: bool, interval: int
) -> None:
    """The beginning that is left is not taken for a batch without its end."""
    s = opened(directory, sync_interval=interval, trim=False)
    s.append("s.9", b"old")
    s.batch(rows(30, 3000, b"new"))
    s.commit()
    s.batch(rows(30, 3000, b"newer"))
    s.commit()
    for seq in range(2, 62):
        if seq % 10 > 1:
            s.remove(seq)
            s.commit()
            if upkeep:
                s.upkeep()
    left = contents(s)
    s.abandon()
    for side in (directory / "msgs").glob("*.jsx"):
        side.unlink()
    s = opened(directory, sync_interval=interval, trim=False)
    assert contents(s) == left
    s.close()


@pytest.mark.parametrize("interval", [0, LAZY])
def test_a_batch_behind_a_purge_or_a_truncation_is_one(directory: Path, interval: int) -> None:
    s = opened(directory, sync_interval=interval)
    s.batch(rows(3, 50, b"a"))
    for change in ("purge", "truncate"):
        s.commit()
        if change == "purge":
            s.purge()
        else:
            s.truncate(s.state()["last_seq"] - 1)
        before = contents(s)
        s.batch(rows(3, 50, b"b"))
        s.commit()
        s.abandon()
        block = max((directory / "msgs").glob("*.blk"), key=lambda f: int(f.stem))
        content = block.read_bytes()
        block.write_bytes(content[: content.index(b"b2")])
        s = opened(directory, sync_interval=interval)
        assert contents(s) == before
        s.batch(rows(3, 50, b"c"))
    s.close()


def test_in_memory(directory: Path) -> None:
    s = PyStore(None, max_msgs_per=2)
    s.append("s.0", b"old")
    s.batch(rows(7, 10, b"new"), remove=[3])
    assert list(contents(s)) == [4, 5, 6, 7, 8]
    s.close()


def test_a_store_that_is_removed_meanwhile(directory: Path) -> None:
    s = opened(directory)
    s.batch(rows(40, 3000, b"new"))
    s.close(remove=True)
    s = opened(directory)
    assert contents(s) == {}
    s.close()
