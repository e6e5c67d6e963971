"""The changes that a stream decided in a random run make the same stream of an empty one."""

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jsserver.cext.stream import Message, StreamState
from tests.cext.stream import TestEnv
from tests.unit.stream_world import (
    FILE,
    INTEREST,
    LIMITS,
    MEMORY,
    NEW,
    SECOND,
    WORKQUEUE,
    World,
    headers,
)

if TYPE_CHECKING:
    from tests.cext.stream import Change

STARTED = 1_700_000_000 * SECOND
MESSAGE, SKIP, DELETE, RELEASE, PURGE, TRUNCATE, EXPIRE = range(1, 8)
CONFIGS = {
    "plain": {},
    "count": {"max_msgs": 20},
    "bytes": {"max_bytes": 3000},
    "per subject": {"max_msgs_per_subject": 2},
    "all limits": {
        "max_msgs": 25,
        "max_bytes": 5000,
        "max_msgs_per_subject": 3,
        "max_age": 60 * SECOND,
    },
    "new": {"max_msgs": 20, "discard": NEW},
    "age": {"max_age": 20 * SECOND},
    "interest": {"retention": INTEREST},
    "interest, limits": {"retention": INTEREST, "max_msgs": 15, "max_msgs_per_subject": 4},
    "work queue": {"retention": WORKQUEUE},
    "lives": {"allow_msg_ttl": True, "max_age": 30 * SECOND},
    "lives, markers": {
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 6 * SECOND,
        "max_msgs_per_subject": 3,
    },
}


class Run:
    """A stream that random requests come to; its changes are written down."""

    def __init__(self, seed: int, config: dict[str, Any], directory: Path | None) -> None:
        self.random = random.Random(seed)
        self.lives = config.get("allow_msg_ttl", False)
        self.env = TestEnv(now=STARTED)
        params = {"allow_rollup_hdrs": True, "duplicate_window": 10 * SECOND, **config}
        if directory:
            self.env.start_commits()
        self.world = World(
            self.env, bytes(directory) if directory else None, **storage(directory), **params
        )
        self.changes: list[Change] = []
        self.env.record(self.world.stream, self.changes)
        if params.get("retention", LIMITS) != LIMITS:
            names = (
                ((b"A", b"s.a.>"), (b"B", b"s.*.1"))
                if params["retention"] == INTEREST
                else ((b"A", b">"),)
            )
            for name, wanted in names:
                self.world.consumer(name=name, filters=(wanted,))
            self.consumers = [name for name, _ in names]
        else:
            self.consumers = []

    def step(self) -> None:
        pick = self.random.random()
        state = self.world.stream.state()
        if pick < 0.62 or not state.messages:
            self.publish(state.last_seq)
        elif pick < 0.7:
            self.world.stream.delete(
                self.random.randint(state.first_seq, state.last_seq), pick < 0.65
            )
        elif pick < 0.73:
            wanted = self.random.choice([None, b"s.a.>", b"s.*.1", b"s.b.2", b">"])
            below = self.random.choice([0, 0, max(1, state.last_seq - 4)])
            keep = 0 if below else self.random.choice([0, 2])
            self.world.stream.purge(wanted, below, keep)
        elif pick < 0.75:
            self.truncate(max(0, state.last_seq - self.random.choice([0, 1, 2, 5, 30])))
        elif pick < 0.83:
            self.env.advance(self.random.choice([1, 3, 8]) * SECOND)
        elif self.consumers:
            self.consume()
        self.env.run()

    def truncate(self, seq: int) -> None:
        """Which no stream decides itself."""
        change = (TRUNCATE, seq, self.env.now, False, 0, False, b"", b"", b"", b"", 0, 0)
        assert self.env.apply(self.world.stream, change) == 0
        self.changes.append(change)

    def publish(self, last: int) -> None:
        lines: dict[str, object] = {}
        if self.random.random() < 0.3:
            lines["Nats_Msg_Id"] = f"id{self.random.randint(0, 12)}"
        if self.random.random() < 0.05:
            lines["Nats_Rollup"] = self.random.choice(["sub", "all"])
        if self.lives and self.random.random() < 0.4:
            lines["Nats_TTL"] = self.random.choice([1, 3, 8, 20, "never"])
        if self.random.random() < 0.1:
            lines["Nats_Expected_Last_Sequence"] = last - self.random.choice([0, 0, 1])
        subject = f"s.{self.random.choice('abc')}.{self.random.randint(1, 3)}".encode()
        data = bytes([self.random.randint(0, 255)]) * self.random.choice([0, 1, 30, 300])
        self.world.publish(subject, data, headers(**lines) if lines else b"")

    def consume(self) -> None:
        name = self.random.choice(self.consumers)
        for message in self.world.pull(b'{"batch":3,"no_wait":true}', name):
            if message[2].startswith(b"$JS.ACK.") and self.random.random() < 0.8:
                self.world.ack(message)


def storage(directory: Path | None) -> dict[str, str]:
    return {"storage": FILE if directory else MEMORY}


def contents(world: World) -> tuple[StreamState, list[Message]]:
    stream = world.stream
    state = stream.state()
    found = [stream.get(seq) for seq in range(state.first_seq, state.last_seq + 1)]
    return state, [m for m in found if m is not None]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("late", [False, True])
