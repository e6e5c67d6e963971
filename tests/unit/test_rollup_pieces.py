"""A rollup of a subject with many messages removes them in pieces, while other publishes wait."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.consumer_disk import Disk, until
from tests.unit.stream_world import World, headers

MANY = 5000
ROLLUP = headers(Nats_Rollup="sub")


@pytest.fixture
def disk(tmp_path: Path):
    d = Disk(tmp_path / "data")
    yield d
    for w in list(d.worlds):
        d.close(w)


def fill(world: World) -> None:
    """Two thirds of the messages are on `s.a`."""
    for n in range(MANY + MANY // 2):
        world.env.inject(b"s.b.%d" % (n % 9) if n % 3 == 0 else b"s.a", b"x")
    world.env.take()


def ack(seq: int) -> str:
    return f'{{"stream":"S","seq":{seq}}}'


def roll_up(world: World, reply: bytes) -> None:
    world.env.inject(b"s.a", b"new", reply, ROLLUP, run=False)


def test_publishes_wait_for_it_and_others_do_not() -> None:
    world = World(allow_rollup_hdrs=True)
    fill(world)
    seen = world.consumer(filters=(b"s.a",), max_ack_pending=-1)
    other = world.consumer(name=b"D", filters=(b"s.b.>",))
    last = MANY + MANY // 2
    roll_up(world, b"r1")
    world.env.inject(b"s.a", b"behind", b"r2", run=False)
    world.env.inject(b"s.a", b"again", b"r3", ROLLUP, run=False)
    assert world.env.take() == []
    counts = []
    while world.env.run(1):
        counts.append(world.stream.state().messages)
    assert max(a - b for a, b in pairwise(counts)) <= 1000
    assert len(set(counts)) >= 4
    assert [(m[0], m[4].decode()) for m in world.env.take()] == [
        *((b"r1", ack(last + 1)), (b"r2", ack(last + 2)), (b"r3", ack(last + 3)))
    ]
    state = world.stream.state()
    assert (state.messages, state.last_seq) == (MANY // 2 + 1, last + 3)
    assert world.message(last + 3).data == b"again"
    assert world.stream.get(last + 1) is None
    assert seen.state().num_pending == 1
    assert other.state().num_pending == MANY // 2


def test_what_was_delivered_is_not_awaited_any_more() -> None:
    world = World(allow_rollup_hdrs=True)
    fill(world)
    seen = world.consumer(filters=(b"s.a",), max_ack_pending=-1)
    world.pull(b'{"batch":3000}')
    assert seen.state().num_ack_pending == 3000
    roll_up(world, b"r1")
    world.env.run()
    state = seen.state()
    assert (state.num_ack_pending, state.num_pending) == (0, 1)


def test_it_is_acked_when_all_of_it_is_durable(disk: Disk) -> None:
    world = disk.open(consumers=(), allow_rollup_hdrs=True, held=True)
    fill(world)
    roll_up(world, b"r1")
    world.env.run()
    assert not [m for m in world.env.take() if m[0] == b"r1"]
    world.env.release_commits()
    until(world, lambda: any(m[0] == b"r1" for m in world.env.sent))
    assert world.stream.state().messages == MANY // 2 + 1


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_start_after_a_crash_finishes_it(disk: Disk, turns: int) -> None:
    world = disk.open(consumers=(), allow_rollup_hdrs=True)
    fill(world)
    until(world, lambda: world.stream.unsettled() == 0)
    roll_up(world, b"r1")
    world.env.inject(b"s.a", b"behind", b"r2", run=False)
    for _ in range(turns):
        world.env.run(1)
    world.stream.wait_durable()
    folder = disk.killed(world, f"killed-{turns}")
    assert not [m for m in world.env.sent if m[0] in (b"r1", b"r2")]
    again = disk.open(folder, consumers=(), allow_rollup_hdrs=True)
    last = MANY + MANY // 2 + 1
    state = again.stream.state()
    assert (state.messages, state.last_seq) == (MANY // 2 + 1, last)
    assert again.message(last).data == b"new"


def test_a_stream_that_is_changed_meanwhile() -> None:
    world = World(allow_rollup_hdrs=True)
    fill(world)
    last = MANY + MANY // 2
    roll_up(world, b"r1")
    world.env.inject(b"s.c", b"behind", b"r2", run=False)
    world.env.run(1)
    assert world.stream.delete(1, False)
    world.stream.purge(b"s.b.*", 0, 0)
    world.env.run()
    assert [(m[0], m[4].decode()) for m in world.env.take()] == [
        *((b"r1", ack(last + 1)), (b"r2", ack(last + 2)))
    ]
    assert [world.message(seq).data for seq in (last + 1, last + 2)] == [b"new", b"behind"]
    assert world.stream.state().messages == 2
