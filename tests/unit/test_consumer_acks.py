"""Acks in every form, floors, redelivery, backoff, limits of deliveries, advisories."""

import pytest

from tests.unit.stream_world import (
    ACK_ALL,
    ACK_NONE,
    INTEREST,
    MS,
    SECOND,
    World,
    consumer_params,
    seqs,
    statuses,
    tokens,
)

ANSWER = [(b"inbox", b"inbox", b"", b"", b"")]


@pytest.fixture
def world():
    return World()


def floor(c):
    s = c.state()
    return s.floor_consumer, s.floor_stream


def test_floors_move_with_the_oldest(world):
    c = world.consumer()
    world.fill(6)
    got = world.pull(b"6")
    floors = []
    for i in (4, 2, 1, 3, 6, 5):
        world.ack(got[i - 1])
        floors.append(floor(c)[1])
    assert floors == [0, 0, 2, 4, 4, 6]


def test_the_floor_before_any_ack_stays_at_the_start(world):
    world.fill(3, b"s.b")
    c = world.consumer(filters=(b"s.a",))
    world.fill(2, b"s.a")
    got = world.pull(b"2")
    assert floor(c) == (0, 0)
    world.ack(got[0])
    assert floor(c) == (1, 4)
    world.ack(got[1])
    assert floor(c) == (2, 5)


@pytest.mark.parametrize("body", [b"", b"+ACK", b"+OK"])
def test_double_acks_are_answered(world, body):
    c = world.consumer()
    world.fill(1)
    [m] = world.pull()
    assert world.ack(m, body, b"inbox") == ANSWER
    assert c.state().num_ack_pending == 0
    assert world.ack(m, body, b"inbox") == ANSWER


def test_what_is_and_is_not_answered(world):
    c = world.consumer()
    world.fill(2)
    [m] = world.pull()
    for body in (b"-NAK", b"+WPI", b"what?"):
        assert world.ack(m, body, b"inbox") == ANSWER, body
    world.env.take()
    base = b"$JS.ACK.S.C.1."
    for subject, answered in (
        (base + b"2.1.1.0", False),
        (base + b"99.1.1.0", False),
        (base + b"x.1.1.0", False),
        (base + b"0.1.1.0", True),
        (base + b"1.1.1.0", True),
    ):
        world.env.inject(subject, b"", b"inbox")
        assert (world.env.take() == ANSWER) == answered, subject
    assert c.state().num_ack_pending == 0


def test_ack_subjects_of_other_lengths_are_nobodys(world):
    world.consumer()
    for subject, n in (
        (b"$JS.ACK.S.C.1.1.1.1", 0),
        (b"$JS.ACK.S.C.1.1.1.1.1", 1),
        (b"$JS.ACK.S.C.1.1.1.1.1.1", 0),
        (b"$JS.ACK._.szMpdrwD.S.C.1.1.1.1.1", 1),
        (b"$JS.ACK._.szMpdrwD.S.C.1.1.1.1.1.x.y", 1),
        (b"$JS.ACK._.wrong.S.C.1.1.1.1.1", 0),
    ):
        assert world.env.inject(subject) == n, subject


def test_ack_all(world):
    c = world.consumer(ack_policy=ACK_ALL)
    world.fill(5)
    got = world.pull(b"5")
    world.ack(got[2])
    assert floor(c) == (3, 3) and c.state().num_ack_pending == 2
    assert world.ack(got[0], reply=b"inbox") == ANSWER
    assert floor(c) == (3, 3)
    world.ack(got[4])
    assert floor(c) == (5, 5) and c.state().num_ack_pending == 0


def test_ack_none_follows_delivery(world):
    c = world.consumer(ack_policy=ACK_NONE)
    world.fill(3)
    got = world.pull(b"2")
    assert got[0][2].startswith(b"$JS.ACK.S.C.1.1.1.")
    assert floor(c) == (2, 2) and c.state().num_ack_pending == 0
    assert world.env.inject(got[0][2]) == 0


