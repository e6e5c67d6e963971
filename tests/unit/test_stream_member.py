"""A stream that follows changes by the entries that its group agreed on, and by nothing else."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cext.stream import PyMember, TestEnv, get_change, put_change
from tests.unit.stream_world import FILE, INTEREST, MEMORY, SECOND, World, compiled, headers

MESSAGE, SKIP, DELETE, RELEASE, PURGE = range(1, 6)
STARTED = 1_700_000_000 * SECOND
UNKNOWN, DIVERGED = -10, -32
Entry = tuple[int, bytes | None]


def message(lseq: int, subject: bytes = b"s.a", header: bytes = b"", **more: Any) -> bytes:
    ts = STARTED + lseq + 1
    said = {"kind": MESSAGE, "lseq": lseq, "ts": ts, "subject": subject, "header": header}
    return put_change(said | {"data": b"%d" % lseq, "reply": b"ack"} | more)


def of_batch(lseq: int, number: int, ends: bool = False, batch: bytes = b"B") -> bytes:
    return message(lseq, batch=batch, batch_seq=number, batch_ends=ends)


class Follower(World):
    """A stream that follows; entries are numbered as they come."""

    def __init__(self, directory: Path | None = None, refused: int = 0, **params: Any) -> None:
        env = TestEnv(now=STARTED)
        if directory:
            env.start_commits()
        storage = {"storage": FILE if directory else MEMORY}
        path = bytes(directory) if directory else None
        super().__init__(env, path, active=False, **(storage | params))
        self.index = 0
        self.member = PyMember(env, self.stream, refused)

    def apply(self, *entries: bytes | None) -> int:
        first = self.index + 1
        self.index += len(entries)
        return self.member.commit(list(enumerate(entries, first)))

    @property
    def refused(self) -> int:
        return self.member.refused

    @property
    def applied(self) -> int:
        return self.member.applied(self.index)

    def bodies(self) -> dict[int, bytes]:
        state = self.stream.state()
        found = map(self.stream.get, range(state.first_seq, state.last_seq + 1))
        return {m.seq: m.data for m in found if m is not None}

    def close(self) -> None:
        self.stream.close(False)
        self.env.stop_commits()


def test_a_follower_says_nothing() -> None:
    follower = Follower(republish=compiled("s.>", "again.>"), allow_direct=True)
    follower.env.listen(b"again.>")
    follower.env.listen(b"ack")
    assert follower.apply(message(0), message(1)) == 0
    assert follower.env.inject(b"s.a", b"not from the group") == 0
    assert follower.env.take() == []
    assert follower.bodies() == {1: b"0", 2: b"1"}
    assert follower.message(2).ts == STARTED + 2


def test_what_is_refused_uses_up_no_sequence() -> None:
    follower = Follower()
    wrong = headers(Nats_Expected_Last_Msg_Id="other")
    right = headers(Nats_Expected_Last_Msg_Id="one")
    said = headers(Nats_Msg_Id="one")
    assert follower.apply(message(0, header=said), message(1, header=wrong)) == 0
    assert follower.refused == 1
    assert follower.apply(message(2, header=right), message(3)) == 0
    assert follower.bodies() == {1: b"0", 2: b"2", 3: b"3"}
    assert follower.apply(message(4, header=right)) == 0
    assert follower.refused == 2, "the last message has no id"


def test_what_a_group_never_agreed_on_is_refused() -> None:
    follower = Follower()
    follower.apply(message(0))
    assert follower.apply(b"\x63 something new") == UNKNOWN
    assert follower.apply(message(2)) == DIVERGED, "one is missing"
    assert follower.apply(put_change({"kind": SKIP, "seq": 3, "most": 4})) == DIVERGED
    assert follower.apply(message(0), message(1)) == 0, "the first is known"
    assert follower.bodies() == {1: b"0", 2: b"1"}


def test_a_group_may_begin_anywhere() -> None:
    follower = Follower(refused=3)
    assert follower.apply(message(12), message(13)) == 0
    assert follower.bodies() == {10: b"12", 11: b"13"}
    assert Follower(refused=3).apply(message(2)) == DIVERGED


def test_sequences_are_skipped() -> None:
    follower = Follower()
    follower.apply(message(0), put_change({"kind": SKIP, "lseq": 1}), message(2))
    assert follower.bodies() == {1: b"0", 3: b"2"}
    follower.apply(put_change({"kind": SKIP, "seq": 2, "most": 5}), message(6))
    assert follower.bodies() == {1: b"0", 3: b"2", 7: b"6"}


def test_a_batch_is_applied_with_its_end() -> None:
    follower = Follower()
    follower.apply(message(0), of_batch(1, 1), of_batch(2, 2))
    assert (follower.bodies(), follower.applied) == ({1: b"0"}, 1)
    follower.apply(of_batch(3, 3, ends=True), message(4))
    assert follower.bodies() == {1: b"0", 2: b"1", 3: b"2", 4: b"3", 5: b"4"}
    assert (follower.refused, follower.applied) == (0, 5)


@pytest.mark.parametrize(
    "entries",
    [
        [message(3)],  # another message
        [None],  # a change of the group
        [put_change({"kind": DELETE, "seq": 7, "erase": True})],
        [of_batch(3, 1, batch=b"C"), of_batch(4, 2, ends=True, batch=b"C")],
        [of_batch(3, 1), of_batch(4, 2, ends=True)],
    ],
)
def test_a_batch_without_an_end_is_refused(entries: list[bytes | None]) -> None:
    follower = Follower()
    assert follower.apply(message(0), of_batch(1, 1), of_batch(2, 2), *entries) == 0
    assert follower.refused == 2
    assert follower.applied == follower.index
    behind = len([e for e in entries if e is not None and e[:1] != b"\x06"])
    assert follower.stream.state().last_seq == 1 + behind


@pytest.mark.parametrize("ends", [False, True])
def test_a_batch_with_a_hole_is_refused(ends: bool) -> None:
    follower = Follower()
    assert follower.apply(message(0), of_batch(1, 1), of_batch(2, 3, ends=ends)) == 0
    assert follower.refused == 2
    assert follower.apply(message(3)) == 0
    assert follower.bodies() == {1: b"0", 2: b"3"}


def test_the_rest_of_a_batch_that_is_known_is_skipped_at_a_start() -> None:
    follower = Follower()
    follower.apply(*(message(n) for n in range(5)))
    assert follower.apply(of_batch(2, 2), of_batch(3, 3, ends=True), message(5)) == 0
    assert (follower.refused, follower.stream.state().last_seq) == (0, 6)
    follower.member.recovered()
    assert follower.apply(of_batch(2, 2)) == 0
    assert follower.refused == 1


def test_a_purge_that_keeps_is_not_repeated_at_a_start(tmp_path: Path) -> None:
    entries = [message(n) for n in range(5)]
    keeps = put_change({"kind": PURGE, "keep": 2, "last": 3})
    follower = Follower(tmp_path)
    follower.apply(*entries[:3], keeps, *entries[3:])
    follower.stream.wait_durable()
    follower.close()
    follower = Follower(tmp_path)
    follower.apply(*entries[:3], keeps)
    assert list(follower.bodies()) == [2, 3, 4, 5], "there were fewer at its time"
    follower.apply(*entries[3:])
    follower.member.recovered()
    follower.apply(keeps)
    assert list(follower.bodies()) == [4, 5]
    follower.apply(message(5), put_change({"kind": PURGE, "last": 5}))
    assert list(follower.bodies()) == [6], "what came later stays"
    follower.close()


def started_after_each(folder: Path, log: list[bytes]) -> Iterator[Follower]:
    """Members that have applied the whole log, after a start with so many of its entries stored:
    none, one, and so on up to all."""
    for stored in range(len(log) + 1):
        (directory := folder / str(stored)).mkdir()
        follower = Follower(directory)
        assert follower.apply(*log[:stored]) == 0
        follower.stream.wait_durable()
        follower.close()
        follower = Follower(directory)
        assert follower.apply(*log) == 0
        yield follower
        follower.close()


def test_a_purge_that_keeps_is_done_at_a_start_that_comes_before_it(tmp_path: Path) -> None:
    """What the store has of the log ends before the purge, or the purge was the last of all."""
    log = [message(0), message(1), message(2), put_change({"kind": PURGE, "keep": 2, "last": 3})]
    log.append(message(3, subject=b"s.b"))
    log.append(put_change({"kind": PURGE, "subject": b"s.a", "keep": 1, "last": 4}))
    left = [list(follower.bodies()) for follower in started_after_each(tmp_path, log)]
    assert left == [[3, 4]] * (len(log) + 1)


@pytest.mark.parametrize("kind", [DELETE, PURGE])
def test_what_came_later_stays_at_a_start(tmp_path: Path, kind: int) -> None:
    """A request named a sequence that there was not at its time."""
    log = [message(0), put_change({"kind": kind, "seq": 3, "last": 1}), message(1), message(2)]
    left = [list(follower.bodies()) for follower in started_after_each(tmp_path, log)]
    assert left == [[1, 2, 3] if kind == DELETE else [2, 3]] * (len(log) + 1)


def test_refused_entries_are_counted_again_at_a_start(tmp_path: Path) -> None:
    wrong = headers(Nats_Expected_Last_Msg_Id="other")
    log = [message(0), message(1, header=wrong), message(2), message(3, header=wrong), message(4)]
    for stored, follower in enumerate(started_after_each(tmp_path, log)):
        assert (follower.refused, list(follower.bodies())) == (2, [1, 2, 3]), stored


def test_an_id_that_is_not_known_refuses_nothing(tmp_path: Path) -> None:
    """The last message is gone: whoever led knew its id."""
    follower = Follower(tmp_path)
    follower.apply(message(0), message(1, header=headers(Nats_Msg_Id="one")))
    follower.apply(put_change({"kind": DELETE, "seq": 2}))
    follower.stream.wait_durable()
    follower.close()
    follower = Follower(tmp_path)
    assert follower.apply(message(2, header=headers(Nats_Expected_Last_Msg_Id="one"))) == 0
    assert (follower.refused, list(follower.bodies())) == (0, [1, 3])
    follower.close()


def test_what_comes_waits_for_a_long_purge() -> None:
    follower = Follower()
    others = [message(n, b"s.a" if n % 3 else b"s.b") for n in range(5000)]
    follower.apply(*others)
    purge = put_change({"kind": PURGE, "subject": b"s.a", "last": 5000})
    assert follower.apply(purge, message(5000)) == 0
    assert set(follower.bodies()) == {*range(1, 5001, 3), 5001}


def test_a_rollup_of_many_leaves_its_message() -> None:
    follower = Follower(allow_rollup_hdrs=True)
    follower.apply(*(message(n, b"s.a" if n % 3 else b"s.b") for n in range(5000)))
    header = headers(Nats_Rollup="sub")
    assert follower.apply(message(5000, header=header), message(5001)) == 0
    assert set(follower.bodies()) == {*range(1, 5001, 3), 5001, 5002}


def test_rollups_are_only_where_they_are_allowed() -> None:
    for allowed, left in ((True, [2]), (False, [1, 2])):
        follower = Follower(allow_rollup_hdrs=allowed)
        follower.apply(message(0), message(1, header=headers(Nats_Rollup="sub")))
        assert list(follower.bodies()) == left


def test_what_servers_say_of_publishers_is_not_stored() -> None:
    follower = Follower()
    header = headers(Nats_Request_Info="{}", A="b")
    follower.apply(message(0, header=header), message(1, header=headers(Nats_Request_Info="{}")))
    assert follower.message(1).headers == headers(A="b")
    assert follower.message(2).headers == b""


def test_a_life_is_as_long_as_a_markers() -> None:
    follower = Follower(allow_msg_ttl=True, subject_delete_marker_ttl=10 * SECOND)
    follower.apply(message(0, header=headers(Nats_TTL="2s", Nats_Msg_Id="x")))
    assert follower.message(1).headers == headers(Nats_Msg_Id="x", Nats_TTL="10")


def test_lives_end_by_the_own_clock_unless_a_marker_stands_for_them() -> None:
    lived = message(0, header=headers(Nats_TTL="2s"))
    alone = Follower(allow_msg_ttl=True)
    marked = Follower(allow_msg_ttl=True, subject_delete_marker_ttl=SECOND)
    for follower in (alone, marked):
        follower.apply(lived, message(1))
        follower.env.advance(10 * SECOND)
    assert list(alone.bodies()) == [2]
    assert list(marked.bodies()) == [1, 2]
    marked.apply(put_change({"kind": RELEASE, "seq": 1, "stream": b"S"}))
    assert list(marked.bodies()) == [2]


def test_schedules_are_the_leaders() -> None:
    follower = Follower(allow_msg_schedules=True, allow_rollup_hdrs=True)
    header = headers(Nats_Schedule="@every 1s", Nats_Schedule_Target="s.due", Nats_Rollup="sub")
    follower.apply(message(0, header=header))
    follower.env.advance(20 * SECOND)
    assert list(follower.bodies()) == [1]


def test_what_nobody_wants_is_skipped() -> None:
    follower = Follower(retention=INTEREST)
    follower.consumer(name=b"C", filters=(b"s.a",))
    follower.apply(message(0), message(1, b"s.b"), message(2))
    assert list(follower.bodies()) == [1, 3], "nobody wants the second"
    follower.apply(put_change({"kind": RELEASE, "seq": 1, "stream": b"S"}))
    assert list(follower.bodies()) == [3]


def test_what_the_leader_saw_wanted_counts() -> None:
    """Whoever is interested by what this member knows of consumers."""
    follower = Follower(retention=INTEREST)
    follower.consumer(name=b"C", filters=(b"s.a",))
    wanted: dict[str, Any] = {"judged": True}
    unwanted = wanted | {"unwanted": True}
    follower.apply(message(0, b"s.b", **wanted), message(1, **unwanted), message(2, **wanted))
    assert list(follower.bodies()) == [1, 3]


def test_a_leader_says_who_wants_a_message() -> None:
    leader = Follower(retention=INTEREST)
    consumer = leader.consumer(name=b"C", filters=(b"s.a",))
    leader.member.lead()
    for subject in (b"s.a", b"s.b", b"s.a"):
        leader.env.inject(subject, b"x")
    proposed = leader.member.proposals()
    said = [get_change(one) or {} for one in proposed]
    assert [one["judged"] for one in said] == [True] * 3
    assert [one.get("unwanted", False) for one in said] == [False, True, False]
    consumer.close(True)
    assert leader.apply(*proposed) == 0
    assert list(leader.bodies()) == [1, 3]
    leader.env.run()
    gone = [get_change(one) or {} for one in leader.member.proposals()]
    assert [(one["kind"], one["seq"]) for one in gone] == [(RELEASE, 1), (RELEASE, 3)]


def test_subjects_are_those_of_the_transform() -> None:
    follower = Follower(subject_transform=compiled("s.*", "t.{{wildcard(1)}}"))
    follower.apply(message(0))
    assert follower.message(1).subject == b"t.a"


CONFIGS: list[dict[str, Any]] = [
    {},
    {"max_msgs": 7, "max_msgs_per_subject": 2},
    {"allow_rollup_hdrs": True, "allow_msg_ttl": True},
    {"retention": INTEREST},
]


def random_entries(chance: random.Random) -> list[bytes | None]:
    """As a leader proposes them, and a few that no leader would."""
    entries: list[bytes | None] = []
    lseq = 0
    while len(entries) < 60:
        pick = chance.random()
        subject = b"s." + chance.choice([b"a", b"b", b"c"])
        lines: dict[str, object] = {}
        if chance.random() < 0.3:
            lines["Nats_Msg_Id"] = f"id{chance.randint(0, 5)}"
        if chance.random() < 0.1:
            lines["Nats_Rollup"] = chance.choice(["sub", "all"])
        if chance.random() < 0.1:
            lines["Nats_Expected_Last_Msg_Id"] = f"id{chance.randint(0, 5)}"
        if pick < 0.7:
            entries.append(message(lseq, subject, headers(**lines) if lines else b""))
            lseq += 1
        elif pick < 0.8:
            for number in range(1, chance.randint(1, 4)):
                entries.append(of_batch(lseq, number, chance.random() < 0.3, b"%d" % lseq))
                lseq += 1
        elif pick < 0.9:
            said = {"kind": chance.choice([DELETE, RELEASE]), "seq": chance.randint(1, lseq + 1)}
            entries.append(put_change(said | {"stream": b"S", "erase": said["kind"] == DELETE}))
        elif pick < 0.95:
            entries.append(put_change({"kind": PURGE, "subject": subject, "last": lseq}))
        else:
            entries.append(None)
    return entries


def contents(follower: Follower) -> tuple[Any, ...]:
    state = follower.stream.state()
    found = [follower.stream.get(seq) for seq in range(state.first_seq, state.last_seq + 1)]
    return state, found, follower.refused, follower.applied


@given(st.integers(0, 1 << 30), st.sampled_from(CONFIGS))
@settings(max_examples=60, deadline=None)
def test_members_are_equal_however_entries_come(seed: int, config: dict[str, Any]) -> None:
    chance = random.Random(seed)
    entries = random_entries(chance)
    one, other = Follower(**config), Follower(**config)
    for follower in (one, other):
        if "retention" in config:
            follower.consumer(name=b"C", filters=(b"s.a",))
    assert one.apply(*entries) == 0
    while entries:
        n = chance.randint(1, 5)
        assert other.apply(*entries[:n]) == 0
        entries = entries[n:]
    assert contents(one) == contents(other)


def test_a_start_goes_on_where_the_store_ends(tmp_path: Path) -> None:
    """What a log still has of what is stored changes nothing."""
    entries = [message(n, header=headers(Nats_Msg_Id=f"id{n}")) for n in range(30)]
    follower = Follower(tmp_path)
    assert follower.apply(*entries[:20]) == 0
    follower.stream.wait_durable()
    follower.close()
    follower = Follower(tmp_path)
    assert follower.apply(*entries) == 0
    assert follower.bodies() == {n + 1: b"%d" % n for n in range(30)}
    follower.close()


def test_consumers_that_come_after_messages_have_lost_no_log(tmp_path: Path) -> None:
    """A directory that nobody had before gets messages from the group first: nothing is missing."""
    follower = Follower(tmp_path)
    follower.apply(message(0), message(1))
    follower.stream.wait_durable()
    (tmp_path / "obs" / "C").mkdir(parents=True)
    follower.consumer(bytes(tmp_path / "obs" / "C"))
    assert not follower.stream.lost().places
    follower.close()
