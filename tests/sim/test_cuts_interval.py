"""Power cuts and kills of a stream with a `sync_interval`: each for many disks."""

import random
from collections.abc import Iterator

import pytest

from tests.sim.disk import messages
from tests.sim.life import DISKS, STORE_ERROR, Life
from tests.unit.stream_world import (
    SECOND,
    WORKQUEUE,
)

EIO = 5


def failed(life: Life) -> bool:
    return any(event[0] == STORE_ERROR for event in life.env.events)


@pytest.fixture(params=DISKS)
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


@pytest.mark.parametrize("seed", [1])
def test_with_an_interval_a_block_goes_when_what_took_its_place_is_synced(seed: int) -> None:
    life = Life(seed, sync_interval=2 * SECOND, max_bytes=30_000)  # blocks of 32,000 bytes
    for _ in range(3):
        life.publish(bytes(9000))
    life.commit()
    for _ in range(6):
        life.publish(bytes(9000))
    life.commit()
    assert b"1.blk" in life.disk.names(b"/S/msgs")
    life.env.advance(3 * SECOND)
    life.commit()
    assert b"1.blk" not in life.disk.names(b"/S/msgs")
    assert set(messages(life.stream)) == {7, 8, 9}


def survives_a_cut_after_a_stop(life: Life) -> None:
    live = messages(life.stream)
    life.stop()
    life.disk.cut()
    life.start()
    assert messages(life.stream) == live
    assert life.stream.lost().sequences == []


def test_with_an_interval_a_stop_syncs(seed: int) -> None:
    life = Life(seed, sync_interval=2 * SECOND, max_msgs=60)
    for _ in range(6):
        life.publish(bytes(9000))
    life.stream.delete(2, True)
    survives_a_cut_after_a_stop(life)


def test_with_an_interval_a_stop_syncs_what_it_writes_itself(seed: int) -> None:
    """Where all that was there before is synced."""
    life = Life(seed, sync_interval=2 * SECOND, max_msgs=60)
    for _ in range(2):
        life.publish(bytes(9000))
        life.commit()
        life.env.advance(3 * SECOND)
        life.commit()
    for _ in range(6):
        life.publish(bytes(9000))
    survives_a_cut_after_a_stop(life)


@pytest.mark.parametrize("idle", [False, True])
def test_with_an_interval_what_aged_does_not_come_back_by_another_age(
    seed: int, idle: bool
) -> None:
    """The configuration is synced when it changes; so is what the one before took by then, also
    where that was written when the stream was idle."""
    life = Life(seed, sync_interval=10 * SECOND, max_age=12 * SECOND)
    life.publish(bytes(300))
    life.commit()
    life.env.advance(10 * SECOND)
    life.commit()  # and synced
    life.env.advance(3 * SECOND)
    if idle:
        life.commit()
    assert messages(life.stream) == {}
    life.env.settle(life.stream)
    life.commit()
    life.update(max_age=0)
    life.cut()
    assert messages(life.stream) == {}
    assert life.stream.lost().sequences == []


def test_with_an_interval_what_a_kill_left_is_synced_in_time(seed: int) -> None:
    life = Life(seed, sync_interval=2 * SECOND)
    for _ in range(6):
        life.publish(bytes(900))
    life.commit()
    live = messages(life.stream)
    life.kill()
    assert messages(life.stream) == live
    life.env.advance(3 * SECOND)
    life.commit()
    life.cut()
    assert messages(life.stream) == live


def test_with_an_interval_a_checkpoint_that_was_removed_does_not_come_back(seed: int) -> None:
    """It would say that what a power cut tore had been there whole, and what follows stays."""
    for k in range(8):
        life = Life(seed + k * len(DISKS), sync_interval=2 * SECOND, consumer=False)
        life.publish()
        life.commit()
        life.stop()
        life.start()
        life.publish()
        life.kill(1)  # it is removed, the directory is not synced
        for _ in range(12):
            life.publish(bytes(900))
        life.commit()
        life.cut()
        live = messages(life.stream)
        assert list(live) == list(range(1, len(live) + 1))


@pytest.mark.parametrize("calls", range(10))
def test_with_an_interval_a_consumer_passes_nothing_that_came_after_a_cut(
    seed: int, calls: int
) -> None:
    """Its log may be ahead of the blocks, and of what the next life stores."""
    life = Life(seed, sync_interval=2 * SECOND, retention=WORKQUEUE)
    for _ in range(6):
        life.publish(bytes(900))
    for seq in life.pull():
        life.ack(seq)
    life.commit()
    life.cut()
    for _ in range(6):
        life.publish(b"new" + bytes(900))
    life.kill(calls)
    new = {seq for seq, m in messages(life.stream).items() if m[2].startswith(b"new")}
    assert new <= set(life.pull())


Messages = dict[int, tuple[bytes, bytes, bytes]]


def was_there(live: Messages, states: list[Messages]) -> bool:
    """At some time; what a limit removed with the last group may be left, when its end was torn and
    a delete in it made room."""
    for k, state in enumerate(states):
        left = {seq: m for seq, m in live.items() if seq >= min(state, default=0)}
        before = {seq: m for s in states[:k] for seq, m in s.items()}
        if left == state and all(before.get(seq) == live[seq] for seq in live.keys() - state):
            return True
    return False


