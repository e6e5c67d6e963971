"""Sequences from elsewhere, and truncation: what a crash leaves of it, what becomes durable."""

import random
import shutil
from pathlib import Path

import pytest

from tests.cext.store import PyStore


def everything(store: PyStore) -> tuple[object, list[tuple[int, int, str, bytes, bytes]]]:
    state = store.state()
    seqs = []
    seq = store.next((), 1)
    while seq:
        seqs.append(store.load(seq))
        seq = store.next((), seq + 1)
    return state, seqs


def opened(directory: Path, **limits) -> PyStore:
    directory.mkdir(exist_ok=True)
    return PyStore(directory, "S", commit="manual", now=10**18, **limits)


def filled(directory: Path, n: int = 400) -> PyStore:
    """Several small blocks, with tombstones in later blocks than their messages."""
    store = opened(directory, max_bytes=100_000)
    for i in range(n):
        store.append(f"s.{i % 7}", bytes([i % 251]) * 150, b"", 10**18 + i)
        if i % 50 == 49:
            store.commit()
            store.remove(i - 30)
            store.remove(i - 2, True)
    store.commit()
    return store


@pytest.mark.parametrize("memory", [False, True])
def test_gap_of_any_width(tmp_path: Path, memory: bool) -> None:
    store = PyStore(None if memory else tmp_path, "S", commit="manual", now=10**18)
    seqs = [5, 6, 1000, 10**10, 2**61]
    for seq in seqs:
        store.append_at(seq, "a", b"x")
    assert store.state()["first_seq"] == 5
    assert store.state()["last_seq"] == seqs[-1]
    assert [m[0] for m in everything(store)[1]] == seqs
    with pytest.raises(ValueError, match="not behind the last"):
        store.append_at(2**62, "a")
    if not memory:
        store.commit()
        before = everything(store)
        store.abandon()
        again = opened(tmp_path)
        assert everything(again) == before
        again.close()


@pytest.mark.parametrize("seq", [0, 1, 57, 199, 200, 333, 398, 399])
def test_crash_shows_all_of_a_truncation_or_nothing(tmp_path: Path, seq: int) -> None:
    """Whichever files of the replaced blocks are still there."""
    store = filled(tmp_path / "s")
    before = everything(store)
    shutil.copytree(tmp_path / "s", tmp_path / "old")
    store.truncate(seq)
    store.append("s.new", b"y" * 300)
    store.remove(store.state()["first_seq"])
    after_memory = everything(store)
    shutil.copytree(tmp_path / "s", tmp_path / "unwritten")
    store.commit()
    assert everything(store) == after_memory
    shutil.copytree(tmp_path / "s", tmp_path / "new")
    store.abandon()

    unwritten = opened(tmp_path / "unwritten", max_bytes=100_000)
    assert everything(unwritten) == before
    unwritten.close()

    names = sorted(
        {p.name for p in (tmp_path / "old" / "msgs").glob("*.blk")}
        - {p.name for p in (tmp_path / "new" / "msgs").glob("*.blk")}
    )
    highest = max(int(p.stem) for p in (tmp_path / "old" / "msgs").glob("*.blk"))
    left = [[], names, names[:1], names[-1:], names[1:]]
    if not (tmp_path / "new" / "msgs" / f"{highest + 1}.blk").exists():
        left = [[]]  # what took their place was empty and left: not before they were gone
    for kept in left:
        shutil.rmtree(tmp_path / "mixed", ignore_errors=True)
        shutil.copytree(tmp_path / "new", tmp_path / "mixed")
        for name in kept:
            shutil.copy(tmp_path / "old" / "msgs" / name, tmp_path / "mixed" / "msgs" / name)
        again = opened(tmp_path / "mixed", max_bytes=100_000)
        assert everything(again) == after_memory
        assert again.lost()["places"] == []
        there = {p.name for p in (tmp_path / "mixed" / "msgs").glob("*.blk")}
        assert not there & set(names)
        again.append("s.later", b"z")
        again.commit()
        last = everything(again)
        again.reopen()
        assert everything(again) == last
        again.close()


def test_sequences_given_again_are_not_durable_before_their_write(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")
    assert store.durable_seq() == 400
    store.truncate(300)
    assert store.durable_seq() == 300
    for _ in range(50):
        store.append("s.x", b"again")
    assert store.durable_seq() == 300
    store.commit()
    assert store.durable_seq() == 350
    store.close()


@pytest.mark.parametrize("seed", [12, 43, 46, 47, 51, 60])
def test_what_a_start_finds_behind_truncations(tmp_path: Path, seed: int) -> None:
    """Blocks before them have markers that name later sequences; those count no more."""
    rng = random.Random(seed)
    store = opened(tmp_path, max_bytes=100_000)
    for _ in range(40):
        for k in range(rng.randrange(1, 40)):
            store.append(f"s.{k % 7}", b"x" * rng.randrange(900))
        if rng.random() < 0.5:
            store.commit()
        if rng.random() < 0.3:
            store.truncate(max(1, store.state()["last_seq"] - rng.randrange(30)))
        if rng.random() < 0.5:
            store.commit()
        if rng.random() < 0.5:
            store.upkeep()
    store.commit()
    store.upkeep()
    store.commit()
    before = everything(store)
    store.abandon()
    again = opened(tmp_path, max_bytes=100_000)
    assert everything(again) == before
    again.close()


def test_truncation_under_a_commit_thread(tmp_path: Path) -> None:
    store = PyStore(tmp_path, "S", now=10**18, max_bytes=100_000)
    expected: dict[int, bytes] = {}
    for turn in range(150):
        for k in range(turn % 13 + 1):
            data = b"%d.%d" % (turn, k) + b"." * (turn * 37 % 900)
            expected[store.append(f"s.{k}", data)] = data
        if turn % 4 == 3:
            seq = store.state()["last_seq"] - turn % 29
            store.truncate(max(0, seq))
        live = dict((m[0], m[4]) for m in everything(store)[1])
        expected = {q: d for q, d in expected.items() if q in live}
        assert live == expected
        if turn % 10 == 9:
            store.wait_durable()
            assert store.durable_seq() == store.state()["last_seq"]
    before = everything(store)
    store.wait_durable()
    store.abandon()
    again = opened(tmp_path, max_bytes=100_000)
    assert everything(again) == before
    again.close()


def test_sequences_are_given_again_where_a_purge_follows_at_once(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append_at(1000, "a", b"x")
    store.commit()
    store.purge()
    store.commit()
    store.truncate(50)
    store.purge()
    store.append_at(51, "a", b"y")
    store.commit()
    before = everything(store)
    assert [m[0] for m in before[1]] == [51]
    store.abandon()
    again = opened(tmp_path)
    assert everything(again) == before
    again.close()
