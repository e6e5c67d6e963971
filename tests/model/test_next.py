"""Following a stream with filters that stay, dense and sparse, while it changes under them."""

import bisect
import os
import random
import time

import pytest

from tests.cext.store import PyFilter, PyStore
from tests.model.test_store import matches

SCALE = int(os.environ.get("STORE_MODEL_SCALE", "1"))
RARE = [f"rare.{n}" for n in range(40)]
FILTERS = [
    *[("rare.1", "rare.2"), ("rare.*",), ("rare.1", "often.1"), ("often.*", "rare.>"), ("*.3",)],
    *[("rare.5", "none"), tuple(RARE[10:]), ("often.2", "often.1"), ("rare.7", "noise.1")],
]


class Followed:
    """A store, the sequences of each subject, and where each filter stands."""

    def __init__(self, rng: random.Random, directory: str | None) -> None:
        self.rng = rng
        self.files = directory is not None
        self.store = PyStore(directory, "S", commit="manual")
        self.live: dict[str, list[int]] = {}
        self.last = 0
        self.filters = [PyFilter(patterns) for patterns in FILTERS]
        self.at = [1] * len(FILTERS)

    def append(self, subject: str) -> None:
        self.last += 1
        assert self.store.append(subject) == self.last
        self.live.setdefault(subject, []).append(self.last)

    def noise(self, count: int) -> None:
        """Messages that only one of the filters is after, and that one for few of them."""
        self.store.append_many("noise.0", count, 1, 0)
        self.live.setdefault("noise.0", []).extend(range(self.last + 1, self.last + count + 1))
        self.last += count

    def remove(self, subject: str, count: int) -> None:
        for seq in self.rng.sample(self.live[subject], min(count, len(self.live[subject]))):
            self.store.remove(seq)
            self.live[subject].remove(seq)
        if not self.live[subject]:
            del self.live[subject]

    def grow(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([1, 5, 20])):
            kind = rng.random()
            if kind < 0.4:
                self.noise(rng.choice([10, 600, 3000, 20000]))
            elif kind < 0.6:
                subject = f"often.{rng.randrange(4)}"
                for _ in range(rng.choice([3, 100, 700])):
                    self.append(rng.choice(["often.1", subject]))
            else:
                self.append(rng.choice(RARE))

    def change(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.5 or not self.live:
            self.grow()
        elif kind < 0.8:
            self.remove(rng.choice(list(self.live)), rng.choice([1, 1, 3, 60]))
        elif kind < 0.9:
            pattern = rng.choice(["rare.1", "rare.*", "often.2", "*.3"])
            gone = [subject for subject in self.live if matches(pattern, subject)]
            assert self.store.purge((pattern,)) == sum(len(self.live.pop(s)) for s in gone)
        elif kind < 0.92:
            self.store.purge()
            self.live.clear()
            self.at = [1] * len(FILTERS)
        elif self.files:
            self.store.commit()
            self.store.reopen()

    def follow(self) -> None:
        """Every filter goes on for a while, or begins somewhere else, or asks behind itself."""
        rng = self.rng
        for k, patterns in enumerate(FILTERS):
            subjects = [s for s in self.live if any(matches(p, s) for p in patterns)]
            if rng.random() < 0.2:
                self.at[k] = rng.randint(1, self.last + 1)
            for _ in range(rng.choice([0, 1, 3, 40])):
                ahead = [self.live[s] for s in subjects if self.live[s][-1] >= self.at[k]]
                due = min((seqs[bisect.bisect_left(seqs, self.at[k])] for seqs in ahead), default=0)
                assert self.store.next(self.filters[k], self.at[k]) == due
                if not due:
                    break
                self.at[k] = due + 1
            start = rng.randint(1, self.last + 1)
            later = sum(
                len(self.live[s]) - bisect.bisect_left(self.live[s], start) for s in subjects
            )
            assert self.store.pending(self.filters[k], start) == later


@pytest.mark.parametrize("memory", [False, True], ids=["file", "memory"])
@pytest.mark.parametrize("seed", range(4 * SCALE))
def test_filters_that_stay_while_the_stream_changes(
    seed: int, memory: bool, tmp_path: os.PathLike[str]
) -> None:
    world = Followed(random.Random(seed), None if memory else str(tmp_path))
    for _ in range(120):
        world.change()
        world.follow()
    world.store.close()


@pytest.mark.parametrize("filters", [2, 32, 1000])
def test_following_several_subjects_takes_no_longer_than_looking_at_every_message(
    filters: int,
) -> None:
    store = PyStore(None, "S")
    store.append_many("s.#", 500_000, 1000, 0)
    patterns = PyFilter([f"s.{n}" for n in range(0, 1000, 1000 // filters)])
    seqs: list[int] = []
    seq = 0
    begin = time.process_time()
    while len(seqs) < 16_000 and (seq := store.next(patterns, seq + 1)):
        seqs.append(seq)
    # 3 us each, most of them for the call; hundreds where each step asks every subject.
    assert time.process_time() - begin < 1.0
    assert len(seqs) == min(16_000, 500 * filters)
    store.close()
