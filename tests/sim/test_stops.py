"""Power cuts behind clean stops: each for many disks, which keep different things."""

import pytest

from tests.sim.disk import messages
from tests.sim.life import DISKS
from tests.sim.test_cuts import with_a_full_block


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
