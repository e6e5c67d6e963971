"""Pull requests: what is delivered, in turn, and every way in which a request ends."""

import pytest

from tests.unit.stream_world import (
    ACK_NONE,
    MS,
    SECOND,
    WORKQUEUE,
    World,
    consumer_params,
    headers,
    seqs,
    statuses,
    tokens,
)


@pytest.fixture
def world():
    return World()


def test_a_message_comes_as_it_was_published(world):
    world.consumer()
    world.env.inject(b"s.a", b"data", b"", headers(A="b"))
    [m] = world.pull()
    assert m[0] == b"inbox" and m[1] == b"s.a" and m[3] == headers(A="b") and m[4] == b"data"
    assert m[2] == b"$JS.ACK.S.C.1.1.1.1700000000000000000.0"


def test_the_long_form_of_ack_subjects():
    w = World(place={"long_acks": True, "domain": b"hub"})
    w.consumer(ack_policy="explicit")
    w.fill(1)
    [m] = w.pull()
    assert m[2] == b"$JS.ACK.hub.szMpdrwD.S.C.1.1.1.1700000000000000000.0"
    assert w.ack(m, reply=b"inbox") == [(b"inbox", b"inbox", b"", b"", b"")]


def test_bodies(world):
    world.consumer()
    world.fill(20)
    assert seqs(world.pull(b"")) == [1]
    assert seqs(world.pull(b"2")) == [2, 3]
    assert seqs(world.pull(b'{"batch":2}')) == [4, 5]
    assert seqs(world.pull(b"junk")) == [6]
    assert seqs(world.pull(b'{"batch":0}')) == [7]
    assert seqs(world.pull(b'{"batch":-3,"unknown":[1,{"x":null}]}')) == [8]
    assert seqs(world.pull(b"0")) == [9]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b'{"batch":', "400 Bad Request - unexpected end of JSON input"),
        (
            b'{"batch":"1"}',
            "400 Bad Request - json: cannot unmarshal string into Go struct field "
            "JSApiConsumerGetNextRequest.batch of type int",
        ),
        (
            b'{"expires":true}',
            "400 Bad Request - json: cannot unmarshal bool into Go struct field "
            "JSApiConsumerGetNextRequest.expires of type time.Duration",
        ),
        (
            b'{"batch":1} x',
            "400 Bad Request - invalid character 'x' after top-level value",
        ),
        (
            b"{bad",
            "400 Bad Request - invalid character 'b' looking for beginning of object key string",
        ),
        (b'{"idle_heartbeat":1000000000}', "400 Bad Request - heartbeat value too large"),
        (
            b'{"idle_heartbeat":600000000,"expires":1000000000}',
            "400 Bad Request - heartbeat value too large",
        ),
        (b'{"batch":3}', "409 Exceeded MaxRequestBatch of 2"),
        (b'{"expires":61000000000}', "409 Exceeded MaxRequestExpires of 1m0s"),
        (b'{"max_bytes":51}', "409 Exceeded MaxRequestMaxBytes of 50"),
        (b'{"min_pending":1}', "400 Bad Request - Not a Overflow Priority consumer"),
        (b'{"id":"x"}', "400 Bad Request - Not a Pinned Client Priority consumer"),
        (b'{"priority":10}', "400 Bad Request - Priority must be between 0 and 9"),
        (b'{"no_wait":true}', "404 No Messages"),
    ],
)
def test_refusals(world, body, want):
    world.consumer(max_batch=2, max_expires=60 * SECOND, max_bytes=50)
    assert statuses(world.pull(body)) == [want]


def test_refusals_of_others(world):
    world.consumer(name=b"P", deliver_subject=b"d")
    assert statuses(world.pull(b"", b"P")) == ["409 Consumer is push based"]
    world.consumer()
    assert statuses(world.pull(header=headers(Nats_Required_Api_Level=9))) == [
        "412 Required Api Level"
    ]
    assert world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.nobody", b"", b"inbox") == 0


def test_no_wait_ends_with_what_there_is(world):
    world.consumer()
    world.fill(2)
    got = world.pull(b'{"batch":10,"no_wait":true}')
    assert seqs(got) == [1, 2] and statuses(got) == ["404 No Messages"]
    world.fill(2)
    got = world.pull(b'{"batch":2,"no_wait":true}')
    assert seqs(got) == [3, 4] and statuses(got) == []


def test_no_wait_with_expires_waits_for_the_first(world):
    world.consumer()
    assert world.pull(b'{"batch":3,"no_wait":true,"expires":1000000000}') == []
    world.env.inject(b"s.a")
    got = world.env.take()
    assert seqs(got) == [1] and statuses(got) == ["404 No Messages"]


