"""Why a consumer delivers nothing, when somebody asks and in the log; what it waits for, and what
becomes of that when an admin releases or hands it over."""

import json

import pytest

from tests.unit.stream_world import MS, SECOND, World, consumer_params, seqs, tokens

LOG = 5
PAUSED, NO_INTEREST, NO_REQUEST, _, FLOW, ACKS, _, REPLAY, RATE, PINNED, OVERFLOW, BACKOFF, END = (
    range(3, 16)
)
FLOW_ACKS = 3


@pytest.fixture
def world():
    return World()


def request(world, name=b"C", reply=b"inbox", **body):
    """A pull request that stays."""
    world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S." + name, json.dumps(body).encode(), reply)


def said(world):
    return [texts[0] for kind, texts, _ in world.env.events if kind == LOG]


def test_nobody_asks_or_listens(world):
    world.fill(1)
    assert world.consumer().waits().reason == NO_REQUEST
    push = world.consumer(name=b"P", deliver_subject=b"d")
    assert push.waits().reason == NO_INTEREST
    world.env.listen(b"d")
    world.env.run()
    assert push.waits().reason == BACKOFF


def test_a_pause(world):
    c = world.consumer()
    until = world.env.now + 5 * SECOND
    c.pause(until)
    request(world, batch=1)
    assert (c.waits().reason, c.waits().until) == (PAUSED, until)
    world.env.advance(5 * SECOND)
    assert c.waits().reason == END


def test_acks(world):
    c = world.consumer(max_ack_pending=2)
    world.fill(4)
    request(world, batch=4)
    first, *_ = world.env.take()
    assert c.waits() == (ACKS, 0, 2, 1)
    world.ack(first)
    assert c.waits() == (ACKS, 0, 2, 2)


def test_backoff_and_the_end(world):
    c = world.consumer(ack_wait=7 * SECOND)
    world.fill(1)
    request(world, batch=3)
    [m] = world.env.take()
    assert c.waits() == (BACKOFF, world.env.now + 7 * SECOND, 1, 0)
    world.ack(m, b'-NAK {"delay":2000000000}')
    assert c.waits().until == world.env.now + 2 * SECOND
    world.ack(m)
    assert c.waits().reason == END


def test_rates_and_replays(world):
    world.env.listen(b"d")
    world.env.inject(b"s.a", b"x" * 3000)
    world.env.advance(9 * SECOND)
    world.env.inject(b"s.a", b"x" * 3000)
    slow = world.consumer(name=b"R", deliver_subject=b"d", replay_policy="original")
    world.env.run()
    assert (slow.waits().reason, slow.waits().until) == (REPLAY, world.env.now + 9 * SECOND)
    w = World(max_msg_size=4000)
    w.env.listen(b"d")
    w.fill(2, data=b"x" * 3000)
    limited = w.consumer(deliver_subject=b"d", rate_limit_bps=8000)
    w.env.run()
    assert limited.waits().reason == RATE and limited.waits().until > w.env.now


def test_flow_control(world):
    world.env.listen(b"d")
    c = world.consumer(
        deliver_subject=b"d", flow_control=True, idle_heartbeat=SECOND, max_ack_pending=-1
    )
    world.fill(30, data=b"x" * 100_000)
    world.env.run()
    assert c.waits().reason == FLOW and c.waits().number > 2 << 20


def test_groups(world):
    groups = {"priority_groups": (b"A",), "priority_timeout": 60 * SECOND}
    c = world.consumer(priority_policy="overflow", **groups)
    world.fill(1)
    request(world, batch=1, group="A", min_pending=5)
    assert c.waits().reason == OVERFLOW
    pinned = world.consumer(name=b"P", priority_policy="pinned_client", **groups)
    request(world, b"P", batch=1, group="A")
    request(world, b"P", batch=1, group="A")
    world.fill(1)
    assert pinned.waits().reason == PINNED


def test_the_log_says_it_after_a_while_and_seldom(world):
    world.consumer(max_ack_pending=1, ack_wait=9000 * SECOND)
    world.fill(3)
    request(world, batch=5)
    world.env.advance(4900 * MS)
    assert said(world) == []
    world.env.advance(200 * MS)
    assert said(world) == [
        b"stream S: consumer C: delivers nothing though somebody waits: 1 messages are not acked, "
        b"the most that may be; the oldest is 1"
    ]
    world.env.advance(20 * SECOND)
    assert len(said(world)) == 1
    world.env.advance(600 * SECOND)
    assert len(said(world)) == 2


