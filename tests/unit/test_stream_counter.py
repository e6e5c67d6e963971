"""Counters: sums of any length, what refuses them, and what is staged."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cext.stream import TestEnv
from tests.unit.stream_world import FILE, World, headers, refusal

NUMBERS = st.one_of(
    st.integers(-20, 20),
    st.integers(-(10**40), 10**40),
    st.integers(1, 60).map(lambda n: 10**n),
    st.integers(1, 60).map(lambda n: 1 - 10**n),
)


def counting(**params) -> World:
    return World(allow_msg_counter=True, **params)


def more(value: object, **given) -> bytes:
    return headers(Nats_Incr=value, **given)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"s.a", b"s.b"]), NUMBERS), max_size=12))
def test_sums_are_pythons(steps: list[tuple[bytes, int]]) -> None:
    w = counting()
    sums = {b"s.a": 0, b"s.b": 0}
    for seq, (subject, n) in enumerate(steps, 1):
        sums[subject] += n
        answer = w.publish(subject, b"", more(n))
        assert answer == f'{{"stream":"S","seq":{seq},"val":"{sums[subject]}"}}'
        assert w.message(seq).data == b'{"val":"%d"}' % sums[subject]


def test_a_sum_longer_than_any_buffer() -> None:
    w = counting()
    zeros = "0" * 20_000
    assert json.loads(w.publish(data=b"", header=more("9" * 20_000)))["val"] == "9" * 20_000
    assert json.loads(w.publish(data=b"", header=more(1)))["val"] == "1" + zeros
    assert json.loads(w.publish(data=b"", header=more(f"-1{zeros}")))["val"] == "0"


def test_a_sum_that_is_no_payload_any_more() -> None:
    w = counting(place={"max_payload": 100})
    assert refusal(w.publish(data=b"", header=more("9" * 90))) == 10054


def test_what_is_no_counter() -> None:
    w = counting()
    assert refusal(w.publish(data=b"")) == 10169
    assert refusal(w.publish(data=b"x", header=more(1))) == 10170
    assert refusal(w.publish(data=b"", header=more("x"))) == 10171
    assert refusal(w.publish(data=b"", header=more(1, Nats_Rollup="sub"))) == 10171
    assert refusal(World().publish(data=b"", header=more(1))) == 10168


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"{}", b'{"val":5}', b'{"val":"x"}', b'{"val":""}', b'{"val":"1"} x', b"[1]"],
)
def test_what_is_stored_and_no_counter_breaks_it(body: bytes) -> None:
    w = counting()
    assert w.env.apply(w.stream, (1, 1, w.env.now, 0, 0, False, b"s.a", b"", body, b"")) == 0
    assert refusal(w.publish(b"s.a", b"", more(1))) == 10172
    assert "val" in w.publish(b"s.b", b"", more(1))


def test_sources_are_passed_on() -> None:
    w = counting()
    sources = '{"X":{"y":"5"}}'
    change = (
        1,
        1,
        w.env.now,
        0,
        0,
        False,
        b"s.a",
        more(5, Nats_Counter_Sources=sources),
        b'{"val":"5"}',
        b"",
    )
    assert w.env.apply(w.stream, change) == 0
    assert json.loads(w.publish(b"s.a", b"", more(2)))["val"] == "7"
    assert w.message(2).headers == more(2, Nats_Counter_Sources=sources)


def test_a_duplicate_has_no_value() -> None:
    w = counting()
    w.publish(data=b"", header=more(1, Nats_Msg_Id="a"))
    assert w.publish(data=b"", header=more(1, Nats_Msg_Id="a")) == (
        '{"stream":"S","seq":1,"duplicate": true}'
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limit", [-1, 1, 2])
def test_staged_is_as_if_stored(seed: int, limit: int) -> None:
    chance = random.Random(seed)
    staged, plain = (
        World(TestEnv(), allow_msg_counter=True, max_msgs_per_subject=limit) for _ in range(2)
    )
    for _ in range(10):
        for made in (staged, plain):
            made.env.take()
        staged.env.stage(staged.stream)
        for k in range(chance.randint(1, 8)):
            subject = f"s.{chance.choice('abc')}".encode()
            header = more(chance.randint(-5, 5) * 10 ** chance.randint(0, 30))
            for made in (staged, plain):
                made.env.inject(subject, b"", b"ack.%d" % k, header)
        staged.env.stage_end(staged.stream, True)
        answers = [
            {m[0]: m[4] for m in made.env.take() if m[0].startswith(b"ack.")}
            for made in (staged, plain)
        ]
        assert answers[0] == answers[1]


def test_values_wait_for_the_disk_and_survive(tmp_path: Path) -> None:
    w = World(active=False)
    w.stream.close(False)
    w.env.start_commits(held=True)
    w = World(w.env, bytes(tmp_path), allow_msg_counter=True, storage=FILE)
    reply = b"ack" * 300
    w.env.take()
    w.env.inject(b"s.a", b"", reply, more(5))
    assert w.env.take() == []
    w.env.release_commits()
    w.stream.wait_durable()
    assert [m[4] for m in w.env.take() if m[0] == reply] == [b'{"stream":"S","seq":1,"val":"5"}']
    w.stream.close(False)
    again = World(w.env, bytes(tmp_path), allow_msg_counter=True, storage=FILE)
    again.env.take()
    again.env.inject(b"s.a", b"", b"ack", more(5))
    again.stream.wait_durable()
    assert [m[4] for m in again.env.take() if m[0] == b"ack"] == [
        b'{"stream":"S","seq":2,"val":"10"}'
    ]
    again.stream.close(False)
    again.env.stop_commits()
