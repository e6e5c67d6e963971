"""Wishes: the members that the group of an asset is to have some day, which nats-server 2.15 writes
into the assignment of the asset (`desired`), and the steps towards these members.

The leader of the asset reports each step. The leader of the meta group writes the step down by a
new assignment, whose wish has a new id. A report that names a former id is void. Plain functions
over assignments; keys are nats-server's.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

import msgspec

from jsserver.cluster import regroup
from jsserver.cluster.meta import Op, StreamAssignment, group_of, peers_of
from jsserver.cluster.proposals import Said

ID_LENGTH = 22
"""Characters of a wish's id."""


class Seen(NamedTuple):
    """What the leader of an asset knows of the asset's group."""

    own: str
    """The id of the leader."""
    term: int
    peers: list[str]
    """The members by the group's log."""
    whole: Set[str]
    """The members that have all but the newest entries, the leader among them."""
    held_up: Set[str]
    """Of a stream: the members that hold one of its consumers."""


class Step(NamedTuple):
    """What the leader of an asset does next."""

    report: Said | None
    """What the leader reports; None: nothing."""
    have: list[str] | None = None
    """The members that the group is to have from now on; None: the assigned ones."""
    hands_over: bool = False
    """Whether a member that stays is to lead."""


def wish_of(said: Said) -> Said:
    """The wish of an assignment; empty where the assignment has none."""
    found = group_of(said).get("desired")
    return found if isinstance(found, dict) and isinstance(found.get("peers"), list) else {}


def wished_peers(said: Said) -> list[str]:
    """The members that the assignment wishes for."""
    return [peer for peer in wish_of(said).get("peers", []) if isinstance(peer, str)]


def members_now(said: Said, known: list[str]) -> list[str]:
    """The members that the group of an asset may have: the assigned ones without a member that has
    left already and is not to come back. `known`: the members by the group's log."""
    assigned, wished = peers_of(said), wished_peers(said)
    return [peer for peer in assigned if not wished or peer in wished or peer in known]


def origin_of(said: Said) -> list[str]:
    """The members that a stream had before the wish; none where there is no wish."""
    return peers_of({"group": wish_of(said).get("origin")})


def moves_from(said: Said) -> list[str]:
    """Likewise of a stream that is moving, and not only to have more members or fewer."""
    is_moving = wish_of(said).get("move") and {*wished_peers(said)} != {*peers_of(said)}
    return origin_of(said) if is_moving else []


def taken_back(said: Said, token: regroup.Token) -> Said:
    """The assignment of a stream that is to have its former members again."""
    wish = wish_of(said) | {"id": token(ID_LENGTH), "peers": origin_of(said), "cancel_move": True}
    return {**said, "group": group_of(said) | {"desired": wish}}


# ---- the leader of the asset


def next_step(said: Said, replicas: int, seen: Seen) -> Step:
    """The next step towards the wish. `replicas`: of the asset's configuration."""
    wish, assigned, wished = wish_of(said), peers_of(said), wished_peers(said)
    told = {"id": wish.get("id", ""), "term": seen.term}
    if wish.get("term", 0) != seen.term:
        return Step(told)
    if wish.get("scale_down"):
        others = sorted((peer for peer in assigned if peer != seen.own), key=_not_in(seen.whole))
        return Step(told | {"scale_down_peers": [seen.own, *others][:replicas]})
    now = {"meta_peers": seen.peers, "members": [one for one in seen.peers if one in seen.whole]}
    if not {*wished} <= {*assigned}:
        return Step(told | now | {"meta_peers": [*dict.fromkeys([*seen.peers, *wished])]})
    if not {*wished} <= {*seen.peers}:
        return Step(None)  # they join when they have caught up
    going = {*seen.peers} - {*wished}
    if going and len({*wished} & seen.whole) < len(wished) // 2 + 1:
        return Step(None)
    if going & seen.held_up:
        return Step(told)  # the leader of the meta group moves the consumers first
    if seen.own in going:
        return Step(None, hands_over=True)
    if {*seen.peers} != {*assigned}:
        return Step(told | now, have=wished)
    return Step(None if going else told | now | {"match": True}, have=wished)


def _not_in(peers: Set[str]) -> Callable[[str], bool]:
    return lambda peer: peer not in peers


# ---- the leader of the meta group


class Report(msgspec.Struct):
    """A step that the leader of an asset reports."""

    account: str = ""
    stream: str = ""
    consumer: str = ""
    id: str = ""
    """Of the wish that the step leads to; "": the leader asks for a wish."""
    term: int = 0
    meta_peers: list[str] | None = None
    """The members that the assignment is to name; None: the same as before."""
    members: list[str] = []
    """The members that have what the group has."""
    scale_down_peers: list[str] | None = None
    """The members that stay, where the wish is for fewer; None: no such wish."""
    match: bool = False
    """Whether the group has the members that are wished."""


class Terms(NamedTuple):
    """What new assignments need."""

    now: str
    """The time, as an assignment has it."""
    token: regroup.Token
    mixed: regroup.Mixed


