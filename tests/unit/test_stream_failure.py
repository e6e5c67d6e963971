"""A disk that fails: what was refused is gone, what it had replaced is back, and it goes on."""

import errno
import time

import pytest

from tests.unit.consumer_disk import until
from tests.unit.stream_world import INTEREST, LIMITS, WORKQUEUE, headers, seqs, statuses, tokens
from tests.unit.test_consumer_state import disk

__all__ = ["disk"]

STORE_ERROR = 3
REASON = "writing to disk failed: Input/output error"
REFUSED = b'{"error":{"code":503,"err_code":10077,"description":"%s"},"stream":"S","seq":0}' % (
    REASON.encode()
)


def broken(w, publish, op="datasync", times=1):
    """Lets what `publish` does meet a failing disk; what went out by then."""
    w.env.fail(errno.EIO, op, times=times)
    publish()
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    return w.env.take()


def mended(w):
    w.env.events.clear()
    w.stream.reopen()
    w.stream.resume()


def shown(w):
    """All that a stream shows: counts, messages, what consumers would get."""
    state = w.stream.state()
    messages = [w.stream.get(seq) for seq in range(1, state.last_seq + 2)]
    return state, [m for m in messages if m is not None], [h.state() for h in w.handles]


@pytest.mark.parametrize("op", ["datasync", "pwrite"])
def test_a_refused_publish_is_gone(disk, op):
    w = disk.open(max_msgs_per_subject=1, subjects=(b"s.>",), duplicate_window=60 * 10**9)
    w.fill(3, data=lambda i: b"%d" % i)
    before = shown(w)
    got = broken(w, lambda: w.env.inject(b"s.a", b"new", b"ack", headers(Nats_Msg_Id="i")), op)
    assert got == [(b"ack", b"ack", b"", b"", REFUSED)]
    assert w.publish() == REFUSED.decode()
    assert [m[0].split(b"\r\n")[0] for m in w.direct(subject=b"s.a")] == [
        b"NATS/1.0 500 " + REASON.encode()
    ]
    mended(w)
    assert shown(w) == before
    assert [m[1] for m in w.direct(subject=b"s.a")] == [b"2"]
    w.env.take()
    w.env.inject(b"s.a", b"new", b"ack", headers(Nats_Msg_Id="i"))
    until(w, lambda: [m[4] for m in w.env.sent] == [b'{"stream":"S","seq":4}'])


def test_a_refused_publish_is_gone_after_a_restart(disk):
    w = disk.open()
    w.fill(3)
    before = shown(w)
    broken(w, lambda: w.env.inject(b"s.a", b"new", b"ack"))
    disk.close(w)
    w = disk.open()
    after = shown(w)
    assert after[:2] == before[:2] and [s.num_pending for s in after[2]] == [3]


@pytest.mark.parametrize("change", ["delete", "purge", "purge some", "limits"])
def test_what_a_refused_change_removed_is_there_again(disk, change):
    w = disk.open()
    w.fill(20)
    before = shown(w)[:2]

    def act():
        if change == "delete":
            w.stream.delete(5, True)
        elif change == "purge":
            w.stream.purge(None, 0, 0)
        elif change == "purge some":
            w.stream.purge(None, 7, 0)
        else:
            w.env.inject(b"s.a", b"x", b"ack")

    w.env.stall_commits()
    w.env.inject(b"s.a", b"x", b"ack")
    act()
    w.env.fail(errno.EIO, times=3)
    w.env.resume_commits()
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    with pytest.raises(Exception, match=REASON):
        w.stream.wait_durable()
    w.env.fail(errno.EIO, times=0)
    mended(w)
    assert shown(w)[:2] == before


@pytest.mark.parametrize("retention", [LIMITS, INTEREST, WORKQUEUE])
def test_consumers_go_on_where_the_disk_has_them(disk, retention):
    w = disk.open(retention=retention)
    w.fill(5)
    got = w.pull(b"3")
    w.ack(got[0])
    w.env.advance(10**9)
    w.stream.wait_durable()
    w.pull(b"9", reply=b"inbox")
    w.ack(got[1])
    w.env.take()
    w.env.fail(errno.EIO)
    w.env.inject(b"s.a", b"x", b"ack")
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    with pytest.raises(Exception, match=REASON):
        w.handles[0].state()
    mended(w)
    assert statuses([m for m in w.env.take() if m[0] == b"inbox"])[-1] == "409 Leadership Change"
    state = w.handles[0].state()
    w.env.advance(31 * 10**9)
    due = sorted(set(seqs(w.pull(b"9"))))
    assert due in ([2, 3, 4, 5], [3, 4, 5])  # nobody waited for the disk to have the second ack
    assert state.num_ack_pending + state.num_pending == len(due)


def test_a_consumer_in_memory_keeps_its_state(disk):
    w = disk.open(consumers=())
    c = w.consumer(name=b"M", mem_storage=True)
    w.fill(5)
    got = w.pull(b"3", name=b"M")
    w.ack(got[0])
    before = c.state()
    broken(w, lambda: w.env.inject(b"s.a", b"x", b"ack"))
    mended(w)
    assert c.state()[:2] == before[:2] and c.state().num_ack_pending == 2
    assert tokens(w.pull(b"1", name=b"M")[0])[:3] == (1, 4, 4)


def test_a_push_consumer_goes_on(disk):
    w = disk.open(consumers=({"deliver_subject": b"inbox"},))
    w.fill(2)
    broken(w, lambda: w.env.inject(b"s.a", b"x", b"ack"))
    mended(w)
    w.env.take()
    w.fill(1)
    until(w, lambda: w.handles[0].state().num_pending == 0)
    assert w.handles[0].state().delivered_stream == 3


