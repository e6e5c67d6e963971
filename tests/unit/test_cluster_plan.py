"""Plans of leaders and replicas to move, and rules that no plan breaks."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jsserver.admin.plan import (
    Cluster,
    Consumer,
    Lead,
    Move,
    Plan,
    Server,
    Stream,
    balance,
    drain,
)
from jsserver.cluster.placement import Room, Rules

GIB = 1 << 30


def server(name: str, *tags: str, free: int = GIB, reachable: bool = True) -> Server:
    return Server(name, "C", tags, reachable, Room(memory=free, files=free, assets=1))


def stream(name: str, holders: str, **more: Any) -> Stream:
    made = Stream("ONE", name, "C", len(holders), tuple(holders), holders[0])
    return made._replace(**more)


def cluster(streams: list[Stream], *servers: Server, meta: str = "D", unique: str = "") -> Cluster:
    found = servers or tuple(map(server, "ABCD"))
    return Cluster({one.name: one for one in found}, streams, meta, Rules(unique_tag=unique))


def reasons(plan: Plan) -> list[str]:
    return [one.reason for one in plan.stuck]


def test_leaders_and_replicas_leave_a_server():
    durable = Consumer("D", tuple("ABC"), "A")
    streams = [stream("S", "ABC", consumers=(durable,)), stream("O", "A")]
    plan = drain(cluster(streams, meta="A"), "A")
    assert plan.leads[0] == Lead("", "", "", "A", "B")
    assert {(one.stream, one.consumer) for one in plan.leads[1:]} == {("S", ""), ("S", "D")}
    assert {one.target for one in plan.leads[1:]} == {"B", "C"}
    assert plan.moves[0] == Move("ONE", "S", "A", "D", 0)
    assert plan.moves[1].source == "A" and not plan.stuck


def test_why_a_replica_cannot_leave_is_counted():
    many = [stream("S", "ABC"), stream("T", "ABC", tags=("ssd",))]
    plan = drain(cluster([*many, stream("U", "ABC", max_bytes=2 * GIB)]), "A")
    assert [move.stream for move in plan.moves] == ["S"]
    assert reasons(plan) == [
        "holds it already (2); tags not matched ['ssd'] (1)",
        "holds it already (2); insufficient storage (1)",
    ]
    servers = (*map(server, "ABC"), server("D", reachable=False), server("E", "!jetstream"))
    assert reasons(drain(cluster([stream("S", "ABC")], *servers), "A")) == [
        "holds it already (2); cannot be reached (1); exclude tag set (1)"
    ]
    alone = cluster([stream("S", "A")], server("A"))
    assert reasons(drain(alone, "A")) == ["there is no other server"]
    lost = stream("S", "A", leader="")
    assert reasons(drain(cluster([lost], server("A", reachable=False), server("B")), "A")) == [
        "nobody leads it"
    ]
    assert reasons(drain(cluster([stream("S", "ABC", replicas=2)]), "A")) == ["it moves already"]


def test_a_server_with_a_tag_that_is_taken_is_no_target():
    zones = {"A": "az:1", "B": "az:2", "C": "az:3", "D": "az:2"}
    servers = [server(name, tag) for name, tag in zones.items()]
    held = cluster([stream("S", "ABC")], *servers, unique="az:")
    assert reasons(drain(held, "A")) == ["holds it already (2); server tag not unique (1)"]
    assert [move.target for move in drain(held, "B").moves] == ["D"]


def test_replicas_and_leaders_are_evened():
    plan = balance(cluster([stream(f"S{n}", "ABC") for n in range(8)]))
    assert Counter(move.source for move in plan.moves) == {"A": 2, "B": 2, "C": 2}
    assert {move.target for move in plan.moves} == {"D"}
    assert balance(cluster([stream("S", "ABC"), stream("T", "BCD")])) == Plan([], [], [])
    leads = balance(cluster([stream(f"S{n}", "ABCD") for n in range(8)])).leads
    assert Counter(lead.target for lead in leads) == {"B": 2, "C": 2, "D": 2}


def test_a_stream_that_lacks_a_member_is_left_alone():
    servers = (server("A"), server("B"), server("C", reachable=False), server("D"))
    assert balance(cluster([stream(f"S{n}", "ABC") for n in range(8)], *servers)).moves == []


TAGS = ("a", "b", "az:1", "az:2", "az:3")


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = "ABCDEF"[: draw(st.integers(1, 6))]
    servers = [
        server(
            name,
            *draw(st.lists(st.sampled_from(TAGS), max_size=3, unique=True)),
            free=draw(st.sampled_from((0, 1000, GIB))),
            reachable=draw(st.integers(0, 5)) > 0,
        )
        for name in names
    ]
    streams = []
    for n in range(draw(st.integers(0, 12))):
        some = st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True)
        holders = "".join(draw(some))
        few = holders[: draw(st.integers(1, len(holders)))]
        streams.append(
            stream(
                f"S{n}",
                holders,
                tags=tuple(draw(st.lists(st.sampled_from(TAGS[:2]), max_size=1))),
                max_bytes=draw(st.sampled_from((0, 0, 500))),
                size=draw(st.integers(0, 900)),
                consumers=(Consumer("C", tuple(few), few[0]),),
            )
        )
    unique = draw(st.sampled_from(("", "az:")))
    return cluster(streams, *servers, meta=names[0], unique=unique)


def carried_out(found: Cluster, moves: list[Move]) -> dict[str, list[str]]:
    """Who holds each stream then; each move is checked on the way."""
    held = {one.name: list(one.holders) for one in found.streams}
    for move in moves:
        target, peers = found.servers[move.target], held[move.stream]
        [of] = [one for one in found.streams if one.name == move.stream]
        assert move.source in peers and move.target not in peers
        assert target.reachable and {*of.tags} <= {*target.tags}
        peers[peers.index(move.source)] = move.target
        prefix = found.rules.unique_tag
        if prefix:
            own = [tag for tag in target.tags if tag.startswith(prefix)][:1]
            others = [found.servers[one].tags for one in peers if one != move.target]
            firsts = [[tag for tag in tags if tag.startswith(prefix)][:1] for tags in others]
            assert own and own not in firsts
    for one in found.streams:
        assert len({*held[one.name]}) == len(held[one.name]) == len(one.holders)
    return held


@given(clusters())
def test_no_plan_breaks_a_rule(found: Cluster) -> None:
    for plan in (balance(found), *(drain(found, name) for name in found.servers)):
        held = carried_out(found, plan.moves)
        for lead in plan.leads:
            assert lead.source != lead.target and found.servers[lead.target].reachable
            if lead.stream:
                [of] = [one for one in found.streams if one.name == lead.stream]
                [consumer] = of.consumers
                assert lead.target in (consumer.holders if lead.consumer else of.holders)
        assert len(held) == len(found.streams)


@given(clusters())
def test_a_drained_server_holds_what_the_plan_says_it_keeps(found: Cluster) -> None:
    for name in found.servers:
        plan = drain(found, name)
        held = carried_out(found, plan.moves)
        kept = {stream for stream, peers in held.items() if name in peers}
        assert kept == {one.stream for one in plan.stuck}


@given(clusters())
def test_balance_never_widens_the_gap(found: Cluster) -> None:
    held = carried_out(found, balance(found).moves)
    before = Counter(peer for one in found.streams for peer in one.holders)
    after = Counter(peer for peers in held.values() for peer in peers)
    assert sum(n * n for n in after.values()) <= sum(n * n for n in before.values())
