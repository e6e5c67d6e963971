"""What one start showed, the next one shows, of directories as a kill leaves them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore

LIMITS: Any = {"max_bytes": 100_000, "trim": False, "commit": "manual"}
"""Blocks of 32,000 bytes: three messages of 9,000 fit into one."""
SEQUENCES = 6
"""Damage of the kind that a start tells where it leaves sequences out."""


def messages(directory: Path, count: int) -> PyStore:
    directory.mkdir(exist_ok=True)
    s = PyStore(directory, **LIMITS)
    for i in range(1, count + 1):
        assert s.append("k", b"%d:" % i + b"v" * 9000) == i
        s.commit()
    return s


def starts_show(directory: Path, last: int, live: list[int], places: int = 0) -> None:
    """Each of them shows that, and is killed."""
    for _ in range(3):
        s = PyStore(directory, **LIMITS)
        there = [q for q in range(1, last + 1) if s.next((), q) == q]
        assert (s.state()["last_seq"], there) == (last, live)
        assert len(s.lost()["places"]) == places, s.lost()
        s.abandon()


def compact(s: PyStore, directory: Path) -> None:
    """And is killed before there are sidecars."""
    for _ in range(3):
        s.upkeep()
    s.abandon()
    for side in directory.glob("msgs/*.jsx"):
        side.unlink()


def without_its_end(s: PyStore, directory: Path) -> PyStore:
    """Of six messages in two blocks the last two are removed; a kill leaves the next block's file
    empty. The store after a start."""
    s.remove(5)
    s.remove(6)
    s.commit()
    s.abandon()
    (directory / "msgs" / "3.blk").write_bytes(b"")
    return PyStore(directory, **LIMITS)


@pytest.mark.parametrize("size", [0, 4096])
def test_an_empty_file_behind_a_block_with_a_damaged_end(tmp_path: Path, size: int) -> None:
    """How many messages its bytes held is as unknown with that file as without it."""
    s = messages(tmp_path / "S", 3)
    s.abandon()
    (tmp_path / "S" / "sequence.jsr").unlink()  # the power went before there was an ack
    block = tmp_path / "S" / "msgs" / "1.blk"
    data = block.read_bytes()
    at = data.index(b"3:vv")
    block.write_bytes(data[: at - 30] + b"\1" * 500)
    starts_show(tmp_path / "S", last=2, live=[1, 2], places=1)
    (tmp_path / "S" / "msgs" / "2.blk").write_bytes(bytes(size))
    starts_show(tmp_path / "S", last=2, live=[1, 2], places=1)


def test_an_erasure_that_a_kill_broke_off(tmp_path: Path) -> None:
    """Its message is removed by a later block: nothing is damaged, and nobody misses anything."""
    s = messages(tmp_path / "S", 4)
    block = tmp_path / "S" / "msgs" / "1.blk"
    before = block.read_bytes()
    s.remove(2, erase=True)
    s.commit()
    s.abandon()
    after = block.read_bytes()
    assert b"2:vvv" in before and b"2:vvv" not in after
    cut = 12_288  # two pages of it are written
    block.write_bytes(after[:cut] + before[cut:])
    starts_show(tmp_path / "S", last=4, live=[1, 3, 4])


def test_a_message_that_is_erased_in_part_and_not_removed_is_damaged(tmp_path: Path) -> None:
    s = messages(tmp_path / "S", 4)
    block = tmp_path / "S" / "msgs" / "1.blk"
    before = block.read_bytes()
    shutil.copy(tmp_path / "S" / "msgs" / "2.blk", tmp_path)
    s.remove(2, erase=True)
    s.commit()
    s.abandon()
    block.write_bytes(block.read_bytes()[:12_288] + before[12_288:])
    shutil.copy(tmp_path / "2.blk", tmp_path / "S" / "msgs")  # without the tombstone
    s = PyStore(tmp_path / "S", **LIMITS)
    assert s.lost()["msgs"] == [2]
    assert len(s.lost()["places"]) == 1
    s.abandon()


def test_the_last_block_with_bytes_is_not_compacted(tmp_path: Path) -> None:
    """A kill left the next one's file empty. Only the messages that are removed say how far
    sequences went."""
    messages(tmp_path / "S", 6).abandon()
    s = without_its_end(PyStore(tmp_path / "S", **LIMITS), tmp_path / "S")
    compact(s, tmp_path / "S")
    starts_show(tmp_path / "S", last=6, live=[1, 2, 3, 4])


def test_sequences_of_a_block_that_left_are_not_missed(tmp_path: Path) -> None:
    """Behind it only tombstones came, whose marker says how far sequences went."""
    s = without_its_end(messages(tmp_path / "S", 6), tmp_path / "S")
    s.remove(4)
    s.commit()
    compact(s, tmp_path / "S")
    assert not (tmp_path / "S" / "msgs" / "2.blk").exists()
    starts_show(tmp_path / "S", last=6, live=[1, 2, 3])


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("end", [b"", bytes(512) + b"\1" * 512])
def test_sequences_that_a_start_left_out_are_told_by_that_start_alone(
    tmp_path: Path, end: bytes, stops: bool
) -> None:
    """Also where a start between finds no damage, because it has a checkpoint, and is killed after
    it removed that."""
    s = messages(tmp_path / "S", 6)
    s.abandon()
    (tmp_path / "S" / "msgs" / "2.blk").write_bytes(end)
    s = PyStore(tmp_path / "S", **LIMITS)
    last = s.state()["last_seq"]
    assert last > 4096
    assert [place for place in s.lost()["places"] if place[0] == SEQUENCES]
    if stops:
        s.close()
        (tmp_path / "S" / "msgs" / "checkpoint.jss").unlink()
    else:
        s.abandon()
    for _ in range(2):
        s = PyStore(tmp_path / "S", **LIMITS)
        assert s.state()["last_seq"] == last
        assert not [place for place in s.lost()["places"] if place[0] == SEQUENCES]
        s.abandon()


def test_a_start_goes_on_where_the_one_before_went_on_behind_a_damaged_end(tmp_path: Path) -> None:
    """How far the damaged block's sequences went says the group that was written behind it, though
    no message is in that one, and the block before is gone."""
    s = messages(tmp_path / "S", 6)
    for seq in (1, 2, 3):
        s.remove(seq)
    s.commit()
    s.abandon()
    (tmp_path / "S" / "msgs" / "1.blk").unlink(missing_ok=True)
    block = tmp_path / "S" / "msgs" / "2.blk"
    data = block.read_bytes()
    at = data.index(b"6:vv")
    block.write_bytes(data[: at - 30] + b"\1" * 500)
    s = PyStore(tmp_path / "S", **LIMITS)
    last = s.state()["last_seq"]
    assert last > 4096
    s.update(max_msgs=100)
    s.commit()
    s.abandon()
    assert (tmp_path / "S" / "msgs" / "3.blk").stat().st_size
    starts_show(tmp_path / "S", last=last, live=[4, 5], places=1)
