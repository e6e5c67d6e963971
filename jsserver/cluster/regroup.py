"""Chooses the members of a stream's and its consumers' groups when their number or place changes.

Pure functions over assignments, with nats-server's rules, so that either server decides alike as
meta leader. The members carry out by themselves what is assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from jsserver.cluster.meta import group_of, peers_of
from jsserver.cluster.proposals import Said, group_name
from jsserver.text.identity import short_hash

Token = Callable[[int], str]
Mixed = Callable[[list[str]], list[str]]
"""Shuffles peers."""


class _Counted(msgspec.Struct):
    num_replicas: int = 0


class _Sized(msgspec.Struct):
    """The replicas in a request: for a stream at the top, for a consumer in `config`."""

    num_replicas: int = 0
    config: _Counted = msgspec.field(default_factory=_Counted)


class Scaled(NamedTuple):
    """A stream with another number of replicas."""

    peers: list[str]
    grows: bool
    in_parity: bool
    """Whether each consumer gets as many members as the stream, because the stream's retention
    removes messages by what its consumers acknowledge."""


def replicas_of(stream: Said, said: Said) -> int:
    """How many members a stream's or its consumer's configuration asks for; `said` is the
    assignment of the asset, `stream` the one of its stream."""
    config = stream["stream"]
    of_stream = int(config.get("num_replicas") or 1)
    if said is stream:
        return of_stream
    wanted = said["consumer"]
    return consumer_replicas(
        int(wanted.get("num_replicas") or 0),
        of_stream,
        durable=wanted.get("durable_name") or "",
        retention=config.get("retention") or "limits",
    )


def replicas_in(body: bytes) -> int:
    """How many replicas a request asks for; 0 where the body does not say or is no JSON."""
    try:
        asked = msgspec.json.decode(body, type=_Sized)
    except (msgspec.DecodeError, RecursionError):
        return 0
    return asked.num_replicas or asked.config.num_replicas


def consumer_replicas(wanted: int, of_stream: int, *, durable: str, retention: str) -> int:
    """How many members a consumer gets: `wanted` of them. With 0, as many as its stream where the
    consumer is durable or the retention is not `limits`, and one otherwise."""
    shared = bool(durable) or retention != "limits"
    return wanted or (of_stream if shared else 1)


def leader(info: Said | None) -> str:
    """The id of an asset's leader by the asset's own INFO answer; "" where no answer came or the
    asset has no leader."""
    name = _cluster(info).get("leader")
    return short_hash(name) if isinstance(name, str) and name else ""


def progress(peers: list[str], info: Said | None) -> str:
    """How far the move of a stream is, in nats-server's words; `info`: its INFO answer, if one
    came."""
    if info is None:
        return "error retrieving info: timeout while waiting for response"
    found = _cluster(info).get("replicas") or []
    current = bool(leader(info)) + sum(bool(one.get("current")) for one in found)
    lag = sum(int(one.get("lag") or 0) for one in found)
    return f"total peers: {len(peers)}, current peers: {current}, combined lag: {lag}"


def _cluster(info: Said | None) -> Said:
    found = None if info is None else info.get("cluster")
    return found if isinstance(found, dict) else {}


def kept_peers(peers: list[str], leads: str, online: Iterable[str], replicas: int) -> list[str]:
    """The members that stay in a group that loses some: the leader first, then members that are
    online."""
    there = {*online}
    first = [leads] if leads in peers else []
    return [*first, *(peer for peer in peers if peer in there and peer != leads)][:replicas]


def scaled_stream(said: Said, now: Scaled, token: Token) -> Said:
    """A stream's assignment with more or fewer members. A stream of one member runs without a
    group, so a change from or to one member gives the group a new name."""
    before = peers_of(said)
    of = {**group_of(said), "peers": now.peers}
    of.pop("scale_up", None)
    if now.grows:
        of["preferred"] = of.get("preferred") or before[0]
        of["scale_up"] = True
    else:
        of.pop("preferred", None)
    return {**said, "group": _named(of, before, token)}


def scaled_consumers(
    consumers: Iterable[Said], now: Scaled, mixed: Mixed, token: Token
) -> list[Said]:
    """The assignments of the consumers whose members change with their stream's."""
    found = []
    for said in consumers:
        before, config = peers_of(said), said["consumer"]
        follows = not config.get("num_replicas") and (
            config.get("durable_name") or config.get("name")
        )
        if follows or len(before) > len(now.peers) or now.in_parity:
            peers = now.peers
        elif not now.grows and not {*before} <= {*now.peers}:
            peers = mixed(now.peers)[: len(before)]
        else:
            continue
        of = {**group_of(said), "peers": peers}
        of.pop("preferred", None)
        if len(before) == 1 and now.grows:
            of["preferred"] = before[0]
        replicas = config.get("num_replicas") and len(peers)
        config = {**config, "num_replicas": replicas or 0}
        found.append({**said, "consumer": config, "group": _named(of, before, token)})
    return found


