"""A stream that leads judges by what it proposed, and acks what its group agreed on."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cext.consumer import lead_alone
from tests.cext.stream import get_change, put_change
from tests.unit.stream_group import Group
from tests.unit.stream_world import INTEREST, NEW, SECOND, WORKQUEUE, compiled, headers

MESSAGE, SKIP, DELETE, RELEASE, PURGE = range(1, 6)


def acks(group: Group) -> dict[int, dict[str, Any]]:
    """What publishers heard since the last call, by the number of the publish."""
    return {int(to[4:]): json.loads(text) for to, text in group.leader.answers()}


def test_acks_wait_for_the_group() -> None:
    group = Group()
    group.publish(b"s.a", b"one", n=1)
    group.publish(b"s.b", b"two", n=2)
    assert acks(group) == {}
    assert group.leader.member.proposed == 1, "told once until they are taken"
    assert group.leader.stream.state().last_seq == 0
    group.agree(apply=1)
    assert acks(group) == {1: {"stream": "S", "seq": 1}}
    group.agree()
    assert acks(group) == {2: {"stream": "S", "seq": 2}}
    group.settle()
    assert len({str(member.contents()) for member in group.members}) == 1
    assert group.members[1].answers() == []


def test_entries_are_what_nats_servers_propose() -> None:
    group = Group(subject_transform=compiled("s.*", "t.{{wildcard(1)}}"))
    group.publish(b"s.a", b"one", headers(A="b"), n=1)
    (entry,) = group.agree()
    assert get_change(entry) == {
        "kind": MESSAGE,
        "ts": group.leader.env.now,
        "subject": b"s.a",
        "header": headers(A="b"),
        "data": b"one",
        "reply": b"ack.1",
    }
    assert group.leader.message(1).subject == b"t.a"


def test_what_is_proposed_counts_for_the_checks() -> None:
    group = Group(discard=NEW, max_msgs=4)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=0), n=1)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=0), n=2)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=1, Nats_Msg_Id="x"), n=3)
    group.publish(b"s.a", header=headers(Nats_Msg_Id="x"), n=4)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Msg_Id="y"), n=5)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Msg_Id="x"), n=6)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Subject_Sequence=2), n=7)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Subject_Sequence=3), n=8)
    group.publish(b"s.a", n=9)
    assert acks(group) == {}, "what they are judged by is not agreed on yet"
    group.settle()
    answers = acks(group)
    refused = {n: a["error"]["err_code"] for n, a in answers.items() if "error" in a}
    assert refused == {2: 10071, 5: 10070, 7: 10071, 9: 10077}
    stored = {n: a["seq"] for n, a in answers.items() if "error" not in a}
    assert stored == {1: 1, 3: 2, 4: 2, 6: 3, 8: 4}
    assert group.members[2].member.refused == 0, "none was refused later"


WRONG = headers(Nats_Expected_Last_Sequence=9)


def test_a_refusal_waits_until_the_lead_is_confirmed() -> None:
    group = Group()
    group.publish(b"s.a", header=WRONG, n=1)
    assert group.leader.member.proposed == 1, "the layer above is to ask"
    group.agree()
    group.publish(b"s.a", header=WRONG, n=2)
    assert acks(group) == {}
    first = group.round
    group.agree()
    group.leader.member.confirmed(group.leader.applied, first)
    assert list(acks(group)) == [1], "the other one came after that question"
    group.confirm()
    assert list(acks(group)) == [2]


def test_a_refusal_waits_for_what_is_proposed() -> None:
    """And needs no question of its own: the record that was proposed says who leads."""
    group = Group()
    group.publish(b"s.a", n=1)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=0), n=2)
    group.agree(apply=0)
    assert acks(group) == {}
    group.agree()
    answers = acks(group)
    assert answers[1]["seq"] == 1
    assert "wrong last sequence: 1" in answers[2]["error"]["description"]
    assert group.round == 0


def test_a_later_record_confirms_a_refusal() -> None:
    group = Group()
    group.publish(b"s.a", header=WRONG, n=1)
    group.agree()
    group.publish(b"s.a", n=2)
    group.agree()
    assert sorted(acks(group)) == [1, 2]


def test_who_leads_no_more_refuses_nothing() -> None:
    group = Group()
    for n in (1, 2):
        group.publish(b"s.a", header=WRONG, n=n)
        group.agree()
    former = group.leader
    group.lead(1)
    former.member.confirmed(1 << 40, 1 << 40)
    assert former.answers() == []
    group.lead(0)
    group.publish(b"s.a", header=WRONG, n=3)
    group.settle()
    assert list(acks(group)) == [3]


def test_refusals_that_wait_have_a_bound() -> None:
    group = Group()
    reply = b"ack.1" + b"x" * 4000
    for _ in range(9000):
        group.leader.env.inject(b"s.a", b"", reply, WRONG)
    group.confirm()
    assert 7000 < len(group.leader.answers()) < 9000


def test_a_duplicate_is_answered_behind_its_original() -> None:
    group = Group()
    header = headers(Nats_Msg_Id="x")
    for n in (1, 2, 3):
        group.publish(b"s.a", header=header, n=n)
    assert len(group.agree()) == 1
    answers = acks(group)
    assert answers.pop(1) == {"stream": "S", "seq": 1}
    assert answers == {n: {"stream": "S", "seq": 1, "duplicate": True} for n in (2, 3)}
    group.publish(b"s.a", header=header, n=4)
    assert acks(group)[4]["duplicate"] is True


def test_a_counter_counts_what_is_proposed() -> None:
    group = Group(allow_msg_counter=True)
    for n in (1, 2, 3):
        group.publish(b"s.a", header=headers(Nats_Incr=n), n=n)
    group.agree(apply=1)
    group.publish(b"s.a", header=headers(Nats_Incr=10), n=4)
    group.settle()
    assert [answer["val"] for answer in acks(group).values()] == ["1", "3", "6", "16"]
    assert [m.last_for(b"s.a").data for m in group.members] == [b'{"val":"16"}'] * 3


def batch(group: Group, name: str, n: int, number: int, **more: object) -> None:
    for at in range(1, n + 1):
        ends = {"Nats_Batch_Commit": 1} if at == n else {}
        lines = {"Nats_Batch_Id": name, "Nats_Batch_Sequence": at, **ends, **more}
        subject = b"s.%d" % at
        group.publish(subject, b"%d" % at, headers(**lines), n=number if at == n else 0)


def test_a_batch_is_proposed_as_one() -> None:
    group = Group(allow_atomic=True, subject_transform=compiled("s.*", "t.{{wildcard(1)}}"))
    group.publish(b"s.a", n=1)
    batch(group, "B", 3, 2)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=4), n=3)
    entries = [get_change(entry) for entry in group.agree(apply=0)]
    said = [(e["lseq"], e["batch_seq"]) for e in entries if e and e.get("batch") == b"B"]
    assert said == [(1, 1), (2, 2), (3, 3)]
    assert [e["subject"] for e in entries if e] == [b"s.a", b"s.1", b"s.2", b"s.3", b"s.a"]
    group.agree(apply=3)
    assert group.leader.stream.state().last_seq == 1
    group.settle()
    answers = acks(group)
    assert answers[2] == {"stream": "S", "seq": 4, "batch": "B", "count": 3}
    assert (answers[1]["seq"], answers[3]["seq"]) == (1, 5)
    assert [m.message(3).subject for m in group.members] == [b"t.2"] * 3


def test_a_batch_that_the_group_breaks_is_taken_back() -> None:
    group = Group(allow_atomic=True)
    batch(group, "B", 3, 1)
    group.publish(b"s.a", header=headers(Nats_Msg_Id="x"), n=2)
    entries = group.leader.member.proposals()
    for entry in (*entries[:2], None, *entries[2:]):
        group.log.append((len(group.log) + 1, entry))
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=4), n=3)
    group.settle()
    assert [m.member.refused for m in group.members] == [3] * 3
    answers = acks(group)
    assert (answers[2]["seq"], answers[3]["seq"]) == (1, 2)
    group.publish(b"s.a", header=headers(Nats_Msg_Id="x"), n=4)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=2), n=5)
    group.settle()
    assert {n: answer["seq"] for n, answer in acks(group).items()} == {4: 1, 5: 3}


def test_a_fast_batch_hears_of_what_the_group_has() -> None:
    group = Group(allow_batched=True)
    env = group.leader.env
    for at, operation in ((1, 0), (2, 1), (3, 2)):
        env.inject(b"s.a", b"%d" % at, b"ack.fast.10.ok.%d.%d.$FI" % (at, operation))
    env.take()
    group.settle()
    told = [json.loads(text) for _, text in group.leader.answers()]
    assert told[-1] == {"stream": "S", "seq": 3, "batch": "fast", "count": 3}


def fast(group: Group, name: str, number: int, operation: int, header: bytes = b"") -> None:
    """A message of a fast batch that goes on behind gaps and refusals."""
    reply = b"ack.%b.1.ok.%d.%d.$FI" % (name.encode(), number, operation)
    group.leader.env.inject(b"s.a", b"%d" % number, reply, header)


def told(group: Group) -> list[dict[str, Any]]:
    return [json.loads(text) for _, text in group.leader.answers()]


def test_a_fast_batch_hears_in_order() -> None:
    """Of a refusal, and of what is stored behind it."""
    group = Group(allow_batched=True)
    fast(group, "f", 1, 0)
    group.settle()
    told(group)
    fast(group, "f", 2, 1, WRONG)
    fast(group, "f", 4, 1)
    assert told(group) == []
    group.settle()
    heard = told(group)
    assert [one["type"] for one in heard] == ["err", "gap", "ack"]
    assert (heard[0]["seq"], heard[1]["last_seq"]) == (2, 3)


def test_a_duplicate_in_a_fast_batch_waits_for_its_original() -> None:
    group = Group(allow_batched=True)
    header = headers(Nats_Msg_Id="x")
    fast(group, "f", 1, 0)
    group.settle()
    group.publish(b"s.a", header=header, n=1)
    group.agree(apply=0)
    told(group)
    fast(group, "f", 2, 2, header)
    assert told(group) == [], "what it repeats may never be stored"
    group.lead(1)
    group.lead(0)
    group.settle()
    assert [m.member.refused for m in group.members] == [0] * 3


def test_requests_are_answered_with_what_came_of_them() -> None:
    group = Group()
    for n in range(1, 2001):
        group.publish(b"s.a" if n % 2 else b"s.b", n=n)
    group.settle()
    assert len(acks(group)) == 2000
    for request in (
        {"kind": DELETE, "seq": 7, "erase": True, "stream": b"S"},
        {"kind": DELETE, "seq": 7, "erase": True, "stream": b"S"},
        {"kind": PURGE, "subject": b"s.b", "stream": b"S", "last": 2000},
    ):
        assert group.leader.member.propose(put_change(request)) == 0
    group.agree()
    assert group.leader.member.results == [0, -4, 1000]
    group.settle()
    assert len({str(member.contents()) for member in group.members}) == 1
    other = group.members[1]
    refused = other.member.propose(put_change({"kind": PURGE, "last": 1}))
    assert refused < 0, "only the leader proposes"


def test_a_rollup_of_many_is_acked_behind_it() -> None:
    group = Group(allow_rollup_hdrs=True)
    for _ in range(3000):
        group.publish(b"s.a")
    group.publish(b"s.a", header=headers(Nats_Rollup="sub"), n=1)
    group.settle()
    assert acks(group) == {1: {"stream": "S", "seq": 3001}}
    assert {m.stream.state().messages for m in group.members} == {1}


def test_who_leads_no_more_hears_no_publish() -> None:
    group = Group(allow_atomic=True)
    group.publish(b"s.a", n=1)
    former = group.leader
    group.lead(1)
    assert former.env.inject(b"s.a", b"") == 0
    assert former.member.proposals() == []
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=0), n=2)
    group.settle()
    assert acks(group)[2]["seq"] == 1, "what was only proposed is not there"
    assert former.answers() == []


def test_a_batch_of_a_former_leader_is_refused() -> None:
    group = Group(allow_atomic=True)
    batch(group, "B", 3, 1)
    entries = group.leader.member.proposals()[:2]
    group.lead(1)
    for entry in entries:
        group.log.append((len(group.log) + 1, entry))
    for member in group.members:
        group.catch_up(member)
        member.member.follow()
    group.leader.member.lead()
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=0), n=2)
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=1), n=3)
    group.settle()
    assert {n: answer["seq"] for n, answer in acks(group).items()} == {2: 1, 3: 2}
    assert [m.member.refused for m in group.members] == [2] * 3


def test_acked_messages_go_by_agreement() -> None:
    for retention in (INTEREST, WORKQUEUE):
        group = Group(retention=retention, consumers=((b"C", b"s.a"),))
        lead_alone(group.leader.consumers[0])
        group.publish(b"s.a")
        group.publish(b"s.a")
        group.settle()
        pulled = group.leader.pull()
        group.leader.ack(pulled[0])
        assert group.leader.stream.state().messages == 2
        (entry,) = group.agree()
        assert entry.startswith(b'\x06{"stream":"S","seq":1,"no_erase":true')
        group.settle()
        assert [m.stream.state().messages for m in group.members] == [1] * 3


def test_markers_and_schedules_are_proposed() -> None:
    group = Group(
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        allow_msg_schedules=True,
        subject_delete_marker_ttl=3600 * SECOND,
        max_msgs_per_subject=1,
    )
    group.publish(b"s.a", header=headers(Nats_TTL="2s"))
    lines = headers(Nats_Schedule="@every 2s", Nats_Schedule_Target="s.due")
    group.publish(b"s.timed", header=lines)
    group.settle()
    group.advance(3 * SECOND)
    group.settle()
    for member in group.members:
        assert b"Nats-Marker-Reason: MaxAge" in member.last_for(b"s.a").headers
        assert b"Nats-Scheduler: s.timed" in member.last_for(b"s.due").headers
    group.lead(2)
    before = group.leader.stream.state().last_seq
    group.advance(3 * SECOND)
    group.settle()
    assert group.leader.stream.state().last_seq > before, "the new leader goes on"


def test_only_the_leader_publishes_again() -> None:
    group = Group(republish=compiled("s.*", "ack.again.{{wildcard(1)}}"))
    group.publish(b"s.a", b"x", n=1)
    assert group.leader.answers() == []
    group.settle()
    group.advance(1)
    assert [to for to, _ in group.leader.answers()] == [b"ack.again.a", b"ack.1"]
    assert group.members[1].answers() == []


CONFIGS: list[dict[str, Any]] = [
    {"allow_atomic": True},
    {"max_msgs_per_subject": 2, "allow_rollup_hdrs": True},
    {"discard": NEW, "max_msgs": 12, "max_bytes": 900, "allow_rollup_hdrs": True},
    {"discard": NEW, "max_msgs_per_subject": 2, "discard_new_per_subject": True, "max_msgs": 30},
    {"retention": INTEREST, "consumers": ((b"C", b"s.a"),), "allow_atomic": True},
]


@given(st.integers(0, 1 << 30), st.sampled_from(CONFIGS))
@settings(max_examples=80, deadline=None)
def test_members_are_equal_whoever_leads(seed: int, config: dict[str, Any]) -> None:
    """At random: publishes, requests, steps of the group, leaders that come and go."""
    chance = random.Random(seed)
    group = Group(**config)
    heard: dict[int, dict[str, Any]] = {}
    for n in range(1, 120):
        pick = chance.random()
        lines: dict[str, object] = {}
        if chance.random() < 0.3:
            lines["Nats_Msg_Id"] = f"id{chance.randint(0, 9)}"
        if chance.random() < 0.1 and config.get("allow_rollup_hdrs"):
            lines["Nats_Rollup"] = chance.choice(["sub", "all"])
        subject = b"s." + chance.choice([b"a", b"b", b"c"])
        if pick < 0.1 and config.get("allow_atomic"):
            batch(group, f"B{n}", chance.randint(1, 4), n)
        elif pick < 0.65:
            data = bytes(chance.choice([0, 5, 60]))
            group.publish(subject, data, headers(**lines) if lines else b"", n)
        elif pick < 0.7:
            last = group.leader.stream.state().last_seq
            said = {"kind": DELETE, "seq": chance.randint(1, last + 1), "stream": b"S"}
            group.leader.member.propose(put_change(said | {"erase": True}))
        elif pick < 0.72:
            last = group.leader.stream.state().last_seq
            said = {"kind": PURGE, "subject": subject, "last": last, "stream": b"S"}
            group.leader.member.propose(put_change(said))
        elif pick < 0.95:
            group.agree(apply=chance.randint(0, 6))
        elif pick < 0.97:
            group.lead(chance.randint(0, 2))
        else:
            group.catch_up(chance.choice(group.members), chance.randint(0, 9))
        heard |= acks(group)
    group.settle()
    heard |= acks(group)
    assert len({str(member.contents()) for member in group.members}) == 1
    assert group.leader.member.refused == 0 or config.get("allow_atomic")
    new = [a["seq"] for a in heard.values() if "seq" in a and not a.get("duplicate")]
    stored = [seq for seq in new if seq]
    assert len(stored) == len(set(stored)), "one message is acked as another"
    # nothing is left of what was staged: the next is judged by what is stored
    last = group.leader.stream.state().last_seq
    group.publish(b"s.a", header=headers(Nats_Expected_Last_Sequence=last + 1), n=1000)
    group.confirm()
    assert f"wrong last sequence: {last}" in acks(group)[1000]["error"]["description"]


@pytest.mark.parametrize("wanted", [b"s.a", b"s.>"])
def test_last_of_a_pattern_is_what_is_proposed(wanted: bytes) -> None:
    group = Group()
    group.publish(b"s.a", n=1)
    lines = headers(
        Nats_Expected_Last_Subject_Sequence=1,
        Nats_Expected_Last_Subject_Sequence_Subject=wanted.decode(),
    )
    group.publish(b"s.b", header=lines, n=2)
    group.settle()
    assert acks(group)[2]["seq"] == 2
