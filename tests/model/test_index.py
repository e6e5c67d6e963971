"""The subject index against a dict: subjects of any depth come and go, any pattern is asked for."""

import os
import random
import shutil
import tempfile
import time

import pytest

from tests.cext.store import PyFilter, PyStore
from tests.model.test_store import matches

SECOND = 1_000_000_000
SCALE = int(os.environ.get("STORE_MODEL_SCALE", "1"))


class Indexed:
    """A store and what is to be in it."""

    def __init__(self, rng: random.Random, base: str | None) -> None:
        self.rng = rng
        self.base = base
        self.now = 1_000_000 * SECOND
        self.live: dict[int, str] = {}
        self.open()

    def open(self) -> None:
        directory = os.path.join(self.base, "s") if self.base else None
        if directory:
            os.makedirs(directory, exist_ok=True)
        # Blocks of 32,000 bytes, so that they are sealed and get sidecars.
        self.store = PyStore(
            directory,
            "S",
            now=self.now,
            commit="manual",
            max_bytes=120_000,
            max_msgs_per=2,
            trim=False,
        )

    def subject(self) -> str:
        rng = self.rng
        if self.live and rng.random() < 0.5:
            tokens = rng.choice(list(self.live.values())).split(".")
            tokens = tokens[: rng.randint(1, len(tokens))]
            tokens += rng.choices("abc", k=rng.choice([0, 0, 1, 1, 2, 300]))
        else:
            tokens = rng.choices("aab", k=rng.choice([1, 2, 3, 4, 6, 9]))
        if rng.random() < 0.1:
            tokens[rng.randrange(len(tokens))] = "long" * rng.choice([2, 40, 4000])
        return ".".join(tokens)[:65535].removesuffix(".")

    def pattern(self) -> str:
        rng = self.rng
        tokens = (rng.choice(list(self.live.values())) if self.live else "a.b").split(".")
        for at in range(len(tokens)):
            if rng.random() < rng.choice([0, 0.1, 0.5, 1]):
                tokens[at] = "*"
        if rng.random() < 0.5:
            tokens = [*tokens[: rng.randint(0, len(tokens))], ">"]
        return ".".join(tokens)

    def change(self) -> None:
        rng = self.rng
        step = rng.random()
        if step < 0.6 or not self.live:
            subject = rng.choice([*self.live.values()][-3:] or ["a"])
            subject = subject if rng.random() < 0.2 else self.subject()
            for seq in [seq for seq, other in self.live.items() if other == subject][:-1]:
                del self.live[seq]
            self.live[self.store.append(subject, b"x" * 50, b"", self.now)] = subject
        elif step < 0.9:
            for seq in rng.sample(sorted(self.live), rng.randint(1, min(4, len(self.live)))):
                self.store.remove(seq, False)
                del self.live[seq]
        elif step < 0.94:
            pattern = self.pattern()
            gone = [seq for seq, subject in self.live.items() if matches(pattern, subject)]
            assert self.store.purge((pattern,)) == len(gone)
            for seq in gone:
                del self.live[seq]
        elif self.base and step < 0.97:
            self.store.reopen()
        elif self.base:
            self.store.commit()
            self.store.upkeep()  # sidecars: the next start places the subjects by their ids
            self.store.abandon()
            self.open()

    def check(self) -> None:
        store, live = self.store, self.live
        subjects = set(live.values())
        assert store.state()["num_subjects"] == len(subjects)
        for subject in self.rng.sample(sorted(subjects), min(4, len(subjects))):
            same = [seq for seq, other in live.items() if other == subject]
            assert (store.count_of(subject), store.last_of(subject)) == (len(same), same[-1])
            beyond = subject + ".never"
            assert store.count_of(beyond) == store.last_of(beyond) == 0
        single = [(self.pattern(),) for _ in range(5)]
        many = tuple(self.pattern() for _ in range(self.rng.choice([17, 60])))
        for patterns in [*single, tuple(self.pattern() for _ in range(4)), many]:
            hit = {s for s in subjects if any(matches(p, s) for p in patterns)}
            found = [seq for seq, subject in live.items() if subject in hit]
            counts: dict[str, int] = {}
            for seq in found:
                counts[live[seq]] = counts.get(live[seq], 0) + 1
            assert store.subjects(patterns) == counts
            assert store.pending(patterns, 1) == len(found)
            assert store.last(patterns) == max(found, default=0)
            kept = PyFilter(patterns)
            for start in [1, *self.rng.choices([1, *live], k=6)]:
                due = min((q for q in found if q >= start), default=0)
                assert store.next(kept, start) == due
                assert store.pending(kept, start) == sum(q >= start for q in found)
            assert store.last(kept) == max(found, default=0)


@pytest.mark.parametrize("memory", [False, True], ids=["file", "memory"])
@pytest.mark.parametrize("seed", range(6 * SCALE))
def test_subjects_of_any_depth(seed: int, memory: bool) -> None:
    base = tempfile.mkdtemp()
    try:
        world = Indexed(random.Random(seed), None if memory else base)
        for step in range(400):
            world.change()
            if step % 4 == 0:
                world.check()
        # When the last message is gone nothing of the subjects stays, but the root.
        for seq in sorted(world.live):
            world.store.remove(seq, False)
        world.live.clear()
        world.check()
        before = world.store.figures()["nodes"]
        for number in range(before - 1):
            world.store.append(f"only.{number}")
        assert world.store.figures()["nodes"] <= before + 1
        world.store.close()
    finally:
        shutil.rmtree(base)


def test_many_patterns_are_looked_for_together() -> None:
    """Three thousand patterns take about as long as three, where each alone meets every subject."""
    store = PyStore(None, "S")
    for number in range(100_000):
        store.append(f"s.{number % 7}.{number % 1000}.k{number % 50_000}")

    def seconds(*patterns: str) -> tuple[float, int]:
        start = time.process_time()
        found = store.pending(patterns, 1)
        return time.process_time() - start, found

    few, _ = seconds("s.*.*.k1", "s.*.*.k2", "s.*.*.k3")
    many, found = seconds(*(f"s.*.*.k{number}" for number in range(3000)))
    assert found == 6000
    assert many < 20 * few + 0.2, (few, many)
    _, found = seconds(*(f"s.1.{number}.>" for number in range(0, 1000, 7)), "s.2.5.*")
    wanted = [(1, part) for part in range(0, 1000, 7)] + [(2, 5)]
    assert found == sum((number % 7, number % 1000) in wanted for number in range(100_000))
    store.close()


def test_index_grows_with_the_subjects_bytes() -> None:
    """A subject of 2,000 tokens takes one node, and a further one of the same beginning two."""
    store = PyStore(None, "S")
    tokens = ["t"] * 2000
    store.append(".".join(tokens))
    assert store.figures()["nodes"] == 2
    for at in range(0, 2000, 20):
        store.append(".".join([*tokens[:at], "x", *tokens[at + 1 :]]))
    assert store.figures()["nodes"] == 2 + 1 + 2 * 99  # the first parts from them at the root
    # Of 4 KB at most each: the subject itself and where it parts from others.
    assert store.figures()["index"] < 2 * 101 * (4096 + 128)
    store.close()
