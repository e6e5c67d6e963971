"""A consumer that leads a Raft group: what it proposes, and what waits for that."""

import pytest

from tests.cext.consumer import Member, get_entry, put_entry
from tests.unit.consumer_disk import Disk
from tests.unit.consumer_states import read_state
from tests.unit.stream_world import (
    ACK_ALL,
    ACK_NONE,
    LAST_PER_SUBJECT,
    LIMITS,
    NEW_ONLY,
    SECOND,
    WORKQUEUE,
    World,
    seqs,
    statuses,
    tokens,
)

DELIVERED, ACKED, SKIP, REQUEST, REQUEST_ENDS, RESET = 7, 8, 10, 12, 13, 18


class Leading:
    """A consumer that leads; what it proposes is applied when told to."""

    def __init__(self, messages=3, retention=LIMITS, **params):
        self.world = World(retention=retention)
        if messages:
            self.world.fill(messages)
        self.handle = self.world.consumer(**params)
        self.member = Member(self.handle)
        self.member.lead()
        self.world.env.run()

    def said(self):
        return [tuple((get_entry(entry) or {}).values())[:4] for entry in self.member.proposed]

    def agree(self, n=1000):
        """Applies the next ones; what they lead to is not applied."""
        ready = self.member.proposed[:n]
        del self.member.proposed[:n]
        for entry in ready:
            assert self.member.apply(entry) == 0
        self.world.env.run()
        return self.world.env.take()

    def settle(self):
        found = []
        while self.member.proposed:
            found += self.agree()
        return found

    def pull(self, n=1, **more):
        said = ",".join(f'"{key}":{value}' for key, value in {"batch": n, **more}.items())
        return self.world.pull(b"{%s}" % said.encode())

    def state(self):
        return read_state(self.handle.encode_state())


def test_a_message_goes_out_when_its_delivery_is_agreed_on():
    c = Leading()
    assert c.said() == [(SKIP, 1)]
    c.settle()
    assert c.pull(2) == []
    assert [e[:4] for e in c.said()] == [(DELIVERED, 1, 1, 1), (DELIVERED, 2, 2, 1)]
    assert c.state().delivered == (0, 0)
    assert [tokens(m)[:3] for m in c.agree(1)] == [(1, 1, 1)]
    assert [tokens(m)[:3] for m in c.agree(1)] == [(1, 2, 2)]
    assert c.state().delivered == (2, 2)


def test_an_ack_is_answered_when_it_is_agreed_on():
    c = Leading()
    c.pull(1)
    (message,) = c.settle()
    assert c.world.ack(message, b"", b"inbox") == []
    assert c.said() == [(ACKED, 1, 1)]
    assert c.state().floor == (0, 0)
    assert [m[0] for m in c.agree()] == [b"inbox"]
    assert c.state().floor == (1, 1)
    assert [m[0] for m in c.world.ack(message, b"", b"inbox") or c.agree()] == [b"inbox"]


def test_what_waits_for_its_ack_is_not_delivered_again():
    c = Leading(ack_wait=SECOND)
    c.pull(1)
    (message,) = c.settle()
    c.world.ack(message)
    c.pull(3, expires=60 * SECOND)
    c.world.env.advance(5 * SECOND)
    assert seqs(c.agree(1)) == []
    assert 1 not in seqs(c.settle())


def test_acks_of_all_up_to_a_message():
    c = Leading(5, ack_policy=ACK_ALL)
    c.pull(4)
    got = c.settle()
    c.world.ack(got[2], b"", b"inbox")
    assert c.said() == [(ACKED, 3, 3)]
    c.settle()
    assert c.state()[:2] == ((4, 4), (3, 3)) and list(c.state().pending) == [4]


def test_a_refused_proposal_answers_and_delivers_nothing():
    c = Leading()
    c.pull(1)
    (message,) = c.settle()
    c.member.refuses = True
    assert c.world.ack(message, b"", b"inbox") == []
    assert c.pull(1) == [] and c.agree() == []
    c.member.refuses = False
    c.member.follow()
    assert statuses(c.world.env.take()) == ["409 Leadership Change"], "it was not told"
    c.member.lead()
    assert c.state().pending.keys() == {1}


