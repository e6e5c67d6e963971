"""Power cuts while a log is appended to and cut at both ends: what was cut stays away."""

import random

import pytest

from tests.cext.stream import TestEnv, open_test_stream
from tests.sim.disk import SimDisk, SimLog
from tests.unit.stream_world import FILE, SECOND, stream_params

STEPS = 120


class History:
    """What may stand on disk: the log as each change of its file leaves it, and then some of what
    is staged."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimDisk(seed, bool(seed % 2))
        self.disk.mkdir(b"/S")
        self.now = 1_700_000_000 * SECOND
        self.possible: list[list[bytes]] = [[]]
        self.staged: list[bytes] = []
        self.number = 0
        self.start()

    def start(self) -> None:
        self.env = TestEnv(now=self.now)
        self.disk.attach(self.env)
        self.stream = open_test_stream(self.env, stream_params(storage=FILE), b"/S")
        self.log = SimLog(self.stream, b"/S/o.log")
        got = self.log.replayed
        assert any(got == each for each in self.possible) or self.grew(got), (
            got,
            self.possible,
            self.staged,
        )
        self.possible = [got]
        self.staged = []
        self.ends = [0]
        for entry in got:
            self.ends.append(self.ends[-1] + 12 + len(entry))
        if self.log.end() != self.ends[-1]:  # a cut left a hole in what came last
            assert any(place.kind == "log" for place in self.stream.lost().places)
            self.ends = [self.log.end()]
            self.possible = [got, []]
            assert self.log.cut_head(self.log.end()) == 0

    def grew(self, got: list[bytes]) -> bool:
        n = len(self.possible[-1])
        left = iter(self.staged)
        return got[:n] == self.possible[-1] and all(entry in left for entry in got[n:])

    def step(self) -> None:
        pick = self.random.random()
        entries = self.possible[-1] + self.staged
        if pick < 0.5:
            self.number += 1
            size = self.random.choice([1, 40, 480, 2000])
            self.staged.append((b"%d." % self.number).ljust(size, b"."))
            assert self.log.append(self.staged[-1]) == 0
            self.ends.append(self.log.end())
        elif pick < 0.6:
            self.cut_tail(self.random.randint(0, len(entries)))
        elif pick < 0.7:
            self.cut_head(self.random.randint(0, len(entries)))
        elif pick < 0.9:
            self.disk.commit(self.env)
            self.possible, self.staged = [entries], []
        else:
            self.power_cut()

    def cut_tail(self, left: int) -> None:
        assert self.log.cut_tail(self.ends[left]) == 0
        del self.ends[left + 1 :]
        filed = len(self.possible[-1])
        if left < filed:
            self.possible.append(self.possible[-1][:left])
        self.staged = self.staged[: max(0, left - filed)]

    def cut_head(self, gone: int) -> None:
        assert self.log.cut_head(self.ends[gone]) == 0
        del self.ends[:gone]
        filed = len(self.possible[-1])
        if gone:
            self.possible.append(self.possible[-1][gone:])
        self.staged = self.staged[max(0, gone - filed) :]

    def power_cut(self) -> None:
        self.disk.cut_after(self.random.randint(0, 14))
        self.disk.commit(self.env)
        self.stop()
        self.disk.cut()
        self.start()

    def stop(self) -> None:
        self.stream.close(False)
        self.now = self.env.now
        self.disk.detach(self.env)


@pytest.mark.parametrize("seed", range(60))
def test_what_was_cut_off_a_log_stays_away(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.stop()


CALLS = range(8)


@pytest.mark.parametrize("calls", CALLS)
def test_a_log_that_has_both_names_of_a_rename_stays_whole(calls: int) -> None:
    """A power cut in a rename may leave the file under the temporary name, too. The next one that
    writes there, and is cut off, has not written into the log."""
    history = History(calls)
    for number in range(20):
        history.staged.append(b"%d" % number)
        assert history.log.append(history.staged[-1]) == 0
        history.ends.append(history.log.end())
    history.disk.commit(history.env)
    history.possible, history.staged = [history.staged], []
    history.disk.link(b"/S/o.log", b"/S/o.log.tmp")
    history.cut_head(10)
    history.disk.cut_after(calls)
    history.disk.commit(history.env)
    history.stop()
    history.disk.cut()
    history.start()
    history.stop()