def scaled_consumer(
    said: Said, of_stream: list[str], replicas: int, leads: str, mixed: Mixed, token: Token
) -> Said:
    """A consumer's assignment with `replicas` of its stream's members `of_stream`."""
    before = peers_of(said)
    of = {**group_of(said)}
    of.pop("scale_up", None)
    if replicas > len(before):
        more = [peer for peer in mixed(of_stream) if peer not in before]
        peers = [*before, *more][:replicas]
        of["scale_up"] = True
    else:
        first = [leads] if leads in before else []
        peers = [*first, *(peer for peer in before if peer not in first)][:replicas]
    of |= {"peers": peers, "preferred": leads if leads in peers else peers[0]}
    return {**said, "group": _named(of, before, token)}


def moved_peers(before: list[str], after: list[str]) -> list[str]:
    """The members while a stream moves: first the ones that leave, then the ones of after."""
    return [*(peer for peer in before if peer not in after), *after]


def moved(said: Said, peers: list[str]) -> Said:
    """An asset's assignment while the asset moves, or once its move is cancelled."""
    return _with_peers(said, peers, "scale_up")


def moved_consumers(
    consumers: Iterable[Said], peers: list[str], replicas: int, mixed: Mixed
) -> list[Said]:
    """The assignments of the consumers of a stream that moves to the last `replicas` of `peers`.
    Each consumer keeps its number of members, and its present members where it can."""
    found = []
    for said in consumers:
        before = peers_of(said)
        wanted = said["consumer"].get("num_replicas") or 0
        shared = said["consumer"].get("durable_name") or len(before) > 1
        count = min(wanted or (replicas if shared else 1), replicas)
        ends = mixed(peers[-replicas:])
        ends.sort(key=lambda peer: peer in before)
        ends = ends[replicas - count :]
        stays = len(peers) == replicas
        after = ends if stays else moved_peers(before, ends)
        of = {**group_of(said), "peers": after}
        if of.get("preferred") not in after:
            of.pop("preferred", None)
        found.append({**said, "group": of})
    return found


def replaced(said: Said, peers: list[str]) -> Said:
    """An asset's assignment after a member was removed or replaced."""
    return _with_peers(said, peers, "preferred")


def replaced_consumers(
    consumers: Iterable[Said], peers: list[str], gone: str
) -> tuple[list[Said], list[Said]]:
    """The consumers of a stream whose member `gone` was removed or replaced, the stream having
    `peers` now: assignments of those that follow the stream, and of those that end with `gone`."""
    follow, end = [], []
    for said in consumers:
        before = peers_of(said)
        if said["consumer"].get("durable_name") or len(before) > 1:
            follow.append(replaced(said, peers))
        elif gone in before:
            end.append(said)
    return follow, end


def _with_peers(said: Said, peers: list[str], without: str) -> Said:
    """The assignment with these members, its group without a wish and the field `without`."""
    of = {**group_of(said), "peers": peers}
    for key in (without, "desired"):
        of.pop(key, None)
    return {**said, "group": of}


def _named(of: Said, before: list[str], token: Token) -> Said:
    """The group with a new name, if it changes from or to one member."""
    peers = of["peers"]
    if len(peers) == len(before) or 1 not in (len(peers), len(before)):
        return of
    return {**of, "name": name_for(of, peers, token)}


def name_for(of: Said, peers: list[str], token: Token) -> str:
    """Another name for the group, with these members."""
    kind, storage = str(of.get("name", ""))[:1], str(of.get("store", ""))
    return group_name(kind, len(peers), storage, token(8))
