"""Entries that change the members of assets: on a change of replicas or placement, and when a
server leaves or joins the cluster.

No clock or network: facts about members are handed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from jsserver.assets.limits import AccountLimits
from jsserver.cluster import desired, follow, proposals, regroup
from jsserver.cluster.desired import Target, Terms, wish_of
from jsserver.cluster.meta import MetaState, Name, Op, StreamAssignment, group_of, peers_of
from jsserver.cluster.proposals import Asked, Said
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import ConsumerConfig, Placement, StreamConfig, Wire

Made = tuple[Op, Said]
"""An assignment, and the operation of the entry that proposes it."""


class MoveRequest(Wire):
    """ACCOUNT.STREAM.MOVE. `cluster` and `domain` are the server's, which its name says, too."""

    server: str = ""
    cluster: str = ""
    domain: str = ""
    tags: list[str] = msgspec.field(default_factory=list)


class Usage(NamedTuple):
    """What an account uses on all members: bytes, and counts of API requests and of API errors."""

    memory: int = 0
    storage: int = 0
    requests: int = 0
    errors: int = 0
    tiers: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """By tier (`R1`), bytes in memory and in files, where the account has tiers."""


class Members(Protocol):
    """Facts about the members of the cluster."""

    def place(
        self,
        config: StreamConfig,
        clusters: list[str],
        *,
        existing: Sequence[str] = (),
        leaving: int = 0,
        ignored: Set[str] = frozenset(),
    ) -> tuple[str, list[str]]:
        """The first of the clusters that has room for a stream, and the ids of its members that are
        to hold the stream, the one that leads first in front; ApiError. The other arguments are
        those of `placement.place`."""

    def online(self, peers: list[str]) -> list[str]:
        """The peers that are online, in random order."""

    def clusters(self) -> list[str]:
        """The names of the members' clusters."""

    def cluster_of(self, peer: str) -> str:
        """A member's cluster, "" where unknown."""

    def tags_of(self, peer: str) -> Sequence[str] | None:
        """A member's tags in lower case; None: unknown."""

    def usage(self, account: str) -> Usage:
        """What the account uses on all members."""

    def heard(self, account: str, subject: str) -> bool:
        """Whether anybody in the account subscribes to a subject."""

    def limits(self, account: str) -> AccountLimits | None:
        """The account's limits; None: the account has no JetStream."""

    def by_wishes(self) -> bool:
        """Whether groups get other members by wishes: some member is a nats-server 2.15, and no
        member is known to be an older one."""


class Regrouped(NamedTuple):
    """A stream before and after a change that may change its members."""

    said: Said
    consumers: list[Said]
    old: StreamConfig
    new: StreamConfig
    peers: list[str] | None
    """The members it is to have; None: chosen by the new configuration."""

    @property
    def ends_move(self) -> bool:
        """Whether the change cancels a move: the old members stay."""
        before, replicas = peers_of(self.said), self.old.num_replicas
        return self.peers is not None and self.peers == before[:replicas]