def test_until_it_resumes_a_stream_is_read_and_not_changed(disk):
    w = disk.open()
    w.fill(3)
    broken(w, lambda: w.env.inject(b"s.a", b"x", b"ack"))
    w.env.events.clear()
    w.stream.reopen()
    assert w.publish() == REFUSED.decode()
    assert len(w.direct(subject=b"s.a")) == 1
    assert statuses(w.pull(b"1")) == []
    for change in (lambda: w.stream.delete(1, False), lambda: w.stream.purge(None, 0, 0)):
        with pytest.raises(Exception, match=REASON):
            change()
    assert w.stream.state().messages == 3
    w.stream.resume()
    w.env.run()
    assert seqs(w.env.take()) == [1]
    w.fill(1)
    assert w.stream.state().messages == 4


def test_it_tries_again_when_it_cannot_come_back(disk):
    w = disk.open()
    w.fill(3)
    before = shown(w)[:2]
    broken(w, lambda: w.env.inject(b"s.a", b"x", b"ack"))
    for op in ("truncate", "open"):
        w.env.fail(errno.EIO, op, times=1)
        with pytest.raises(Exception, match=r"failed|opened|errno"):
            w.stream.reopen()
        assert w.publish() == REFUSED.decode()
    mended(w)
    assert shown(w)[:2] == before
    w.fill(1)


def test_a_stream_that_failed_can_be_closed_and_deleted(disk):
    w = disk.open()
    w.fill(3)
    broken(w, lambda: w.env.inject(b"s.a", b"x", b"ack"))
    disk.worlds.remove(w)
    w.stream.close(True)
    w.env.stop_commits()


def test_answers_that_wait_tell_why_they_fail(disk):
    w = disk.open(consumers=())
    w.env.stall_commits()
    w.env.inject(b"s.a", b"x")
    w.direct(subject=b"s.a")
    assert w.stream.answer(w.stream.unsettled(), b"inbox", b"{}", b"io.t")
    w.env.fail(errno.EIO)
    w.env.resume_commits()
    until(w, lambda: len(w.env.sent) == 2)
    got = w.env.take()
    assert statuses(got[:1]) == ["500 " + REASON]
    assert got[1][4] == (
        b'{"type":"io.t","error":{"code":503,"err_code":10077,"description":"%s"}}'
        % REASON.encode()
    )


def test_a_failure_under_load(disk):
    w = disk.open(max_msgs=500)
    acked = set()
    for n in range(8):
        op = ("datasync", "pwrite")[n % 2]
        w.env.fail(errno.EIO, op, after=3 * n, times=1000)  # some meet who writes zeros ahead
        for i in range(400):
            w.env.inject(b"s.a", b"%d" % i, b"a.%d.%d" % (n, i))
        end = time.monotonic() + 20
        while not any(e[0] == STORE_ERROR for e in w.env.events):
            assert time.monotonic() < end
            w.env.inject(b"s.a", b"", b"a.%d.0" % n)
            w.env.poll()
        w.env.fail(0, op, times=0)
        for m in w.env.take():
            if m[4].startswith(b'{"stream"'):
                acked.add(int(m[4].rsplit(b":", 1)[1].strip(b"}")))
        mended(w)
        state = w.stream.state()
        live = [s for s in range(state.first_seq, state.last_seq + 1) if w.stream.get(s)]
        assert len(live) == state.messages <= 500
        # what was refused may have used up sequences; of what was acked only the limit removed some
        assert live == (sorted(acked)[-len(live) :] if live else sorted(acked))


@pytest.mark.parametrize("after", range(3, 6))
def test_what_is_on_disk_is_acked_before_the_next_group_fails(disk, after):
    """A large group takes in what comes while it is written. Would that be refused with the next
    one, it would still have pushed out what was acked."""
    w = disk.open(max_msgs=500)
    acked = 0
    w.env.stall_commits()
    w.env.fail(errno.EIO, "datasync", after=after, times=1000)
    for _ in range(135_000):  # more than a block
        w.env.inject(b"s.a", b"", b"a")
    w.env.resume_commits()
    end = time.monotonic() + 20
    while not any(e[0] == STORE_ERROR for e in w.env.events):
        assert time.monotonic() < end
        w.env.inject(b"s.a", b"", b"a.0")
        w.env.poll()
    w.env.fail(0, "datasync", times=0)
    for m in w.env.take():
        if m[4].startswith(b'{"stream"'):
            acked = int(m[4].rsplit(b":", 1)[1].strip(b"}"))
    mended(w)
    state = w.stream.state()
    assert state.last_seq >= acked
    live = [s for s in range(state.first_seq, state.last_seq + 1) if w.stream.get(s)]
    assert live == [s for s in range(acked - 499, acked + 1) if s > 0]


def test_a_double_ack_that_cannot_be_written_is_not_answered(disk):
    """A client takes any answer for a confirmation; without one it asks again."""
    w = disk.open()
    w.fill(2)
    first, _ = w.pull(b"2")
    w.stream.wait_durable()
    w.env.stall_commits()
    w.ack(first, reply=b"confirmed")
    w.env.take()
    w.env.fail(errno.EIO)
    w.env.resume_commits()
    until(w, lambda: any(e[0] == STORE_ERROR for e in w.env.events))
    w.env.run()
    mended(w)
    assert b"confirmed" not in [m[0] for m in w.env.take()]
    w.env.advance(31 * 10**9)
    got = w.pull(b"9")
    again = dict(zip(seqs(got), got, strict=True))
    got = w.ack(again[1], reply=b"confirmed")
    until(w, lambda: b"confirmed" in [m[0] for m in got + w.env.sent])
