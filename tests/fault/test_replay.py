"""What was there before a kill or a stop is there after it, and nothing else.

Limits that removed messages, their changes, deletes, purges and rollups, over blocks that are
sealed, compacted and have sidecars. The numbers come from the environment: `REPLAY_HISTORIES`,
`REPLAY_SEED` (1, shown), `REPLAY_OVERWRITES`.
"""

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore
from tests.fault.histories import Seen, run, seen
from tests.seeds import seed_of
from tests.unit.records import TOMB, records

HISTORIES = int(os.environ.get("REPLAY_HISTORIES", "60"))
SEED = seed_of("REPLAY_SEED")
OVERWRITES = int(os.environ.get("REPLAY_OVERWRITES", "500000"))
ROUNDS = 4


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "S"
    path.mkdir()
    return path


def opened(directory: Path, **limits: Any) -> PyStore:
    return PyStore(directory, "S", commit="manual", **limits)


def killed(store: PyStore, directory: Path, **limits: Any) -> Seen:
    """What is there after everything was committed, a kill and a start."""
    store.commit()
    store.abandon()
    again = opened(directory, **limits)
    found = seen(again)
    again.close()
    return found


@pytest.mark.timeout(60 + HISTORIES)
def test_histories(tmp_path: Path) -> None:
    print("seed", SEED)
    for number in range(HISTORIES):
        found = run(tmp_path, SEED + number, ROUNDS)
        assert not found, found


def test_an_erased_message_has_made_room(directory: Path) -> None:
    """What its coming removed stays removed, and what its going left stays."""
    limits = {"max_msgs": 2, "max_msgs_per": 1}
    s = opened(directory, **limits)
    s.append("k.a")
    s.append("k.b", b"old")
    s.append("k.b", b"new")
    s.remove(3, erase=True)
    s.append("k.c")
    assert sorted(killed(s, directory, **limits).messages) == [1, 4]


def test_a_deleted_key_has_no_older_value(directory: Path) -> None:
    s = opened(directory, max_msgs_per=1)
    s.append("k.a", b"old")
    s.append("k.a", b"new")
    s.remove(2, erase=True)
    found = killed(s, directory, max_msgs_per=1)
    assert not found.messages
    assert (found.state["first_seq"], found.state["last_seq"]) == (3, 2)


@pytest.mark.parametrize("limit", ["max_msgs", "max_bytes", "max_msgs_per", "max_age"])
def test_a_limit_that_is_lifted(directory: Path, limit: str) -> None:
    """What it removed does not come back when it is no longer in force."""
    s = opened(directory, now=10**18, **{limit: 100})
    for i in range(10):
        s.append("k", b"x" * 20, b"", 10**18 + i * 40)
    s.tick(10**18 + 400)
    s.update(max_msgs=-1, max_bytes=-1, max_msgs_per=-1, max_age=0)
    s.update(max_msgs_per=3)
    s.update(max_msgs_per=-1)
    s.append("k")
    before = seen(s)
    assert 0 < len(before.messages) <= 4
    assert killed(s, directory).messages == before.messages


def test_sidecars_know_only_what_is_on_disk(directory: Path) -> None:
    """A message may be missing from a sidecar only when its removal would survive a kill."""
    limits = {"max_bytes": 127_000, "trim": False, "max_msgs_per": 1}
    s = opened(directory, **limits)
    s.append("slow", b"old")
    for i in range(500):
        s.append(f"k.{i}", b"%06d" % i * 20)
    s.commit()
    s.append("slow", b"new")
    before = seen(s)
    s.upkeep()
    assert len(list((directory / "msgs").glob("*.jsx"))) >= 2
    s.abandon()
    s = opened(directory, **limits)
    assert not before.differences(seen(s))
    s.close()


def test_many_groups_of_blocks_in_one_round(directory: Path) -> None:
    """Of a round that filled several blocks, the last one's marker says what is gone; that of
    another one what was when it was full."""
    limits = {"max_bytes": 127_000}
    s = opened(directory, **limits)
    for i in range(1000):
        s.append("k", b"%06d" % i * 20)
    s.commit()
    blocks = sorted((directory / "msgs").glob("*.blk"), key=lambda path: int(path.stem))
    named = [first_of(path.read_bytes()) for path in blocks]
    assert len(named) >= 3
    assert named[-1] == s.state()["first_seq"]
    assert named == sorted(named)
    for path, first in zip(blocks[:-1], named, strict=False):
        assert 1 <= first <= max(seq for _, seq, _, _ in records(path.read_bytes()) if seq < TOMB)
    s.abandon()


def first_of(data: bytes) -> int:
    """The first sequence of the stream by a block's first marker."""
    marker = next(record for _, seq, size, record in records(data) if seq == TOMB and size == 104)
    return int(struct.unpack_from("<Q", marker, 70)[0])


@pytest.mark.parametrize("upkeep", [True, False])
def test_the_last_sequence_outlives_its_message(directory: Path, upkeep: bool) -> None:
    s = opened(directory, max_bytes=127_000)
    for i in range(300):
        s.append("k", b"%06d" % i * 20)
    for seq in range(290, 301):
        s.remove(seq, erase=True)
    for _ in range(3):
        s.commit()
        if upkeep:
            s.upkeep()
        s.close()
        (directory / "msgs" / "checkpoint.jss").unlink(missing_ok=True)
        s = opened(directory, max_bytes=127_000)
        assert s.state()["last_seq"] == 300
    s.purge()
    s.close()
    s = opened(directory, max_bytes=127_000)
    assert s.append("k") == 301
    s.close()


def test_a_torn_block_behind_one_that_was_emptied(directory: Path) -> None:
    """Its first sequence is not known, so the stream goes on behind all that may have been used."""
    s = opened(directory, max_bytes=127_000)
    for i in range(2000):
        s.append("k", b"%06d" % i * 20)
    s.commit()
    last = max((directory / "msgs").glob("*.blk"), key=lambda path: int(path.stem))
    for seq in range(s.state()["first_seq"], records(last.read_bytes())[0][1]):
        s.remove(seq)
    s.commit()
    s.abandon()
    for path in (directory / "msgs").iterdir():
        if path != last:  # of what holds nothing any more
            path.unlink()
    data = bytearray(last.read_bytes())
    tombs = [at for at, seq, _, _ in records(data) if seq & TOMB and seq != TOMB]
    data[: tombs[0]] = bytes(tombs[0])  # what stays is a tombstone
    data[tombs[1] :] = bytes(len(data) - tombs[1])
    last.write_bytes(data)
    s = opened(directory, max_bytes=127_000)
    assert s.state()["last_seq"] >= 2000
    s.close()


@pytest.mark.timeout(120)
def test_a_bucket_stays_small(directory: Path) -> None:
    """A key that is never written again does not keep the tombstones of all others."""
    keys, step = 1000, 20_000
    s = opened(directory, max_msgs_per=1)
    s.append("kv.never", b"x" * 100)
    most = 0
    for start in range(0, OVERWRITES, step):
        s.append_many("kv.#", step, keys, 100, start)
        s.commit()
        s.upkeep()
        s.commit()
        files = list((directory / "msgs").iterdir())
        most = max(most, sum(path.stat().st_size for path in files))
    assert most < 5 * 4_194_304
    assert s.figures()["used"] < 2 * 4_194_304
    before = seen(s)
    assert len(before.messages) == keys + 1
    assert killed(s, directory, max_msgs_per=1).messages == before.messages
