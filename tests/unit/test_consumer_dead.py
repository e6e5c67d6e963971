"""Dead letters: what died is stored elsewhere before its consumer forgets it."""

import pytest

from tests.cext.stream import TestEnv
from tests.unit.stream_world import (
    FILE,
    INTEREST,
    SECOND,
    WORKQUEUE,
    World,
    consumer_params,
    headers,
    stream_params,
)

LOG, ADVISORY = 5, 2
MAX_DELIVER, TERM = 1, 3


def letters(stream, subject=b"dead.x"):
    found, seq = [], 1
    while (m := stream.next_for(subject, seq)) is not None:
        lines = m.headers.decode().split("\r\n")[1:-2]
        found.append((dict(line.split(": ", 1) for line in lines), m.data))
        seq = m.seq + 1
    return found


def dead_letter_stream(world, **params):
    return World(world.env, name=b"D", subjects=(b"dead.>",), **params).stream


@pytest.fixture
def world():
    return World()


def mortal(world, **params):
    return world.consumer(
        **({"dead_subject": b"dead.x", "max_deliver": 2, "ack_wait": SECOND} | params)
    )


def test_delivered_too_often(world):
    dead, c = dead_letter_stream(world), mortal(world)
    world.env.listen(b"$JS.EVENT.ADVISORY.>")
    stored = world.env.now
    world.fill(1, data=b"payload")
    for _ in range(2):
        world.pull()
        assert letters(dead) == []
        world.env.advance(SECOND)
    world.env.run()
    assert letters(dead) == [
        (
            {
                "Nats-Msg-Id": f"dead.S.C.1.{stored}",
                "Dead-Letter-Reason": "max_deliver",
                "Dead-Letter-Stream": "S",
                "Dead-Letter-Consumer": "C",
                "Dead-Letter-Subject": "s.a",
                "Dead-Letter-Sequence": "1",
                "Dead-Letter-Deliveries": "2",
                "Dead-Letter-Time": str(stored),
            },
            b"payload",
        )
    ]
    state = c.state()
    assert (state.num_ack_pending, state.num_redelivered, state.floor_stream) == (0, 0, 1)
    assert [e[2][0] for e in world.env.events if e[0] == ADVISORY] == [MAX_DELIVER]


def test_terminated(world):
    dead, c = dead_letter_stream(world), mortal(world)
    world.env.listen(b"$JS.EVENT.ADVISORY.>")
    world.fill(1)
    [m] = world.pull()
    got = world.ack(m, b"+TERM it\r\nsmells", b"inbox")
    world.env.run()
    got += world.env.take()
    assert [x for x in got if x[0] == b"inbox"] == [(b"inbox", b"inbox", b"", b"", b"")]
    [(found, _)] = letters(dead)
    assert found["Dead-Letter-Reason"] == "terminated"
    assert found["Dead-Letter-Detail"] == "it  smells"
    assert [e[2][0] for e in world.env.events if e[0] == ADVISORY] == [TERM]
    assert c.state().num_ack_pending == 0


def test_headers():
    world = World(allow_rollup_hdrs=True)
    dead = dead_letter_stream(world, allow_rollup_hdrs=True)
    mortal(world, max_deliver=1)
    world.env.inject(b"s.b", b"x")
    world.env.inject(
        b"s.a",
        b"x",
        b"",
        headers(A="b", Nats_Msg_Id="mine", Nats_Rollup_="sub", Dead_Letter_Reason="older")
        .replace(b"Nats-Rollup-", b"Nats-Rollup")
        .replace(b"\r\n\r\n", b"\r\nB: c: d\r\n\r\n"),
    )
    for _ in range(2):
        world.pull()
        world.env.advance(SECOND)
    world.env.run()
    first, second = letters(dead)
    assert second[0]["A"] == "b" and second[0]["B"] == "c: d"
    assert second[0]["Nats-Msg-Id"].startswith("dead.S.C.")
    assert second[0]["Dead-Letter-Reason"] == "max_deliver" and "Nats-Rollup" not in second[0]
    assert "A" not in first[0]


def test_it_stays_pending_until_somebody_stores_it(world):
    c = mortal(world, max_deliver=1)
    world.fill(1)
    world.pull()
    world.env.advance(30 * SECOND)
    assert c.state().num_ack_pending == 1
    said = [texts[0] for kind, texts, _ in world.env.events if kind == LOG]
    assert said == [
        b"stream S: consumer C: dead letters are not stored on dead.x and stay pending: "
        b"nobody listens there"
    ]
    dead = dead_letter_stream(world)
    world.env.advance(10 * SECOND)
    assert len(letters(dead)) == 1 and c.state().num_ack_pending == 0


def test_a_stream_that_refuses_it(world):
    dead = dead_letter_stream(world, max_msg_size=10)
    c = mortal(world, max_deliver=1)
    world.fill(1, data=b"x" * 50)
    world.pull()
    world.env.advance(5 * SECOND)
    assert letters(dead) == [] and c.state().num_ack_pending == 1
    [said] = [texts[0] for kind, texts, _ in world.env.events if kind == LOG]
    assert b"message size exceeds maximum allowed" in said
    dead.update(stream_params(name=b"D", subjects=(b"dead.>",)))
    world.env.advance(10 * SECOND)
    assert len(letters(dead)) == 1 and c.state().num_ack_pending == 0


