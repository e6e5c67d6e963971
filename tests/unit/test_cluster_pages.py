"""Monitoring pages of a member of a JetStream cluster, over a made-up Raft group."""

from pathlib import Path
from typing import Any

import pytest

from jsserver.cext.groups import GroupState, Peer
from jsserver.cluster.groups import RaftMember, Replica, electorate, has_quorum, others, replicas
from jsserver.cluster.moves import Usage

from .api_server import ApiServer
from .fake_monitored import NOW, SECOND, FakeServer

NAMES = {"AAAAAAAA": "a", "BBBBBBBB": "b", "CCCCCCCC": "c"}


def group(*, leader: bytes = b"AAAAAAAA", role: str = "leader", **changes: Any) -> GroupState:
    """The member `a` of three, up to entry 9 of its log."""
    said: dict[str, Any] = {
        "role": role,
        "term": 3,
        "leader": leader,
        "first": 5,
        "last": 9,
        "last_term": 2,
        "commit": 9,
        "applied": 8,
        "stored": 9,
        "size": 3,
        "quorum": 2,
        "members": 3,
        "lost": False,
        "diverged": False,
        "error": 0,
        "bytes": 700,
        "vote": b"BBBBBBBB",
        "met": 5,
    }
    return GroupState(**{**said, **changes})


PEERS = [
    Peer(b"AAAAAAAA", 0, -1, False),
    Peer(b"CCCCCCCC", 7, 11 * SECOND, False),
    Peer(b"BBBBBBBB", 9, 1_500_000, False),
]


def member(state: GroupState, since: int = NOW, account: str = "$SYS") -> RaftMember:
    known = others(PEERS, "AAAAAAAA", NAMES.__getitem__)
    return RaftMember(account, "_meta_", "AAAAAAAA", state, known, since, True)


class FakeHoldings:
    """What the server has of assignments; `streams` names those of account $G with consumers."""

    def __init__(self, *members: RaftMember) -> None:
        self.members = list(members)
        self.streams: dict[str, frozenset[str]] = {}

    def count(self) -> int:
        return len(self.members)

    def groups(self) -> list[RaftMember]:
        return self.members

    def group_of(self, account: str, stream: str, consumer: str = "") -> str:
        return f"C-R3F-{consumer}" if consumer else f"S-R3F-{stream}"

    def assigned(self, account: str) -> dict[str, frozenset[str]]:
        return self.streams if account == "$G" else {}

    def usage(self, account: str) -> Usage:
        return Usage(300, 600, 9, 1)


class FakeMeta:
    """The meta group as the pages ask of it."""

    leader = "a"
    trouble = ""
    size = 3
    pending = (5, 700)
    last_snapshot = 0

    def __init__(self, holdings: FakeHoldings) -> None:
        self.holdings = holdings

    def replicas(self) -> list[Replica]:
        return replicas(self.holdings.members[0], {"b"}.__contains__)


class FakeMember:
    """A member of an asset's group."""

    def __init__(self, leads: bool = False, trouble: str = "") -> None:
        self._leads = leads
        self._trouble = trouble

    def leads(self) -> bool:
        return self._leads

    def trouble(self) -> str:
        return self._trouble


def served(
    *members: RaftMember, dispatcher: Any = None, **streams: frozenset[str]
) -> FakeServer:
    """`streams`: those of account $G that are assigned to the server, with their consumers."""
    server = FakeServer(dispatcher=dispatcher)
    holdings = FakeHoldings(*members)
    holdings.streams = streams
    meta: Any = FakeMeta(holdings)
    server.meta = meta
    return server


def test_raftz_of_a_leader() -> None:
    page = served(member(group())).page("/raftz")
    assert page == {
        "$SYS": {
            "_meta_": {
                "id": "AAAAAAAA",
                "state": "LEADER",
                "size": 3,
                "quorum_needed": 2,
                "committed": 9,
                "applied": 8,
                "leader": "AAAAAAAA",
                "leader_since": "2023-11-14T22:13:20Z",
                "ever_had_leader": True,
                "term": 3,
                "voted_for": "BBBBBBBB",
                "pterm": 2,
                "pindex": 9,
                "system_account": True,
                "traffic_account": "$SYS",
                "ipq_proposal_len": 0,
                "ipq_entry_len": 0,
                "ipq_resp_len": 0,
                "ipq_apply_len": 0,
                "wal": {
                    "messages": 5,
                    "bytes": 700,
                    "first_seq": 5,
                    "first_ts": "0001-01-01T00:00:00Z",
                    "last_seq": 9,
                    "last_ts": "0001-01-01T00:00:00Z",
                    "consumer_count": 0,
                },
                "peers": {
                    "BBBBBBBB": {
                        "name": "b",
                        "known": True,
                        "last_replicated_index": 9,
                        "last_seen": "1.5ms",
                    },
                    "CCCCCCCC": {
                        "name": "c",
                        "known": True,
                        "last_replicated_index": 7,
                        "last_seen": "11s",
                    },
                },
            }
        }
    }


def test_raftz_says_what_is_not_as_usual() -> None:
    state = group(role="candidate", leader=b"", error=28)
    found = served(member(state, since=0)).page("/raftz")["$SYS"]["_meta_"]
    assert found["state"] == "CANDIDATE"
    assert found["wal_error"] == "No space left on device"
    assert not {"leader", "leader_since"} & found.keys()


