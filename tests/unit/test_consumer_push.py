"""Push consumers: interest, heartbeats, flow control; and what both kinds choose to deliver."""

import pytest

from tests.unit.stream_world import (
    ACK_NONE,
    BY_SEQ,
    BY_TIME,
    LAST,
    LAST_PER_SUBJECT,
    MS,
    NEW_ONLY,
    SECOND,
    World,
    seqs,
    statuses,
    tokens,
)


@pytest.fixture
def world():
    return World()


def push(world, listen=True, **params):
    if listen:
        world.env.listen(b"d")
    return world.consumer(deliver_subject=b"d", **params)


def test_messages_come_as_they_are_published(world):
    c = push(world, ack_policy=ACK_NONE)
    world.env.inject(b"s.a", b"1")
    world.env.inject(b"s.b", b"2")
    got = world.env.take()
    assert [(m[0], m[1], m[4]) for m in got] == [(b"d", b"s.a", b"1"), (b"d", b"s.b", b"2")]
    assert c.state().push_bound


def test_only_an_equal_subscription_counts(world):
    c = push(world, listen=False)
    world.env.listen(b"*")
    world.env.listen(b"d", b"group")
    assert not c.state().push_bound
    world.fill(1)
    world.env.listen(b"d")
    world.env.run()
    assert seqs(world.env.take()) == [1]


def test_a_deliver_group(world):
    c = push(world, listen=False, deliver_group=b"g")
    world.env.listen(b"d")
    assert not c.state().push_bound
    world.env.listen(b"d", b"g")
    assert c.state().push_bound


def test_what_expired_meanwhile_comes_first(world):
    push(world, ack_wait=SECOND)
    world.fill(2)
    world.env.ignore(b"d")
    world.env.advance(2 * SECOND)
    world.fill(1)
    assert world.env.take() == []
    world.env.listen(b"d")
    world.env.run()
    assert [tokens(m)[:2] for m in world.env.take()] == [(2, 1), (2, 2), (1, 3)]


