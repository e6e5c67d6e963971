"""A batch is there as a whole or not at all, whatever a power cut leaves of the disk."""

import random

import pytest

from tests.sim.disk import messages
from tests.sim.life import Life
from tests.unit.stream_world import SECOND, headers

LAZY = 120 * SECOND
MODES = [0, LAZY]
Message = tuple[bytes, bytes, bytes]


class Batches(Life):
    """A stream whose messages all have other data."""

    number = 0

    def data(self, size: int) -> bytes:
        self.number += 1
        return b"%d." % self.number + bytes(size)

    def plain(self, sizes: list[int], subjects: int = 3) -> list[bytes]:
        sent = [self.data(size) for size in sizes]
        for k, data in enumerate(sent):
            self.env.inject(b"s.%d" % (k % subjects), data, b"ack.%s" % data[:9])
        return sent

    def batch(self, sizes: list[int], subjects: int = 3, header: bytes = b"") -> list[bytes]:
        self.env.stage(self.stream)
        sent = [self.data(size) for size in sizes]
        for k, data in enumerate(sent):
            last = header if k + 1 == len(sent) else b""
            self.env.inject(b"s.%d" % (k % subjects), data, b"ack.%s" % data[:9], last)
        self.env.stage_end(self.stream, True)
        return sent

    def cut_hearing(self, calls: int) -> set[bytes]:
        """As cut; whose acks came before."""
        self.disk.cut_after(calls)
        self.commit()
        acked = {m[0] for m in self.env.take() if b'"error"' not in m[4]}
        self.stop()
        self.disk.cut()
        self.start()
        return acked

    def there(self, sent: list[bytes]) -> bool:
        """Whether all of a batch is, or nothing of it; AssertionError else."""
        live = {m[2] for m in messages(self.stream).values()}
        found = [data in live for data in sent]
        assert all(found) or not any(found), found
        return all(found)


def was_acked(sent: list[bytes], acked: set[bytes]) -> bool:
    heard = [b"ack.%s" % data[:9] in acked for data in sent]
    assert all(heard) or not any(heard), heard
    return all(heard)


SHAPES = {
    "small": [10] * 3,
    "sectors": [300] * 9,
    "large": [9000] * 3,
    "two blocks": [3000] * 14,
    "four blocks": [9000] * 12,
    "a block each": [40_000] * 3,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(30))
def test_a_first_batch_is_there_or_not(seed: int, shape: str, mode: int) -> None:
    sizes = SHAPES[shape]
    for calls in range(0, 30, 2):
        life = Batches(seed + 100 * calls, mode, max_msgs=60)  # blocks of 32,000 bytes
        if seed % 3:
            life.plain([200] * (seed % 5))
            life.commit()
        sent = life.batch(sizes)
        acked = life.cut_hearing(calls + seed % 2)
        assert life.there(sent) or not was_acked(sent, acked)
        assert life.stream.lost().sequences == []
        again = life.batch(sizes)
        life.commit()
        life.cut()
        assert life.there(again)
        life.stop()


@pytest.mark.parametrize("seed", range(30))
def test_a_batch_behind_what_closed_an_idle_group_is_there_or_not(seed: int) -> None:
    """That is not synced: it may be missing together with the batch's beginning."""
    for calls in range(6):
        life = Batches(seed + 100 * calls)
        life.batch([30, 30])
        life.commit()
        for _ in range(2):
            life.env.advance(SECOND)
            life.commit()
        sent = life.batch([300 * (seed % 8), 36])
        life.plain([5])
        life.cut(calls)
        life.there(sent)
        life.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(30))
def test_a_later_batch_is_there_or_not_with_what_it_removes(
    seed: int, shape: str, mode: int
) -> None:
    sizes = SHAPES[shape]
    header = headers(Nats_Rollup=("sub", "all")[seed % 2]) if seed % 3 == 0 else b""
    for calls in range(0, 26, 2):
        life = Batches(seed + 100 * calls, mode, max_msgs=60, max_msgs_per_subject=4)
        life.batch([100] * 4)
        life.commit()
        life.plain([50] * 2)
        life.batch([2000] * 5)
        life.commit()
        life.disk.upkeep(life.env)
        before = messages(life.stream)
        sent = life.batch(sizes, header=header)
        after = messages(life.stream)
        acked = life.cut_hearing(calls + seed % 2)
        live = messages(life.stream)
        if mode == 0:
            assert live in (before, after)
        if life.there([data for data in sent if any(m[2] == data for m in after.values())]):
            assert {s: m for s, m in live.items() if m[2] in sent} == {
                s: m for s, m in after.items() if m[2] in sent
            }
        else:
            assert not was_acked(sent, acked)
        assert mode or life.stream.lost().sequences == []
        life.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(200))
