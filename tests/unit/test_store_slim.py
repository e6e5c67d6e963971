"""Compaction comes to an end: a block that a copy would not make smaller is left as it is."""

from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore
from tests.unit.records import TOMB, records

LIMITS: dict[str, Any] = {"max_bytes": 100_000, "trim": False, "commit": "manual"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


def blocks(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in (directory / "msgs").glob("*.blk"))


def grow(s: PyStore, directory: Path) -> None:
    """Messages until there is a block more; the last one is its first."""
    before = len(blocks(directory))
    while len(blocks(directory)) == before:
        s.append("k", bytes(1000))
        s.commit()


def tombstones(directory: Path, number: int) -> int:
    data = (directory / "msgs" / f"{number}.blk").read_bytes()
    return sum(1 for _, seq, _, _ in records(data) if seq & TOMB and seq != TOMB)


@pytest.mark.timeout(60)
def test_tombstones_of_a_block_with_few_ghosts_left(directory: Path) -> None:
    """Block 2 is compacted, so that nothing needs the tombstones in block 3, and loses one message
    more later: any of them may be for that one, so all stay, however small the rest is."""
    s = PyStore(directory, **LIMITS)
    for _ in range(2):
        grow(s, directory)
    start = s.state()["last_seq"]
    grow(s, directory)
    last = s.state()["last_seq"]
    for seq in range(start, last - 3):
        s.remove(seq)
    s.commit()
    s.upkeep()
    s.remove(last - 3)
    stays = s.append("k", b"small")
    grow(s, directory)
    for seq in range(last, s.state()["last_seq"]):
        if seq != stays:
            s.remove(seq)
    s.commit()
    s.upkeep()
    assert tombstones(directory, 3) == last - start - 2
    want = s.state()
    s.abandon()
    s = PyStore(directory, **LIMITS)
    assert s.state() == want
    s.close()


def test_damage_in_a_compacted_block_costs_nothing_of_later_ones(directory: Path) -> None:
    """Its marker has what its markers said, of which the last was written behind the next block."""
    s = PyStore(directory, **LIMITS)
    for _ in range(200):
        s.append("k", bytes(1000))
    s.commit()
    path = directory / "msgs" / "2.blk"
    before = path.read_bytes()
    seqs = [seq for _, seq, _, _ in records(before) if not seq & TOMB]
    for seq in seqs[:-2]:
        s.remove(seq)
    s.commit()
    s.upkeep()
    assert path.stat().st_size < len(before) // 2
    s.abandon()
    for side in (directory / "msgs").glob("*.jsx"):
        side.unlink()
    data = bytearray(path.read_bytes())
    data[-700:-600] = b"\xff" * 100  # of the last message
    path.write_bytes(data)
    s = PyStore(directory, **LIMITS)
    assert s.lost()["msgs"] == [seqs[-1]]
    assert s.state()["msgs"] == 200 - len(seqs) + 1
    s.close()


def test_a_sparse_block_waits_for_its_compaction(directory: Path) -> None:
    """What loses message after message may soon be empty: then it was not copied for nothing."""
    s = PyStore(directory, slim_wait=10, now=1000, **LIMITS)
    for _ in range(4):
        grow(s, directory)
    second, third = (
        [seq for _, seq, _, _ in records(path.read_bytes()) if not seq & TOMB]
        for path in (directory / "msgs" / f"{number}.blk" for number in (2, 3))
    )
    for seq in third[:-1]:
        s.remove(seq)
    s.tick(1009)
    s.commit()
    s.upkeep()
    paths = [directory / "msgs" / f"{number}.blk" for number in (2, 3)]
    sizes = [path.stat().st_size for path in paths]
    for seq in second:  # it is empty before it was looked at
        s.remove(seq)
    s.commit()
    assert not paths[0].exists()
    assert paths[1].stat().st_size == sizes[1]
    s.tick(1010)
    s.upkeep()
    s.commit()
    assert paths[1].stat().st_size < sizes[1] // 2
    s.close()


def test_a_block_that_became_sparse_before_it_was_full_is_compacted(directory: Path) -> None:
    s = PyStore(directory, slim_wait=10, now=1000, **LIMITS)
    for _ in range(2):
        grow(s, directory)
    for _ in range(20):  # into the last block
        s.append("k", bytes(1000))
    for seq in range(s.state()["last_seq"] - 18, s.state()["last_seq"]):
        s.remove(seq)
    s.commit()
    grow(s, directory)
    sparse = directory / "msgs" / "2.blk"
    size = sparse.stat().st_size
    s.tick(1010)
    s.upkeep()
    s.commit()
    assert sparse.stat().st_size < size - 15_000
    s.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_block_that_waits_for_its_compaction_when_the_server_ends_is_compacted_after_the_start(
    directory: Path, killed: bool
) -> None:
    s = PyStore(directory, slim_wait=10, now=1000, **LIMITS)
    for _ in range(3):
        grow(s, directory)
    sparse = directory / "msgs" / "2.blk"
    size = sparse.stat().st_size
    for seq in [seq for _, seq, _, _ in records(sparse.read_bytes()) if not seq & TOMB][:-1]:
        s.remove(seq)
    s.commit()
    if killed:
        s.abandon()
    else:
        s.close()
    s = PyStore(directory, slim_wait=10, now=2000, **LIMITS)
    s.upkeep()
    assert sparse.stat().st_size == size
    s.tick(2010)
    s.upkeep()
    s.commit()
    assert sparse.stat().st_size < size // 2
    s.close()


def test_the_first_block_is_compacted_when_little_of_it_is_left(directory: Path) -> None:
    s = PyStore(directory, slim_wait=10, now=1000, **LIMITS)
    for _ in range(2):
        grow(s, directory)
    first = directory / "msgs" / "1.blk"
    size = first.stat().st_size
    seqs = [seq for _, seq, _, _ in records(first.read_bytes()) if not seq & TOMB]
    for seq in seqs[: len(seqs) * 2 // 3]:
        s.remove(seq)
    s.commit()
    s.tick(1010)
    s.upkeep()
    assert first.stat().st_size == size
    for seq in seqs[len(seqs) * 2 // 3 : -2]:
        s.remove(seq)
    s.commit()
    s.tick(1020)
    s.upkeep()
    s.commit()
    assert first.stat().st_size < size // 4
    s.close()


def test_a_block_that_nats_server_began_is_compacted(directory: Path) -> None:
    """Its first records have no marker; the first marker begins its group behind them."""
    s = PyStore(directory, slim_wait=10, now=1000, **LIMITS)
    for _ in range(20):
        s.append("k", bytes(1000))
    s.close()
    begun = directory / "msgs" / "1.blk"
    data = begun.read_bytes()
    parts = [record for _, seq, _, record in records(data) if seq != TOMB]
    for path in directory.rglob("*"):
        if path.is_file():
            path.unlink()
    begun.write_bytes(b"".join(parts))
    s = PyStore(directory, slim_wait=10, now=1000, **LIMITS)
    assert s.state()["msgs"] == 20
    for _ in range(2):
        grow(s, directory)
    size = begun.stat().st_size
    for seq in [seq for _, seq, _, _ in records(begun.read_bytes()) if not seq & TOMB][1:-1]:
        s.remove(seq)
    s.commit()
    s.tick(1010)
    s.upkeep()
    s.commit()
    assert begun.stat().st_size < size // 4
    s.close()
