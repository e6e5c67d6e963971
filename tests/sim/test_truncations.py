"""Random histories with truncations and power cuts: each truncation is there or not, and what is
there comes to the consumer."""

import random
from typing import Any

import pytest

from tests.sim.disk import messages
from tests.sim.life import Life
from tests.unit.stream_world import SECOND, WORKQUEUE

CONFIGS: list[dict[str, Any]] = [
    {},
    {"max_msgs_per_subject": 3},
    {"max_msgs": 30},
    {"max_msgs": 60},
    {"retention": WORKQUEUE},
]
Message = tuple[bytes, bytes, bytes]


class History:
    """Of one stream. No two messages have the same data."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.params = self.chance.choice(CONFIGS)
        self.life = Life(seed, **self.params)
        self.states: list[dict[int, Message]] = [{}]  # since the last commit
        self.truncations = 0
        self.came: dict[bytes, int] = {}  # after so many truncations
        self.went: dict[bytes, int] = {}  # with this one
        self.acked: set[bytes] = set()

    def note(self) -> None:
        self.states.append(messages(self.life.stream))

    def publish(self) -> None:
        for _ in range(self.chance.choice([1, 2, 8, 20])):
            size = self.chance.choice([0, 50, 300, 3000, 9000])
            data = b"%d." % len(self.came) + bytes(size)
            self.came[data] = self.truncations
            self.life.publish(data, b"s.%d" % self.chance.randrange(4))
            self.note()

    def delete(self) -> None:
        if self.states[-1]:
            seq = self.chance.choice(sorted(self.states[-1]))
            self.life.stream.delete(seq, self.chance.random() < 0.5)
            self.note()

    def truncate(self) -> None:
        last = self.life.stream.state().last_seq
        seq = max(0, last - self.chance.choice([1, 3, 10, 40]))
        before = messages(self.life.stream)
        self.truncations += seq < last
        self.life.truncate(seq)
        self.went.update({m[2]: self.truncations for q, m in before.items() if q > seq})
        self.note()
        assert self.states[-1] == {q: m for q, m in before.items() if q <= seq}

    def commit(self) -> None:
        self.life.commit()
        self.states = [messages(self.life.stream)]

    def upkeep(self) -> None:
        self.life.commit()
        self.life.disk.upkeep(self.life.env)
        self.states = [messages(self.life.stream)]

    def pull(self) -> None:
        here = messages(self.life.stream)
        for seq in self.life.pull(self.chance.choice([1, 5, 30])):
            if self.chance.random() < 0.6:
                self.life.ack(seq)
                self.acked.add(here[seq][2])
        self.note()

    def wait(self) -> None:
        self.life.env.advance(SECOND // 2)

    def cut(self) -> None:
        self.life.cut(self.chance.choice([0, 1, 2, 3, 4, 5, 6, 8, 10, 14, 20]))
        live = messages(self.life.stream)
        for item in live.items():
            assert any(item in state.items() for state in self.states)
        latest = max((self.came[m[2]] for m in live.values()), default=0)
        assert all(self.went.get(m[2], latest + 1) > latest for m in live.values())
        always = set.intersection(*(set(state.items()) for state in self.states))
        if self.params.get("retention") != WORKQUEUE:
            assert always <= set(live.items())
        for message in live.values():
            self.went.pop(message[2], None)
        self.states = [live]

    def drain(self) -> None:
        self.life.env.advance(31 * SECOND)
        got: set[int] = set()
        while more := self.life.pull():
            got.update(more)
        wanted = {q for q, m in messages(self.life.stream).items() if m[2] not in self.acked}
        assert wanted <= got
        self.note()


@pytest.mark.parametrize("seed", range(150))
def test_no_power_cut_mixes_what_was_truncated_with_what_came_after(seed: int) -> None:
    history = History(seed)
    steps = [history.publish] * 8 + [history.truncate] * 3 + [history.cut] * 2
    steps += [history.delete, history.commit, history.upkeep, history.pull, history.wait]
    for _ in range(history.chance.randint(5, 40)):
        history.chance.choice(steps)()
    history.cut()
    history.drain()
    history.life.stop()