def test_requests_pending(world):
    world.consumer(max_ack_pending=1)
    world.fill(3)
    world.pull(b"1")
    world.pull(b"5")
    assert statuses(world.pull(b'{"no_wait":true}')) == ["408 Requests Pending"]


def test_a_request_expires_with_what_is_left(world):
    world.consumer()
    world.fill(2, b"s.a", b"12345")
    assert seqs(world.pull(b'{"batch":5,"expires":2000000000,"max_bytes":1000}')) == [1, 2]
    world.env.advance(2 * SECOND - 1)
    assert world.env.take() == []
    world.env.advance(1)
    [m] = world.env.take()
    spent = 2 * (3 + 5 + len(b"$JS.ACK.S.C.1.1.1.1700000000000000000.1"))
    assert m[3] == (
        b"NATS/1.0 408 Request Timeout\r\n"
        b"Nats-Pending-Messages: 3\r\nNats-Pending-Bytes: %d\r\n\r\n" % (1000 - spent)
    )


def test_requests_expire_by_their_own_deadlines(world):
    world.consumer()
    for i, ms in enumerate((200, 100, 25, 75)):
        world.env.listen(b"in%d" % i)
        world.pull(b'{"expires":%d}' % (ms * MS), reply=b"in%d" % i)
    world.env.advance(300 * MS)
    assert [m[0] for m in world.env.take()] == [b"in2", b"in3", b"in1", b"in0"]


def test_two_requests_take_turns(world):
    world.consumer()
    world.env.listen(b"x")
    world.env.listen(b"y")
    world.pull(b"3", reply=b"x")
    world.pull(b"3", reply=b"y")
    for _ in range(6):
        world.env.inject(b"s.a")
    assert [m[0] for m in world.env.take()] == [b"x", b"y"] * 3


def test_max_bytes(world):
    world.consumer()
    world.fill(3, b"s.a", b"x" * 100)
    one = 3 + 100 + len(b"$JS.ACK.S.C.1.1.1.1700000000000000000.2")
    got = world.pull(b'{"batch":10,"max_bytes":%d}' % (one + 10))
    assert seqs(got) == [1] and statuses(got) == ["409 Message Size Exceeds MaxBytes"]
    got = world.pull(b'{"max_bytes":%d}' % (one + 7))
    assert seqs(got) == [2]
    assert got[1][3] == (
        b"NATS/1.0 409 Batch Completed\r\n"
        b"Nats-Pending-Messages: -1\r\nNats-Pending-Bytes: 7\r\n\r\n"
    )
    got = world.pull(b'{"batch":5,"max_bytes":%d}' % one)
    assert seqs(got) == [3] and statuses(got) == []


def test_heartbeats_of_a_request(world):
    world.consumer()
    world.pull(b'{"batch":2,"expires":10000000000,"idle_heartbeat":1000000000}')
    world.env.advance(SECOND)
    [m] = world.env.take()
    assert m[0] == b"inbox" and m[3] == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Last-Stream: 0\r\n\r\n"
    )
    world.env.advance(SECOND // 2)
    world.env.inject(b"s.a")
    world.env.take()
    world.env.advance(SECOND - 1)
    assert world.env.take() == []
    world.env.advance(1)
    assert statuses(world.env.take()) == ["100 Idle Heartbeat"]


def test_max_waiting(world):
    world.consumer(max_waiting=2)
    world.pull()
    world.pull()
    assert statuses(world.pull()) == ["409 Exceeded MaxWaiting"]
    assert world.pull(b'{"expires":9000000000,"idle_heartbeat":1000000000}') == []
    world.env.ignore(b"inbox")
    world.env.listen(b"other")
    world.env.advance(SECOND)
    assert world.pull(reply=b"other") == []
    world.env.inject(b"s.a")
    assert [m[0] for m in world.env.take()] == [b"other"]


def test_a_request_that_nobody_listens_for_is_passed_over(world):
    c = world.consumer()
    world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"", b"nowhere")
    assert c.state().num_waiting == 0
    world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"", b"nowhere")
    world.pull()
    world.env.inject(b"s.a")
    got = [m for m in world.env.take() if m[0] == b"inbox"]
    assert [tokens(m)[:3] for m in got] == [(1, 1, 1)]


def test_info_counts_live_requests(world):
    c = world.consumer()
    world.pull(b'{"expires":1000000000}')
    world.pull()
    assert c.state().num_waiting == 2
    world.env.advance(SECOND)
    assert c.state().num_waiting == 1