def test_nak_and_its_delays(world):
    world.consumer()
    world.fill(1)
    [m] = world.pull()
    world.pull(b"9")
    assert [tokens(x)[:3] for x in world.ack(m, b"-NAK")] == [(2, 1, 2)]
    for body, ms in (
        (b'-NAK {"delay": 500000000}', 500),
        (b"-NAK 1.5s", 1500),
        (b"-NAK 250ms", 250),
    ):
        assert world.ack(m, body) == [], body
        world.env.advance(ms * MS - 1)
        assert world.env.take() == [], body
        world.env.advance(1)
        assert seqs(world.env.take()) == [1], body
    for body in (b"-NAK nonsense", b'-NAK {"delay":"1s"}', b'-NAK {"delay":1} x', b"-NAK {"):
        assert seqs(world.ack(m, body)) == [1], body


@pytest.mark.parametrize("delay", [b'{"delay":0}', b'{"delay":-9}', b"{}", b"-1s", b"0", b"1ms"])
def test_an_ack_may_come_before_the_shortest_delay_is_over(world, delay):
    world.consumer()
    world.fill(2)
    first, second = world.pull(b"2")
    assert world.ack(first, b"-NAK " + delay) == world.ack(second, b"-NAK " + delay) == []
    world.ack(second)
    world.env.advance(10 * MS)
    assert seqs(world.pull(b"5")) == [1]


def test_nak_twice_is_queued_once(world):
    c = world.consumer()
    world.fill(2)
    got = world.pull(b"2")
    for m in (got[1], got[0], got[1]):
        world.ack(m, b"-NAK")
    assert seqs(world.pull(b"5")) == [2, 1]
    assert c.state().num_redelivered == 2


