"""SIGKILL at any moment: every acked message is there once and unchanged.

None is invented, no sequence is used twice.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cext.store import PyStore
from tests.seeds import seed_of

TAIL, BATCH = 5, 8
"""Kinds of damage: a group, and a batch, that was never finished."""
ROUNDS = int(os.environ.get("STORE_KILL_ROUNDS", "6"))

# Appends without end; after each group it says on stdout up to where all is durable.
WRITER = """
import sys
from tests.cext.store import PyStore
directory, seed = sys.argv[1], int(sys.argv[2])
s = PyStore(directory, max_bytes=100_000, trim=False, max_msgs=-1, listen=False)
state = s.state()
print("start", state["last_seq"], flush=True)
i = state["last_seq"]
while True:
    for _ in range(seed % 90 + 1):
        i += 1
        assert s.append(f"k.{i % 500}", b"%d:" % i + b"v" * (i * 37 % 900)) == i
        if i % 11 == 0:
            s.remove(i - 5)
    s.wait_durable()
    print(i, flush=True)
"""


def written(seq: int) -> tuple[str, bytes]:
    return f"k.{seq % 500}", b"%d:" % seq + b"v" * (seq * 37 % 900)


@pytest.mark.timeout(300)
def test_kill_loop(tmp_path):
    seed = seed_of("STORE_KILL_SEED")
    print("seed", seed)
    rng = random.Random(seed)
    directory = tmp_path / "S"
    directory.mkdir()
    acked = 0
    starts = set()
    for _ in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(directory), str(rng.randrange(1000))],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        first = child.stdout.readline().split()
        assert first and int(first[1]) >= acked, "an acked sequence is gone"
        starts.add(int(first[1]))
        end = time.monotonic() + rng.uniform(0.1, 1.0)
        while time.monotonic() < end:
            line = child.stdout.readline()
            assert line, "the writer failed"
            acked = int(line)
        child.send_signal(signal.SIGKILL)
        for line in child.stdout.read().split():
            acked = int(line)
        child.wait()
        verify(directory, acked, starts)


def verify(directory, acked: int, starts: set[int]) -> None:
    """Opens the directory twice: the second time finds the same.

    A kill may come between two pages of a group: the first start puts aside what there is of it.
    """
    states = []
    for kinds in ({TAIL}, set()):
        s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
        state = s.state()
        states.append(state)
        assert state["last_seq"] >= acked
        assert {place[0] for place in s.lost()["places"]} <= kinds
        deleted = set(s.deleted())
        # The kill may have come between an append and the removal that goes with it.
        removed = {q - 5 for q in range(11, acked + 1, 11) if q not in starts}
        assert removed <= deleted | set(range(1, state["first_seq"]))
        assert {q for q in deleted if q <= acked and (q + 5) % 11} == set()
        for q in range(state["first_seq"], state["last_seq"] + 1):
            if q not in deleted:
                assert s.load(q)[2::2] == written(q)
        s.abandon()
    assert states[0] == states[1]


@pytest.mark.parametrize("pages", [0, 1])
def test_a_kill_between_two_pages_of_a_group(tmp_path, pages):
    directory = tmp_path / "S"
    directory.mkdir()
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    ends = []
    for i in range(1, 41):
        assert s.append(*written(i)) == i
        if i % 11 == 0:
            s.remove(i - 5)
        if i % 20 == 0:
            s.commit()
            ends.append((directory / "msgs" / "1.blk").stat().st_size)
    s.abandon()
    cut = (ends[0] // 4096 + pages) * 4096
    assert cut < ends[1]
    os.truncate(directory / "msgs" / "1.blk", cut)
    verify(directory, 20, set())


@pytest.mark.parametrize("size", [0, 8192])
def test_a_file_without_a_group(tmp_path, size):
    """The next block's file was there and nothing in it: no start misses anything."""
    (tmp_path / "running").mkdir()
    s = PyStore(tmp_path / "running", max_bytes=100_000, trim=False)
    for i in range(1, 11):
        s.append("k", b"%d" % i)
    s.wait_durable()
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    s.abandon()
    (tmp_path / "killed" / "msgs" / "2.blk").write_bytes(bytes(size))
    for _ in range(3):
        s = PyStore(tmp_path / "killed", max_bytes=100_000, trim=False, commit="manual")
        assert (s.state()["last_seq"], s.lost()["places"]) == (10, [])
        s.abandon()
    s = PyStore(tmp_path / "killed", max_bytes=100_000, trim=False, commit="manual")
    assert s.append("k", b"11") == 11
    s.commit()
    s.abandon()
    s = PyStore(tmp_path / "killed", max_bytes=100_000, trim=False, commit="manual")
    assert [s.load(q)[4] for q in range(1, 12)] == [b"%d" % q for q in range(1, 12)]
    assert s.lost()["places"] == []


