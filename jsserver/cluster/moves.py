"""Which entries have other members hold what is there: where there are to be more or fewer of them,
or others, where one leaves the cluster, and where one joins it.

Plain data: what is known of members is handed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from jsserver.assets.limits import AccountLimits
from jsserver.cluster import follow, proposals, regroup
from jsserver.cluster.meta import MetaState, Name, Op, StreamAssignment, group_of, peers_of
from jsserver.cluster.proposals import Asked, Said
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import ConsumerConfig, Placement, StreamConfig

Made = tuple[Op, Said]
"""An assignment, and the entry that it is proposed by."""


class Usage(NamedTuple):
    """What an account has used on all members: bytes, and requests of the API."""

    memory: int = 0
    storage: int = 0
    requests: int = 0
    errors: int = 0
    tiers: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """Bytes in memory and in files by tiers (`R1`), where the account has any."""


class Members(Protocol):
    """What is known of the members of the cluster."""

    def place(
        self,
        config: StreamConfig,
        clusters: list[str],
        *,
        existing: Sequence[str] = (),
        leaving: int = 0,
        ignored: Set[str] = frozenset(),
    ) -> tuple[str, list[str]]:
        """The first of the clusters that has room for a stream, and ids of those of its members
        that are to hold it, who is to lead first; ApiError. The rest as `placement.place` has
        it."""

    def online(self, peers: list[str]) -> list[str]:
        """Those of them that can be reached, likewise."""

    def clusters(self) -> list[str]:
        """Those that members are of."""

    def cluster_of(self, peer: str) -> str:
        """That of a member, "" where nobody said it."""

    def tags_of(self, peer: str) -> Sequence[str] | None:
        """Those of a member, in lower case; None: nobody said them."""

    def usage(self, account: str) -> Usage:
        """What the account has used."""

    def heard(self, account: str, subject: str) -> bool:
        """Whether anybody in the account subscribes to it."""

    def limits(self, account: str) -> AccountLimits | None:
        """What the account may have of JetStream; None: it has none."""


class Regrouped(NamedTuple):
    """A stream whose members may be others."""

    said: Said
    consumers: list[Said]
    old: StreamConfig
    new: StreamConfig
    peers: list[str] | None
    """Those that it gets; None: its configuration says so."""

    @property
    def ends_move(self) -> bool:
        """Whether those stay that held it before it began to move."""
        before, replicas = peers_of(self.said), self.old.num_replicas
        return self.peers is not None and self.peers == before[:replicas]


class Moves:
    """Of the leader of a meta group; `state`: of the group."""

    def __init__(self, state: MetaState, members: Members, token: Callable[[int], str]) -> None:
        self._state = state
        self._members = members
        self._token = token

    def asks(self, name: str, asked: Asked) -> str:
        """On which subject the leader of an asset is to be asked before a request is handled, as
        other members may have to hold it; "": on none."""
        args, account = asked.args, asked.account
        if name == "ACCOUNT.STREAM.MOVE":
            account, args = args[0], args[1:]
        there = self._state.streams.get(account, {}).get(args[0]) if args else None
        if there is None:
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

    # ---- what is asked for

    def regroup(
        self, now: Regrouped, asked: Asked, info: Said | None
    ) -> tuple[Said, list[Said]]:
        """The assignments of a stream and of those of its consumers that follow; ApiError."""
        old, new, before = now.old, now.new, peers_of(now.said)
        moves = now.peers is not None or (
            new.placement is not None and old.placement != new.placement
        )
        scales = old.num_replicas != new.num_replicas
        if not moves and not scales:
            return proposals.unpreferred(now.said), []
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
            return regroup.moved_stream(now.said, peers), consumers
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

    def consumer(
        self,
        said: Said,
        of_stream: Said | None,
        stream: StreamConfig,
        config: ConsumerConfig,
        info: Said | None,
    ) -> Said:
        """The assignment of a consumer that is to have as many members as this configuration says;
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

        after = count(config.num_replicas)
        if count(old.get("num_replicas") or 0) == after:
            return said
        return regroup.scaled_consumer(
            said, held, after, regroup.leader(info), _mixed, self._token
        )

    def to(
        self, config: StreamConfig, peers: list[str], tags: list[str], cluster: str
    ) -> list[str]:
        """Those that hold a stream while its first member goes; where no other one of the cluster
        can take its place, all of another cluster do. ApiError."""
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

    # ---- members that go and come

    def without(self, there: StreamAssignment, peer: str) -> tuple[list[Made], bool]:
        """By what a member holds a stream no more, and whether another one takes its place;
        ApiError where the member does not hold the stream."""
        before = there.peers
        if peer not in before:
            raise errcodes.CLUSTER_PEER_NOT_MEMBER()
        stay = [one for one in before if one != peer]
        cluster = str(group_of(there.said).get("cluster", ""))
        peers, replaced = stay, False
        with suppress(ApiError, follow.Unsupported):
            config = follow.stream(there.said).config
            as_many = msgspec.structs.replace(config, num_replicas=len(before))
            _, peers = self._members.place(as_many, [cluster], existing=stay, ignored={peer})
            replaced = True
        return (_held_by(there, peers, peer) if peers else []), replaced

    def with_one_more(self, there: StreamAssignment, peer: str) -> list[Made]:
        """By what a new member holds a stream that had too few; nothing where it had enough."""
        wanted = there.said["stream"].get("num_replicas") or 1
        peers = [*there.peers, peer]
        alike = group_of(there.said).get("cluster") == self._members.cluster_of(peer)
        lacks = peer not in there.peers and len(peers) <= wanted
        if not lacks or not alike:
            return []
        return _held_by(there, peers, "")


def _held_by(there: StreamAssignment, peers: list[str], gone: str) -> list[Made]:
    said = regroup.replaced_stream(there.said, peers)
    follow_it, end = regroup.replaced_consumers(there.consumers.values(), peers, gone)
    return [
        (Op.ASSIGN_STREAM, said),
        *((Op.ASSIGN_CONSUMER, one) for one in follow_it),
        *((Op.REMOVE_CONSUMER, one) for one in end),
    ]


def clusters_for(config: StreamConfig, asked: Asked) -> list[str]:
    """Where a new stream may be: what its configuration names counts alone."""
    placement = config.placement
    return [placement.cluster] if placement is not None and placement.cluster else asked.clusters


def _mixed(peers: list[str]) -> list[str]:
    return random.sample(peers, len(peers))