def test_progress_restarts_the_wait(world):
    world.consumer(ack_wait=SECOND)
    world.fill(2)
    got = world.pull(b"2")
    world.pull(b"5")
    world.env.advance(SECOND // 2)
    world.ack(got[0], b"+WPI")
    world.env.advance(SECOND // 2)
    assert seqs(world.env.take()) == [2]
    world.env.advance(SECOND // 2)
    assert seqs(world.env.take()) == [1]


def test_progress_takes_nothing_back_that_is_to_be_redelivered(world):
    world.consumer()
    world.fill(2)
    for m in world.pull(b"2"):
        world.ack(m, b"-NAK")
        world.ack(m, b"+WPI")
    assert seqs(world.pull(b"5")) == [1, 2]


def test_next(world):
    c = world.consumer()
    world.fill(4)
    [m] = world.pull()
    [n] = world.ack(m, b"+NXT", b"inbox")
    assert seqs([n]) == [2] and c.state().num_ack_pending == 1
    assert seqs(world.ack(n, b'+NXT {"batch":2,"no_wait":true}', b"inbox")) == [3, 4]
    assert world.ack(m, b"-NXT 1") == []


def test_term_with_and_without_reason(world):
    c = world.consumer()
    world.env.listen(b"$JS.EVENT.>")
    world.fill(2)
    got = world.pull(b"2")
    assert world.ack(got[0], b"+TERM", b"inbox") == ANSWER
    world.ack(got[1], b"+TERM  broken for good ")
    assert c.state().num_ack_pending == 0
    assert [(e[0], e[1], e[2][:4]) for e in world.env.events] == [
        (2, (b"S", b"C", b""), (3, 1, 1, 1)),
        (2, (b"S", b"C", b"broken for good"), (3, 2, 2, 1)),
    ]


def test_advisories_only_for_listeners(world):
    world.consumer(sample_percent=100)
    world.fill(2)
    got = world.pull(b"2")
    world.ack(got[0], b"-NAK")
    assert world.env.events == []
    world.env.listen(b"$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    world.env.advance(70 * MS)
    world.ack(got[1])
    assert [e[2] for e in world.env.events] == [(4, 2, 2, 1, 70 * MS)]


def test_ack_wait_passes_in_order(world):
    c = world.consumer(ack_wait=SECOND)
    world.fill(3)
    world.pull(b"3")
    world.pull(b"9")
    world.env.advance(SECOND)
    got = world.env.take()
    assert [tokens(m)[:3] for m in got] == [(2, 1, 4), (2, 2, 5), (2, 3, 6)]
    world.ack(got[1])
    assert floor(c) == (0, 0) and c.state().delivered_consumer == 6
    world.ack(got[0])
    assert floor(c) == (2, 2)
    assert c.state().num_redelivered == 1


def test_backoff_and_max_deliver(world):
    c = world.consumer(ack_wait=300 * MS, backoff=(300 * MS, 600 * MS, SECOND), max_deliver=5)
    world.env.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    world.fill(1)
    start = world.env.mono
    times = []
    world.pull(b"99")
    for _ in range(80):
        world.env.advance(50 * MS)
        times += [(world.env.mono - start) // MS] * len(world.env.take())
    assert times == [300, 900, 1900, 2900]
    assert [e[2][:4] for e in world.env.events] == [(1, 1, 0, 5)]
    s = c.state()
    assert (s.num_ack_pending, s.num_redelivered) == (0, 1)


def test_many_that_expire_together_leave_others_their_turns(world):
    world.consumer(max_ack_pending=-1, ack_wait=SECOND)
    world.fill(3000)
    assert len(world.pull(b"3000")) == 3000
    world.env.advance(SECOND)
    assert seqs(world.pull(b"9000")) == [*range(1, 1025)]
    world.env.advance(10)
    assert seqs(world.env.take()) == [*range(1025, 3001)]


def test_given_up_messages_stay_until_a_late_ack():
    w = World(retention=INTEREST)
    c = w.consumer(ack_wait=SECOND, max_deliver=1)
    w.fill(1)
    [m] = w.pull()
    w.env.advance(2 * SECOND)
    assert w.pull(b'{"no_wait":true}')[0][3].startswith(b"NATS/1.0 404")
    assert w.stream.state().messages == 1 and c.state().num_redelivered == 0
    w.ack(m)
    assert w.stream.state().messages == 0


def test_redelivery_is_not_limited_by_max_ack_pending(world):
    world.consumer(max_ack_pending=1)
    world.fill(2)
    [m] = world.pull(b"1")
    world.ack(m, b"-NAK")
    assert seqs(world.pull(b"2")) == [1]


def test_a_removed_message_is_not_waited_for(world):
    c = world.consumer()
    world.env.listen(b"$JS.EVENT.>")
    world.fill(3)
    world.pull(b"2")
    world.stream.delete(1, False)
    assert c.state().num_ack_pending == 1
    assert world.env.events[0][1][2] == b"Unacknowledged message was deleted"
    world.stream.delete(3, False)
    assert c.state().num_pending == 0
    world.stream.purge(None, 0, 0)
    s = c.state()
    assert (s.num_ack_pending, s.num_pending) == (0, 0)
    world.fill(1)
    assert seqs(world.pull()) == [4]


def test_limits_take_pending_messages():
    w = World(max_msgs=2)
    c = w.consumer(max_ack_pending=2)
    w.env.listen(b"$JS.EVENT.>")
    w.fill(2)
    w.pull(b"4")
    w.env.inject(b"s.a")
    assert seqs(w.env.take()) == [3]
    assert w.env.events[0][1][2] == b"Unacknowledged message was deleted"
    assert c.state().num_ack_pending == 2


def test_update_of_ack_wait_restarts_deadlines(world):
    c = world.consumer(ack_wait=30 * SECOND)
    world.fill(1)
    world.pull(b"1")
    world.pull(b"1")
    c.update(consumer_params(ack_wait=2 * SECOND))
    world.env.advance(2 * SECOND)
    assert seqs(world.env.take()) == [1]


def test_deadlines_move_with_ack_wait_and_stay_in_order(world):
    c = world.consumer(ack_wait=10 * SECOND)
    world.fill(4)
    world.pull(b"1")
    c.update(consumer_params(ack_wait=4 * SECOND))
    world.env.advance(SECOND)
    _, later = world.pull(b"2")
    world.ack(later, b"-NAK 2s")
    c.update(consumer_params(ack_wait=20 * SECOND))
    world.pull(b"1")
    world.pull(b"10")
    due: dict[int, int] = {}
    for at in range(2, 30):
        world.env.advance(SECOND)
        due |= dict.fromkeys(seqs(world.env.take()), at)
    assert due == {3: 19, 1: 20, 2: 21, 4: 21}


def test_deadlines_move_to_a_backoff_and_back(world):
    c = world.consumer(ack_wait=10 * SECOND)
    world.fill(2)
    world.pull(b"1")
    c.update(consumer_params(ack_wait=15 * SECOND))
    c.update(consumer_params(backoff=(3 * SECOND, 9 * SECOND), max_deliver=5))
    world.env.advance(SECOND)
    world.pull(b"1")
    c.update(consumer_params(ack_wait=6 * SECOND, max_deliver=5))
    world.pull(b"10")
    due: dict[int, int] = {}
    for at in range(2, 10):
        world.env.advance(SECOND)
        due |= dict.fromkeys(seqs(world.env.take()), at)
    assert due == {1: 6, 2: 7}


def test_an_update_of_max_deliver_gives_up_what_came_as_often(world):
    c = world.consumer()
    world.fill(3)
    for m in world.pull(b"2"):
        world.ack(m, b"-NAK")
    world.ack(world.pull(b"1")[0], b"-NAK")
    world.env.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    c.update(consumer_params(max_deliver=2))
    assert [tokens(m)[:2] for m in world.pull(b"5")] == [(2, 2), (1, 3)]
    assert c.state().num_ack_pending == 2


def test_an_update_keeps_what_was_asked_to_come_later(world):
    c = world.consumer(ack_wait=3 * SECOND)
    world.fill(2)
    later, _ = world.pull(b"2")
    world.ack(later, b"-NAK 10s")
    c.update(consumer_params(ack_wait=3 * SECOND, max_deliver=7))
    world.pull(b"5")
    world.env.advance(3 * SECOND)
    assert seqs(world.env.take()) == [2]
    c.update(consumer_params(ack_wait=4 * SECOND))
    world.env.advance(4 * SECOND)
    assert seqs(world.env.take()) == [2]
    world.env.advance(4 * SECOND)
    assert seqs(world.env.take()) == [1, 2]


def test_a_new_deliver_subject_gets_everything_again(world):
    world.env.listen(b"d1")
    c = world.consumer(deliver_subject=b"d1")
    world.fill(2)
    world.env.ignore(b"d1")
    assert not c.state().push_bound
    world.env.listen(b"d2")
    c.update(consumer_params(deliver_subject=b"d2"))
    world.env.run()
    assert world.env.take() == []  # the answer to the request goes first
    c.begin()
    world.env.run()
    assert [(m[0], tokens(m)[:2]) for m in world.env.take()] == [(b"d2", (2, 1)), (b"d2", (2, 2))]


def test_a_burst_of_nak_and_ack_leaves_nothing(world):
    c = world.consumer(max_ack_pending=-1, ack_wait=SECOND)
    world.fill(2000)
    got = world.pull(b"2000")
    assert len(got) == 2000
    for m in got[::2]:
        world.ack(m)
    world.env.advance(SECOND)
    again = world.pull(b"3000")
    assert seqs(again) == list(range(2, 2001, 2))
    for m in again:
        world.ack(m)
    s = c.state()
    assert (s.num_ack_pending, s.num_redelivered, s.floor_stream) == (0, 0, 2000)
    assert statuses(world.pull(b'{"no_wait":true}')) != []
