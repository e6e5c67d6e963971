"""Damaged files of a store that acks before it syncs: what a power cut may have done, and what it
cannot have."""

import time
from pathlib import Path
from typing import Literal

import pytest

from tests.cext.store import PyStore

TAIL = 5
"""The kind of damage: what was never finished."""
SECTOR = 512
MARKER_MAGIC = 0x314B524D534A534A.to_bytes(8, "little")
HOUR = 3600 * 10**9


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


def opened(
    directory: Path, interval: int = HOUR, commit: Literal["thread", "manual"] = "manual"
) -> PyStore:
    return PyStore(directory, commit=commit, max_msgs=60, sync_interval=interval)


def filled(directory: Path, count: int, size: int = 900) -> None:
    """Killed after so many messages, each in a group of its own; nothing was synced."""
    s = opened(directory)
    for i in range(1, count + 1):
        s.append("s.1", b"m%d." % i + b"x" * size)
        s.commit()
    s.abandon()


def there(s: PyStore) -> list[int]:
    found = []
    for seq in range(1, s.state()["last_seq"] + 1):
        try:
            s.load(seq)
        except KeyError:
            continue
        found.append(seq)
    assert len(found) == s.state()["msgs"]
    return found


def block(directory: Path, number: int) -> Path:
    return directory / "msgs" / f"{number}.blk"


def lose_sector(path: Path, text: bytes) -> None:
    """The first that begins behind these bytes."""
    content = bytearray(path.read_bytes())
    at = (content.index(text) // SECTOR + 1) * SECTOR
    content[at : at + SECTOR] = bytes(SECTOR)
    path.write_bytes(content)


def vouched(path: Path) -> int:
    """Up to where the last marker says that the block was synced."""
    content = path.read_bytes()
    at = content.rindex(MARKER_MAGIC)
    return int.from_bytes(content[at + 24 : at + 32], "little")


def test_what_stands_behind_a_hole_goes_where_nothing_was_synced(directory: Path) -> None:
    filled(directory, 20)
    lose_sector(block(directory, 1), b"m8.")
    s = opened(directory)
    assert there(s) == [1, 2, 3, 4, 5, 6, 7]
    assert (s.lost()["msgs"], [place[0] for place in s.lost()["places"]]) == ([], [TAIL])
    assert b"m9." in (directory / "msgs" / "damaged-1.tail").read_bytes()
    s.append("s.1", b"again")
    s.commit()
    s.abandon()
    s = opened(directory)
    assert (there(s), s.lost()["damage"]) == ([1, 2, 3, 4, 5, 6, 7, 8], 0)
    s.close()


def test_the_blocks_behind_a_hole_go_too(directory: Path) -> None:
    filled(directory, 30, 5000)
    lose_sector(block(directory, 2), b"m9.")
    s = opened(directory)
    assert there(s) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert b"m30." in (directory / "msgs" / "damaged-5.tail").read_bytes()
    s.append("s.1", b"again")
    s.commit()
    s.upkeep()
    s.close()
    s = opened(directory)
    assert (there(s), s.lost()["msgs"]) == (list(range(1, 10)), [])
    s.close()


@pytest.mark.parametrize("groups", [1, 3])
def test_the_blocks_behind_one_that_lacks_its_end_go(directory: Path, groups: int) -> None:
    filled(directory, 30, 5000)
    path = block(directory, 2)
    content = path.read_bytes()
    ends = [at + 82 for at in range(len(content)) if content.startswith(MARKER_MAGIC, at)]
    path.write_bytes(content[: ends[-groups - 2]])  # the last one closes the block
    s = opened(directory)
    left = there(s)
    assert 6 < len(left) <= 12 - groups
    assert left == list(range(1, len(left) + 1))
    assert s.lost()["msgs"] == []
    s.close()


def test_a_block_that_lacks_the_marker_that_closes_it_is_whole(directory: Path) -> None:
    filled(directory, 30, 5000)
    path = block(directory, 2)
    path.write_bytes(path.read_bytes()[:-104])
    s = opened(directory)
    assert (there(s), s.lost()["damage"]) == (list(range(1, 31)), 0)
    s.close()


def test_a_block_of_which_nothing_is_there_ends_the_stream(directory: Path) -> None:
    filled(directory, 30, 5000)
    path = block(directory, 2)
    path.write_bytes(bytes(path.stat().st_size))
    s = opened(directory)
    assert there(s) == [1, 2, 3, 4, 5, 6]
    assert s.lost()["msgs"] == []
    s.append("s.1", b"again")
    s.commit()
    left = there(s)
    s.abandon()
    s = opened(directory)
    assert (there(s), s.lost()["damage"]) == (left, 0)
    s.close()


def test_a_hole_in_what_a_marker_vouches_for_costs_what_it_held(directory: Path) -> None:
    s = opened(directory, 10**8, "thread")
    for i in range(1, 21):
        s.append("s.1", b"m%d." % i + b"x" * 900)
        s.wait_durable()
    path = block(directory, 1)
    size = path.read_bytes().index(b"m20.")
    end = time.monotonic() + 20
    while vouched(path) < size and time.monotonic() < end:
        time.sleep(0.02)
    assert vouched(path) >= size
    s.abandon()
    lose_sector(path, b"m8.")
    s = opened(directory)
    left = there(s)
    assert set(range(1, 21)) - set(left) == set(s.lost()["msgs"]) != set()
    assert 8 not in left and left[-1] == 20
    s.abandon()


def test_a_changed_bit_is_no_hole(directory: Path) -> None:
    filled(directory, 20)
    path = block(directory, 1)
    content = bytearray(path.read_bytes())
    content[content.index(b"m8.")] ^= 1
    path.write_bytes(content)
    s = opened(directory)
    assert s.lost()["msgs"] == [8]
    assert there(s) == [seq for seq in range(1, 21) if seq != 8]
    s.abandon()


def test_a_block_that_left_says_that_all_before_it_was_synced(directory: Path) -> None:
    filled(directory, 30, 5000)
    lose_sector(block(directory, 1), b"m2.")
    block(directory, 3).unlink()
    s = opened(directory)
    assert 2 not in there(s)
    assert there(s)[-1] == 30
    s.abandon()
