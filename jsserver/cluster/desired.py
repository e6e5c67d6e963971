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
from jsserver.wire.errors import ErrorTemplate

MOVE_IN_PROGRESS = ErrorTemplate(400, 10124, "stream move already in progress")
RECONFIGURE_IN_PROGRESS = ErrorTemplate(400, 10226, "stream reconfiguration already in progress")
NO_RECONFIGURE = ErrorTemplate(400, 10129, "stream reconfiguration not in progress")
"""Errors of nats-server 2.15."""
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


def targets(said: Said) -> list[str]:
    """The members that the group of an asset is to have in the end."""
    return wished_peers(said) or peers_of(said)


def peers_before(said: Said) -> list[str]:
    """The members that a stream had before the wish; none where there is no wish."""
    return peers_of({"group": wish_of(said).get("origin")})


def goes_back_to(said: Said) -> Said:
    """What a stream goes back to if the change of its members is cancelled: `peers`, `cluster`,
    `replicas` and `placement` before the change. Empty where its members do not change."""
    wish = wish_of(said)
    if wish:
        found = wish.get("origin")
        return found if isinstance(found, dict) else {}
    config, peers = said["stream"], peers_of(said)
    replicas = int(config.get("num_replicas") or 1)
    if len(peers) <= replicas:
        return {}
    before = {"peers": peers[:replicas], "cluster": group_of(said).get("cluster", "")}
    return {**before, "replicas": replicas, "placement": config.get("placement")}


def is_moving(said: Said) -> bool:
    """Whether a stream moves to other servers, and does not only get more members or fewer."""
    wish = wish_of(said)
    return bool(wish.get("move")) if wish else bool(goes_back_to(said))


# ---- new wishes, by the leader of the meta group


class Terms(NamedTuple):
    """What new assignments need."""

    now: str
    """The time, as an assignment has it."""
    token: regroup.Token
    mixed: regroup.Mixed


class Target(NamedTuple):
    """What the members of an asset's group are to be."""

    peers: list[str]
    cluster: str
    scale_down: bool = False
    """Whether the leader of the asset is to choose among `peers`."""


def wishing(said: Said, target: Target, terms: Terms) -> Said:
    """The assignment of an asset with a wish; an open wish gives way to the new one. A group of one
    member that gets more has another name: on one server the asset runs without a group."""
    of, before, peers = group_of(said), wish_of(said), peers_of(said)
    wish: Said = {
        "created": before.get("created", terms.now),
        "id": terms.token(ID_LENGTH),
        "peers": target.peers,
        "cluster": target.cluster,
    }
    kept = ("term", "move", "members", "origin") if before else ()
    wish |= {key: before[key] for key in kept if key in before}
    if not before:
        wish["members"] = peers
    removed = [peer for peer in before.get("removed", []) if peer not in target.peers]
    if removed:
        wish["removed"] = removed
    preferred = peers[0] if len(peers) == 1 else of.get("preferred", "")
    if preferred in target.peers or len(peers) == 1:
        wish["preferred"] = preferred
    if target.scale_down:
        wish["scale_down"] = True
    of = of | {"desired": wish}
    if not before:
        of.pop("scale_up", None)
        if len(peers) == 1 < len(target.peers):
            of["name"] = regroup.name_for(of, target.peers, terms.token)
    return {**said, "group": of}


def stream_wishing(said: Said, target: Target, terms: Terms, *, moves: bool) -> Said:
    """The same of a stream; its wish says what the stream can go back to. `moves`: whether the
    stream goes to other servers."""
    before = wish_of(said)
    found = wishing(said, target, terms)
    wish = group_of(found)["desired"]
    if moves:
        wish["move"] = True
    if "origin" not in wish:
        config = said["stream"]
        wish["origin"] = {
            "peers": targets(said),
            "cluster": (before or group_of(said)).get("cluster", ""),
            "replicas": int(config.get("num_replicas") or 1),
        }
        if config.get("placement"):
            wish["origin"]["placement"] = config["placement"]
    return found