def test_max_ack_pending_counts_what_is_on_its_way():
    c = Leading(9, max_ack_pending=2)
    c.settle()
    assert c.pull(5, expires=SECOND) == []
    assert len([e for e in c.said() if e[0] == DELIVERED]) == 2
    assert len(seqs(c.settle())) == 2


def test_nothing_is_agreed_on_for_an_answer_that_waits_for_no_message():
    c = Leading(0)
    c.settle()
    assert statuses(c.pull(1, no_wait="true")) == ["404 No Messages"]
    assert c.said() == []


def test_a_status_comes_behind_the_messages_of_its_request():
    c = Leading(2)
    c.settle()
    assert c.pull(5, no_wait="true") == []
    got = c.settle()
    assert [b"$JS.ACK" in m[2] for m in got] == [True, True, False]
    assert statuses(got) == ["408 Request Timeout"]
    assert statuses(c.pull(5, no_wait="true")) == ["404 No Messages"]


def test_requests_that_wait_are_told_and_end():
    c = Leading(0)
    c.settle()
    c.pull(1, expires=SECOND)
    assert c.said() == [(REQUEST, b"inbox")]
    c.settle()
    c.world.env.advance(2 * SECOND)
    assert statuses(c.world.env.take()) == ["408 Request Timeout"]
    assert c.said() == [(REQUEST_ENDS, b"inbox")]


def test_who_takes_the_lead_ends_requests_of_the_leader_before():
    w = World()
    member = Member(w.consumer())
    assert member.apply(put_entry(dict(op=REQUEST, reply=b"inbox"))) == 0
    assert member.apply(put_entry(dict(op=REQUEST, reply=b"other"))) == 0
    assert member.apply(put_entry(dict(op=REQUEST_ENDS, reply=b"other"))) == 0
    member.lead()
    got = w.env.take()
    assert [m[0] for m in got] == [b"inbox"] and statuses(got) == ["409 Leadership Change"]
    assert member.asked() == 0


def test_who_waits_hears_of_another_leader_once():
    c = Leading(0)
    c.settle()
    c.pull(1, expires=60 * SECOND)
    c.settle()
    c.member.follow()
    assert c.world.env.take() == [], "the next leader knows of the request"
    c.member.lead()
    assert statuses(c.world.env.take()) == ["409 Leadership Change"]
    assert (REQUEST_ENDS, b"inbox") in c.said()


def test_who_waits_hears_that_the_consumer_is_deleted():
    c = Leading(0)
    c.settle()
    c.pull(1, expires=60 * SECOND)
    c.settle()
    c.member.end()
    c.handle.close(True)
    assert statuses(c.world.env.take()) == ["409 Consumer Deleted"]


def test_a_new_consumer_is_shown_where_it_starts():
    c = Leading(5, deliver_policy=NEW_ONLY)
    shown = c.handle.changed_state()
    assert (shown.delivered_stream, shown.floor_stream, shown.num_pending) == (5, 0, 0)
    c = Leading(5)
    c.settle()
    c.pull(2)
    c.settle()
    assert c.handle.changed_state().num_pending == 5, "as it was before its first delivery"


def test_what_comes_while_no_quorum_answers_is_as_if_it_had_not():
    c = Leading(3, ack_wait=SECOND)
    c.pull(2)
    first, second = c.settle()
    c.world.ack(first)
    c.member.busy = True
    assert c.world.ack(second, b"", b"inbox") == []
    assert c.pull(1, expires=60 * SECOND) == []
    assert c.said() == [(ACKED, 1, 1)]
    c.member.busy = False
    got = c.settle()
    assert b"inbox" not in [m[0] for m in got if b"$JS.ACK" not in m[2]]
    assert seqs(got) == [3], "it leads on"
    c.pull(1, expires=60 * SECOND)
    c.world.env.advance(2 * SECOND)
    assert seqs(c.settle())[:1] == [2]


