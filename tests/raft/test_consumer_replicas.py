"""Consumers that their Raft groups drive: three members stand alike, whoever leads, dies or comes
back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cext.consumer import put_entry
from tests.raft.replicas import GROUP, NAMES, RESET, ROLE, Member, Members
from tests.unit.stream_world import ACK_ALL, ACK_NONE, SECOND, statuses

ACKED = 8


class Made:
    """Makes clusters, and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Members] = []

    def __call__(self, messages: int = 5, state: bytes = b"", **params: Any) -> Members:
        self.made.append(Members(self.folder, **params))
        return self.made[-1].start(messages, state)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path)
    yield made
    for cluster in made.made:
        cluster.stop_all()


def delivered(cluster: Members, n: int) -> list[Any]:
    """So many messages that the leader delivers for one request, which are the next."""
    leader = cluster.leader()
    leader.got.clear()
    cluster.pull(b"%d" % n)
    cluster.until(lambda: len([m for m in leader.got if m[2]]) == n)
    return leader.got[:]


def test_members_stand_where_their_leader_delivered_and_was_acked(make: Made) -> None:
    cluster = make()
    leader = cluster.leader()
    got = delivered(cluster, 3)
    assert leader.seqs() == [1, 2, 3]
    cluster.ack(leader, got[0])
    cluster.ack(leader, got[1], reply=b"inbox")
    cluster.until(lambda: leader.got, 10)
    state = cluster.agree()
    assert state.delivered == (3, 3)
    assert state.floor == (2, 2)
    assert list(state.pending) == [3]
    assert not [m for other in cluster.members if other is not leader for m in other.got]


@pytest.mark.parametrize("policy", (ACK_NONE, ACK_ALL))
def test_of_any_ack_policy(make: Made, policy: str) -> None:
    cluster = make(ack_policy=policy)
    got = delivered(cluster, 3)
    if policy == ACK_ALL:
        cluster.ack(cluster.leader(), got[1])
        cluster.until(lambda: cluster.leader().state().floor == (2, 2))
    assert cluster.agree().floor == ((3, 3) if policy == ACK_NONE else (2, 2))


def test_another_member_goes_on_and_ends_requests_that_wait(make: Made) -> None:
    cluster = make(messages=3, ack_wait=SECOND)
    leader = cluster.leader()
    got = delivered(cluster, 3)
    cluster.ack(leader, got[0])
    cluster.pull(b'{"batch":5,"expires":600000000000}')
    cluster.turns(20)
    cluster.agree()
    cluster.stop_one(leader)
    other = cluster.leader()
    cluster.until(lambda: statuses(other.got))
    assert statuses(other.got) == ["409 Leadership Change"]
    assert other.state().floor == (1, 1)
    cluster.pull(b'{"batch":5,"expires":600000000000}')
    cluster.until(lambda: len([m for m in other.got if m[2]]) == 2)
    assert other.seqs() == [2, 3], "they were not acked in time"
    assert cluster.agree().redelivered == {2: 1, 3: 1}


def test_the_lead_is_handed_over(make: Made) -> None:
    cluster = make()
    leader = cluster.leader()
    to = next(member for member in cluster.members if member is not leader)
    assert leader.one().hand_over(to.name)
    cluster.until(to.leads)
    assert not leader.leads()
    assert [kind for kind, _, _ in leader.news].count(ROLE) >= 2
    assert [m[2] for m in delivered(cluster, 2)]
    assert to.seqs() == [1, 2]


def test_a_member_that_was_killed_stands_where_the_others_do(make: Made) -> None:
    cluster = make()
    leader = cluster.leader()
    for message in delivered(cluster, 2):
        cluster.ack(leader, message)
    cluster.until(lambda: leader.state().floor == (2, 2))
    cluster.agree()
    victim = next(member for member in cluster.members if member is not leader)
    again = cluster.restart(victim, 5)
    assert again.one().found.records > 0
    cluster.agree()
    assert again.state().floor == (2, 2)


def test_all_members_killed_and_started_go_on(make: Made) -> None:
    cluster = make()
    for message in delivered(cluster, 2):
        cluster.ack(cluster.leader(), message)
    cluster.until(lambda: cluster.leader().state().floor == (2, 2))
    cluster.agree()
    for member in cluster.members[:]:
        cluster.restart(member, 5)
    cluster.choose()
    delivered(cluster, 2)
    assert cluster.leader().seqs() == [3, 4]


def kept(member: Member) -> int:
    """From which index on its log is there."""
    first: int = member.one().state().first
    return first


def keep(cluster: Members, *members: Member) -> None:
    """Snapshots take the place of their logs."""
    last = {member.name: member.one().state().applied for member in members}
    for member in members:
        member.one().snapshot()
    cluster.until(lambda: all(kept(member) > last[member.name] for member in members))


def acked(cluster: Members, n: int) -> None:
    """So many more messages."""
    leader = cluster.leader()
    floor = leader.state().floor[0]
    for message in delivered(cluster, n):
        cluster.ack(leader, message)
    cluster.until(lambda: leader.state().floor[0] == floor + n)
    cluster.agree()


