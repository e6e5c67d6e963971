"""Which leaders and replicas of a cluster are to move: off a server, or so that all carry alike.

Plain data and plain functions, without a connection. Who leads the meta group decides where a
replica goes; a plan says where it will by the rules that all servers have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jsserver.cluster.placement import Load, Member, Reasons, Room, Rules, Wanted, place


class Server(NamedTuple):
    """A server of the cluster that is to hold streams, or holds some."""

    name: str
    cluster: str = ""
    tags: Sequence[str] = ()
    """In lower case."""
    reachable: bool = True
    room: Room | None = None


class Consumer(NamedTuple):
    """A consumer. `leader`: "" where nobody leads it."""

    name: str
    holders: tuple[str, ...]
    leader: str


class Stream(NamedTuple):
    """A stream, and who holds it. `leader`: "" where nobody leads it."""

    account: str
    name: str
    cluster: str
    replicas: int
    holders: tuple[str, ...]
    leader: str
    size: int = 0
    """Bytes of its messages."""
    in_memory: bool = False
    max_bytes: int = 0
    tags: tuple[str, ...] = ()
    """Of its placement."""
    consumers: tuple[Consumer, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether it moves already: both the old and the new servers hold it."""
        return len(self.holders) > self.replicas


class Cluster(NamedTuple):
    """What is known of all servers."""

    servers: Mapping[str, Server]
    streams: Sequence[Stream]
    meta_leader: str = ""
    rules: Rules = Rules()


class Lead(NamedTuple):
    """A leader that is to change: of a stream, of a consumer, or, without names, of the meta
    group."""

    account: str
    stream: str
    consumer: str
    source: str
    target: str


class Move(NamedTuple):
    """A replica of a stream, and those of its consumers with it, that is to change servers."""

    account: str
    stream: str
    source: str
    target: str
    size: int


class Stuck(NamedTuple):
    """A replica that cannot leave its server."""

    account: str
    stream: str
    reason: str


class Plan(NamedTuple):
    """Leaders go first, then replicas."""

    leads: list[Lead]
    moves: list[Move]
    stuck: list[Stuck]


def drain(cluster: Cluster, name: str) -> Plan:
    """How all that a server leads and holds leaves it."""
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
    """What makes servers of each cluster carry about the same: first replicas, then leaders of
    those that stay where they are."""
    model = _Model(cluster)
    moves = [*model.evened()]
    gone = {(move.account, move.stream) for move in moves}
    stay = [one for one in cluster.streams if (one.account, one.name) not in gone]
    return Plan([*_Leaders(cluster).evened(stay)], moves, [])


class _Why(NamedTuple):
    """Why no server can take a replica."""

    text: str


class _Model:
    """Where replicas are while a plan is made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holders = {(one.account, one.name): one.holders for one in cluster.streams}
        self._taken: Counter[str] = Counter()
        """Bytes that a plan takes to servers."""
        self._loads: dict[str, Load] = {}
        for stream in cluster.streams:
            for peer in stream.holders:
                self._count(peer, stream, 1)

    def _count(self, peer: str, stream: Stream, by: int) -> None:
        load = self._loads.get(peer, Load())
        replicated = by if stream.replicas > 1 else 0
        self._loads[peer] = Load(load.streams + by, load.replicated + replicated)

    def move(self, stream: Stream, source: str) -> Move | str:
        """A replica leaves a server; or why it cannot."""
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
        """Moves after which no server holds two replicas more than one that could take them."""
        left = {(one.account, one.name): one for one in self._cluster.streams if self._whole(one)}
        while (step := self._evening(left.values())) is not None:
            del left[step.account, step.stream]
            yield step

    def _evening(self, streams: Iterable[Stream]) -> Move | None:
        """The next of these moves: off the fullest server, the smallest stream first."""
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
        """Whether all who are to hold a stream do, and can be reached."""
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
        """Why a server alone could not take the place of the first of these."""
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
    """Who leads how much while a plan is made."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._led: Counter[str] = Counter()
        for stream in cluster.streams:
            for leader, holders, _ in _groups(stream):
                if len(holders) > 1:
                    self._led[leader] += 1

    def of_meta(self, name: str) -> list[str]:
        """Who is to lead the meta group in the place of this server; nobody where it does not."""
        if self._cluster.meta_leader != name:
            return []
        servers = self._cluster.servers.values()
        return sorted(one.name for one in servers if one.name != name and one.reachable)[:1]

    def off(self, stream: Stream, name: str) -> Iterator[Lead]:
        """What of a stream a server is to lead no more."""
        for leader, holders, consumer in _groups(stream):
            if leader == name and not stream.moves:
                yield from self._lead(stream, consumer, name, holders)

    def evened(self, streams: Iterable[Stream]) -> Iterator[Lead]:
        """After which no server leads two more than another one that holds the same."""
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
        """How many more groups the leader of one leads than another of its members."""
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
    """Leader, holders and name of a stream's group, which has none, and of those of its
    consumers."""
    yield stream.leader, stream.holders, ""
    for consumer in stream.consumers:
        yield consumer.leader, consumer.holders, consumer.name
