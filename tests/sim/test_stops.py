"""Power cuts behind clean stops: each for many disks, which keep different things."""

import pytest

from tests.sim.disk import messages
from tests.sim.life import DISKS, Life
from tests.sim.test_cuts import with_a_full_block
from tests.unit.stream_world import SECOND


@pytest.mark.parametrize("seed", DISKS)
def test_an_erasure_that_a_cut_behind_a_stop_tears_loses_nothing(seed: int) -> None:
    """A stop does not sync the zeros that an erasure writes: its tombstone, which is on disk, says
    that the message is gone."""
    life = with_a_full_block(seed)
    life.publish(bytes(9000), b"s.c")  # does not fit
    life.commit()
    life.stream.delete(11, True)
    life.commit()
    life.stop()
    life.disk.cut()
    for _ in range(2):
        life.start()
        assert set(messages(life.stream)) == {1, 12}
        assert life.stream.state().last_seq == 12
        assert life.stream.lost().sequences == []
        life.disk.stop()
        life.stop()
        life.disk.kill()


@pytest.mark.parametrize("journal", [0, 1 << 20])
@pytest.mark.parametrize("seed", DISKS)
def test_a_cut_behind_a_stop_takes_nothing_and_is_no_damage(seed: int, journal: int) -> None:
    """What closes the last group at a stop is not synced, nor is the size that the file gets. What
    a cut leaves of such a marker is put aside."""
    life = Life(seed, journal=journal)
    acked: set[int] = set()
    for turn in range(4):
        for _ in range(1 + seed % 3):
            life.publish(bytes(100 * (seed % 9)))
        life.commit()
        acked = set(messages(life.stream))
        if turn % 2:
            life.env.advance(SECOND)
            life.commit()
        life.stop()
        if turn != seed % 4:
            life.disk.cut()
        life.start()
        assert set(messages(life.stream)) == acked
        assert life.stream.lost().sequences == []
        assert {place.kind for place in life.stream.lost().places} <= {"tail"}