def written(there: StreamAssignment, report: Report, terms: Terms) -> list[tuple[Op, Said]]:
    """The assignments by which the step of a stream or of its consumer is written down; none where
    the report is void."""
    consumer = report.consumer
    said = there.consumers.get(consumer) if consumer else there.said
    wish = {} if said is None else wish_of(said)
    if said is None or report.id != wish.get("id", ""):
        return []
    op = Op.ASSIGN_CONSUMER if consumer else Op.UPDATE_STREAM
    if not wish:
        return [(op, _wished(there.said, said, report, terms))]
    wish = wish | {"id": terms.token(ID_LENGTH), "term": report.term}
    of = group_of(said)
    if report.scale_down_peers is not None:
        wish["peers"] = report.scale_down_peers
        wish.pop("scale_down", None)
    elif report.match:
        follow, wait = ([], False) if consumer else _consumers(there, terms)
        return follow if follow or wait else [(op, _ended(said, wish, terms))]
    elif report.meta_peers is not None:
        peers = report.meta_peers
        known = {*wish.get("members", []), *report.members}
        wish["members"] = [peer for peer in peers if peer in known]
        if not {*peers} <= {*peers_of(said)}:
            of = of | {"scale_up": True}
        of = of | {"peers": peers}
    elif wish["term"] == wish_of(said).get("term"):
        return [] if consumer else _consumers(there, terms)[0]
    return [(op, {**said, "group": of | {"desired": wish}})]


def _wished(stream: Said, said: Said, report: Report, terms: Terms) -> Said:
    """The assignment of an asset whose leader asks for a wish: the group has other members than the
    assignment, or the asset moves, and a nats-server 2.15 changes members by wishes alone."""
    peers, count = peers_of(said), regroup.replicas_of(stream, said)
    moves = len(peers) > count
    wish = {
        "created": terms.now,
        "id": terms.token(ID_LENGTH),
        "term": report.term,
        "peers": peers[-count:],
        "cluster": group_of(said).get("cluster", ""),
        "members": peers[:-count],
    }
    if moves and said is stream:
        origin = {"peers": peers[:count], "cluster": wish["cluster"], "replicas": count}
        wish |= {"move": True, "origin": origin}
    of = group_of(said) | {"desired": wish}
    return {**said, "group": of | {"scale_up": True} if moves else of}


def _ended(said: Said, wish: Said, terms: Terms) -> Said:
    """The assignment when the group has the members of the wish."""
    before = ("desired", "scale_up", "preferred")
    of = {key: value for key, value in group_of(said).items() if key not in before}
    of |= {"peers": wish["peers"], "cluster": wish.get("cluster", of.get("cluster", ""))}
    if len(wish["peers"]) == 1 and "-R1" not in str(of.get("name", "")):
        of = regroup.renamed(of, terms.token)
    return {**said, "group": of}


def _consumers(there: StreamAssignment, terms: Terms) -> tuple[list[tuple[Op, Said]], bool]:
    """Assignments of the consumers that are to follow the wish of their stream and do not yet;
    whether other consumers are under way."""
    wish, said = wish_of(there.said), there.said
    peers, config = wished_peers(said), said["stream"]
    before = {*origin_of(said)} or {*peers_of(said)}
    replicas = int(config.get("num_replicas") or 1)
    if wish.get("move"):
        all_peers = regroup.moved_peers([one for one in peers_of(said) if one in before], peers)
        follow = regroup.moved_consumers(
            there.consumers.values(), all_peers, replicas, terms.mixed
        )
    else:
        in_parity = config.get("retention", "limits") != "limits"
        grows = not {*peers} <= before
        now = regroup.Scaled(peers, grows, in_parity)
        follow = regroup.scaled_consumers(
            there.consumers.values(), now, terms.mixed, terms.token
        )
    found = []
    waits = any(map(wish_of, there.consumers.values()))
    for one in follow:
        was = there.consumers[one["name"]]
        ends = [peer for peer in peers_of(one) if peer in peers]
        follows = {*wished_peers(was)} <= {*peers} if wish_of(was) else {*peers_of(was)} == {*ends}
        if not follows:
            found.append((Op.ASSIGN_CONSUMER, _wishing(was, one, ends, wish, terms)))
    return found, waits


def _wishing(was: Said, after: Said, peers: list[str], of_stream: Said, terms: Terms) -> Said:
    """A consumer's assignment with a wish for these members. A group of one member gets another
    name at once, a group that is to have one member gets it at the end."""
    before = peers_of(was)
    wish = {
        "created": terms.now,
        "id": terms.token(ID_LENGTH),
        "peers": peers,
        "cluster": of_stream.get("cluster", ""),
        "members": wish_of(was).get("members", before),
    }
    of = {**group_of(was), "desired": wish}
    if len(before) == 1 and len(peers) > 1:
        of["name"] = group_of(after).get("name", of.get("name"))
        of["preferred"] = wish["preferred"] = before[0]
    return {**after, "group": of}
