"""Damage in the small files of a stream: none of them counts as not there."""

import shutil
from pathlib import Path

import pytest

from tests.cext.store import PyStore
from tests.fault.test_starts_again import LIMITS, messages

LINE = 32
RESERVE = 10
"""Damage of a sequence.jsr that was not needed."""


def killed(directory: Path) -> Path:
    """Six messages in two blocks; the store's sequence.jsr."""
    messages(directory, 6).abandon()
    return directory / "sequence.jsr"


def without_blocks(directory: Path) -> None:
    for path in (directory / "msgs").iterdir():
        path.unlink()


def spoil(path: Path, at: int, size: int = 1) -> None:
    """Two bits of each of these bytes change."""
    data = bytearray(path.read_bytes())
    for i in range(at, at + size):
        data[i] ^= 0x81
    path.write_bytes(data)


def last_of(directory: Path) -> int:
    store = PyStore(directory, **LIMITS)
    last = store.state()["last_seq"]
    store.abandon()
    return int(last)


def test_a_start_that_needs_a_damaged_reservation_is_refused(tmp_path: Path) -> None:
    """It would use sequences again that were acked. Nothing is changed."""
    path = killed(tmp_path / "S")
    without_blocks(tmp_path / "S")
    assert last_of(tmp_path / "S") >= 6
    spoil(path, 0, path.stat().st_size)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(OSError, match=r"sequence\.jsr: damaged"):
            PyStore(tmp_path / "S", **LIMITS)
        assert path.read_bytes() == before


def test_a_reservation_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = killed(tmp_path / "S")
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match=r"sequence\.jsr: cannot be read: Is a directory"):
        PyStore(tmp_path / "S", **LIMITS)


def test_a_damaged_reservation_that_is_not_needed_is_told_and_made_anew(tmp_path: Path) -> None:
    path = killed(tmp_path / "S")
    spoil(path, 0, path.stat().st_size)
    for turn in range(3):
        store = PyStore(tmp_path / "S", **LIMITS)
        assert store.state()["last_seq"] == 6
        kinds = [place[0] for place in store.lost()["places"]]
        assert kinds == ([RESERVE] if turn == 0 else [])
        store.abandon()
    without_blocks(tmp_path / "S")
    assert last_of(tmp_path / "S") >= 6


def test_a_changed_bit_of_a_reservation_changes_nothing(tmp_path: Path) -> None:
    """Of the lines, and of the one below which no start goes on."""
    path = killed(tmp_path / "S")
    without_blocks(tmp_path / "S")
    last = last_of(tmp_path / "S")
    good = path.read_bytes()
    assert len(good) == 3 * LINE
    for bit in range(8 * len(good)):
        data = bytearray(good)
        if not any(data[bit // 8 // LINE * LINE :][:LINE]):
            continue
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        assert last_of(tmp_path / "S") == last


@pytest.mark.parametrize("line", range(3))
def test_a_line_that_is_lost_lets_no_sequence_be_used_again(tmp_path: Path, line: int) -> None:
    """What the damaged one said is made up for out of the other one, or out of both."""
    path = killed(tmp_path / "S")
    for turn in range(2):  # so that both lines are written, and the third
        without_blocks(tmp_path / "S")
        last = last_of(tmp_path / "S")
        store = PyStore(tmp_path / "S", **LIMITS)
        acked = store.append("k", b"v")
        store.commit()
        store.abandon()
        assert acked > last or turn == 0
    without_blocks(tmp_path / "S")
    assert path.stat().st_size == 3 * LINE
    assert any(path.read_bytes()[line * LINE :][:LINE])
    spoil(path, line * LINE + 8, 16)
    assert last_of(tmp_path / "S") >= acked


def test_a_first_line_that_a_power_cut_tore_reserved_nothing(tmp_path: Path) -> None:
    """It was written before the first ack."""
    path = killed(tmp_path / "S")
    line = path.read_bytes()
    assert not any(line[:LINE])
    without_blocks(tmp_path / "S")
    for size in range(LINE):
        for end in (size, LINE):
            path.write_bytes(line[: LINE + size] + bytes(end - size))
            assert last_of(tmp_path / "S") == 0


def test_a_block_that_is_gone_is_told_though_its_sidecar_is_damaged(tmp_path: Path) -> None:
    directory = tmp_path / "S"
    store = messages(directory, 12)
    store.upkeep()
    store.abandon()
    assert (directory / "msgs" / "2.jsx").exists()
    shutil.copytree(directory, tmp_path / "T")
    for name, size in (("S", 0), ("T", 50)):
        (tmp_path / name / "msgs" / "2.blk").unlink()
        if size:
            spoil(tmp_path / name / "msgs" / "2.jsx", 0, size)
        store = PyStore(tmp_path / name, **LIMITS)
        lost = store.lost()
        there = [q for q in range(1, 13) if store.next((), q) == q]
        assert len(there) + len(lost["msgs"]) == 12, (name, there, lost)
        store.abandon()
