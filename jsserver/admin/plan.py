"""Plans which leaders and replicas of a cluster move: off a server, or for an even load.

Pure functions over plain data, without a connection. The meta leader decides where a replica goes;
a plan predicts that by the placement rules, which are the same on all servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jsserver.cluster.placement import Load, Member, Reasons, Room, Rules, Wanted, place


class Server(NamedTuple):
    """A server that can hold streams, or holds some."""

    name: str
    cluster: str = ""
    tags: Sequence[str] = ()
    """In lower case."""
    reachable: bool = True
    room: Room | None = None


class Consumer(NamedTuple):
    """A consumer; `leader`: "" without a leader."""

    name: str
    holders: tuple[str, ...]
    leader: str


class Stream(NamedTuple):
    """A stream and its members; `leader`: "" without a leader."""

    account: str
    name: str
    cluster: str
    replicas: int
    holders: tuple[str, ...]
    leader: str
    size: int = 0
    """Bytes of the stream's messages."""
    in_memory: bool = False
    max_bytes: int = 0
    tags: tuple[str, ...] = ()
    """The tags of the stream's placement."""
    consumers: tuple[Consumer, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether the stream is moving already: it has old and new members."""
        return len(self.holders) > self.replicas


class Cluster(NamedTuple):
    """All servers and streams of the cluster."""

    servers: Mapping[str, Server]
    streams: Sequence[Stream]
    meta_leader: str = ""
    rules: Rules = Rules()


class Lead(NamedTuple):
    """A change of leader: of a stream, of a consumer, or of the meta group if both names are
    empty."""

    account: str
    stream: str
    consumer: str
    source: str
    target: str


class Move(NamedTuple):
    """A move of a stream's replica, and of its consumers' replicas with it, to another server."""

    account: str
    stream: str
    source: str
    target: str
    size: int


class Stuck(NamedTuple):
    """A replica that cannot leave its server, and why."""

    account: str
    stream: str
    reason: str


class Plan(NamedTuple):
    """Steps to take: first the changes of leaders, then the moves; and what cannot move."""

    leads: list[Lead]
    moves: list[Move]
    stuck: list[Stuck]


def drain(cluster: Cluster, name: str) -> Plan:
    """The plan that moves all leaders and replicas off a server."""
    leaders = _Leaders(cluster)
    leads = [Lead("", "", "", name, to) for to in leaders.of_meta(name)]
    leads += [found for stream in cluster.streams for found in leaders.off(stream, name)]
    model = _Model(cluster)
    moves: list[Move] = []
    stuck: list[Stuck] = []
    for stream in cluster.streams:
        if name not in stream.holders:
            continue
        found = model.move(stream, name)
        if isinstance(found, Move):
            moves.append(found)
        else:
            stuck.append(Stuck(stream.account, stream.name, found))
    return Plan(leads, moves, stuck)


def balance(cluster: Cluster) -> Plan:
    """The plan that evens out the servers of each cluster: first replicas, then leaders of the
    streams that do not move."""
    model = _Model(cluster)
    moves = [*model.evened()]
    gone = {(move.account, move.stream) for move in moves}
    stay = [one for one in cluster.streams if (one.account, one.name) not in gone]
    return Plan([*_Leaders(cluster).evened(stay)], moves, [])


class _Why(NamedTuple):
    """Why no server can take a replica."""

    text: str


class _Model:
    """Replicas by server, as the steps planned so far leave them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holders = {(one.account, one.name): one.holders for one in cluster.streams}
        self._taken: Counter[str] = Counter()
        """Bytes that planned moves take to each server."""
        self._loads: dict[str, Load] = {}
        for stream in cluster.streams:
            for peer in stream.holders:
                self._count(peer, stream, 1)

    def _count(self, peer: str, stream: Stream, by: int) -> None:
        load = self._loads.get(peer, Load())
        replicated = by if stream.replicas > 1 else 0
        self._loads[peer] = Load(load.streams + by, load.replicated + replicated)

    def move(self, stream: Stream, source: str) -> Move | str:
        """Plans the move of a replica off a server; a string says why it is not possible."""
        target = self._target(stream, source)
        if isinstance(target, _Why):
            return target.text
        key = (stream.account, stream.name)
        self._holders[key] = (*(one for one in self._holders[key] if one != source), target)
        self._taken[target] += max(stream.size, stream.max_bytes)
        self._count(source, stream, -1)
        self._count(target, stream, 1)
        return Move(*key, source, target, stream.size)

    def evened(self) -> Iterator[Move]:
        """Plans moves until no server holds two replicas more than another one that could take
        one."""
        left = {(one.account, one.name): one for one in self._cluster.streams if self._whole(one)}
        while (step := self._evening(left.values())) is not None:
            del left[step.account, step.stream]
            yield step

    def _evening(self, streams: Iterable[Stream]) -> Move | None:
        """The next such move: off the fullest server, the smallest stream first; None: all is
        even."""
        held = {name: self._loads.get(name, Load()).streams for name in self._cluster.servers}
        for source in sorted(held, key=lambda one: (-held[one], one)):
            here = [one for one in streams if source in self._holders[one.account, one.name]]
            for stream in sorted(here, key=lambda one: (one.size, one.account, one.name)):
                target = self._target(stream, source)
                if isinstance(target, str) and held[source] - held[target] > 1:
                    found = self.move(stream, source)
                    assert isinstance(found, Move)
                    return found
        return None

    def _whole(self, stream: Stream) -> bool:
        """Whether the stream has a leader and all its replicas, on reachable servers."""
        servers = self._cluster.servers
        reached = all(one in servers and servers[one].reachable for one in stream.holders)
        return reached and bool(stream.leader) and len(stream.holders) == stream.replicas

    def _target(self, stream: Stream, source: str) -> str | _Why:
        if stream.moves:
            return _Why("it moves already")
        if not stream.leader:
            return _Why("nobody leads it")
        holders = self._holders[stream.account, stream.name]
        existing = [source, *(one for one in holders if one != source)]
        servers = self._cluster.servers.values()
        found = self._place(stream, existing, servers)
        if not isinstance(found, Reasons):
            return found[-1]
        why: Counter[str] = Counter()
        for one in servers:
            if one.cluster != stream.cluster or one.name == source:
                continue
            why[self._reason(stream, existing, one)] += 1
        told = [f"{what} ({count})" for what, count in why.items()]
        return _Why("; ".join(told) or "there is no other server")

    def _reason(self, stream: Stream, existing: Sequence[str], server: Server) -> str:
        """Why a single server could not replace the first of the existing members."""
        if server.name in existing:
            return "holds it already"
        if not server.reachable:
            return "cannot be reached"
        there = [one for one in self._cluster.servers.values() if one.name in existing]
        found = self._place(stream, existing, [*there, server])
        text = str(found).partition(", ")[2] if isinstance(found, Reasons) else ""
        return text or "too many replicas cannot be reached"

    def _place(
        self, stream: Stream, existing: Sequence[str], servers: Iterable[Server]
    ) -> list[str] | Reasons:
        wanted = Wanted(
            stream.replicas + 1,
            stream.cluster,
            in_memory=stream.in_memory,
            max_bytes=stream.max_bytes,
            tags=stream.tags,
        )
        members = [self._member(one) for one in servers if one.reachable or one.name in existing]
        rules = self._cluster.rules
        return place(wanted, members, self._loads, rules, existing=existing, leaving=1)

    def _member(self, server: Server) -> Member:
        room = server.room
        if room is not None:
            taken = self._taken[server.name]
            room = room._replace(memory=room.memory - taken, files=room.files - taken)
        return Member(
            server.name,
            cluster=server.cluster,
            tags=server.tags,
            online=server.reachable,
            room=room,
        )


class _Leaders:
    """Leaders by server, as the steps planned so far leave them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._led: Counter[str] = Counter()
        for stream in cluster.streams:
            for leader, holders, _ in _groups(stream):
                if len(holders) > 1:
                    self._led[leader] += 1

    def of_meta(self, name: str) -> list[str]:
        """The server that is to lead the meta group in this one's place; [] if this one does not
        lead, or no other can."""
        if self._cluster.meta_leader != name:
            return []
        servers = self._cluster.servers.values()
        return sorted(one.name for one in servers if one.name != name and one.reachable)[:1]

    def off(self, stream: Stream, name: str) -> Iterator[Lead]:
        """Plans changes of leaders for all that a server leads of a stream."""
        for leader, holders, consumer in _groups(stream):
            if leader == name and not stream.moves:
                yield from self._lead(stream, consumer, name, holders)

    def evened(self, streams: Iterable[Stream]) -> Iterator[Lead]:
        """Plans changes until no server leads two groups more than another one with the same
        replicas."""
        left = [(stream, *group) for stream in streams for group in _groups(stream)]
        before = len(left) + 1
        while len(left) < before:
            before, stay = len(left), []
            for stream, leader, holders, consumer in left:
                if self._gap(stream, leader, holders) > 1:
                    yield from self._lead(stream, consumer, leader, holders)
                else:
                    stay.append((stream, leader, holders, consumer))
            left = stay

    def _gap(self, stream: Stream, leader: str, holders: tuple[str, ...]) -> int:
        """How many groups more an asset's leader leads than another member of the asset."""
        others = self._others(leader, holders)
        if stream.moves or not leader or not others:
            return 0
        return self._led[leader] - min(self._led[one] for one in others)

    def _lead(
        self, stream: Stream, consumer: str, leader: str, holders: tuple[str, ...]
    ) -> Iterator[Lead]:
        others = self._others(leader, holders)
        if others:
            target = min(others, key=lambda one: (self._led[one], one))
            self._led[leader] -= 1
            self._led[target] += 1
            yield Lead(stream.account, stream.name, consumer, leader, target)

    def _others(self, leader: str, holders: tuple[str, ...]) -> list[str]:
        servers = self._cluster.servers
        return [
            one
            for one in holders
            if one != leader and one in servers and servers[one].reachable
        ]


def _groups(stream: Stream) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Leader, members and name of the stream ("") and of each of its consumers."""
    yield stream.leader, stream.holders, ""
    for consumer in stream.consumers:
        yield consumer.leader, consumer.holders, consumer.name
