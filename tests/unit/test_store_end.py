"""Streams that are closed or removed while the maintenance thread is at work on their files."""

import os
import random
import time
from pathlib import Path

import pytest

from tests.cext.stream import TestEnv
from tests.unit.stream_world import FILE, World

SECONDS = float(os.environ.get("STORE_END_SECONDS", "4"))
MESSAGES = 2600
BLOCK = 400
"""Messages of a block, or somewhat more."""


def worn(env: TestEnv, directory: Path, rng: random.Random) -> World:
    """A stream whose blocks are worth compacting; of some nothing is left."""
    world = World(env, str(directory), storage=FILE, max_bytes=120_000, discard="new")
    for n in range(MESSAGES):
        env.inject(b"s.%d" % (n % 50), b"x" * rng.choice((5, 20)))
    gone = {n for n in range(1, 4 * BLOCK) if n % BLOCK < BLOCK - 10 and rng.random() < 0.9}
    if rng.random() < 0.7:
        gone |= set(range(1, MESSAGES - rng.choice((50, 400, 900))))
    last = world.stream.state().last_seq
    for seq in sorted(gone):
        if seq < last:
            world.stream.delete(seq, False)
    return world


def wait_for_compaction(directory: Path, seconds: float) -> bool:
    """At most so long, or until a block is written anew."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(name.endswith(".blk.tmp") for name in os.listdir(directory / "msgs")):
            return True
    return False


@pytest.mark.timeout(90)
def test_an_end_beside_compaction(tmp_path: Path) -> None:
    """It neither waits for ever nor leaves anything of the stream with the threads of all."""
    rng = random.Random(2)
    env = TestEnv()
    env.start_commits()
    env.listen(b"inbox")
    end = time.monotonic() + SECONDS
    turn = met = 0
    while time.monotonic() < end or not met:
        directory = tmp_path / str(turn)
        directory.mkdir()
        world = worn(env, directory, rng)
        met += wait_for_compaction(directory, rng.random() * 0.1)
        remove = rng.random() < 0.4
        state = world.stream.state()
        world.stream.close(remove)
        if not remove:
            world = World(env, str(directory), storage=FILE, max_bytes=120_000, discard="new")
            assert world.stream.state() == state
            assert world.stream.lost().damage == 0
            world.stream.close(True)
        env.poll()
        turn += 1
    env.stop_commits()