def begun(directory: Path, size: int) -> bytes:
    """The beginning of the eleventh message's record, as a killed write leaves it."""
    s = PyStore(directory, max_bytes=100_000, trim=False, commit="manual")
    s.append("k", b"v" * 9000)
    s.commit()
    s.abandon()
    (path,) = directory.glob("msgs/1.blk")
    data = path.read_bytes()
    at = data.rindex(b"k" + b"v" * 9000) - 22
    return data[at : at + size]


def ten(directory: Path, sync_interval: int = 0) -> PyStore:
    directory.mkdir()
    s = PyStore(directory, max_bytes=100_000, trim=False, sync_interval=sync_interval)
    for i in range(1, 11):
        s.append("k", b"%d" % i)
    s.wait_durable()
    return s


@pytest.mark.parametrize("behind", [0, 4096])
def test_a_file_with_the_beginning_of_a_record(tmp_path, behind):
    """The kill came between two pages of a block's first record: nothing of it was acked."""
    s = ten(tmp_path / "running")
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    shutil.copytree(tmp_path / "running", tmp_path / "other")
    s.abandon()
    start = begun(tmp_path / "other", 4096)
    (tmp_path / "killed" / "msgs" / "2.blk").write_bytes(start + bytes(behind))
    for kinds in ([TAIL], [], []):
        s = PyStore(tmp_path / "killed", max_bytes=100_000, trim=False, commit="manual")
        assert s.state()["last_seq"] == 10
        assert [place[0] for place in s.lost()["places"]] == kinds
        s.abandon()


def test_later_blocks_that_were_not_synced(tmp_path):
    """A full block says that another follows. A start cuts that off, and no later one misses it."""
    limits: Any = {"max_bytes": 100_000, "trim": False, "sync_interval": 60 * 10**9}
    (tmp_path / "running").mkdir()
    s = PyStore(tmp_path / "running", **limits)
    for _ in range(9):
        s.append("k", b"v" * 9000)
        s.wait_durable()
    shutil.copytree(tmp_path / "running", tmp_path / "cut")
    s.abandon()
    second = tmp_path / "cut" / "msgs" / "2.blk"
    second.write_bytes(second.read_bytes()[:28] + bytes(30_000))
    states = []
    for _ in range(3):
        s = PyStore(tmp_path / "cut", commit="manual", **limits)
        states.append(s.state())
        assert {place[0] for place in s.lost()["places"]} <= {TAIL}
        s.abandon()
    assert 0 < states[0]["last_seq"] < 9 and states == states[:1] * 3


# Stores batches without end, in blocks of 32,000 bytes; says on stdout which are durable.
BATCHES = """
import sys
from tests.cext.store import PyStore
directory, number, interval = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = PyStore(directory, max_bytes=127_000, sync_interval=interval, listen=False)
while True:
    number += 1
    n = number * 7 % 23 + 2
    data = b"%d/%d/" % (number, n) + b"v" * (number * 37 % 4000)
    s.batch([(f"k.{k}", data) for k in range(n)])
    s.append("alone", b"%d" % number)
    if number % 3 == 0:
        s.wait_durable()
        print(number, flush=True)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("interval", [0, 60 * 10**9])
def test_a_batch_is_there_or_not(tmp_path, interval):
    rng = random.Random(seed_of("STORE_KILL_SEED"))
    directory = tmp_path / "S"
    directory.mkdir()
    acked = 0
    for _ in range(ROUNDS):
        child = subprocess.Popen(
            [sys.executable, "-c", BATCHES, str(directory), str(acked + 1000), str(interval)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        acked = max(acked, int(child.stdout.readline()))
        time.sleep(rng.uniform(0.05, 0.4))  # when it is killed
        child.send_signal(signal.SIGKILL)
        for line in child.stdout.read().split():
            acked = int(line)
        child.wait()
        batches: dict[int, list[int]] = {}
        s = PyStore(directory, max_bytes=127_000, commit="manual")
        assert {place[0] for place in s.lost()["places"]} <= {TAIL, BATCH}
        seq = s.next()
        while seq:
            _, _, subject, _, data = s.load(seq)
            if subject != "alone":
                number, n = map(int, data.split(b"/")[:2])
                batches.setdefault(number, []).append(n)
            seq = s.next((), seq + 1)
        assert all(
            sizes == [len(sizes)] * len(sizes) for n, sizes in batches.items() if n > min(batches)
        )
        assert acked <= max(batches)
        s.abandon()
