"""Power cuts between a rollup and what it removes: a start finishes it, or it never was."""

from collections.abc import Iterator

import pytest

from tests.sim.disk import messages
from tests.sim.life import DISKS, Life
from tests.unit.stream_world import SECOND, headers


@pytest.fixture(params=DISKS)
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


def test_a_rollup_that_a_start_finished_stays_finished(seed: int) -> None:
    """Of its group a cut left the rollup without the marker that says what it removed."""
    life = Life(seed)
    for _ in range(5):
        life.publish()
    life.commit()
    life.publish(bytes(50), header=headers(Nats_Rollup="all"))
    life.cut(1)
    live = messages(life.stream)
    for _ in range(3):
        life.publish(bytes(600))
    life.cut(1)
    now = messages(life.stream)
    assert [seq for seq in now if seq <= 5] == [seq for seq in live if seq <= 5]


@pytest.mark.parametrize("kind", ["all", "sub"])
@pytest.mark.parametrize("behind", [[700] * 5, [9000] * 9])  # in one block, over several
def test_a_rollup_is_served_with_what_it_removes_gone(
    seed: int, behind: list[int], kind: str
) -> None:
    """Also where a cut left messages behind it, and nothing of what removed the others."""
    for calls in [1, 2, 3, 4, 5, 8]:
        life = Life(seed, consumer=False, max_msgs=60)  # blocks of 32,000 bytes
        for n in range(6):
            life.publish(bytes(600), b"s.a" if n % 2 else b"s.b")
        life.commit()
        old = set(messages(life.stream))
        life.publish(bytes(600), header=headers(Nats_Rollup=kind))
        for size in behind:
            life.publish(bytes(size), b"s.c")
        life.cut(calls)
        live = set(messages(life.stream))
        removed = {seq for seq in old if kind == "all" or seq % 2 == 0}
        assert old - removed <= live
        assert live & removed == (set() if 7 in live else removed)
        life.cut(seed % 4)  # before that is on disk
        assert set(messages(life.stream)) == live
        for seq in sorted(live - old - {7}):
            life.stream.delete(seq, seq % 2 == 0)
        life.commit()
        life.kill()
        assert set(messages(life.stream)) == live & (old | {7})
        life.stop()


@pytest.mark.parametrize("interval", [0, 2 * SECOND])
def test_what_a_start_has_served_of_a_torn_first_group_no_later_one_removes(
    seed: int, interval: int
) -> None:
    """The rollup is not the last message, and there is no marker before it. That the store is our
    own, and the group torn, is known where sequences are reserved before anything is written."""
    for calls in range(2, 8):
        life = Life(seed, sync_interval=interval, consumer=False)
        for size in [60, 60, 60]:
            life.publish(bytes(size), b"s.a")
        life.publish(bytes(9000), b"s.b", header=headers(Nats_Rollup="all"))
        for size in [300, 9000, 700]:
            life.publish(bytes(size), b"s.c")
        life.cut(calls)
        live = set(messages(life.stream))
        if interval and 4 in live:
            assert not live & {1, 2, 3}
        if 6 in live:
            life.stream.delete(6, False)
        life.commit()
        life.kill()
        assert set(messages(life.stream)) == live - {6}
        life.kill()
        assert set(messages(life.stream)) == live - {6}


def test_a_rollup_before_a_batch_that_goes_is_finished(seed: int) -> None:
    """The marker in front of a batch says how what stands before it leaves the stream."""
    for calls in range(2, 10):
        life = Life(seed, consumer=False, max_msgs=60)
        for size in [16_000, 16_000, 600]:
            life.publish(bytes(size))
        life.commit()
        life.publish(header=headers(Nats_Rollup="all"))
        life.publish()
        life.env.stage(life.stream)
        for _ in range(9):
            life.publish(bytes(9000))
        life.env.stage_end(life.stream, True)
        life.cut(calls)
        live = set(messages(life.stream))
        assert 4 not in live or not live & {1, 2, 3}
        life.stop()


@pytest.mark.parametrize("calls", [0, 1, 2, 3, 5, 8, 13, 40])
def test_a_rollup_that_goes_in_pieces_is_finished_or_never_was(seed: int, calls: int) -> None:
    life = Life(seed, consumer=False)
    for n in range(1500):
        life.publish(subject=b"s.a" if n % 10 else b"s.b")
    life.commit()
    env = life.env
    env.take()
    env.inject(b"s.a", b"new", b"ack", headers(Nats_Rollup="sub"), run=False)
    env.inject(b"s.a", b"behind", b"late", run=False)
    for _ in range(seed % 4):
        env.run(1)
        if seed % 3:
            life.commit()
    acked = any(m[0] == b"ack" for m in env.take())
    life.cut(calls)
    acked = acked or any(m[0] == b"ack" and b"error" not in m[4] for m in env.take())
    left = set(messages(life.stream))
    old = {seq for seq in range(1, 1501) if (seq - 1) % 10}
    assert set(range(1, 1501)) - old <= left
    assert left & old in (set(), old)
    assert (1501 in left) == (not left & old)
    assert 1501 in left or not acked
