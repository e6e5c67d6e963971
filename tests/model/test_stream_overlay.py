"""Publishes that are staged and then applied together do what the same do one after another."""

import random

import pytest

from jsserver.cext.stream import Message, StreamState
from tests.cext.stream import TestEnv
from tests.unit.stream_world import INTEREST, NEW, World, headers

CONFIGS = {
    "plain": {},
    "per subject": {"max_msgs_per_subject": 2},
    "new": {"max_msgs": 12, "discard": NEW},
    "new, bytes": {"max_bytes": 1500, "discard": NEW},
    "new, per subject": {
        "max_msgs": 12,
        "max_bytes": 2500,
        "max_msgs_per_subject": 2,
        "discard": NEW,
    },
    "new per subject": {
        "max_msgs": 14,
        "max_msgs_per_subject": 2,
        "discard": NEW,
        "discard_new_per_subject": True,
    },
    "interest": {"retention": INTEREST},
}


def request(chance: random.Random, last: int) -> tuple[bytes, bytes, bytes]:
    lines: dict[str, object] = {}
    subject = f"s.{chance.choice('ab')}.{chance.randint(1, 2)}".encode()
    pick = chance.random()
    near = max(0, last - chance.choice([0, 0, 0, 1, 2]))
    if pick < 0.2:
        lines["Nats_Expected_Last_Sequence"] = near
    elif pick < 0.4:
        lines["Nats_Expected_Last_Subject_Sequence"] = near
        if chance.random() < 0.6:
            wanted = chance.choice(["s.*.1", "s.a.>", "s.b.2", ">"])
            lines["Nats_Expected_Last_Subject_Sequence_Subject"] = wanted
    elif pick < 0.5:
        lines["Nats_Expected_Last_Msg_Id"] = f"id{chance.randint(0, 6)}"
    if chance.random() < 0.4:
        lines["Nats_Msg_Id"] = f"id{chance.randint(0, 6)}"
    if chance.random() < 0.08:
        lines["Nats_Rollup"] = chance.choice(["sub", "sub", "all"])
    data = b"x" * chance.choice([0, 10, 200])
    return subject, data, headers(**lines) if lines else b""


def world(config: str) -> World:
    made = World(TestEnv(), allow_rollup_hdrs=True, **CONFIGS[config])
    if config == "interest":
        made.consumer(filters=(b"s.a.>",))
    return made


def answers(env: TestEnv) -> dict[bytes, bytes]:
    return {m[0]: m[4] for m in env.take() if m[0].startswith(b"ack.")}


def contents(made: World) -> tuple[StreamState, list[Message]]:
    state = made.stream.state()
    found = [made.stream.get(seq) for seq in range(state.first_seq, state.last_seq + 1)]
    return state, [m for m in found if m is not None]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(12))
def test_staged_is_as_if_stored(seed: int, config: str) -> None:
    chance = random.Random(seed)
    staged, plain = world(config), world(config)
    for _ in range(12):
        for made in (staged, plain):
            made.env.take()
        staged.env.stage(staged.stream)
        before = contents(staged)
        for k in range(chance.randint(1, 10)):
            subject, data, header = request(chance, plain.stream.state().last_seq)
            for made in (staged, plain):
                made.env.inject(subject, data, b"ack.%d" % k, header)
        assert contents(staged) == before
        staged.env.stage_end(staged.stream, True)
        assert answers(staged.env) == answers(plain.env)
        assert contents(staged) == contents(plain)


@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_dropped_leaves_nothing_behind(config: str) -> None:
    chance = random.Random(5)
    staged, plain = world(config), world(config)
    for turn in range(10):
        requests = [request(chance, plain.stream.state().last_seq) for _ in range(6)]
        staged.env.stage(staged.stream)
        for k, (subject, data, header) in enumerate(requests):
            staged.env.inject(subject, data, b"drop.%d" % k, header)
        staged.env.stage_end(staged.stream, False)
        for made in (staged, plain):
            made.env.take()
            subject, data, header = requests[turn % 6]
            made.env.inject(subject, data, b"ack.1", header)
        assert answers(staged.env) == answers(plain.env)
        assert contents(staged) == contents(plain)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(12))
def test_the_first_of_what_is_staged_is_applied_and_the_rest_stays(seed: int, config: str) -> None:
    """As a leader does with what a majority has; requests come in between."""
    chance = random.Random(seed)
    staged, plain = world(config), world(config)
    staged.env.stage(staged.stream)
    for made in (staged, plain):
        made.env.take()
    wanted = [contents(plain)]  # by the number of changes
    got: dict[bytes, bytes] = {}
    expected: dict[bytes, bytes] = {}
    applied = 0
    for k in range(80):
        last = plain.stream.state().last_seq
        subject, data, header = request(chance, last)
        for made in (staged, plain):
            made.env.inject(subject, data, b"ack.%d" % k, header)
        if plain.stream.state().last_seq > last:
            wanted.append(contents(plain))
        expected.update(answers(plain.env))
        got.update(answers(staged.env))
        if chance.random() < 0.3:
            n = chance.choice([0, 1, 2, 5])
            assert staged.env.stage_apply(staged.stream, n) == 0
            applied = min(applied + n, len(wanted) - 1)
            got.update(answers(staged.env))
            assert contents(staged) == wanted[applied]
        assert got.items() <= expected.items()
    staged.env.stage_end(staged.stream, True)
    got.update(answers(staged.env))
    assert got == expected
    assert contents(staged) == contents(plain)