class Moves:
    """Changes of members for the meta leader; `state`: the meta group's."""

    def __init__(
        self,
        state: MetaState,
        members: Members,
        now: Callable[[], int],
        token: Callable[[int], str],
    ) -> None:
        """`now`: ns since the epoch."""
        self._state = state
        self._members = members
        self._now = now
        self._token = token

    @property
    def terms(self) -> Terms:
        """What wishes of this moment need."""
        return Terms(rfc3339_nano(self._now()), self._token, _mixed)

    def wishes(self, said: Said) -> bool:
        """Whether the asset gets other members by a wish."""
        return bool(wish_of(said)) or self._members.by_wishes()

    def asks(self, name: str, asked: Asked) -> str:
        """The subject on which to ask the asset's leader for its INFO before a request is handled,
        because the request may change the asset's members; "": no need to ask."""
        args, account = asked.args, asked.account
        if name == "ACCOUNT.STREAM.MOVE":
            account, args = args[0], args[1:]
        there = self._state.streams.get(account, {}).get(args[0]) if args else None
        if there is None or self.wishes(there.said):
            return ""
        if name in ("STREAM.UPDATE", "ACCOUNT.STREAM.MOVE"):
            now = regroup.replicas_in(asked.body) or there.said["stream"].get("num_replicas") or 1
            return Name(account, args[0]).info_subject if len(there.peers) != now else ""
        if name not in ("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE") or len(args) < 2:
            return ""
        said = there.consumers.get(args[1])
        if said is None or regroup.replicas_in(asked.body) == said["consumer"].get("num_replicas"):
            return ""
        return Name(account, args[0], args[1]).info_subject

    def places(self, of_stream: Said, config: ConsumerConfig) -> list[str]:
        """Ids of the members for a new consumer, members that are online first; ApiError."""
        peers = desired.open_peers(of_stream)
        online = self._members.online(peers)
        if not online:
            raise errcodes.INSUFFICIENT_RESOURCES()
        replicas = regroup.consumer_replicas(
            config.num_replicas,
            len(peers),
            durable=config.durable_name,
            retention=of_stream["stream"].get("retention") or "limits",
        )
        first = online + [peer for peer in peers if peer not in online]
        return first[:replicas]

    # ---- changes by requests

    def regroup(
        self, now: Regrouped, asked: Asked, info: Said | None
    ) -> tuple[Said, list[Said]]:
        """The stream's new assignment, and those of its consumers whose members change too;
        ApiError."""
        old, new, before = now.old, now.new, peers_of(now.said)
        moves = now.peers is not None or (
            new.placement is not None and old.placement != new.placement
        )
        scales = old.num_replicas != new.num_replicas
        if not moves and not scales:
            return proposals.unpreferred(now.said), []
        if self.wishes(now.said):
            return self._wished(now, asked, moves=moves), []
        if moves and not now.ends_move and len(before) != old.num_replicas:
            raise errcodes.STREAM_MOVE_IN_PROGRESS(msg=regroup.progress(before, info))
        if moves and scales:
            raise errcodes.STREAM_MOVE_AND_SCALE()
        if moves:
            peers = now.peers
            if peers is None:
                _, after = self._members.place(new, clusters_for(new, asked))
                peers = regroup.moved_peers(before, after)
            consumers = regroup.moved_consumers(now.consumers, peers, new.num_replicas, _mixed)
            return regroup.moved(now.said, peers), consumers
        grows = new.num_replicas > len(before)
        if grows:
            cluster = str(group_of(now.said).get("cluster") or asked.cluster)
            _, peers = self._members.place(new, [cluster], existing=before)
        else:
            online = self._members.online(before)
            peers = regroup.kept_peers(before, regroup.leader(info), online, new.num_replicas)
            if not peers:
                raise errcodes.STREAM_OFFLINE()
        scaled = regroup.Scaled(peers, grows, new.retention != "limits")
        consumers = regroup.scaled_consumers(now.consumers, scaled, _mixed, self._token)
        return regroup.scaled_stream(now.said, scaled, self._token), consumers

    def _wished(self, now: Regrouped, asked: Asked, *, moves: bool) -> Said:
        """The same by a wish. The consumers get theirs when the stream's leader reports a step."""
        said, new, held = now.said, now.new, desired.targets(now.said)
        cluster = str((wish_of(said) or group_of(said)).get("cluster") or asked.cluster)
        if moves:
            if new.num_replicas != now.old.num_replicas or new.retention != now.old.retention:
                raise errcodes.STREAM_MOVE_AND_SCALE()
            if desired.is_moving(said):
                raise desired.MOVE_IN_PROGRESS()
            if wish_of(said):
                raise desired.RECONFIGURE_IN_PROGRESS()
            peers = now.peers and now.peers[-new.num_replicas :]
            cluster = self._members.cluster_of(peers[0]) if peers else ""
            if not peers:
                cluster, peers = self._members.place(new, clusters_for(new, asked))
            target = Target(peers, cluster)
        elif desired.is_moving(said):
            raise desired.MOVE_IN_PROGRESS()
        elif new.num_replicas > len(held):
            target = Target(self._members.place(new, [cluster], existing=held)[1], cluster)
        else:
            target = Target(held, cluster, scale_down=True)
        return desired.stream_wishing(said, target, self.terms, moves=moves)

    def consumer(
        self,
        said: Said,
        of_stream: Said | None,
        stream: StreamConfig,
        config: ConsumerConfig,
        info: Said | None,
    ) -> Said:
        """The consumer's assignment with as many members as its new configuration says;
        ApiError."""
        held = [] if of_stream is None else peers_of(of_stream)
        old = said["consumer"]

        def count(replicas: int) -> int:
            return regroup.consumer_replicas(
                replicas,
                stream.num_replicas,
                durable=config.durable_name,
                retention=stream.retention,
            )

        before, after = count(old.get("num_replicas") or 0), count(config.num_replicas)
        if before == after:
            return said
        if self.wishes(said):
            peers, cluster = peers_of(said), str(group_of(said).get("cluster", ""))
            if after < before:
                target = Target(peers, cluster, scale_down=True)
            else:
                more = [peer for peer in _mixed(held) if peer not in peers]
                target = Target([*peers, *more][:after], cluster)
            return desired.wishing(said, target, self.terms)
        return regroup.scaled_consumer(
            said, held, after, regroup.leader(info), _mixed, self._token
        )

    def to(
        self, config: StreamConfig, peers: list[str], tags: list[str], cluster: str
    ) -> list[str]:
        """The members of a stream while its first member leaves. Another server of the cluster
        replaces that member; where there is none, another cluster takes the whole stream.
        ApiError."""
        placement = config.placement or Placement()
        placement = msgspec.structs.replace(placement, tags=[*placement.tags, *tags])
        more = config.num_replicas + 1
        wanted = msgspec.structs.replace(config, placement=placement, num_replicas=more)
        try:
            return self._members.place(wanted, [cluster], existing=peers, leaving=1)[1]
        except ApiError:
            others = [name for name in self._members.clusters() if name != cluster]
            if not others:
                raise
        wanted = msgspec.structs.replace(wanted, num_replicas=config.num_replicas)
        return [*peers, *self._members.place(wanted, others)[1]]

    # ---- servers that leave and join

    def without(self, there: StreamAssignment, peer: str) -> tuple[list[Made], bool]:
        """The assignments once `peer` is no member of a stream any more, and whether another server
        replaces it; ApiError where `peer` is not a member."""
        if self.wishes(there.said):
            return self._wished_without(there, peer, at_once=True)
        before = there.peers
        if peer not in before:
            raise errcodes.CLUSTER_PEER_NOT_MEMBER()
        stay = [one for one in before if one != peer]
        cluster = str(group_of(there.said).get("cluster", ""))
        peers, replaced = stay, False
        with suppress(ApiError, follow.Unsupported):
            peers, replaced = self._with(there.said, stay, peer, len(before), cluster), True
        return (_held_by(there, peers, peer) if peers else []), replaced

    def _with(
        self, said: Said, stay: list[str], ignored: str, count: int, cluster: str
    ) -> list[str]:
        """As many members for a stream, those that stay in front; ApiError, Unsupported."""
        config = msgspec.structs.replace(follow.stream(said).config, num_replicas=count)
        return self._members.place(config, [cluster], existing=stay, ignored={ignored})[1]

    def _wished_without(
        self, there: StreamAssignment, peer: str, *, at_once: bool
    ) -> tuple[list[Made], bool]:
        """The assignments with wishes by which a stream and its consumers leave a server, and
        whether another server replaces that; ApiError where `peer` is not a member. `at_once`: the
        server is no member from now on, not only once another one has all."""
        said, held = there.said, desired.targets(there.said)
        if peer not in {*peers_of(said), *held}:
            raise errcodes.CLUSTER_PEER_NOT_MEMBER()
        cluster = str((wish_of(said) or group_of(said)).get("cluster", ""))
        peers, replaced = [one for one in held if one != peer], False
        with suppress(ApiError, follow.Unsupported):
            peers, replaced = self._with(said, peers, peer, len(held), cluster), True
        if not peers:
            return [], replaced
        scale_down = bool(wish_of(said).get("scale_down"))
        after = desired.wishing(said, Target(peers, cluster, scale_down), self.terms)
        if not at_once:
            return [(Op.ASSIGN_STREAM, after)], replaced
        made: list[Made] = [(Op.ASSIGN_STREAM, desired.without(after, peer))]
        for one in there.consumers.values():
            if peer in {*peers_of(one), *desired.targets(one)}:
                made.append(self._consumer_without(one, peers, peer))
        return made, replaced

    def _consumer_without(self, said: Said, of_stream: list[str], peer: str) -> Made:
        """How a consumer does without a member whose stream has these members."""
        if peers_of(said) == [peer] and not said["consumer"].get("durable_name"):
            return Op.REMOVE_CONSUMER, said
        held = desired.targets(said)
        stay = [one for one in held if one != peer and one in of_stream]
        more = [one for one in _mixed(of_stream) if one not in stay]
        target = Target([*stay, *more][: len(held)], str(group_of(said).get("cluster", "")))
        return Op.ASSIGN_CONSUMER, desired.without(
            desired.wishing(said, target, self.terms), peer
        )

    def consumer_off(
        self, there: StreamAssignment, name: str, peer: str, *, at_once: bool
    ) -> list[Made]:
        """The assignment of a consumer that leaves a server for another one of its stream's;
        ApiError where `peer` is not a member, or nothing can take its place. `at_once`: the server
        is no member from now on, not only once the other one has all."""
        said = there.consumers[name]
        before, held = peers_of(said), desired.targets(said)
        if peer not in {*before, *held}:
            raise errcodes.CLUSTER_PEER_NOT_MEMBER()
        config, of_stream = there.said["stream"], desired.targets(there.said)
        count = regroup.replicas_of(there.said, said)
        if config.get("retention", "limits") != "limits":
            count = int(config.get("num_replicas") or 1)
        stay = [one for one in held if one != peer]
        free = [one for one in _mixed(of_stream) if one != peer and one not in stay]
        spare = (self._members.online(free) or free)[:1] if len(stay) < len(held) else []
        peers = [*stay, *spare]
        by_wish = self.wishes(said)
        if len(of_stream) < 2 or len(peers) < count or (not by_wish and len(before) > count):
            raise errcodes.PEER_REMAP()
        if by_wish:
            cluster = str(group_of(said).get("cluster", ""))
            scale_down = bool(wish_of(said).get("scale_down"))
            after = desired.wishing(said, Target(peers, cluster, scale_down), self.terms)
            after = desired.without(after, peer) if at_once else after
        elif at_once:
            after = regroup.replaced(said, peers)
        else:
            after = regroup.moved(said, regroup.moved_peers(before, peers))
        return [(Op.ASSIGN_CONSUMER, after)]

    def evacuated(self, there: StreamAssignment, peer: str) -> list[Made]:
        """The assignments while a stream and its consumers move from `peer` to another server of
        the cluster; none where they do already. ApiError where `peer` is not a member, or no
        other server can take its place."""
        if self.wishes(there.said):
            made, replaced = self._wished_without(there, peer, at_once=False)
            if not replaced:
                raise errcodes.PEER_REMAP()
            return made
        before = there.peers
        if peer not in before:
            raise errcodes.CLUSTER_PEER_NOT_MEMBER()
        try:
            config = follow.stream(there.said).config
            replicas = max(config.num_replicas, 1)
            if len(before) > replicas:
                if peer in before[:-replicas]:
                    return []
                raise errcodes.PEER_REMAP()
            more = msgspec.structs.replace(config, num_replicas=replicas + 1)
            cluster = str(group_of(there.said).get("cluster", ""))
            existing = [peer, *(one for one in before if one != peer)]
            _, peers = self._members.place(more, [cluster], existing=existing, leaving=1)
        except (ApiError, follow.Unsupported):
            raise errcodes.PEER_REMAP() from None
        consumers = there.consumers.values()
        moved = regroup.moved_consumers(consumers, peers, replicas, _mixed)
        said = regroup.moved(there.said, peers)
        return [(Op.UPDATE_STREAM, said), *((Op.ASSIGN_CONSUMER, one) for one in moved)]

    def with_one_more(self, there: StreamAssignment, peer: str) -> list[Made]:
        """The assignments with `peer` as a further member of a stream that has too few; none where
        the stream has enough."""
        wanted = there.said["stream"].get("num_replicas") or 1
        held = desired.targets(there.said)
        peers, cluster = [*held, peer], self._members.cluster_of(peer)
        lacks = peer not in held and len(peers) <= wanted
        if not lacks or group_of(there.said).get("cluster") != cluster:
            return []
        if self.wishes(there.said):
            target = Target(peers, cluster)
            return [(Op.ASSIGN_STREAM, desired.wishing(there.said, target, self.terms))]
        return _held_by(there, peers, "")


def _held_by(there: StreamAssignment, peers: list[str], gone: str) -> list[Made]:
    said = regroup.replaced(there.said, peers)
    follow_it, end = regroup.replaced_consumers(there.consumers.values(), peers, gone)
    return [
        (Op.ASSIGN_STREAM, said),
        *((Op.ASSIGN_CONSUMER, one) for one in follow_it),
        *((Op.REMOVE_CONSUMER, one) for one in end),
    ]


def clusters_for(config: StreamConfig, asked: Asked) -> list[str]:
    """The clusters that a new stream may be placed in: the one its configuration names, or those of
    the request."""
    placement = config.placement
    return [placement.cluster] if placement is not None and placement.cluster else asked.clusters


def _mixed(peers: list[str]) -> list[str]:
    return random.sample(peers, len(peers))
