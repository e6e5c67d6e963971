"""Consumers of a stream that is a member of a Raft group: its replica may be behind them."""

from pathlib import Path
from typing import Any

from tests.cext.consumer import Member, put_entry
from tests.unit.consumer_states import read_state
from tests.unit.stream_replica import STARTED, Replica
from tests.unit.stream_world import ACK_ALL, INTEREST, SECOND, WORKQUEUE, seqs
from tests.unit.test_consumer_lead import ACKED, DELIVERED, RESET, SKIP


def told(member: Member, *entries: tuple[int, ...]) -> None:
    names = ("op", "dseq", "sseq", "deliveries", "sent")
    for entry in entries:
        assert member.apply(put_entry(dict(zip(names, entry, strict=False)))) == 0


def delivered(*seqs: int) -> list[tuple[int, ...]]:
    return [(DELIVERED, seq, seq, 1, STARTED) for seq in seqs]


def state_after(*entries: tuple[int, ...], **params: Any) -> bytes:
    """Of a consumer that was told so, in a stream that has all."""
    there = Replica()
    there.store(9)
    handle = there.joined(**params)
    told(Member(handle), *entries)
    state: bytes = handle.encode_state()
    return state


def test_a_consumer_ahead_of_its_stream_stays_there() -> None:
    state = state_after(*delivered(1, 2, 3, 4), (ACKED, 1, 1))
    here = Replica()
    here.store(2)
    handle = here.joined(state)
    assert handle.encode_state() == state
    member = Member(handle)
    member.lead()
    assert handle.encode_state() == state


def test_what_is_to_come_again_waits_until_the_stream_has_it() -> None:
    here = Replica()
    here.store(2)
    member = Member(handle := here.joined(state_after(*delivered(1, 2, 3)), ack_wait=SECOND))
    member.lead()
    told(member, (ACKED, 1, 1), (ACKED, 2, 2))
    here.env.advance(2 * SECOND)
    here.pull(b"5")
    assert not [e for e in member.proposed if e[0] == ACKED], "nobody acked what is not here yet"
    assert read_state(handle.encode_state()).floor == (2, 2)
    here.store(1)
    told_all(member)
    here.env.run()
    assert seqs(here.env.take()) == [3]


def told_all(member: Member) -> None:
    while member.proposed:
        assert member.apply(member.proposed.pop(0)) == 0


def test_a_consumer_without_a_group_goes_on_where_it_stood(tmp_path: Path) -> None:
    (tmp_path / "there" / "obs" / "C").mkdir(parents=True)
    first = Replica(tmp_path / "there")
    first.store(5)
    first.lead()
    place = str(tmp_path / "there" / "obs" / "C")
    first.consumer(place)
    first.stream.serve()
    assert seqs(first.pull(b"4")) == [1, 2, 3, 4]
    first.stream.close(False)
    first.env.stop_commits()
    state = (tmp_path / "there" / "obs" / "C" / "o.dat").read_bytes()

    (tmp_path / "here" / "obs" / "C").mkdir(parents=True)
    behind = Replica(tmp_path / "here")
    (tmp_path / "here" / "obs" / "C" / "o.dat").write_bytes(state)
    behind.store(2)
    behind.consumer(str(tmp_path / "here" / "obs" / "C"))
    behind.stream.serve()
    assert seqs(behind.pull(b'{"batch":4,"expires":60000000000}')) == []
    behind.store(4)
    assert seqs(behind.env.take()) == [5, 6]
    behind.stream.close(False)
    behind.env.stop_commits()


def test_an_ack_that_comes_before_its_message_removes_it_then() -> None:
    for retention in (WORKQUEUE, INTEREST):
        here = Replica(retention=retention)
        here.stream.await_consumers()
        member = Member(here.joined())
        here.stream.serve()
        here.store(1)
        here.lead()
        told(member, *delivered(1, 2, 3), (ACKED, 2, 2), (ACKED, 1, 1))
        assert here.released() == [1]
        here.store(2)
        assert here.released() == [2], retention
        assert here.seqs() == [3]


