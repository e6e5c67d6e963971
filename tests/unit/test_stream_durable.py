"""Nothing is delivered, served or counted before it is durable; acks go out before deliveries."""

import pytest

from tests.cext.store import PyStore
from tests.cext.stream import TestEnv
from tests.unit.consumer_disk import until
from tests.unit.stream_world import (
    ALL,
    FILE,
    INTEREST,
    LAST_PER_SUBJECT,
    LIMITS,
    NEW_ONLY,
    WORKQUEUE,
    World,
    headers,
    seqs,
    status,
    statuses,
    tokens,
)
from tests.unit.test_consumer_state import disk

__all__ = ["disk"]

EOB = "204 EOB"


def release(w, replies):
    """Lets the disk work until as many messages went out; returns them."""
    assert w.env.take() == []
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) >= replies)
    return w.env.take()


@pytest.mark.parametrize("retention", [LIMITS, INTEREST, WORKQUEUE])
def test_a_pull_gets_what_is_durable_and_the_ack_goes_first(disk, retention):
    w = disk.open(held=True, retention=retention)
    w.pull(b"9")
    for i in range(3):
        w.env.inject(b"s.a", b"%d" % i, b"ack")
    w.env.advance(1_000_000)
    assert w.env.take() == []
    assert w.handles[0].state().num_pending == 3 and w.stream.unsettled()
    got = release(w, 6)
    assert [m[0] for m in got] == [b"ack"] * 3 + [b"inbox"] * 3
    assert [tokens(m)[1:3] + tokens(m)[4:] for m in got[3:]] == [(1, 1, 2), (2, 2, 1), (3, 3, 0)]


def test_a_push_gets_what_is_durable_and_the_ack_goes_first(disk):
    w = disk.open(held=True, consumers=({"deliver_subject": b"inbox"},))
    w.env.inject(b"s.a", b"1", b"ack")
    w.env.run()
    assert [m[0] for m in release(w, 2)] == [b"ack", b"inbox"]


def test_a_pull_that_does_not_wait_finds_nothing_yet(disk):
    w = disk.open(held=True)
    w.env.inject(b"s.a", b"1")
    assert statuses(w.pull(b'{"batch":1,"no_wait":true}')) == ["404 No Messages"]
    assert statuses(w.pull(b'{"batch":1,"no_wait":true,"expires":1000000000}')) == []
    assert seqs(release(w, 1)) == [1]


@pytest.mark.parametrize("policy", [ALL, NEW_ONLY, LAST_PER_SUBJECT])
def test_a_new_consumer_counts_what_is_durable(disk, policy):
    w = disk.open(held=True, consumers=(), subjects=(b"s.>",))
    for subject in (b"s.a", b"s.b", b"s.a"):
        w.env.inject(subject)
    c = w.consumer(deliver_policy=policy, filters=(b"s.*",))
    w.pull(b"9")
    want = {ALL: [1, 2, 3], NEW_ONLY: [], LAST_PER_SUBJECT: [2, 3]}[policy]
    assert c.state().num_pending == len(want)
    w.env.release_commits()
    w.stream.wait_durable()
    w.env.run()
    got = w.env.take()
    assert seqs(got) == want
    assert [tokens(m)[4] for m in got] == list(range(len(want)))[::-1]
    w.fill(1)


def test_what_is_removed_before_it_is_durable_is_never_seen(disk):
    w = disk.open(held=True, max_msgs=2)
    w.pull(b"9")
    for _ in range(5):
        w.env.inject(b"s.a")
    assert w.stream.delete(4, False)
    w.env.release_commits()
    w.stream.wait_durable()
    w.env.run()
    got = w.env.take()
    assert seqs(got) == [5]
    assert tokens(got[0])[4] == 0
    assert w.handles[0].state().num_pending == 0


def test_a_purge_of_what_is_not_durable(disk):
    w = disk.open(held=True)
    w.pull(b"9")
    for _ in range(5):
        w.env.inject(b"s.a")
    assert w.stream.purge(None, 0, 0) == 5
    w.env.inject(b"s.a")
    assert w.handles[0].state().num_pending == 1
    w.env.release_commits()
    w.stream.wait_durable()
    w.env.run()
    assert seqs(w.env.take()) == [6]


def test_an_interest_stream_counts_who_needs_a_message_when_it_is_stored(disk):
    w = disk.open(
        held=True,
        retention=INTEREST,
        consumers=({"name": b"C"}, {"name": b"D"}),
    )
    w.env.inject(b"s.a", b"1")
    c = w.consumer(name=b"E")
    w.env.release_commits()
    w.stream.wait_durable()
    for name in (b"C", b"D", b"E"):
        assert w.stream.state().messages == 1
        got = w.pull(b"1", name=name)
        assert seqs(got) == [1]
        w.ack(got[0])
    assert w.stream.state().messages == 0
    assert c.state().num_pending == 0


def test_a_direct_get_waits_for_the_message_that_it_shows(disk):
    w = disk.open(held=True, consumers=(), max_msgs_per_subject=1)
    w.env.inject(b"s.a", b"1")
    assert w.direct(subject=b"s.a") == []
    assert w.direct(b'{"seq":1}') == []
    assert w.direct(b'{"next_by_subj":"s.*"}') == []
    assert w.direct(subject=b"s.none") == []
    got = release(w, 4)
    assert [m[4] for m in got] == [b"1", b"1", b"1", b""]
    assert status(got[3]) == "404 Message Not Found"
    assert [m[4] for m in got[:1]] == [m[1] for m in w.direct(subject=b"s.a")]