def test_heartbeats_when_idle(world):
    push(world, idle_heartbeat=SECOND)
    world.env.inject(b"s.a")
    world.env.take()
    world.env.advance(SECOND)
    [m] = world.env.take()
    assert m[0] == b"d" and m[3] == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    world.env.advance(SECOND // 2)
    world.env.inject(b"s.a")
    world.env.take()
    world.env.advance(SECOND - 1)
    assert world.env.take() == []
    world.env.advance(1)
    assert statuses(world.env.take()) == ["100 Idle Heartbeat"]
    world.env.ignore(b"d")
    world.env.advance(5 * SECOND)
    assert world.env.take() == []


def test_a_filtered_consumers_heartbeat_tells_its_position(world):
    push(world, idle_heartbeat=SECOND, filters=(b"s.a",))
    world.fill(1, b"s.a")
    world.fill(3, b"s.b")
    world.fill(1, b"s.a")
    world.fill(1, b"s.b")
    world.env.advance(SECOND)
    assert b"Nats-Last-Consumer: 2\r\nNats-Last-Stream: 5\r\n" in world.env.take()[0][3]


def test_flow_control_asks_halts_and_goes_on(world):
    push(world, ack_policy=ACK_NONE, flow_control=True, idle_heartbeat=SECOND)
    for _ in range(40):
        world.env.inject(b"s.a", b"x" * 100_000)
    got = world.env.take()
    asked = [i for i, m in enumerate(got) if b"FlowControl" in m[3]]
    assert asked == [11] and len(seqs(got)) == 21
    request = got[11]
    assert request[3] == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert request[2].startswith(b"$JS.FC.S.C.") and len(request[2]) == len(b"$JS.FC.S.C.") + 4
    world.env.advance(SECOND)
    [beat] = world.env.take()
    assert beat[3].endswith(b"Nats-Consumer-Stalled: " + request[2] + b"\r\n\r\n")
    world.env.inject(b"$JS.FC.S.C.zzzz")
    assert world.env.take() == []
    world.env.inject(request[2])
    more = world.env.take()
    assert len(seqs(more)) == 19 and sum(b"FlowControl" in m[3] for m in more) == 1


def test_no_consumer_delivers_a_confirmation(world):
    """A pull request that asks for a message where one is expected opens no window."""
    push(world, ack_policy=ACK_NONE, flow_control=True, idle_heartbeat=SECOND)
    other = World(env=world.env, name=b"OWN", subjects=(b"own",))
    other.consumer(name=b"O")
    other.fill(1, b"own", b"x")
    for _ in range(40):
        world.env.inject(b"s.a", b"x" * 100_000)
    [reply] = [m[2] for m in world.env.take() if b"FlowControl" in m[3]]
    world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.OWN.O", b"1", reply)
    assert [m[0] for m in world.env.take()] == [reply]


def test_an_ephemeral_goes_when_nobody_listens(world):
    push(world, inactive_threshold=2 * SECOND)
    world.env.advance(10 * SECOND)
    assert world.env.events == []
    world.env.ignore(b"d")
    world.env.advance(SECOND)
    world.env.listen(b"d")
    world.env.advance(3 * SECOND)
    assert world.env.events == []
    world.env.ignore(b"d")
    world.env.advance(2 * SECOND)
    assert [e[0] for e in world.env.events] == [1]


def test_headers_only(world):
    world.consumer(headers_only=True)
    world.env.inject(b"s.a", b"123456")
    world.env.inject(b"s.a", b"123", b"", b"NATS/1.0\r\nA: b\r\n\r\n")
    a, b = world.pull(b"2")
    assert (a[3], a[4]) == (b"NATS/1.0\r\nNats-Msg-Size: 6\r\n\r\n", b"")
    assert (b[3], b[4]) == (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 3\r\n\r\n", b"")


def test_replay_at_the_speed_of_storing(world):
    for ms in (0, 320, 310):
        world.env.advance(ms * MS)
        world.env.inject(b"s.a")
    world.env.advance(SECOND)
    world.env.listen(b"d")
    world.env.take()
    start = world.env.mono
    world.consumer(deliver_subject=b"d", replay_policy="original", ack_policy=ACK_NONE)
    world.env.run()
    times = []
    for _ in range(100):
        times += [(world.env.mono - start) // MS] * len(world.env.take())
        world.env.advance(10 * MS)
    assert times == [0, 320, 630]
    world.env.inject(b"s.a")
    assert seqs(world.env.take()) == [4]


def test_a_rate_limit():
    w = World(max_msg_size=1000)
    w.env.listen(b"d")
    w.consumer(deliver_subject=b"d", rate_limit_bps=8 * 10_000, ack_policy=ACK_NONE)
    w.env.inject(b"s.a", b"x" * 900)
    assert len(w.env.take()) == 1  # a burst of the largest message is free
    w.fill(30, b"s.a", b"x" * 900)
    assert not w.env.take()
    w.env.advance(SECOND)
    assert 8 <= len(w.env.take()) <= 11


def test_a_burst_up_to_the_largest_message_is_free():
    w = World(place={"max_payload": 20_000})
    w.env.listen(b"d")
    w.fill(30, b"s.a", b"x" * 900)
    w.consumer(deliver_subject=b"d", rate_limit_bps=8 * 10_000, ack_policy=ACK_NONE)
    w.env.run()
    assert 20 <= len(w.env.take()) <= 22
    w.env.advance(SECOND)
    assert 8 <= len(w.env.take()) <= 11


def test_an_ack_wait_of_nothing_leaves_time_to_ack():
    w = World()
    w.env.listen(b"d")
    w.consumer(deliver_subject=b"d", ack_wait=1)
    w.fill(1)
    w.env.advance(100 * MS)
    assert len(w.env.take()) <= 101


@pytest.fixture
def stored(world):
    for i, s in enumerate((b"s.a", b"s.b", b"s.a", b"s.c", b"s.b")):
        world.env.advance(SECOND if i else 0)
        world.env.inject(s)
    world.env.take()
    return world


@pytest.mark.parametrize(
    ("params", "want"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"deliver_policy": LAST}, [5]),
        ({"deliver_policy": LAST, "filters": (b"s.a", b"s.c")}, [4]),
        ({"deliver_policy": LAST, "filters": (b"zz",)}, []),
        ({"deliver_policy": NEW_ONLY}, []),
        ({"deliver_policy": BY_SEQ, "opt_start_seq": 4}, [4, 5]),
        ({"deliver_policy": BY_TIME, "opt_start_time": 1_700_000_002_000_000_000}, [3, 4, 5]),
        ({"deliver_policy": BY_TIME, "opt_start_time": 1_800_000_000_000_000_000}, []),
        ({"deliver_policy": LAST_PER_SUBJECT, "filters": (b"s.*",)}, [3, 4, 5]),
        ({"deliver_policy": LAST_PER_SUBJECT, "filters": (b"s.a", b"s.b")}, [3, 5]),
        ({"filters": (b"s.a", b"s.*")}, [1, 2, 3, 4, 5]),
        ({"filters": (b"s.b", b"s.c")}, [2, 4, 5]),
    ],
)
def test_where_it_starts_and_what_it_takes(stored, params, want):
    c = stored.consumer(**params)
    assert c.state().num_pending == len(want)
    got = stored.pull(b"10")
    assert seqs(got) == want
    assert [tokens(m)[4] for m in got] == list(range(len(want) - 1, -1, -1))
    stored.env.inject(b"s.a")
    filters = params.get("filters", (b"s.a",))
    assert seqs(stored.env.take()) == ([6] if {b"s.a", b"s.*"} & set(filters) else [])


def test_a_start_beyond_the_end_is_kept(stored):
    c = stored.consumer(deliver_policy=BY_SEQ, opt_start_seq=8)
    assert c.state().delivered_stream == 7 and c.state().num_pending == 0
    stored.pull(b"10")
    for _ in range(4):
        stored.env.inject(b"s.a")
    assert seqs(stored.env.take()) == [8, 9]


def test_last_per_subject_goes_on_with_everything_new(stored):
    c = stored.consumer(deliver_policy=LAST_PER_SUBJECT, filters=(b"s.>",))
    assert c.state().num_pending == 3 and c.state().delivered_stream == 2
    assert seqs(stored.pull(b"1")) == [3]
    stored.fill(2, b"s.a")
    stored.stream.delete(4, False)
    assert c.state().num_pending == 3
    assert seqs(stored.pull(b"9")) == [5, 6, 7]


def test_a_thousand_consumers_hear_of_their_own(world):
    handles = [world.consumer(name=b"c%d" % i, filters=(b"s.%d.*" % i,)) for i in range(300)]
    handles += [
        world.consumer(name=b"l%d" % i, filters=(b"s.%d.x" % i, b"s.z")) for i in range(300)
    ]
    world.fill(1, b"s.7.x")
    world.fill(1, b"s.z")
    pending = [h.state().num_pending for h in handles]
    assert pending == [int(i == 7) for i in range(300)] + [1 + (i == 7) for i in range(300)]
    for h in handles[:150] + handles[300:450]:
        h.close(True)
    world.fill(1, b"s.200.x")
    assert handles[200].state().num_pending == 1 and handles[500].state().num_pending == 2
    world.stream.close(True)
    assert world.env.subscriptions == [] and world.env.timers == 0
