"""The store against a dict: random operations, restarts and kills.

After each step the answer to every question is compared.
"""

import os
import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.cext.store import PyStore

SUBJECTS = ["a", "a.b", "a.b.c", "a.x.c", "b.b", "b.c", "c", "c.d.e.f", "a.y", "d.1", "d.2", "d.3"]
FILTERS = [
    *[(), (">",), ("a",), ("a.>",), ("*.b",), ("a.*.c",)],
    *[("a", "b.*"), ("nope",), ("d.*", "d.1"), ("*.*",)],
]
SECOND = 1_000_000_000


def matches(pattern: str, subject: str) -> bool:
    p, s = pattern.split("."), subject.split(".")
    for i, token in enumerate(p):
        if token == ">":
            return len(s) > i
        if i >= len(s) or token not in ("*", s[i]):
            return False
    return len(p) == len(s)


Message = tuple[int, str, bytes, bytes]
"""Its time, subject, header and data."""

Limits = dict[str, Any]
"""Those of a PyStore, by the names that it takes."""


class Model:
    """What a stream's store is to hold."""

    def __init__(self, limits: Limits, memory: bool) -> None:
        self.limits = limits
        self.memory = memory
        self.live: dict[int, Message] = {}
        self.last_seq = 0

    def size(self, message: Message) -> int:
        _, subject, header, data = message
        if self.memory:
            return len(subject) + len(header) + len(data) + 16
        return 30 + len(subject) + len(data) + (4 + len(header) if header else 0)

    def append(self, message: Message, gap: int = 0) -> int:
        self.last_seq += 1 + gap
        self.live[self.last_seq] = message
        self.trim(message[1])
        return self.last_seq

    def truncate(self, seq: int) -> None:
        if seq < self.last_seq:
            self.live = {q: m for q, m in self.live.items() if q <= seq}
            self.last_seq = seq

    def trim(self, subject: str | None) -> None:
        per = self.limits["max_msgs_per"]
        subjects = {m[1] for m in self.live.values()} if subject is None else {subject}
        for name in subjects:
            same = [q for q, m in self.live.items() if m[1] == name]
            for q in same[: max(0, len(same) - per)] if per > 0 else []:
                del self.live[q]
        for limit, total in (("max_msgs", len), ("max_bytes", self.bytes_of)):
            while self.limits[limit] > 0 and total(self.live) > self.limits[limit]:
                del self.live[min(self.live)]

    def bytes_of(self, live: dict[int, Message]) -> int:
        return sum(self.size(m) for m in live.values())

    def expire(self, now: int) -> None:
        age = self.limits["max_age"]
        while age and self.live and self.live[min(self.live)][0] <= now - age:
            del self.live[min(self.live)]

    def matching(self, patterns: tuple[str, ...]) -> list[int]:
        return sorted(
            q
            for q, m in self.live.items()
            if not patterns or any(matches(p, m[1]) for p in patterns)
        )

    def purge(self, patterns: tuple[str, ...], seq: int, keep: int) -> int:
        found = self.matching(patterns)
        whole = not patterns or patterns == (">",)
        if keep == 0 and whole and (seq == 0 or seq > self.last_seq):
            self.last_seq = max(self.last_seq, seq - 1)
        else:
            limit = max(0, len(found) - keep)
            found = [q for q in found if seq == 0 or q < seq][:limit]
        for q in found:
            del self.live[q]
        return len(found)


LIMITS = st.fixed_dictionaries(
    {
        "max_msgs": st.sampled_from([-1, -1, 40, 7]),
        "max_bytes": st.sampled_from([-1, -1, 120_000, 3000]),
        "max_msgs_per": st.sampled_from([-1, -1, 1, 3]),
        "max_age": st.sampled_from([0, 0, 20 * SECOND]),
    }
)