def test_the_end_is_told(world):
    c = world.consumer()
    world.pull(b"7")
    world.env.take()
    c.close(True)
    [m] = world.env.take()
    assert m[3] == b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
    world.consumer(name=b"D")
    world.pull(b"7", b"D")
    world.stream.close(False)
    [m] = world.env.take()
    assert m[3] == (
        b"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )


def test_a_stalled_request_waits_for_acks(world):
    c = world.consumer(max_ack_pending=2)
    world.fill(5)
    first = world.pull(b'{"batch":5,"no_wait":true}')
    assert seqs(first) == [1, 2] and statuses(first) == []
    assert seqs(world.ack(first[0])) == [3]
    assert c.state().num_ack_pending == 2


def test_pause(world):
    c = world.consumer()
    world.fill(2)
    c.pause(world.env.now + 5 * SECOND)
    assert statuses(world.pull(b'{"no_wait":true}')) == ["404 No Messages"]
    assert world.pull(b'{"batch":1}') == []
    world.env.advance(4 * SECOND)
    assert world.env.take() == []
    world.env.advance(SECOND)
    assert seqs(world.env.take()) == [1]
    assert [e[0] for e in world.env.events] == [4]
    c.pause(world.env.now + 5 * SECOND)
    world.pull(b'{"batch":1}')
    c.pause(0)
    world.env.run()
    assert seqs(world.env.take()) == [2]


def test_a_consumer_created_paused(world):
    world.fill(1)
    world.consumer(pause_until=world.env.now + SECOND)
    assert world.pull() == []
    world.env.advance(SECOND)
    assert seqs(world.env.take()) == [1]


def test_inactivity(world):
    c = world.consumer(inactive_threshold=5 * SECOND, ack_policy=ACK_NONE)
    world.env.advance(4 * SECOND)
    world.pull(b'{"expires":60000000000}')
    world.env.advance(30 * SECOND)
    assert world.env.events == []
    world.env.ignore(b"inbox")
    world.env.advance(12 * SECOND)
    kind, texts, _ = world.env.events[0]
    assert kind == 1 and texts[:2] == (b"S", b"C")
    c.close(True)
    assert world.env.timers == 0


def test_pending_acks_keep_it_alive(world):
    world.consumer(inactive_threshold=SECOND, ack_wait=10 * SECOND, max_deliver=1)
    world.fill(1)
    world.pull()
    world.env.advance(10 * SECOND)
    assert world.env.events == []
    world.env.advance(3 * SECOND)
    assert world.env.events[0][0] == 1


def test_update_of_filters_and_limits(world):
    c = world.consumer(filters=(b"s.a",), max_ack_pending=1)
    world.fill(2, b"s.a")
    world.fill(3, b"s.b")
    assert c.state().num_pending == 2
    assert seqs(world.pull(b"5")) == [1]
    world.env.take()
    c.update(consumer_params(filters=(b"s.b", b"s.c"), max_ack_pending=10))
    world.env.run()
    assert seqs(world.env.take()) == [3, 4, 5]
    assert c.state().num_pending == 0


@pytest.mark.parametrize("reply", [b"s.a", b"$JS.ACK.S.C.1.1.1.1.0"])
def test_a_stream_does_not_take_its_own_deliveries(reply):
    """Its records would move while they are read: a request with such a reply ends unserved."""
    world = World(max_msgs=2, retention=WORKQUEUE)
    consumer = world.consumer()
    world.fill(2, data=b"+ACK")
    world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"5", reply)
    state = consumer.state()
    assert (world.stream.state().last_seq, state.num_pending) == (2, 2)
    assert (state.num_waiting, state.num_ack_pending) == (0, 0)
    assert seqs(world.pull(b"5")) == [1, 2]


def test_whoever_has_too_much_to_take_stands_aside(world):
    c = world.consumer()
    world.env.listen(b"slow")
    world.env.full.add(b"slow")
    world.fill(9)
    assert len(world.pull(b"5", reply=b"slow")) == 1
    assert c.waits().reason == 16
    assert [m[0] for m in world.pull(b"3")] == [b"inbox"] * 3
    world.env.advance(50 * MS)
    assert world.env.take() == []
    world.env.full.clear()
    world.env.advance(1 * MS)
    assert [m[0] for m in world.env.take()] == [b"slow"] * 4


@pytest.mark.parametrize("policy", ["prioritized", "overflow", "pinned_client"])
def test_standing_aside_in_a_priority_group(world, policy):
    world.consumer(priority_policy=policy, priority_groups=(b"A",), priority_timeout=SECOND)
    world.env.listen(b"slow")
    world.env.full.add(b"slow")
    world.fill(3)
    body = b'{"batch":5,"group":"A","no_wait":true,"expires":60000000000}'
    assert seqs(world.pull(body, reply=b"slow")) == [1]
    world.env.advance(20 * MS)
    assert world.env.take() == []
    world.env.full.clear()
    world.env.advance(1 * MS)
    came = world.env.take()
    assert seqs(came) == [2, 3]
    assert statuses(came) == ["404 No Messages"]