def test_a_message_of_two_stays_until_both_acked_it_also_before_it_came() -> None:
    here = Replica(retention=INTEREST)
    one = Member(here.joined(name="A"))
    other = Member(here.joined(name="B"))
    here.lead()
    told(one, *delivered(1), (ACKED, 1, 1))
    here.store(1)
    assert here.released() == []
    told(other, *delivered(1), (ACKED, 1, 1))
    assert here.released() == [1]


def test_who_takes_the_lead_of_a_stream_removes_what_was_acked() -> None:
    for retention in (WORKQUEUE, INTEREST):
        here = Replica(retention=retention)
        member = Member(here.joined(ack_policy=ACK_ALL))
        here.store(3)
        told(member, *delivered(1, 2), (ACKED, 2, 2))
        assert here.seqs() == [1, 2, 3], "a follower removes nothing by itself"
        here.member.recovered()
        here.member.lead()
        assert here.released() == [1, 2], retention
        assert here.seqs() == [3]


def test_a_leader_looks_again_for_what_nobody_needs() -> None:
    here = Replica(retention=WORKQUEUE)
    here.store(1)
    here.lead()
    Member(here.joined(state_after(*delivered(1), (ACKED, 1, 1))))
    assert here.released() == []
    here.env.advance(151 * SECOND)
    assert here.released() == [1]


def test_all_stays_until_the_consumers_are_open() -> None:
    here = Replica(retention=INTEREST)
    here.stream.await_consumers()
    here.store(2)
    assert here.seqs() == [1, 2], "a consumer that is not open yet may want them"
    one = Member(here.joined(name="A"))
    here.lead()
    told(one, *delivered(1, 2), (ACKED, 1, 1), (ACKED, 2, 2))
    assert here.released() == []
    other = Member(here.joined(name="B"))
    told(other, *delivered(1), (ACKED, 1, 1))
    here.stream.serve()
    assert here.released() == [1]
    assert here.seqs() == [2]


def test_what_nobody_wanted_goes_when_the_consumers_are_open() -> None:
    """Of a follower, too: the others may have skipped such messages."""
    for leads in (False, True):
        here = Replica(retention=INTEREST)
        here.stream.await_consumers()
        here.store(3)
        if leads:
            here.lead()
        here.joined(name="A", filters=(b"s.b",))
        here.stream.serve()
        here.env.run()
        assert here.seqs() == [], leads
        here.store(1)
        assert here.seqs() == [], "now it is known that nobody wants them"


def test_what_a_consumer_had_passed_when_it_was_opened_goes_later() -> None:
    """The others skipped messages of before it was made, where it did not want them yet."""
    here = Replica(retention=INTEREST)
    here.stream.await_consumers()
    here.store(3)
    one = Member(here.joined(name="A"))
    here.stream.serve()
    here.env.run()
    here.store(2)
    assert here.seqs() == [1, 2, 3, 4, 5]
    told(one, (SKIP, 0, 4), (DELIVERED, 1, 4, 1, STARTED), (ACKED, 1, 4))
    here.env.advance(151 * SECOND)
    assert here.seqs() == [4, 5], "what is acked since, the leader removes"


def test_a_state_that_is_installed_goes_back_where_its_group_did() -> None:
    reset = state_after(*delivered(1, 2, 3), (RESET, 0, 2), (DELIVERED, 1, 2, 1, STARTED))
    here = Replica()
    here.store(5)
    member = Member(handle := here.joined())
    told(member, *delivered(1, 2, 3, 4))
    assert member.restore(reset) == 0
    assert read_state(handle.encode_state()).delivered == (4, 4), "an older one changes nothing"
    assert member.restore(reset, True) == 0
    assert handle.encode_state() == reset
