"""A group's directory after power cuts: sectors that were not synced are there, gone, or torn.

`RAFT_CUTS` (1000) says how many images are looked at.
"""

import os

import pytest

from tests.cext.raftlog import Machine
from tests.cext.stream import TestEnv
from tests.raft.lives import Life
from tests.sim.disk import SimDisk

SEEDS = 20
CUTS = int(os.environ.get("RAFT_CUTS", "1000")) // SEEDS
INTERVAL = 2_000_000_000
FOUND = [
    32,  # a block with a cut record went before the block of which the record speaks
    54,  # what a killed server had left was confirmed before a sync
]
"""Histories that were wrong once, both with a sync_interval."""


class Power:
    """A server with one group, on a disk that loses its power or whose process is killed."""

    def __init__(self, seed: int, sync_interval: int) -> None:
        self.disk = SimDisk(seed, bool(seed % 2))
        self.disk.mkdir(b"/G")
        self.sync_interval = sync_interval
        self.now = 1_700_000_000_000_000_000
        self.doubtful = 0  # starts that took what a cut left for damage
        self.on()
        self.life = Life(self.machine, b"/G", seed)

    def on(self) -> None:
        self.env = TestEnv(now=self.now)
        self.disk.attach(self.env, self.sync_interval)
        self.machine = Machine(self.env)

    def off(self) -> None:
        self.life.d.close()
        self.machine.close()
        self.now = self.env.now
        self.disk.detach(self.env)

    def run(self) -> None:
        """Until the power goes."""
        self.disk.cut_after(self.life.random.randrange(60))
        for _ in range(100):
            self.life.step()
            if self.disk.dead:
                break
        self.killed = self.life.random.random() < 0.3
        self.lost = self.life.d.state()["lost"]
        self.disk.stop()
        self.off()
        if self.killed:
            self.disk.kill()
        else:
            self.disk.cut()

    def again(self) -> None:
        self.on()
        self.life.begin(self.machine)
        aside = self.life.d.found["aside"]
        assert not aside or not self.killed or self.lost, self.disk.names(b"/G")
        self.doubtful += aside > 0
        names = self.disk.names(b"/G")
        self.life.check(self.life.d, self.disk.read(b"/G/tav.idx") if b"tav.idx" in names else b"")
        self.life.follow()


@pytest.mark.parametrize("sync_interval", [0, INTERVAL], ids=["each round", "at times"])
@pytest.mark.parametrize("seed", [*range(1, SEEDS // 2 + 1), *FOUND])
def test_what_was_said_is_there_after_a_power_cut(seed: int, sync_interval: int) -> None:
    power = Power(seed, sync_interval)
    for _ in range(CUTS if seed not in FOUND else 6):
        power.run()
        power.again()
    assert power.life.promised
    # Of a block that is torn nobody can say whether it was on disk before. The member then counts
    # as one that lost something until it has heard a leader; that has to be rare.
    assert power.doubtful * 10 <= CUTS or seed in FOUND
    power.off()
