"""Blocks with many damaged places: each costs the records that it touches, and no more time."""

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cext.store import PyStore
from tests.unit.records import TOMB, marker, record, records, written

SECTOR = 512
Fill = Callable[[random.Random], bytes]
FILLS: dict[str, Fill] = {
    "zeros": lambda rng: bytes(SECTOR),
    "garbage": lambda rng: rng.randbytes(SECTOR),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


def opened(directory: Path) -> PyStore:
    return PyStore(directory, "S", commit="manual")


def group_of(directory: Path, count: int, size: int) -> bytearray:
    """What the block holds after a clean stop: one large group, and that it was on disk."""
    store = opened(directory)
    store.append_many("k.#", count, 50, size)
    return stopped(store, directory)


def stopped(store: PyStore, directory: Path) -> bytearray:
    """The only block of a store that is stopped cleanly, and is read whole at its next start."""
    store.commit()
    store.close()
    forget(directory)
    return bytearray((directory / "msgs" / "1.blk").read_bytes())


def forget(directory: Path) -> None:
    """The caches that would spare a start the reading."""
    for path in [*directory.rglob("*.jsx"), directory / "subjects.jsd"]:
        path.unlink(missing_ok=True)
    (directory / "msgs" / "checkpoint.jss").unlink(missing_ok=True)


def damage(
    data: bytearray, count: int, fill: Fill, rng: random.Random, end: int | None = None
) -> set[int]:
    """Overwrites so many sectors before `end`; the sequences of the messages that changed."""
    before = bytes(data)
    for sector in rng.sample(range((len(data) if end is None else end) // SECTOR), count):
        data[sector * SECTOR : (sector + 1) * SECTOR] = fill(rng)
    return {
        seq
        for at, seq, size, _ in records(before)
        if seq < TOMB and data[at : at + size] != before[at : at + size]
    }


def served(store: PyStore) -> set[int]:
    at, found = store.next(), set()
    while at:
        found.add(at)
        at = store.next((), at + 1)
    return found


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("holes", [50, 400, 2000])
def test_each_hole_of_a_group_costs_what_it_touches(directory: Path, fill: str, holes: int) -> None:
    data = group_of(directory, 20_000, 300)
    gone = damage(data, holes, FILLS[fill], random.Random(holes))
    (directory / "msgs" / "1.blk").write_bytes(data)
    started = time.process_time()
    store = opened(directory)
    took = time.process_time() - started
    assert set(range(1, 20_001)) - served(store) == gone
    assert set(store.lost()["msgs"]) == gone
    assert store.state()["last_seq"] == 20_000
    assert took < 5
    store.close()


def test_holes_of_a_group_that_was_killed_before_it_was_closed(directory: Path) -> None:
    """Whether that was acked is not known; what is whole is kept."""
    data = group_of(directory, 20_000, 300)
    ends = [at + size for at, seq, size, _ in records(data) if seq == TOMB]
    del data[ends[0] :]
    gone = damage(data, 200, FILLS["zeros"], random.Random(5))
    (directory / "msgs" / "1.blk").write_bytes(data)
    store = opened(directory)
    assert set(range(1, 20_001)) - served(store) == gone
    store.close()
    again = opened(directory)
    assert set(range(1, 20_001)) - served(again) == gone
    again.close()


def test_holes_among_erased_messages_bring_none_back(directory: Path) -> None:
    """A tombstone counts wherever it stands; torn erasures are no losses."""
    store = opened(directory)
    store.append_many("k.#", 5000, 50, 300)
    erased = set(range(7, 5000, 7))
    for seq in erased:
        store.remove(seq)
    data = stopped(store, directory)
    for at, seq, _, _ in records(data):
        if seq in erased:  # half of it is overwritten
            data[at + 12 : at + 150] = random.Random(seq).randbytes(138)
    tombs = min(at for at, seq, _, _ in records(data) if seq > TOMB)
    gone = damage(data, 300, FILLS["zeros"], random.Random(3), tombs) - erased
    (directory / "msgs" / "1.blk").write_bytes(data)
    store = opened(directory)
    assert set(range(1, 5001)) - served(store) - erased == gone
    assert not served(store) & erased
    assert gone <= set(store.lost()["msgs"])
    store.close()


def test_a_single_bit_of_a_tombstone_is_found_behind_many_holes(directory: Path) -> None:
    store = opened(directory)
    store.append_many("k.#", 20_000, 50, 300)
    store.remove(19_999)
    data = stopped(store, directory)
    (tomb,) = [at for at, seq, _, _ in records(data) if seq == TOMB | 19_999]
    gone = damage(data, 2000, FILLS["garbage"], random.Random(3), tomb - 2048)
    data[tomb + 5] ^= 4
    (directory / "msgs" / "1.blk").write_bytes(data)
    store = opened(directory)
    assert set(range(1, 20_001)) - served(store) == gone | {19_999}
    store.close()


def test_what_was_damaged_last_in_a_group_is_named(directory: Path) -> None:
    """The group's marker says how far its messages went."""
    store = opened(directory)
    for number in range(1, 21):
        store.append("k", b"%d" % number * 200)
        if number == 10:
            store.commit()
    data = stopped(store, directory)
    for at, seq, _, _ in records(data):
        if seq in (9, 10, 19, 20):
            data[at + 50] ^= 1
            data[at + 90] ^= 1
    (directory / "msgs" / "1.blk").write_bytes(data)
    store = opened(directory)
    assert store.lost()["msgs"] == [9, 10, 19, 20]
    assert store.state()["last_seq"] == 20
    assert store.append("k") == 21
    store.commit()
    store.close()
    again = opened(directory)
    assert again.lost()["msgs"] == [9, 10, 19, 20]
    assert served(again) == set(range(1, 22)) - {9, 10, 19, 20}
    again.close()


@pytest.mark.parametrize("size", [200, 3000])
@pytest.mark.parametrize("which", ["last", "other"])
def test_zeros_in_a_payload_are_not_taken_for_a_torn_group(
    directory: Path, which: str, size: int
) -> None:
    """Where the marker was changed too, the last group had arrived: nothing is cut."""
    store = opened(directory)
    store.append("k", b"first")
    store.commit()
    for _ in range(5):
        store.append("k", bytes(size))
    store.commit()
    store.abandon()
    block = directory / "msgs" / "1.blk"
    data = bytearray(written(block.read_bytes()))
    found = [at for at, seq, _, _ in records(data) if seq == (6 if which == "last" else 4)]
    for at in (found[0] + 60, found[0] + 90, len(data) - 40, len(data) - 20):
        data[at] ^= 0x55
    block.write_bytes(data)
    store = opened(directory)
    damaged = 6 if which == "last" else 4
    lost = store.lost()
    assert served(store) == set(range(1, 7)) - {damaged}
    assert any(first <= damaged <= last for _, _, _, _, first, last, _ in lost["places"])
    assert damaged == 6 or lost["msgs"] == [4]
    assert store.state()["last_seq"] >= 6
    store.close()
    assert block.read_bytes() == data


def test_a_sector_of_which_a_part_arrived_is_no_loss(directory: Path) -> None:
    """In a group that was never acked, as far as one can tell."""
    store = opened(directory)
    store.append("k", b"first")
    store.commit()
    for _ in range(5):
        store.append("k", b"x" * 300)
    store.commit()
    store.abandon()
    block = directory / "msgs" / "1.blk"
    data = bytearray(written(block.read_bytes()))
    found = [at for at, seq, _, _ in records(data) if seq == 4]
    end = found[0] // SECTOR * SECTOR + SECTOR
    data[found[0] + 10 : end] = bytes(end - found[0] - 10)
    block.write_bytes(data)
    store = opened(directory)
    assert served(store) == {1, 2, 3, 5, 6}
    assert store.lost()["msgs"] == []
    assert store.lost()["damage"] == 1
    store.close()


def test_what_arrived_behind_a_hole_stays_when_another_block_follows(directory: Path) -> None:
    """Where the hole is short it looks like what a cut leaves of the marker that closes a block."""
    store = opened(directory)
    store.append("k", b"first")
    store.commit()
    block = directory / "msgs" / "1.blk"
    end = len(written(block.read_bytes()))
    store.append("k", b"x" * (2 * SECTOR - 20 - end - 31 - 104))
    store.commit()
    for payload in (b"torn", b"arrived"):
        store.append("k", payload)
    store.commit()
    store.abandon()
    data = bytearray(written(block.read_bytes()))
    found = {seq: (at, size) for at, seq, size, _ in records(data)}
    at = found[3][0]
    cut = at // SECTOR * SECTOR + SECTOR
    assert 0 < cut - at < found[3][1]
    data[at:cut] = bytes(cut - at)
    del data[sum(found[4]) :]
    block.write_bytes(data)
    forget(directory)
    store = opened(directory)
    assert served(store) == {1, 2, 4}
    store.append("k", b"later")
    store.commit()
    store.abandon()
    forget(directory)
    store = opened(directory)
    assert served(store) == {1, 2, 4, 5}
    store.close()
    assert block.read_bytes() == data


@pytest.mark.slow
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("size", [300, 30_000])
def test_thousands_of_holes_in_a_large_block_cost_seconds(
    directory: Path, fill: str, size: int
) -> None:
    rng = random.Random(size)
    count = (64 << 20) // size
    parts = [record(seq, b"k", rng.randbytes(size)) for seq in range(1, count + 1)]
    parts.append(marker(1, count, durable=sum(map(len, parts))))
    data = bytearray(b"".join(parts))
    gone = damage(data, 5000, FILLS[fill], rng)
    (directory / "msgs").mkdir()
    (directory / "msgs" / "1.blk").write_bytes(data)
    started = time.process_time()
    store = opened(directory)
    took = time.process_time() - started
    assert set(range(1, count + 1)) - served(store) == gone
    assert took < 15
    store.close()


@pytest.mark.slow
def test_thousands_of_damaged_checksums_among_tombstones_cost_seconds(directory: Path) -> None:
    """Also where hardly anywhere several whole records stand one behind the other."""
    store = opened(directory)
    for seq in range(1, 40_001):
        store.append("k", b"%020d" % seq)
        if seq % 2 == 0:
            store.remove(seq - 1)
        if seq % 1000 == 0:
            store.commit()
    data = stopped(store, directory)
    places = [(at, seq) for at, seq, _, _ in records(bytes(data))]
    for at, _ in places[::3]:
        size = struct.unpack_from("<I", data, at)[0]
        data[at + size - 3] ^= 0xFF
    hurt = {seq for _, seq in places[::3] if seq < TOMB}
    (directory / "msgs" / "1.blk").write_bytes(data)
    started = time.process_time()
    store = opened(directory)
    took = time.process_time() - started
    assert hurt.isdisjoint(served(store))
    assert {seq for _, seq in places if seq < TOMB and seq % 2 == 0} - hurt <= served(store)
    assert took < 15
    store.close()


def test_what_was_written_to_mislead_costs_no_hours(directory: Path) -> None:
    """Messages full of what looks like the beginnings of long records, damaged at their heads.

    The search gives up before long, and goes on behind the group.
    """
    lure = struct.pack("<IQqH", 1 << 21, 5, 7, 1)
    body = (lure * 40_000)[:800_000]
    blocks = [record(seq, b"k", body) for seq in range(1, 10)]
    last = [record(seq, b"k", b"x" * 100) for seq in range(10, 100)]
    data = bytearray(b"".join([*blocks, marker(1, 9), *last, marker(1, 99)]))
    at = 0
    for part in blocks[:-1]:
        data[at : at + 600] = bytes(600)
        at += len(part)
    (directory / "msgs").mkdir()
    (directory / "msgs" / "1.blk").write_bytes(data)
    started = time.process_time()
    store = opened(directory)
    took = time.process_time() - started
    assert served(store) >= set(range(10, 100))
    assert took < 10
    store.close()


def test_a_search_ends_where_the_file_does(directory: Path) -> None:
    """Bytes that are no record up to the end of a file that fills its last page."""
    data = group_of(directory, 60, 300)
    path = directory / "msgs" / "1.blk"
    for pages in range(1, 5):
        cut = data[: pages * 4096]
        cut[-600:] = bytes([1]) * 600
        path.write_bytes(cut)
        store = opened(directory)
        assert served(store) == {
            seq for at, seq, size, _ in records(data) if at + size <= len(cut) - 600 and seq < TOMB
        }
        store.abandon()
        forget(directory)