def test_the_log_says_nothing_of_what_goes_on(world):
    world.consumer(max_ack_pending=1)
    world.fill(12)
    request(world, batch=20)
    [m] = world.env.take()
    for _ in range(11):
        world.env.advance(3 * SECOND)
        [m] = world.ack(m)
    assert said(world) == []
    world.env.advance(20 * SECOND)
    assert said(world) == []  # there is nothing more


def test_the_log_says_little_of_many(world):
    for i in range(40):
        world.consumer(name=b"c%d" % i, max_ack_pending=1)
        request(world, b"c%d" % i, batch=5)
    world.fill(3)
    world.env.advance(60 * SECOND)
    assert 5 <= len(said(world)) <= 7


# ---- what is pending -----------------------------------------------------------------------------


def test_a_list_of_what_is_pending(world):
    c = world.consumer(ack_wait=10 * SECOND)
    world.fill(2)
    world.fill(1, subject=b"s.b")
    start = world.env.now
    first, second, _ = world.pull(b"3")
    world.env.advance(4 * SECOND)
    world.ack(first, b"-NAK")
    world.ack(second)
    assert [tuple(one) for one in c.pending(0, 10, 0)] == [
        (1, b"s.a", 1, start, 0, True),
        (3, b"s.b", 1, start, start + 10 * SECOND, False),
    ]
    assert [one.seq for one in c.pending(2, 10, 0)] == [3]
    assert [one.seq for one in c.pending(0, 1, 0)] == [1]
    assert c.pending(4, 10, 0) == []
    assert [one.seq for one in c.pending(0, 9, 4 * SECOND)] == [1, 3]
    assert c.pending(0, 9, 5 * SECOND) == []


def test_a_long_list_in_pieces(world):
    c = world.consumer(max_ack_pending=-1)
    world.fill(12_000)
    got = world.pull(b"12000")
    for m in got[:11_000:2]:
        world.ack(m)
    want = [s for s in range(1, 12_001) if s > 11_000 or s % 2 == 0]
    found, start = [], 0
    while page := c.pending(start, 900, 0):
        found += [one.seq for one in page]
        start = found[-1] + 1
    assert found == want


def test_release(world):
    c = world.consumer()
    world.fill(4)
    world.pull(b"3")
    assert c.release([2, 9, 3, 2], 0, b"") == [2, 3]
    assert [tokens(m)[:2] for m in world.pull(b"3")] == [(2, 2), (2, 3), (1, 4)]
    assert c.release([1], 60 * SECOND, b"") == []


def test_release_wakes_those_that_wait(world):
    world.env.listen(b"d")
    c = world.consumer(deliver_subject=b"d")
    world.fill(2)
    world.env.take()
    assert c.release([2], 0, b"") == [2]
    world.env.run()
    assert [tokens(m)[:2] for m in world.env.take()] == [(2, 2)]


def test_release_does_not_deliver_too_often(world):
    c = world.consumer(max_deliver=1)
    world.fill(1)
    world.pull()
    assert c.release([1], 0, b"") == []
    assert c.state().num_ack_pending == 0 and world.pull(b'{"no_wait":true}')[0][3]


def test_claim(world):
    c = world.consumer()
    world.fill(6)
    world.pull(b"4")
    request(world, reply=b"other", batch=2)
    for reply in (b"other", b"mine"):
        world.env.listen(reply)
    world.env.take()
    c.release([1], 0, b"")
    assert c.release([4, 2], 0, b"mine") == [4, 2]
    world.env.run()
    got = world.env.take()
    assert [(m[0], tokens(m)[1]) for m in got if m[0] == b"mine"] == [(b"mine", 4), (b"mine", 2)]
    assert c.state().num_waiting == 0 and seqs(got)[:2] == [4, 2]


def test_the_oldest(world):
    c = world.consumer(filters=(b"s.b",))
    assert c.oldest() == (0, 0)
    world.fill(1)
    world.fill(2, subject=b"s.b")
    assert c.oldest() == (2, 0)
    world.pull()
    assert c.oldest() == (3, 2)
    c.update(consumer_params(filters=(b"s.c",)))
    assert c.oldest() == (0, 2)