def test_batches_of_one_round_are_there_or_not_each(seed: int, mode: int) -> None:
    """With what is published one by one before, between and behind them."""
    chance = random.Random(seed)
    life = Batches(seed, mode, max_msgs=chance.choice([-1, 60, 400]))
    history: list[list[bytes]] = []
    for _ in range(chance.randint(1, 4)):
        fresh: list[list[bytes]] = []
        alone: list[bytes] = []
        for _ in range(chance.randint(1, 5)):
            sizes = [chance.choice([0, 50, 300, 700, 3000, 9000])] * chance.randint(2, 12)
            if chance.random() < 0.6:
                fresh.append(life.batch(sizes))
            else:
                alone += life.plain(sizes)
        acked = life.cut_hearing(chance.choice([0, 1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 40]))
        live = {m[2] for m in messages(life.stream).values()}
        for sent in fresh:
            kept = [data for data in sent if data in live]
            if life.params["max_msgs"] < 0:
                assert life.there(sent) or not was_acked(sent, acked)
            else:  # the oldest may have left
                assert kept == sent[len(sent) - len(kept) :]
        if mode == 0 and life.params["max_msgs"] < 0:
            assert {b"ack.%s" % data[:9] for data in alone if data not in live}.isdisjoint(acked)
            for sent in history:
                assert life.there(sent)
        history = [sent for sent in history + fresh if set(sent) <= live]
    life.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_what_stands_before_a_batch_stays_when_a_later_group_fails(seed: int, mode: int) -> None:
    """Also where it fills its block, so that the batch begins in the next one."""
    life = Batches(seed, mode, max_msgs=60)  # blocks of 32,000 bytes
    life.plain([9000] * 3)
    life.batch([9000] * 3)
    life.commit()
    before = messages(life.stream)
    life.plain([10])
    life.disk.fail("write", 5)
    life.commit()
    life.stream.reopen()
    assert messages(life.stream) == before


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(30))
def test_a_batch_that_a_kill_left_unsynced_is_there_or_not(seed: int, shape: str) -> None:
    """What follows it, though it be only a block, says that it is on disk."""
    for calls in range(0, 30, 3):
        life = Batches(seed + 100 * calls, LAZY, max_msgs=60)  # blocks of 32,000 bytes
        life.plain([200] * (seed % 5))
        life.commit()
        sent = life.batch(SHAPES[shape])
        life.kill(calls + seed % 3)
        life.there(sent)
        life.plain([9000] * (seed % 4))
        life.cut(4)
        life.there(sent)
        life.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_a_batch_is_whole_though_the_marker_that_closed_its_first_block_is_torn(
    seed: int, mode: int
) -> None:
    for k in range(50):
        life = Batches(seed + 100 * k, mode, max_msgs=60)  # blocks of 32,000 bytes
        sent = life.batch([3000] * 10 + [100 + 4 * k] + [3000] * 3)
        life.cut_hearing(15 + k % 2)  # the marker is written by then, and not synced
        life.there(sent)
        life.stop()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(20))
def test_a_group_that_goes_as_a_whole_takes_no_purge_along(seed: int, mode: int) -> None:
    for calls in range(24):
        life = Batches(seed + 100 * calls, mode, max_msgs=60)  # blocks of 32,000 bytes
        life.plain([9000] * 2)
        life.batch([10] * 2)
        life.commit()
        life.stream.purge(None, 0, 0)
        life.plain([10] * (seed % 3) + [40_000] * 2)
        (life.cut if seed % 2 else life.kill)(calls)
        assert life.stream.state().last_seq >= 4
        assert life.stream.lost().sequences == []
        life.stop()