def test_what_is_given_up_while_no_quorum_answers_is_so_later():
    c = Leading(1, ack_wait=SECOND, max_deliver=1)
    c.pull(1)
    c.settle()
    c.member.busy = True
    c.world.env.advance(2 * SECOND)
    c.member.busy = False
    assert c.said() == []
    c.world.env.advance(2 * SECOND)
    assert c.said() == [(DELIVERED, 1, 1, 2)]


def test_given_up_after_max_deliver():
    c = Leading(1, ack_wait=SECOND, max_deliver=1)
    c.pull(1)
    c.settle()
    c.world.env.advance(2 * SECOND)
    assert c.said() == [(DELIVERED, 1, 1, 2)]
    c.settle()
    assert c.state().pending == {} and c.state().redelivered == {1: 1}
    c.world.env.inject(b"$JS.ACK.S.C.1.1.1.0.0", b"")
    c.settle()
    assert c.state().redelivered == {}


def test_a_delay_and_progress_are_agreed_on():
    c = Leading(2, ack_wait=SECOND)
    c.pull(2)
    first, second = c.settle()
    c.world.ack(first, b"-NAK 5s")
    c.world.ack(second, b"+WPI")
    assert [e[:3] for e in c.said()] == [(DELIVERED, 1, 1), (DELIVERED, 2, 2)]
    c.settle()
    now = c.world.env.now // SECOND
    assert c.state().pending[1][1] - now in (4, 5)
    c.pull(2, expires=60 * SECOND)
    c.world.env.advance(2 * SECOND)
    assert seqs(c.settle()) == [2]


def test_messages_of_a_work_queue_leave_when_their_acks_are_agreed_on():
    c = Leading(2, retention=WORKQUEUE)
    c.pull(1)
    (message,) = c.settle()
    c.world.ack(message)
    assert c.world.stream.state().messages == 2
    c.settle()
    assert c.world.stream.state().messages == 1


def test_without_acks_deliveries_let_go_of_a_work_queues_messages():
    c = Leading(2, retention=WORKQUEUE, ack_policy=ACK_NONE)
    c.settle()
    c.pull(2)
    assert c.world.stream.state().messages == 2
    assert seqs(c.settle()) == [1, 2]
    assert c.world.stream.state().messages == 0


def test_a_message_that_left_on_its_way_is_done():
    c = Leading(2)
    c.settle()
    c.pull(1)
    assert c.world.stream.delete(1, False)
    assert seqs(c.settle()) == []
    assert c.state().pending == {} and c.state().floor == (1, 1)


def test_a_purge_is_agreed_on():
    c = Leading(5)
    c.pull(2)
    c.settle()
    c.world.stream.purge(None, 0, 0)
    c.settle()
    assert c.state() == ((2, 5), (2, 5), {}, {})
    c.world.fill(1)
    c.pull(1)
    assert seqs(c.settle()) == [6]


def test_a_purge_moves_the_floor_that_is_shown():
    c = Leading(5)
    c.settle()
    assert c.world.stream.purge(None, 4, 0) == 3
    shown = c.handle.state()
    assert (shown.delivered_stream, shown.floor_stream, shown.num_pending) == (3, 3, 2)
    c.settle()
    c.pull(1)
    c.settle()
    assert (c.handle.state().floor_consumer, c.handle.state().floor_stream) == (0, 3)
    c.member.follow()
    assert c.handle.state().floor_stream == 3


def test_a_purge_of_a_part_tells_of_what_was_not_acked():
    c = Leading(4)
    c.pull(3)
    c.settle()
    c.world.env.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C")
    assert c.world.stream.purge(b"s.*", 3, 0) == 2
    assert [e[2][1] for e in c.world.env.events] == [1, 2]
    c.settle()
    assert list(c.state().pending) == [3]


def acked(member: Member) -> list[int]:
    said = [get_entry(entry) or {} for entry in member.proposed]
    return [entry["sseq"] for entry in said if entry.get("op") == ACKED]


