"""Damage of several bits in a record's head and in what its checksum leaves out: what is intact
is served, and what is gone is listed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore
from tests.unit.records import ERASED, TOMB, records

PARAMS: dict[str, Any]
PARAMS = {"max_bytes": 1_000_000, "trim": False, "commit": "manual", "now": 1_700_000_000 * 10**9}
HURT = 25
LENGTH, SEQUENCE, SUBJECT, PAYLOAD = 0, 4, 20, 40
"""Where these are in a record."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


class Block:
    """The bytes of the first block, and where its messages stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = bytearray(path.read_bytes())
        self.at = {
            seq & ~ERASED: at for at, seq, _, _ in records(bytes(self.data)) if not seq & TOMB
        }

    def put(self, seq: int, place: int, *values: int) -> None:
        for n, value in enumerate(values):
            self.data[self.at[seq] + place + n] = value

    def write(self) -> None:
        self.path.write_bytes(self.data)


def harmed(
    directory: Path,
    harm: Callable[[Block], None],
    count: int = 60,
    erased: Iterable[int] = (),
    odd: bytes = b"",
) -> tuple[set[int], dict[int, tuple[str, bytes, bytes]], list[int]]:
    """A store of records of 64 bytes, ten in a group: what it had, and after the harm, what it
    serves, and what it lists as lost.

    odd: the payload of the message that is harmed."""
    s = PyStore(directory, "D", **PARAMS)
    stored = {}
    for n in range(1, count + 1):
        stored[n] = odd if odd and n == HURT else b"%033d" % n
        s.append("s", stored[n])
        if n % 10 == 0:
            s.commit()
    for seq in erased:
        s.remove(seq, erase=True)
        del stored[seq]
    s.commit()
    s.close()
    for cache in [*directory.rglob("*.js?")]:
        cache.unlink()
    block = Block(directory / "msgs" / "1.blk")
    harm(block)
    block.write()
    s = PyStore(directory, "D", **PARAMS)
    served = {}
    for seq in range(1, s.state()["last_seq"] + 1):
        try:
            served[seq] = s.load(seq)[2:]
        except (KeyError, ValueError):
            continue
    lost = s.lost()["msgs"]
    assert s.state()["msgs"] == len(served)
    s.close()
    assert all(stored[seq] == data for seq, (*_, data) in served.items())
    return set(stored), served, lost


@pytest.mark.parametrize("length", [0x80, 0xC0])
@pytest.mark.parametrize("payload", [ord("0"), 0xFF])
def test_a_length_that_covers_the_next_records_costs_none_of_them(
    directory: Path, length: int, payload: int
) -> None:
    def harm(block: Block) -> None:
        block.put(HURT, LENGTH, length)
        block.put(HURT, PAYLOAD, payload)

    stored, served, lost = harmed(directory, harm)
    assert stored - served.keys() == {HURT}
    assert lost == [HURT]


def test_of_damaged_neighbours_each_is_listed(directory: Path) -> None:
    def harm(block: Block) -> None:
        block.put(HURT, LENGTH, 0x80)
        block.put(HURT, PAYLOAD, 0xFF)
        block.put(HURT + 1, PAYLOAD, 0xFF)

    stored, served, lost = harmed(directory, harm)
    assert stored - served.keys() == {HURT, HURT + 1}
    assert lost == [HURT, HURT + 1]


@pytest.mark.parametrize("seq, removed", [(25, 41), (45, 47), (8, 240)])
def test_a_sequence_that_looks_like_one_that_is_removed_later_costs_one_message(
    directory: Path, seq: int, removed: int
) -> None:
    stored, served, lost = harmed(
        directory, lambda block: block.put(seq, SEQUENCE, removed), count=250, erased=[removed]
    )
    assert stored - served.keys() == {seq}
    assert lost == [seq]


@pytest.mark.parametrize("erased", [[], [HURT + 1], [HURT - 1, HURT + 1]])
@pytest.mark.parametrize("hurt", [False, True])
def test_a_changed_subject_length_costs_one_message(
    directory: Path, erased: list[int], hurt: bool
) -> None:
    """Whatever else of its group is erased, or damaged in its payload."""

    def harm(block: Block) -> None:
        block.put(HURT, SUBJECT, 0x14)
        if hurt:
            block.put(HURT + 2, PAYLOAD, 0xFF)

    stored, served, lost = harmed(directory, harm, erased=erased)
    assert lost == [HURT] + [HURT + 2] * hurt
    assert stored - served.keys() == set(lost)


@pytest.mark.parametrize("seq", [HURT, 1000])
def test_a_payload_that_looks_like_records_is_never_served_as_such(
    directory: Path, tmp_path: Path, seq: int
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    s = PyStore(other, "D", first_seq=seq, **PARAMS)
    s.append("admin", b"forged")
    s.commit()
    s.close()
    data = (other / "msgs" / "1.blk").read_bytes()
    (forged, *_) = (data[at : at + size] for at, _, size, _ in records(data))
    stored, served, lost = harmed(
        directory, lambda block: block.put(HURT, LENGTH, 0xFF, 0xFF), odd=forged
    )
    assert stored - served.keys() == {HURT}
    assert lost == [HURT]


@pytest.mark.parametrize("source, target", [(55, 5), (27, 23), (5, 55), (41, 40), (40, 41)])
def test_a_record_that_is_written_over_another_costs_that_one(
    directory: Path, source: int, target: int
) -> None:
    """As a disk does that writes to a wrong place: it is whole, and not of that place."""

    def harm(block: Block) -> None:
        at = block.at[source]
        block.put(target, 0, *block.data[at : at + 64])

    stored, served, lost = harmed(directory, harm)
    assert stored - served.keys() == {target}
    assert lost == [target]


@pytest.mark.parametrize("source, target", [(1100, 200), (200, 1100)])
def test_a_page_that_is_written_over_another_costs_what_stood_there(
    directory: Path, source: int, target: int
) -> None:
    over: set[int] = set()

    def harm(block: Block) -> None:
        here, there = (block.at[seq] // 4096 * 4096 for seq in (source, target))
        over.update(seq for seq, at in block.at.items() if there - 64 < at < there + 4096)
        block.data[there : there + 4096] = block.data[here : here + 4096]

    stored, served, lost = harmed(directory, harm, count=1200)
    assert stored - served.keys() == over
    assert set(lost) == over


def test_damaged_messages_between_tombstones_are_listed(directory: Path) -> None:
    s = PyStore(directory, "D", **PARAMS)
    for n in range(1, 61):
        s.append("s", b"%033d" % n)
        if n > 20:  # a queue: one comes, an older one goes
            s.remove(n - 20)
    s.commit()
    s.append("s", b"the group before is on disk")
    s.commit()
    s.abandon()
    block = Block(directory / "msgs" / "1.blk")
    for seq in range(46, 56):
        block.put(seq, PAYLOAD, 0xFF)
    block.write()
    s = PyStore(directory, "D", **PARAMS)
    assert s.lost()["msgs"] == [*range(46, 56)]
    assert s.state()["msgs"] == 11
    s.close()


@pytest.mark.parametrize("wrong", [41, 44, 46, 49])
def test_a_damaged_sequence_is_found_again_among_those_that_are_missing(
    directory: Path, wrong: int
) -> None:
    s = PyStore(directory, "D", **PARAMS)
    for n in range(1, 61):
        if 40 < n < 50 and n != 45:
            s.skip()
        else:
            s.append("s", b"%033d" % n)
    s.commit()
    s.close()
    for cache in [*directory.rglob("*.js?")]:
        cache.unlink()
    block = Block(directory / "msgs" / "1.blk")
    block.put(45, SEQUENCE, wrong)
    block.write()
    s = PyStore(directory, "D", **PARAMS)
    assert s.lost()["msgs"] == [45]
    s.close()


def test_a_damaged_length_of_an_erased_message_costs_no_other(directory: Path) -> None:
    stored, served, lost = harmed(
        directory, lambda block: block.put(HURT, LENGTH, 0x80), erased=[HURT]
    )
    assert stored == served.keys()
    assert lost == []


def test_each_start_reads_a_torn_erasure_behind_the_last_marker_alike(directory: Path) -> None:
    """A power cut tore the last group: its marker is missing, and so are bytes of a message that
    the group removed."""
    s = PyStore(directory, "D", **PARAMS)
    for n in range(1, 4):
        s.append("s", b"%033d" % n)
        s.commit()
    s.append("s", b"%033d" % 4)
    s.remove(4)
    s.commit()
    s.abandon()
    block = Block(directory / "msgs" / "1.blk")
    block.put(4, PAYLOAD, *b"noise")
    del block.data[records(block.data)[-1][0] :]
    block.write()
    shown = []
    for _ in range(3):
        s = PyStore(directory, "D", **PARAMS)
        shown.append((s.state(), s.lost()))
        s.abandon()
    assert shown[0][0]["last_seq"] == 4
    assert shown[0][1]["damage"] == 0
    assert shown[1:] == shown[:1] * 2