def test_a_snapshot_takes_the_place_of_the_log(make: Made) -> None:
    cluster = make(messages=9)
    acked(cluster, 4)
    delivered(cluster, 2)
    cluster.agree()
    victim = next(member for member in cluster.members if not member.leads())
    keep(cluster, victim)
    before = victim.state()
    again = cluster.restart(victim, 9)
    assert again.one().found.state.index > 0
    assert again.state().near(before), "before it hears of a leader"
    delivered(cluster, 2)
    assert cluster.agree().delivered == (8, 8)


def test_many_entries_lead_to_a_snapshot(make: Made) -> None:
    cluster = make(messages=600)
    while cluster.leader().state().floor[1] < 600:
        acked(cluster, 100)
    cluster.until(lambda: all(kept(member) > 1 for member in cluster.members), 60)


def test_members_that_all_start_from_snapshots_have_a_leader_again(make: Made) -> None:
    cluster = make(messages=9)
    acked(cluster, 4)
    cluster.agree()
    keep(cluster, *cluster.members)
    for member in list(cluster.members):
        cluster.stop_one(member)
    for name in NAMES:
        cluster.back_as(name, 9)
    delivered(cluster, 2)
    assert cluster.agree().delivered == (6, 6)


def test_a_member_that_lost_all_has_the_leaders_state_also_after_a_reset(make: Made) -> None:
    cluster = make(messages=9)
    away = next(member for member in cluster.members if not member.leads())
    acked(cluster, 6)
    last = away.one().state().last
    cluster.stop_one(away)
    leader = cluster.leader()
    assert leader.one().propose_reset(2, b"answer")
    cluster.until(lambda: (RESET, b"answer", 2) in leader.news)
    assert leader.state().delivered == (0, 1)
    acked(cluster, 1)
    keep(cluster, *cluster.members)
    assert kept(leader) > last
    away = cluster.back(away, 9)
    assert away.one().found.records
    cluster.until(lambda: away.state().delivered == (1, 2))
    cluster.agree()
    others = [member for member in cluster.members if member is not leader]
    assert not [news for member in others for news in member.news if news[0] == RESET]


def test_a_log_in_memory_comes_back_from_the_others(make: Made) -> None:
    cluster = make(memory=True)
    leader = cluster.leader()
    for message in delivered(cluster, 2):
        cluster.ack(leader, message)
    cluster.until(lambda: leader.state().floor == (2, 2))
    victim = next(member for member in cluster.members if member is not leader)
    again = cluster.restart(victim, 5)
    assert again.state().floor == (0, 0)
    cluster.until(lambda: again.state().floor == (2, 2))
    cluster.agree()


def test_a_leader_whose_stream_is_behind_delivers_what_comes(make: Made) -> None:
    cluster = make(messages=2, ack_wait=SECOND)
    leader = cluster.leader()
    leader.replica.store(2)
    got = delivered(cluster, 4)
    for message in got[:2]:
        cluster.ack(leader, message)
    cluster.until(lambda: leader.state().floor == (2, 2))
    cluster.agree()
    cluster.stop_one(leader)
    other = cluster.leader()
    cluster.pull(b'{"batch":2,"expires":600000000000}')
    cluster.turns(400)  # two seconds of theirs: it is to come again
    assert other.seqs() == []
    assert other.state().floor == (2, 2)
    other.replica.store(2)
    cluster.until(lambda: len([m for m in other.got if m[2]]) == 2)
    assert other.seqs() == [3, 4]


def test_what_another_server_has_proposed_is_applied_and_the_lead_goes_on(make: Made) -> None:
    cluster = make()
    leader = cluster.leader()
    got = delivered(cluster, 2)
    entry = put_entry({"op": ACKED, "dseq": 1, "sseq": 1})
    leader.env.inject(b"$NRG.P." + GROUP, entry, route=True)
    cluster.until(lambda: leader.state().floor == (1, 1))
    cluster.ack(cluster.leader(), got[1])
    cluster.until(lambda: cluster.leader().state().floor == (2, 2))
    delivered(cluster, 1)
    assert cluster.leader().seqs() == [3]


def test_a_new_group_stands_on_the_state_that_it_is_given(make: Made, tmp_path: Path) -> None:
    state = b"\x16\x02\x02\x02\x02\x02\x00\x00"  # two delivered, and acked
    cluster = make(state=state)
    delivered(cluster, 1)
    assert cluster.leader().seqs() == [3]
    assert cluster.agree().floor == (2, 2)
    cluster.until(lambda: all(kept(member) > 1 for member in cluster.members))


def test_a_closed_stream_takes_its_consumer_along(make: Made) -> None:
    cluster = make()
    leader = cluster.leader()
    leader.replica.stream.close(False)
    cluster.until(lambda: any(m.leads() for m in cluster.members if m is not leader))
    assert leader.one().why() == "the consumer ended"
    cluster.members.remove(leader)
    leader.one().close(False)
    leader.groups.end()
    leader.thread.join()
    leader.groups.close()
    leader.env.stop_commits()