def test_a_purge_leaves_what_the_stream_is_still_to_get_here():
    """The group has delivered messages that this member's stream has not yet. A stream that takes
    its leader's state drops what came before that, as by a purge."""
    w = World()
    w.fill(3)
    member = Member(w.consumer())
    for seq in range(1, 6):
        entry = dict(op=DELIVERED, dseq=seq, sseq=seq, deliveries=1, sent=w.env.now)
        assert member.apply(put_entry(entry)) == 0
    member.lead()
    assert w.stream.purge(None, 3, 0) == 2
    assert acked(member) == [1, 2]
    w.stream.purge(None, 0, 0)
    assert acked(member) == [1, 2, 3]


def test_a_reset_is_agreed_on():
    c = Leading(5)
    c.pull(3)
    c.settle()
    assert c.member.reset(2, b"inbox") == 0
    assert c.said() == [(RESET, 2, b"inbox")]
    assert c.pull(1, expires=60 * SECOND) == []
    assert c.state().delivered == (3, 3)
    got = c.settle()
    assert [tokens(m)[:3] for m in got] == [(1, 2, 1)]
    assert c.state().delivered == (1, 2)


def test_a_reset_without_acks_goes_to_where_it_starts():
    c = Leading(5, deliver_policy=NEW_ONLY)
    c.settle()
    assert c.member.reset(0, b"inbox") == 0
    assert c.said() == [(RESET, 6, b"inbox")]
    c.settle()
    c.world.fill(2)
    c.pull(1)
    c.settle()
    assert c.member.reset(0, b"inbox") == 0
    assert c.said() == [(RESET, 6, b"inbox")]
    c.pull(1, expires=60 * SECOND)
    c.settle()
    assert c.handle.changed_state().num_pending == 2, "before it delivers again"


def test_the_group_hears_where_a_new_consumer_starts():
    assert Leading(5, deliver_policy=NEW_ONLY).said() == [(SKIP, 6)]
    c = Leading(5, deliver_policy=LAST_PER_SUBJECT)
    assert c.said() == [(SKIP, 5)]
    c.settle()
    c.pull(1)
    assert [e[:2] for e in c.said()] == [(DELIVERED, 1), (SKIP, 6)]
    assert seqs(c.settle()) == [5]


@pytest.mark.parametrize("agreed", (0, 1))
def test_stepping_down_forgets_what_was_not_agreed_on(agreed):
    c = Leading(4)
    c.pull(2)
    c.settle()
    c.pull(2)
    c.agree(agreed)
    c.member.follow()
    assert c.world.env.timers == 0
    del c.member.proposed[:]
    assert c.state().delivered == (2 + agreed, 2 + agreed)
    c.member.lead()
    c.pull(1)
    assert seqs(c.settle()) == [3 + agreed]


def test_what_is_on_its_way_ends_with_its_stream():
    c = Leading(4)
    c.settle()
    c.pull(3)
    assert c.member.proposed
    c.world.stream.close(False)
    assert c.world.env.timers == 0 and c.world.env.subscriptions == []


def test_another_member_is_to_deliver_what_is_damaged_here(tmp_path):
    """Only after ten times no member is taken to have the message, and it is passed over."""
    disk = Disk(tmp_path)
    w = disk.open(consumers=())
    w.fill(3, data=lambda i: b"message %d" % i)
    disk.close(w)
    (block,) = tmp_path.glob("S/msgs/*.blk")
    block.write_bytes(block.read_bytes().replace(b"message 1", b"massage 1"))
    w = disk.open()
    try:
        member = Member(w.handles[0])
        for leads in range(11):
            member.lead()
            w.pull(b'{"batch":3}')
            w.env.run()
            passed = member.proposed.count(b"") > leads
            assert passed == (leads < 10)
            said = [get_entry(entry) or {} for entry in member.proposed if entry]
            delivered = [e["sseq"] for e in said if e["op"] == DELIVERED]
            assert delivered == ([1] * (leads + 1) if passed else [1] * 11 + [3])
            member.follow()
    finally:
        disk.close(w)
