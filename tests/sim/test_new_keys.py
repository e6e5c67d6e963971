"""Starts with a key on a disk where a start without one was killed."""

import pytest

from tests.sim.disk import look
from tests.sim.life import Life

AHEAD = [0, 512, 4096]


@pytest.mark.parametrize("ahead", AHEAD)
def test_a_block_that_was_written_ahead_in_clear_is_no_damage(ahead: int) -> None:
    """The zeros in it are none of what is written there with a key from then on."""
    life = Life(7, consumer=False)
    life.publish(b"in clear")
    life.kill(40)
    life.disk.write(b"/S/msgs/2.blk", bytes(ahead))
    life.secret = b"secret"
    life.kill()
    life.publish(b"encrypted")
    life.commit()
    for _ in range(2):
        life.kill()
        assert look(life.stream)[2] == 2
        assert life.stream.lost().places == []
    life.stop()