class StoreMachine(RuleBasedStateMachine):
    """File storage, whose blocks are small where max_bytes is, so that they roll."""

    memory = False

    @initialize(limits=LIMITS)
    def open(self, limits: Limits) -> None:
        self.base = tempfile.mkdtemp()
        self.now = 1_000_000 * SECOND
        self.limits = dict(limits)
        self.model = Model(self.limits, self.memory)
        self.started = 0
        self.start()

    def start(self) -> None:
        directory = None if self.memory else os.path.join(self.base, "s")
        if directory:
            os.makedirs(directory, exist_ok=True)
        self.store = PyStore(directory, "S", now=self.now, commit="manual", **self.limits)
        self.step = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.base)

    @rule(
        subject=st.sampled_from(SUBJECTS),
        n=st.sampled_from([0, 1, 50, 900, 9000]),
        headed=st.booleans(),
        times=st.sampled_from([1, 1, 1, 5, 30]),
    )
    def append(self, subject: str, n: int, headed: bool, times: int) -> None:
        for _ in range(times):
            self.now += SECOND // 10
            self.store.tick(self.now)
            self.model.expire(self.now)
            header = b"NATS/1.0\r\nA: b\r\n\r\n" if headed else b""
            data = bytes([self.model.last_seq % 251]) * n
            seq = self.store.append(subject, data, header, self.now)
            assert seq == self.model.append((self.now, subject, header, data))

    @rule(pick=st.floats(0, 1), erase=st.booleans(), times=st.sampled_from([1, 1, 10, 40]))
    def remove(self, pick: float, erase: bool, times: int) -> None:
        for _ in range(times):
            live = sorted(self.model.live)
            if not live:
                return
            seq = live[int(pick * (len(live) - 1))]
            self.store.remove(seq, erase)
            del self.model.live[seq]

    @rule()
    def skip(self) -> None:
        self.model.last_seq += 1
        assert self.store.skip() == self.model.last_seq

    @rule(
        subject=st.sampled_from(SUBJECTS),
        gap=st.sampled_from([0, 1, 3, 50, 2000]),
        n=st.sampled_from([1, 900]),
    )
    def append_at(self, subject: str, gap: int, n: int) -> None:
        """A message whose sequence comes from elsewhere."""
        seq = self.model.last_seq + 1 + gap
        message = (self.now, subject, b"", bytes([seq % 251]) * n)
        self.store.append_at(seq, subject, message[3], b"", self.now)
        self.model.append(message, gap)
        with pytest.raises(ValueError, match="not behind the last"):
            self.store.append_at(seq, subject)

    @rule(back=st.sampled_from([0, 1, 2, 10, 60, 10_000]), commit=st.booleans())
    def truncate(self, back: int, commit: bool) -> None:
        if commit:
            self.store.commit()
        seq = max(0, self.model.last_seq - back)
        self.store.truncate(seq)
        self.model.truncate(seq)
        if not self.memory:
            assert self.store.durable_seq() <= seq

    @rule(patterns=st.sampled_from(FILTERS), keep=st.sampled_from([0, 0, 1, 5]))
    def purge(self, patterns: tuple[str, ...], keep: int) -> None:
        assert self.store.purge(patterns, 0, keep) == self.model.purge(patterns, 0, keep)

    @rule(patterns=st.sampled_from(FILTERS), back=st.integers(-3, 30))
    def purge_to(self, patterns: tuple[str, ...], back: int) -> None:
        seq = max(1, self.model.last_seq - back)
        assert self.store.purge(patterns, seq) == self.model.purge(patterns, seq, 0)

    @rule(seconds=st.sampled_from([1, 5, 30]))
    def wait(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.store.tick(self.now)
        self.model.expire(self.now)

    @rule()
    def commit(self) -> None:
        self.store.commit()

    @rule()
    def upkeep(self) -> None:
        self.store.commit()
        self.store.upkeep()

    @rule(limits=LIMITS)
    def update(self, limits: Limits) -> None:
        self.limits = dict(limits)
        self.model.limits = self.limits
        self.store.update(**limits)
        self.model.trim(None)
        self.store.tick(self.now)
        self.model.expire(self.now)

    @rule()
    def reopen(self) -> None:
        """A clean stop changes nothing, whether the start finds its checkpoint or not."""
        if not self.memory:
            before = self.store.state()
            self.store.reopen()
            assert self.store.state() == before

    @rule(lost=st.booleans())
    def kill(self, lost: bool) -> None:
        """What was committed is there after a kill, as it was."""
        if self.memory:
            return
        self.store.commit()
        before = self.store.state()
        if lost:
            self.store.append("never.written", b"", b"", self.now)
            self.store.truncate(max(0, self.model.last_seq - 5))
            self.store.purge(("a.>",), 0, 0)
            self.store.abandon()
            self.start()
            assert self.store.state() == before
        else:
            self.store.abandon()
            self.start()
            assert self.store.state() == before

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "store"):
            return
        model, store = self.model, self.store
        live = sorted(model.live)
        state = store.state()
        first = live[0] if live else model.last_seq + 1
        assert state["msgs"] == len(live)
        assert state["bytes"] == model.bytes_of(model.live)
        assert (state["first_seq"], state["last_seq"]) == (first, model.last_seq)
        assert state["num_deleted"] == model.last_seq + 1 - first - len(live)
        assert state["num_subjects"] == len({m[1] for m in model.live.values()})
        assert state["first_ts"] == (model.live[first][0] if live else 0)
        gone = [q for q in range(first, model.last_seq + 1) if q not in model.live]
        assert store.deleted() == gone
        for q in live[:3] + live[-3:] + live[:: max(1, len(live) // 5)]:
            assert store.load(q) == (q, *model.live[q])
        for patterns in FILTERS:
            self.same_answers(patterns, live, first)

    def same_answers(self, patterns: tuple[str, ...], live: list[int], first: int) -> None:
        model, store = self.model, self.store
        found = model.matching(patterns)
        counts: dict[str, int] = {}
        lasts: dict[str, int] = {}
        middle = (first + model.last_seq) // 2
        before: dict[str, int] = {}
        for q in found:
            subject = model.live[q][1]
            counts[subject] = counts.get(subject, 0) + 1
            lasts[subject] = q
            if q <= middle:
                before[subject] = q
        assert store.subjects(patterns) == counts
        assert store.last(patterns) == (found[-1] if found else 0)
        assert store.last_per_subject(patterns) == sorted(lasts.values())
        assert store.last_per_subject(patterns, middle) == sorted(before.values())
        for start in {1, first, middle, model.last_seq - 1, model.last_seq, model.last_seq + 1}:
            later = [q for q in found if q >= start]
            assert store.pending(patterns, max(0, start)) == len(later)
            assert store.next(patterns, max(0, start)) == (later[0] if later else 0)
        if live and not patterns:
            ts = model.live[live[len(live) // 2]][0]
            assert store.seq_at(ts) == next(q for q in live if model.live[q][0] >= ts)
            assert store.seq_at(self.now + 1) == model.last_seq + 1


class MemoryMachine(StoreMachine):
    memory = True


def profile(examples: int, steps: int) -> settings:
    scale = int(os.environ.get("STORE_MODEL_SCALE", "1"))
    return settings(
        max_examples=examples * scale,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


TestFileStore = pytest.mark.timeout(600)(StoreMachine.TestCase)
TestFileStore.settings = profile(40, 40)
TestMemoryStore = pytest.mark.timeout(600)(MemoryMachine.TestCase)
TestMemoryStore.settings = profile(25, 40)
