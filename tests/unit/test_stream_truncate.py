"""A stream that goes back: who waits for an ack, what consumers get, what a failing disk leaves."""

import errno

import pytest

from tests.unit.consumer_disk import until
from tests.unit.stream_world import ACK_ALL, LAST_PER_SUBJECT, World, headers, seqs
from tests.unit.test_consumer_state import disk
from tests.unit.test_stream_failure import mended, shown

__all__ = ["disk"]

TRUNCATE = 6


def truncate(w: World, seq: int) -> int:
    change = (TRUNCATE, seq, w.env.now, 0, 0, False, b"", b"", b"", b"")
    rc: int = w.env.apply(w.stream, change)
    w.env.run()
    return rc


def test_whose_message_is_gone_hears_an_error(disk) -> None:
    w = disk.open()
    w.fill(3)
    w.env.stall_commits()
    for number in range(4):
        w.env.inject(b"s.a", b"x", b"ack.%d" % (4 + number))
    truncate(w, 5)
    assert [(m[0], b"truncated" in m[4]) for m in w.env.take()] == [
        (b"ack.6", True),
        (b"ack.7", True),
    ]
    w.env.inject(b"s.a", b"y", b"ack.again")
    w.env.resume_commits()
    w.stream.wait_durable()
    until(w, lambda: len(w.env.sent) == 3)
    assert [(m[0], m[4]) for m in w.env.take()] == [
        (b"ack.4", b'{"stream":"S","seq":4}'),
        (b"ack.5", b'{"stream":"S","seq":5}'),
        (b"ack.again", b'{"stream":"S","seq":6}'),
    ]


def test_a_sequence_that_is_given_again_is_delivered_again() -> None:
    w = World()
    w.consumer(filters=(b"s.a", b"s.b.>"))
    w.fill(4)
    first = w.pull(b'{"batch":10}')
    assert seqs(first) == [1, 2, 3, 4]
    for message in first:
        w.ack(message)
    truncate(w, 2)
    w.env.take()
    w.env.inject(b"s.a", b"new 3")
    w.env.inject(b"s.a", b"new 4")
    sent = [m for m in w.env.take() if m[2].startswith(b"$JS.ACK.")]
    assert [(seqs([m])[0], m[4]) for m in sent] == [(3, b"new 3"), (4, b"new 4")]


def test_a_list_of_last_messages_goes_no_further(disk) -> None:
    w = World()
    for subject in (b"s.a", b"s.b", b"s.c", b"s.d"):
        w.fill(1, subject)
    w.consumer(name=b"L", deliver_policy=LAST_PER_SUBJECT, ack_policy=ACK_ALL)
    assert seqs(w.pull(b'{"batch":1}', b"L")) == [1]
    truncate(w, 2)
    for _ in range(3):
        w.fill(1, b"s.a")
    assert seqs(w.pull(b'{"batch":10,"no_wait":true}', b"L")) == [2, 3, 4, 5]


def test_an_id_behind_it_is_stored_again(disk) -> None:
    w = disk.open(duplicate_window=60 * 10**9)
    for name in ("a", "b", "c"):
        w.env.inject(b"s.a", b"x", b"", headers(Nats_Msg_Id=name))
    truncate(w, 1)
    w.env.take()
    for name in ("a", "b", "c"):
        w.env.inject(b"s.a", b"x", b"ack", headers(Nats_Msg_Id=name))
    w.stream.wait_durable()
    until(w, lambda: len(w.env.sent) == 3)
    assert [m[4] for m in w.env.take()] == [
        b'{"stream":"S","seq":1,"duplicate": true}',
        b'{"stream":"S","seq":2}',
        b'{"stream":"S","seq":3}',
    ]


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("op", ["datasync", "pwrite"])
def test_a_truncation_that_the_disk_refuses_takes_nothing(disk, op: str, after: int) -> None:
    w = disk.open()
    w.fill(6, data=lambda i: b"%d" % i)
    before = shown(w)[:2]
    w.stream.wait_durable()
    w.env.fail(errno.EIO, op, after=after)
    w.env.hold_commits()
    truncate(w, 3)
    w.env.inject(b"s.a", b"new", b"ack")
    w.env.let_commits()

    def over() -> bool:
        return any(e[0] == 3 for e in w.env.events) or bool(w.env.sent)

    until(w, over)
    if any(e[0] == 3 for e in w.env.events):
        mended(w)
        assert shown(w)[:2] == before
    else:
        assert w.stream.state().last_seq == 4
