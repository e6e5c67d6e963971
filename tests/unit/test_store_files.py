"""The files of a store: which are there, and how long they are."""

from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


@pytest.mark.timeout(60)
@pytest.mark.parametrize("purged", [False, True])
def test_a_block_that_leaves_takes_its_sidecar_along(directory: Path, purged: bool) -> None:
    """Also one that leaves while the sidecar is written, which would tell of a loss."""
    s = PyStore(directory, max_bytes=64_000 if purged else 20_000, commit="thread")
    for i in range(6000):
        s.append("a", b"x" * 500)
        if i % 25 == 24:
            s.wait_durable()
        if purged and i % 75 == 74:
            s.purge()
    s.wait_durable()
    s.abandon()
    s = PyStore(directory, max_bytes=64_000 if purged else 20_000, commit="manual")
    assert s.lost()["damage"] == 0
    s.close()


def test_zeros_that_a_kill_leaves_do_not_keep_a_block_from_being_compacted(directory: Path) -> None:
    """A start after a kill may seal the last block; it then ends where its records do."""
    limits: dict[str, Any] = {"max_bytes": 120_000, "trim": False, "commit": "manual"}
    s = PyStore(directory, **limits)
    block = directory / "msgs" / "2.blk"
    while not block.exists() or block.stat().st_size < 31_000:
        s.append(f"a{s.state()['last_seq']}", b"x" * 100)
        s.commit()
    last = s.state()["last_seq"]
    s.abandon()
    block.write_bytes(block.read_bytes().ljust(36_864, b"\0"))
    s = PyStore(directory, **limits)
    assert not block.read_bytes().endswith(bytes(100))
    s.append("later", b"x" * 1000)
    for q in range(last - 50, last):
        s.remove(q)
    s.commit()
    s.upkeep()
    assert block.stat().st_size < 31_000 * 2 // 3
    assert s.load(last)[2] == f"a{last - 1}"
    s.close()


def test_two_damaged_messages_side_by_side_cost_two(directory: Path) -> None:
    """The search for the bit that changed, in vain here, leaves time to find the next message."""
    s = PyStore(directory, commit="manual")
    for i in range(1, 31):
        s.append("a", b"m%02d " % i + b"x" * 3000)
    s.commit()
    s.abandon()
    block = directory / "msgs" / "1.blk"
    data = bytearray(block.read_bytes())
    for mark in (b"m05 ", b"m06 "):
        at = data.index(mark)
        data[at + 100] ^= 1
        data[at + 200] ^= 1
    block.write_bytes(data)
    s = PyStore(directory, commit="manual")
    assert s.state()["msgs"] == 28
    assert s.lost()["msgs"] == [5, 6]
    s.close()


def test_what_is_lost_ends_where_a_sidecar_knows_the_next_block(directory: Path) -> None:
    limits: dict[str, Any] = {"max_bytes": 120_000, "commit": "manual"}
    s = PyStore(directory, **limits)
    for i in range(1, 31):
        s.append("a", b"m%02d " % i + b"x" * 3000)
    s.commit()
    s.upkeep()
    s.abandon()
    assert (directory / "msgs" / "2.jsx").exists()
    (directory / "msgs" / "1.jsx").unlink()
    block = directory / "msgs" / "1.blk"
    data = bytearray(block.read_bytes())
    last = max(i for i in range(1, 31) if b"m%02d x" % i in data)
    at = data.index(b"m%02d x" % last)
    data[at + 100] ^= 1
    data[at + 200] ^= 1
    block.write_bytes(data)
    s = PyStore(directory, **limits)
    assert s.lost()["msgs"] == [last]
    s.close()


def test_a_copy_whose_number_has_zeros_before_it_is_no_block(directory: Path) -> None:
    """It would be a second block with the number of the one that it was copied from."""
    s = PyStore(directory, commit="manual")
    s.append("a", b"x")
    s.commit()
    s.abandon()
    copy = directory / "msgs" / "001.blk"
    copy.write_bytes((directory / "msgs" / "1.blk").read_bytes())
    s = PyStore(directory, commit="manual")
    s.append("b", b"y")
    s.commit()
    s.close()
    s = PyStore(directory, commit="manual")
    assert s.state()["msgs"] == 2
    assert s.lost()["damage"] == 0
    assert copy.exists()
    s.close()