def test_changes_make_the_same_stream(seed: int, config: str, late: bool) -> None:
    """late: all come when the run is over, otherwise each when it was decided."""
    run = Run(seed, CONFIGS[config], None)
    for _ in range(250):
        run.step()
    run.env.advance(SECOND // 10)  # lives that end just now end by a change, too
    env = TestEnv(now=run.env.now if late else STARTED)
    params = {"allow_rollup_hdrs": True, "duplicate_window": 10 * SECOND, **CONFIGS[config]}
    again = World(env, active=False, **params)
    for change in run.changes:
        env.advance(max(0, change[2] - env.now))
        env.apply(again.stream, change)
    env.advance(run.env.now - env.now)
    assert contents(again) == contents(run.world)
    again.stream.activate()
    if not run.consumers:
        same_answers(run.world, again)
    assert {MESSAGE, DELETE, PURGE, TRUNCATE} <= {c[0] for c in run.changes}
    if config.startswith("lives"):
        assert EXPIRE in {c[0] for c in run.changes}
    if config.startswith("interest"):
        assert {SKIP, RELEASE} <= {c[0] for c in run.changes}


def same_answers(world: World, again: World) -> None:
    """What is remembered besides the messages: ids of the window, the last id, last sequences."""
    last = world.stream.state().last_seq
    for k in range(13):
        header = headers(Nats_Msg_Id=f"id{k}", Nats_Expected_Last_Sequence=last)
        answers = [w.publish(b"s.a.1", b"", header) for w in (world, again)]
        assert answers[0] == answers[1]
        last = world.stream.state().last_seq
    wrong = headers(Nats_Expected_Last_Msg_Id="nope")
    assert world.publish(b"s.a.1", b"", wrong) == again.publish(b"s.a.1", b"", wrong)
    for subject in (b"s.a.1", b"s.b.2", b"s.c.3"):
        wrong = headers(Nats_Expected_Last_Subject_Sequence=1 << 60)
        assert world.publish(subject, b"", wrong) == again.publish(subject, b"", wrong)


def test_changes_make_the_same_stream_on_disk(tmp_path: Path) -> None:
    """Also after it was opened again."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    run = Run(77, CONFIGS["per subject"], tmp_path / "a")
    for _ in range(400):
        run.step()
    env = TestEnv(now=STARTED - 3600 * SECOND)
    env.start_commits()
    params = {"allow_rollup_hdrs": True, "duplicate_window": 10 * SECOND, **CONFIGS["per subject"]}
    again = World(env, bytes(tmp_path / "b"), active=False, storage=FILE, **params)
    for change in run.changes:
        env.apply(again.stream, change)
    again.stream.wait_durable()
    assert contents(again) == contents(run.world)
    again.stream.close(False)
    later = World(env, bytes(tmp_path / "b"), storage=FILE, **params)
    assert contents(later) == contents(run.world)
    for world, box in ((later, env), (run.world, run.env)):
        world.stream.close(False)
        box.stop_commits()


@pytest.mark.parametrize("seed", range(20))
def test_a_truncated_stream_is_as_if_the_rest_had_never_come(seed: int) -> None:
    """Where nothing that stays was taken away meanwhile."""
    chance = random.Random(seed)
    worlds = [World(TestEnv(now=STARTED), duplicate_window=10 * SECOND) for _ in range(2)]
    kept = chance.randint(0, 20)
    for number in range(kept + chance.randint(1, 20)):
        subject = f"s.{chance.choice('abc')}.{chance.randint(1, 3)}".encode()
        header = headers(Nats_Msg_Id=f"id{number % 13}") if chance.random() < 0.5 else b""
        pause = chance.choice([0, 0, SECOND])
        for world in worlds[: 1 if number >= kept else 2]:
            world.publish(subject, b"%d" % number, header)
        for world in worlds:
            world.env.advance(pause)
    last = worlds[1].stream.state().last_seq
    env = worlds[0].env
    change = (TRUNCATE, last, env.now, 0, 0, False, b"", b"", b"", b"")
    assert env.apply(worlds[0].stream, change) == 0
    assert contents(worlds[0]) == contents(worlds[1])
    same_answers(*worlds)
    assert contents(worlds[0]) == contents(worlds[1])


def test_a_change_of_an_unknown_kind_is_refused() -> None:
    world = World(TestEnv(now=STARTED))
    world.fill(3)
    before = contents(world)
    for kind in (0, 8, 250):
        change = (kind, 2, STARTED, 0, 0, False, b"", b"", b"", b"")
        assert world.env.apply(world.stream, change) < 0
    assert contents(world) == before


def test_foreign_sequences_leave_gaps() -> None:
    """A mirror's changes have the sequences and times of their origin."""
    env = TestEnv(now=STARTED)
    world = World(env, active=False)
    for seq, ts in ((7, 1), (8, 2), (20, 3)):
        rc = env.apply(
            world.stream, (MESSAGE, seq, STARTED + ts, 0, 0, False, b"s.x", b"", b"%d" % seq, b"")
        )
        assert rc == 0
    assert (
        env.apply(world.stream, (MESSAGE, 20, STARTED, 0, 0, False, b"s.x", b"", b"late", b"")) < 0
    )
    state, messages = contents(world)
    assert (state.first_seq, state.last_seq, state.messages, state.num_deleted) == (7, 20, 3, 11)
    assert [(m.seq, m.ts) for m in messages] == [
        (7, STARTED + 1),
        (8, STARTED + 2),
        (20, STARTED + 3),
    ]
    world.stream.activate()
    assert '"seq":21' in world.publish(b"s.x").replace(" ", "")