SHAPES = {"one block": (300, 30), "several blocks": (6000, 14), "a block each": (40_000, 6)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("per_subject", [-1, 2])
def test_with_an_interval_a_cut_leaves_what_was_there_at_some_time(
    seed: int, per_subject: int, shape: str
) -> None:
    """No removal without its cause, and nothing of before the last sync."""
    size, count = SHAPES[shape]
    chance = random.Random(seed)
    life = Life(
        seed,
        sync_interval=2 * SECOND,
        max_msgs=chance.choice([60, 10]),  # blocks of 32,000 bytes
        max_msgs_per_subject=per_subject,
    )
    for _ in range(3):
        states = [messages(life.stream)]
        for _ in range(count):
            life.publish(bytes(size), b"s.%d" % chance.randrange(9))
            states.append(messages(life.stream))
            if chance.random() < 0.2:
                life.stream.delete(chance.choice(sorted(states[-1])), False)
                states.append(messages(life.stream))
            life.commit()
            if chance.random() < 0.1:  # sidecars and the dictionary of subjects
                life.disk.upkeep(life.env)
            if chance.random() < 0.05:
                life.env.advance(3 * SECOND)
                life.commit()
                del states[:-1]
        life.cut()
        live = messages(life.stream)
        assert was_there(live, states)
        assert life.stream.lost().sequences == []
        life.cut()
        assert messages(life.stream) == live


@pytest.mark.parametrize("shape", SHAPES)
def test_with_an_interval_what_a_kill_leaves_is_no_hole(seed: int, shape: str) -> None:
    """Neither where it ended a block, nor where older ones left."""
    size, count = SHAPES[shape]
    life = Life(seed, sync_interval=2 * SECOND, max_msgs=10)
    for k in range(6):
        for _ in range(count):
            life.publish(bytes(size))
            if k % 2:
                life.commit()
        life.commit()
        live = messages(life.stream)
        if k == 3:
            life.env.advance(3 * SECOND)
            life.commit()
        life.kill()
        assert messages(life.stream) == live


def test_with_an_interval_what_a_failed_sync_lost_is_on_disk_after_the_next(seed: int) -> None:
    """The system takes it for written: only who writes it again has it synced."""
    life = Life(seed, sync_interval=2 * SECOND)
    for _ in range(20):
        life.publish(bytes(900))
    life.commit()
    life.disk.fail("sync", EIO)
    life.env.advance(3 * SECOND)
    life.commit()
    life.stream.reopen()
    life.stream.resume()
    live = messages(life.stream)
    life.env.advance(3 * SECOND)
    life.commit()
    life.cut()
    assert messages(life.stream) == live
    assert life.stream.lost().sequences == []


def test_with_an_interval_a_sync_that_fails_for_a_sidecar_is_heard_of(seed: int) -> None:
    life = Life(seed, sync_interval=2 * SECOND, max_msgs=60)  # blocks of 32,000 bytes
    for _ in range(6):
        life.publish(bytes(9000))
    life.commit()
    life.disk.fail("sync", EIO)
    life.disk.upkeep(life.env)
    assert failed(life)
    life.stream.reopen()
    life.stream.resume()
    live = messages(life.stream)
    life.env.advance(3 * SECOND)
    life.commit()
    life.cut()
    assert messages(life.stream) == live


@pytest.mark.parametrize("after", range(8))
def test_with_an_interval_no_sync_counts_behind_one_of_the_upkeep_that_failed(
    seed: int, after: int
) -> None:
    """The same one, made again, does not fail once more, though what it is of is lost."""
    chance = random.Random(seed)
    life = Life(seed, sync_interval=2 * SECOND, max_msgs=10, max_msgs_per_subject=2)
    states = [messages(life.stream)]

    def store() -> None:
        life.publish(bytes(6000), b"s.%d" % chance.randrange(9))
        states.append(messages(life.stream))
        life.commit()

    for _ in range(14):
        store()
    life.disk.fail("sync", EIO, after)
    life.disk.upkeep(life.env)
    life.disk.mend()
    if failed(life):
        life.stream.reopen()
        life.stream.resume()
        states.append(messages(life.stream))
    for _ in range(7):
        store()
    life.disk.upkeep(life.env)
    life.cut()
    assert messages(life.stream) in states
    assert life.stream.lost().sequences == []


@pytest.mark.parametrize("interval", [0, 2 * SECOND])
@pytest.mark.parametrize("after", range(10))
def test_a_stream_whose_purge_is_made_before_something_else_fails_goes_on(
    interval: int, after: int
) -> None:
    life = Life(1, sync_interval=interval)
    for _ in range(6):
        life.publish(bytes(900))
    life.commit()
    for _ in range(3):  # idle: its files are closed
        life.env.advance(3 * SECOND)
        life.commit()
    life.stream.purge(None, 0, 0)
    life.publish(b"next")
    life.disk.fail("sync", EIO, after)
    life.env.advance(3 * SECOND)
    life.commit()
    if failed(life):
        life.stream.reopen()
        life.stream.resume()
    life.publish(b"last")
    life.commit()
    assert [m[2] for m in messages(life.stream).values()][-1] == b"last"


def test_with_an_interval_an_erasure_that_a_purge_overtook_leaves_no_hole(seed: int) -> None:
    life = Life(seed, sync_interval=2 * SECOND)
    for _ in range(3):
        life.publish(bytes(900))
    life.stream.delete(2, True)
    life.stream.purge(None, 0, 0)
    life.publish(b"kept")
    life.commit()
    life.kill()
    assert [m[2] for m in messages(life.stream).values()] == [b"kept"]