def taken_back(said: Said, terms: Terms) -> Said:
    """The assignment of a stream that is to have its former members again: those of `origin`."""
    before = goes_back_to(said)
    target = Target(before["peers"], before.get("cluster", ""))
    found = wishing(said, target, terms)
    wish = group_of(found)["desired"]
    wish |= {"move": is_moving(said), "cancel_move": True}
    if not wish_of(said):
        wish |= {"origin": before, "members": before["peers"]}
    return found


def without(said: Said, peer: str) -> Said:
    """The assignment with a wish, of a group that does without a member from now on, as the server
    is gone. A group that has no other member begins anew with the wished ones."""
    of, wish = group_of(said), wish_of(said)
    wished = [one for one in wished_peers(said) if one != peer]
    peers = [one for one in peers_of(said) if one != peer]
    members = [one for one in wish.get("members", []) if one != peer] or peers
    removed = [one for one in wish.get("removed", []) if one != peer] + [peer]
    if not peers:
        peers = members = wished
    wish = wish | {"peers": wished, "members": members, "removed": removed}
    of = of | {"peers": peers, "desired": wish}
    for one in (of, wish):
        if one.get("preferred") == peer:
            del one["preferred"]
    return {**said, "group": of}


def open_peers(said: Said) -> list[str]:
    """The members of a stream that a new consumer may be placed on. While the stream moves, these
    are members that hold its data: the wished ones, once they are enough, or the former ones."""
    peers, wish = peers_of(said), wish_of(said)
    members = wish.get("members")
    if not wish or wish.get("scale_down") or members is None:
        return peers
    wished = wished_peers(said)
    if {*wished} <= {*peers} and len({*wished} & {*members}) > len(wished) // 2:
        return [peer for peer in peers if peer in wished]
    before = peers_before(said) if wish.get("move") else []
    return [peer for peer in peers if not before or peer in before]


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
    of, peers = group_of(said), report.meta_peers
    if peers is not None and consumer and not {*peers} <= {*peers_of(said), *there.peers}:
        return []  # the stream is not there yet
    if peers is not None and not consumer:
        peers = [*peers, *_hosts(there, peers)]
    if report.scale_down_peers is not None:
        wish["peers"] = report.scale_down_peers
        wish.pop("scale_down", None)
    elif report.match and peers == report.meta_peers:
        follow, wait = ([], False) if consumer else _consumers(there, terms)
        return follow if follow or wait else [(op, _ended(said, wish, terms))]
    elif peers is not None:
        known = {*wish.get("members", []), *report.members}
        wish["members"] = [peer for peer in peers if peer in known]
        if not {*peers} <= {*peers_of(said)}:
            of = of | {"scale_up": True}
        of = of | {"peers": peers}
    elif wish["term"] == wish_of(said).get("term"):
        return [] if consumer else _consumers(there, terms)[0]
    return [(op, {**said, "group": of | {"desired": wish}})]


def _hosts(there: StreamAssignment, stay: list[str]) -> list[str]:
    """The members that a stream lets go too early: one of its consumers, which its leader may not
    know yet, is still there. `stay`: the other members."""
    held = {peer for one in there.consumers.values() for peer in peers_of(one)}
    return [peer for peer in there.peers if peer in held and peer not in stay]


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
    if len(wish["peers"]) == 1:
        of["name"] = regroup.name_for(of, wish["peers"], terms.token)
    return {**said, "group": of}


def _consumers(there: StreamAssignment, terms: Terms) -> tuple[list[tuple[Op, Said]], bool]:
    """Assignments of the consumers that are to follow the wish of their stream and do not yet;
    whether other consumers are under way."""
    wish, said = wish_of(there.said), there.said
    peers, config = wished_peers(said), said["stream"]
    before = {*peers_before(said)} or {*peers_of(said)}
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