def test_a_durable_message_is_served_at_once(disk):
    w = disk.open(consumers=())
    w.fill(1, data=b"old")
    w.env.stall_commits()
    w.env.inject(b"s.b", b"new")
    assert [m[1] for m in w.direct(subject=b"s.a")] == [b"old"]
    assert w.direct(subject=b"s.b") == []
    w.env.resume_commits()
    until(w, lambda: [m[4] for m in w.env.sent] == [b"new"])


def test_a_key_of_history_one_always_has_a_value(disk):
    w = disk.open(consumers=(), max_msgs_per_subject=1)
    w.fill(1, data=b"old")
    w.env.stall_commits()
    w.env.inject(b"s.a", b"new")
    assert w.direct(subject=b"s.a") == []
    assert w.direct(b'{"multi_last":["s.*"]}') == []
    assert w.direct(b'{"batch":5,"next_by_subj":"s.*"}') == []
    w.env.resume_commits()
    until(w, lambda: len(w.env.sent) == 5)
    got = w.env.take()
    assert [m[4] for m in got] == [b"new", b"new", b"", b"new", b""]
    assert [status(m) for m in got if not m[4]] == [EOB, EOB]


def test_a_batch_that_is_durable_goes_out_though_more_is_written(disk):
    w = disk.open(consumers=())
    w.fill(5)
    w.env.stall_commits()
    w.env.inject(b"s.a", b"new")
    assert w.direct(b'{"batch":3,"seq":1}') == []  # its counts would tell of the sixth
    w.env.resume_commits()
    until(w, lambda: len(w.env.sent) == 4)
    assert b"Nats-Num-Pending: 5\r\n" in w.env.take()[0][3]


def test_answers_that_wait_are_bounded(disk):
    w = disk.open(held=True, consumers=())
    w.env.inject(b"s.a", b"x" * (1 << 20))
    got = []
    for _ in range(34):
        got += w.direct(subject=b"s.a")
    assert {m[0].split(b"\r\n")[0] for m in got} == {
        b"NATS/1.0 500 too many answers wait for the disk"
    }
    assert len(got) <= 2
    w.env.release_commits()
    until(w, lambda: len(w.env.sent) == 34 - len(got))


def test_what_an_answer_of_the_control_plane_waits_for(disk):
    w = disk.open(held=True, consumers=())
    assert w.stream.unsettled() == 0
    w.env.inject(b"s.a", b"1")
    ticket = w.stream.unsettled()
    assert ticket and ticket == w.stream.unsettled(1)
    assert w.stream.answer(ticket, b"inbox", b"{}", b"io.test")
    assert [m[4] for m in release(w, 1)] == [b"{}"]
    assert w.stream.unsettled() == w.stream.unsettled(1) == 0
    assert w.stream.answer(ticket, b"inbox", b"{}", b"io.test")
    assert [m[4] for m in w.env.take()] == [b"{}"]


def test_what_waits_is_answered_when_the_stream_is_deleted(disk):
    """It was so; nothing of it outlives the stream, and nobody would ever hear of it again."""
    w = disk.open(held=True)
    w.env.inject(b"s.a", b"1", b"ack")
    ticket = w.stream.unsettled()
    assert w.stream.answer(ticket, b"inbox", b"{}", b"io.test")
    assert w.env.take() == []
    w.env.release_commits()
    w.stream.close(True)
    assert [m[0] for m in w.env.take()] == [b"ack", b"inbox"]


def test_a_flood_does_not_hold_an_answer_back(disk):
    w = disk.open(consumers=())
    w.env.inject(b"s.a")
    ticket = w.stream.unsettled() or 1
    w.stream.answer(ticket, b"inbox", b"{}", b"io.test")
    for _ in range(200_000):
        w.env.inject(b"s.a")
        if any(m[0] == b"inbox" for m in w.env.sent):
            break
    else:
        pytest.fail("the answer waited for what came after it")


def test_a_duplicate_of_what_is_not_durable_waits(disk):
    w = disk.open(held=True, consumers=())
    for reply in (b"r1", b"r2"):
        w.env.inject(b"s.a", b"1", reply, headers(Nats_Msg_Id="a"))
    assert [m[0] for m in release(w, 2)] == [b"r1", b"r2"]


@pytest.mark.parametrize(
    ("kind", "allowed", "left"),
    [
        (b"sub", True, {b"s.a": 1, b"s.b": 2}),
        (b"all", True, {b"s.a": 1}),
        (b"sub", False, {b"s.a": 4, b"s.b": 2}),
        (b"other", True, {b"s.a": 4, b"s.b": 2}),
    ],
)
def test_a_rollup_that_a_crash_cut_off_is_finished_at_the_start(tmp_path, kind, allowed, left):
    """A commit may end between a rollup and what it removes, and a crash may follow."""
    store = PyStore(tmp_path, name=b"S")
    for number in range(5):
        store.append("s.b" if number % 2 else "s.a", b"old")
    store.append("s.a", b"new", header=headers(Nats_Rollup=kind.decode()))
    store.wait_durable()
    store.close()
    for _ in range(2):
        env = TestEnv()
        env.start_commits()
        w = World(env, str(tmp_path), storage=FILE, allow_rollup_hdrs=allowed)
        assert w.stream.subjects(b">")[1] == left
        assert w.message(6).data == b"new"
        w.stream.wait_durable()
        w.stream.close(False)


def test_early_acks_wait_for_nothing_and_what_they_ack_is_seen(disk):
    w = disk.open(held=True, persist_mode="async")
    w.env.inject(b"s.a", b"1", b"ack")
    assert [m[0] for m in w.env.take()] == [b"ack"]
    assert seqs(w.pull(b"1")) == [1]
    w.env.release_commits()
    w.stream.wait_durable()
    assert w.stream.state().messages == 1