def test_it_is_stored_once(world):
    """Who is not told that it is stored stores it again, which is a duplicate."""
    dead = dead_letter_stream(world)
    c = mortal(world, max_deliver=1)
    world.fill(1)
    world.pull()
    state = c.encode_state()
    world.env.advance(SECOND)
    world.env.run()
    assert len(letters(dead)) == 1
    c.close(False)
    assert state
    again = mortal(world, max_deliver=1)
    world.pull()
    world.env.advance(SECOND)
    world.env.run()
    assert len(letters(dead)) == 1 and again.state().num_ack_pending == 0


def test_nobody_else_says_that_it_is_stored(world):
    c = mortal(world, max_deliver=1)
    world.env.listen(b"dead.x")
    world.fill(1)
    world.pull()
    world.env.advance(SECOND)
    [m] = [m for m in world.env.take() if m[0] == b"dead.x"]
    world.env.inject(m[2], b'{"stream":"D","seq":1}')
    world.env.run()
    assert c.state().num_ack_pending == 1


@pytest.mark.parametrize("retention", [WORKQUEUE, INTEREST])
def test_it_leaves_its_stream(retention):
    world = World(retention=retention)
    dead, _ = dead_letter_stream(world), mortal(world, max_deliver=1)
    world.fill(2)
    world.pull(b"2")
    world.env.advance(SECOND)
    world.env.run()
    assert len(letters(dead)) == 2 and world.stream.state().messages == 0


def test_its_own_stream_may_store_it(world):
    c = mortal(world, dead_subject=b"s.dead", filters=(b"s.a",), max_deliver=1)
    world.fill(3)
    world.pull(b"3")
    world.env.advance(SECOND)
    world.env.run()
    assert len(letters(world.stream, b"s.dead")) == 3
    assert c.state().num_ack_pending == 0


def test_what_happens_to_it_meanwhile(world):
    c = mortal(world, max_deliver=1)
    world.fill(5)
    got = world.pull(b"5")
    world.env.advance(SECOND)
    assert c.state().num_ack_pending == 5
    world.ack(got[0])
    world.ack(got[1], b"-NAK")
    world.ack(got[1], b"+WPI")
    assert world.stream.delete(3, False)
    world.env.advance(3 * SECOND)
    dead = dead_letter_stream(world)
    world.env.advance(20 * SECOND)
    assert [d["Dead-Letter-Sequence"] for d, _ in letters(dead)] == ["2", "4", "5"]
    assert c.state().num_ack_pending == 0


def test_resets_and_updates_while_it_waits(world):
    c = mortal(world, max_deliver=1)
    world.fill(2)
    world.pull(b"2")
    world.env.advance(SECOND)
    c.reset(0)
    world.pull()
    world.env.advance(SECOND)
    assert c.state().num_ack_pending == 1
    c.update(consumer_params(max_deliver=1, ack_wait=SECOND))
    assert c.state().num_ack_pending == 0
    c.update(consumer_params(max_deliver=1, ack_wait=SECOND, dead_subject=b"dead.x"))
    world.pull()
    dead = dead_letter_stream(world)
    world.env.advance(SECOND)
    world.env.run()
    assert [d["Dead-Letter-Sequence"] for d, _ in letters(dead)] == ["2"]


def test_it_is_durable_before_its_consumer_forgets_it(tmp_path):
    world = World(TestEnv())
    world.env.start_commits(held=True)
    place = tmp_path / "D"
    place.mkdir()
    dead = World(world.env, str(place), name=b"D", subjects=(b"dead.>",), storage=FILE).stream
    c = mortal(world, max_deliver=1)
    world.env.inject(b"s.a", b"x")
    world.env.run()
    world.pull()
    world.env.advance(SECOND)
    world.env.run()
    assert dead.state().messages == 1 and c.state().num_ack_pending == 1
    world.env.release_commits()
    dead.wait_durable()
    world.env.poll()
    world.env.run()
    assert c.state().num_ack_pending == 0
    for stream in (dead, world.stream):
        stream.close(False)
    world.env.stop_commits()
    assert world.env.timers == 0 and world.env.subscriptions == []


def test_many_die_at_once(world):
    dead = dead_letter_stream(world)
    c = mortal(world, max_deliver=1, max_ack_pending=-1)
    world.fill(1000)
    world.pull(b"1000")
    world.env.advance(SECOND)
    world.env.run()
    assert len(letters(dead)) == 1000 and c.state().num_ack_pending == 0


def test_a_consumer_that_delivers_what_looks_like_an_ack(world):
    """Another consumer is told to deliver to a letter's reply: the message stays pending."""
    world.env.listen(b"dead.x")
    c = mortal(world, max_deliver=1)
    other = World(env=world.env, name=b"OWN", subjects=(b"own",))
    other.consumer(name=b"O")
    other.fill(1, b"own", b'{"stream":"OWN","seq":1}')
    world.fill(1)
    world.pull()
    world.env.take()
    world.env.advance(SECOND)
    [reply] = [m[2] for m in world.env.take() if m[0] == b"dead.x"]
    assert world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.OWN.O", b"1", reply) == 1
    assert reply in [m[0] for m in world.env.take()]
    assert c.state().num_ack_pending == 1