def test_raftz_is_of_the_system_account_unless_another_one_is_asked_for() -> None:
    server = served(member(group()), member(group(), account="ONE"))
    assert list(server.page("/raftz")) == ["$SYS"]
    assert list(server.page("/raftz?acc=ONE")) == ["ONE"]
    assert list(server.page("/raftz?acc=ONE&group=_meta_")["ONE"]) == ["_meta_"]
    assert server.page("/raftz?acc=ONE&group=other") == {}
    assert server.page("/raftz?acc=TWO") == {}
    assert served().get("/raftz").status == 404


@pytest.mark.parametrize(
    ("state", "current", "lag"),
    [
        (group(), {"b"}, {"b": 0, "c": 2}),
        (group(applied=9, commit=10), {"b"}, {"b": 1, "c": 3}),
        (group(role="follower", leader=b"BBBBBBBB"), {"b"}, {"b": 0, "c": 0}),
        (group(role="follower", leader=b"CCCCCCCC"), set(), {"b": 0, "c": 0}),
    ],
)
def test_replicas_are_current_that_were_heard_and_have_all(
    state: GroupState, current: set[str], lag: dict[str, int]
) -> None:
    found = replicas(member(state), {"b"}.__contains__)
    assert [one.name for one in found] == ["b", "c"]
    assert {one.name for one in found if one.current} == current
    assert {one.name: one.lag for one in found} == lag
    assert [one.offline for one in found] == [False, True]


def test_jsz_has_the_others_of_the_meta_group(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        page = served(member(group()), dispatcher=api.dispatcher).page("/jsz")
    assert page["meta_cluster"]["replicas"] == [
        {"name": "b", "current": True, "active": 1_500_000, "peer": "BBBBBBBB"},
        {
            "name": "c",
            "current": False,
            "offline": True,
            "active": 11 * SECOND,
            "lag": 2,
            "peer": "CCCCCCCC",
        },
    ]


def test_health_of_the_meta_group_alone(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        server = served(member(group()), dispatcher=api.dispatcher)
        api.account.offline["S"] = "its files are damaged"
        assert server.get("/healthz").status == 503
        assert server.get("/healthz?js-meta-only=true").status == 200
        server.meta.trouble = "JetStream is not current with the meta leader"  # type: ignore[attr-defined]
        answer = server.get("/healthz?js-meta-only=true")
    assert answer.status == 503
    assert b"JetStream is not current with the meta leader" in answer.body


def test_all_members_are_named_to_who_hears_of_an_election() -> None:
    found = electorate(member(group()), "a", {"b"}.__contains__)
    assert [getattr(one, "name", "") for one in found] == ["a", "b", "c"]


@pytest.mark.parametrize(("silent", "has"), [((-1, -1), False), ((-1, 11), False), ((-1, 9), True)])
def test_a_quorum_is_heard(silent: tuple[int, int], has: bool) -> None:
    peers = [
        Peer(id, 0, one if one < 0 else one * SECOND, False)
        for id, one in zip((b"BBBBBBBB", b"CCCCCCCC"), silent, strict=True)
    ]
    known = others(peers, "AAAAAAAA", NAMES.__getitem__)
    assert has_quorum(RaftMember("A", "S", "AAAAAAAA", group(), known)) is has


def test_jsz_shows_groups_and_who_leads(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        for name in ("S", "T"):
            api.stream(name, subjects=[name])
        streams = api.account.streams
        streams["S"].member, streams["T"].member = FakeMember(leads=True), FakeMember()
        server = served(member(group()), dispatcher=api.dispatcher)
        page = server.page("/jsz?streams=1&raft=1")
        led = server.page("/jsz?streams=1&stream-leader-only=1")
        server.meta.leader = "another"  # type: ignore[attr-defined]
        refused = server.get("/jsz?leader-only=1")
        for stream in streams.values():
            stream.member = None
    assert page["ha_assets"] == 1
    assert (page["streams"], page["streams_leader"]) == (2, 1)
    (account,) = page["account_details"]
    assert (account["memory"], account["storage"]) == (300, 600)
    assert account["api"] == {"level": 0, "total": 9, "errors": 1}
    groups = {one["name"]: one["stream_raft_group"] for one in account["stream_detail"]}
    assert groups == {"S": "S-R3F-S", "T": "S-R3F-T"}
    assert [one["name"] for one in led["account_details"][0]["stream_detail"]] == ["S"]
    assert (refused.status, refused.body) == (400, b"filtered response: not leader")


def test_health_of_what_is_assigned(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as api:
        api.stream("S", subjects=["S"])
        stream = api.account.streams["S"]
        lacks = served(
            member(group()), dispatcher=api.dispatcher, S=frozenset("D"), T=frozenset()
        )
        whole, alone = lacks.get("/healthz?details=1"), lacks.get("/healthz?account=$G&stream=S")
        stream.member = FakeMember(trouble="stream catching up")
        behind = served(member(group()), dispatcher=api.dispatcher, S=frozenset())
        lags = behind.get("/healthz")
        stream.member = FakeMember()
        well = behind.get("/healthz")
        stream.member = None
        none = served(member(group()), dispatcher=api.dispatcher).get("/healthz?account=$G")
    assert (whole.status, alone.status, lags.status, well.status) == (503, 503, 503, 200)
    assert b"'$G \\u003e S \\u003e D' is not current: consumer not found" in whole.body
    assert b"'$G \\u003e T' is not current: stream not found" in whole.body
    assert b"stream catching up" in lags.body
    assert (none.status, b"account" in none.body) == (404, True)
