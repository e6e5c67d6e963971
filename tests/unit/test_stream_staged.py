"""Publishes that are staged, on a disk: they are acked together, or refused together."""

import errno

import pytest

from tests.unit.consumer_disk import until
from tests.unit.stream_world import headers
from tests.unit.test_consumer_state import disk
from tests.unit.test_stream_failure import mended, shown
from tests.unit.test_stream_truncate import truncate

__all__ = ["disk"]

STORE_ERROR = 3


def stage(w, n: int) -> None:
    w.env.stage(w.stream)
    for number in range(n):
        w.env.inject(b"s.a", b"%d" % number, b"ack.%d" % number)


def test_they_are_durable_together(disk) -> None:
    w = disk.open()
    w.fill(2)
    w.env.stall_commits()
    stage(w, 5)
    w.env.stage_end(w.stream, True)
    assert w.env.take() == []
    w.env.resume_commits()
    until(w, lambda: w.env.sent)
    assert [m[0] for m in w.env.take()] == [b"ack.%d" % n for n in range(5)]


@pytest.mark.parametrize("op", ["datasync", "pwrite"])
def test_a_disk_that_fails_refuses_all(disk, op: str) -> None:
    w = disk.open(max_msgs_per_subject=3)
    w.fill(4, data=lambda i: b"old %d" % i)
    before = shown(w)[:2]
    stage(w, 3)
    w.env.fail(errno.EIO, op)
    w.env.stage_end(w.stream, True)
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    assert [(m[0], b'"err_code":10077' in m[4]) for m in w.env.take()] == [
        (b"ack.%d" % n, True) for n in range(3)
    ]
    mended(w)
    assert shown(w)[:2] == before


def test_what_is_staged_when_the_disk_fails_is_refused(disk) -> None:
    w = disk.open()
    w.fill(2)
    w.env.stall_commits()
    stage(w, 4)
    assert w.env.stage_apply(w.stream, 2) == 0
    w.env.fail(errno.EIO)
    w.env.resume_commits()
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    assert sorted(m[0] for m in w.env.take() if b'"error"' in m[4]) == [
        b"ack.%d" % n for n in range(4)
    ]
    w.env.stage_end(w.stream, False)
    mended(w)
    assert w.stream.state().last_seq == 2


def test_what_is_staged_goes_with_what_it_stands_on(disk) -> None:
    w = disk.open(duplicate_window=10**11)
    w.fill(4)
    w.env.stage(w.stream)
    w.env.inject(b"s.a", b"x", b"ack.1", headers(Nats_Msg_Id="a"))
    truncate(w, 2)
    (answer,) = w.env.take()
    assert answer[0] == b"ack.1" and b"truncated" in answer[4]
    w.env.inject(b"s.a", b"x", b"ack.2", headers(Nats_Msg_Id="a", Nats_Expected_Last_Sequence=2))
    w.env.stage_end(w.stream, True)
    until(w, lambda: w.env.sent)
    assert [m[4] for m in w.env.take()] == [b'{"stream":"S","seq":3}']


def test_one_that_no_store_takes_is_refused_before_it_is_staged(disk) -> None:
    w = disk.open(place={"max_payload": 64 << 20})
    stage(w, 1)
    w.env.inject(b"s.a", bytes(33 << 20), b"ack.large")
    w.env.inject(b"s.a", b"y", b"ack.last")
    (answer,) = w.env.take()
    assert answer[0] == b"ack.large" and b"message too large" in answer[4]
    w.env.stage_end(w.stream, True)
    until(w, lambda: len(w.env.sent) == 2)
    assert [m[4] for m in w.env.take()] == [
        b'{"stream":"S","seq":1}',
        b'{"stream":"S","seq":2}',
    ]


@pytest.mark.parametrize("op", ["datasync", "pwrite", "open"])
@pytest.mark.parametrize("after", range(9))
def test_a_disk_that_fails_in_the_middle_leaves_all_or_nothing(disk, op: str, after: int) -> None:
    """Of a batch in several blocks; the next one is stored again."""
    w = disk.open(max_msgs=60, max_msgs_per_subject=12)  # blocks of 32,000 bytes
    w.fill(4, data=lambda i: b"old %d" % i)
    before = shown(w)[:2]
    w.env.fail(errno.EIO, op, after)
    w.env.stage(w.stream)
    for number in range(14):
        w.env.inject(b"s.a", b"%d" % number + bytes(9000), b"ack.%d" % number)
    w.env.stage_end(w.stream, True)
    until(w, lambda: len(w.env.sent) >= 14)
    refused = [b'"err_code":10077' in m[4] for m in w.env.take() if m[0].startswith(b"ack.")]
    assert len(refused) == 14 and len(set(refused)) == 1
    if refused[0]:
        until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
        mended(w)
        assert shown(w)[:2] == before
    else:
        assert w.stream.state().messages == 12
    w.env.fail(0, op, 0, 0)
    stage(w, 3)
    w.env.stage_end(w.stream, True)
    until(w, lambda: len(w.env.sent) >= 3)
    assert [m[4] for m in w.env.take() if b"error" in m[4]] == []


@pytest.mark.parametrize("remove", [False, True])
def test_a_stream_may_be_closed_or_deleted_meanwhile(disk, remove: bool) -> None:
    w = disk.open()
    w.fill(2)
    w.env.stall_commits()
    stage(w, 5)
    w.env.stage_end(w.stream, True)
    stage(w, 3)
    w.env.resume_commits()
    w.stream.close(remove)
    w.env.stop_commits()
    disk.worlds.remove(w)
    again = disk.open()
    assert again.stream.state().messages == (0 if remove else 7)


def test_what_is_staged_is_bounded(disk) -> None:
    w = disk.open(place={"max_payload": 64 << 20})
    stage(w, 1)
    for number in range(3):
        w.env.inject(b"s.a", bytes(30 << 20), b"ack.large.%d" % number)
    (answer,) = w.env.take()
    assert answer[0] == b"ack.large.2" and b"too much is staged at once" in answer[4]
    w.env.stage_end(w.stream, True)
    until(w, lambda: len(w.env.sent) == 3)
    assert w.stream.state().messages == 3
