"""Facts about the members of a JetStream cluster, from the statistics that servers publish.

Lives in the event loop.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from jsserver.cluster.placement import Load, Member, Reasons, Room, Rules, Wanted, place
from jsserver.text.identity import short_hash
from jsserver.wire import errcodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from jsserver.access.accounts import Accounts
    from jsserver.assets.limits import AccountLimits
    from jsserver.cext.engine import Item
    from jsserver.cluster.meta import MetaState
    from jsserver.cluster.moves import Usage
    from jsserver.services.presence import Presence
    from jsserver.wire.types import StreamConfig


STATSZ = b"$SYS.SERVER.*.STATSZ"
GOODBYES = b"$SYS.SERVER.*.SHUTDOWN", b"$SYS.SERVER.*.LAMEDUCK"
WITH_WISHES = (2, 15)
"""The first release of nats-server that changes members by wishes (jsserver/cluster/desired.py)."""


class Said(msgspec.Struct):
    """The server behind the statistics."""

    name: str = ""
    id: str = ""
    cluster: str = ""
    tags: list[str] = []
    ver: str = ""
    """The nats-server release that the server is, or follows."""


class Most(msgspec.Struct):
    """The limits of a server's JetStream, in bytes."""

    max_memory: int = 0
    max_storage: int = 0


class Taken(msgspec.Struct):
    """What a server's JetStream uses, in bytes."""

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    ha_assets: int = 0


class JetStream(msgspec.Struct):
    """A server's JetStream; None: not reported yet."""

    config: Most | None = None
    stats: Taken | None = None

    def room(self) -> Room | None:
        """The free room; None: not reported yet."""
        if self.config is None or self.stats is None:
            return None
        return Room(
            memory=self.config.max_memory - max(self.stats.memory, self.stats.reserved_memory),
            files=self.config.max_storage - max(self.stats.storage, self.stats.reserved_storage),
            assets=self.stats.ha_assets,
        )


class Told(msgspec.Struct):
    """The part of the statistics that is read here."""

    jetstream: JetStream | None = None


class Statistics(msgspec.Struct):
    """The statistics that servers publish now and then."""

    server: Said
    statsz: Told = msgspec.field(default_factory=Told)


class Members:
    """The `Members` that the meta leader (jsserver/cluster/moves.py) asks."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        *,
        own: Said,
        room: Callable[[], Room],
        rules: Rules,
        presence: Presence,
        peers: Callable[[], list[str]],
        state: Callable[[], MetaState],
        limits: Callable[[str], AccountLimits | None],
        usage: Callable[[str], Usage],
        ours: Callable[[], set[str]],
    ) -> None:
        """`own`: this server; `room`: its free room; `presence`: of the other servers;
        `peers`: ids of the members of the meta group; `ours`: ids of the servers that can be
        reached and are no nats-servers."""
        self._accounts = accounts
        self._system = accounts[system_account]
        self._own = short_hash(own.name)
        self._known = {self._own: own}
        self._rooms: dict[str, Room | None] = {}
        """Free room by member, for members that have published statistics."""
        self._room = room
        self._rules = rules
        self._presence = presence
        self._peers = peers
        self._state = state
        self.limits = limits
        self.usage = usage
        self._ours = ours
        self._system.serve_requests(STATSZ)
        for subject in GOODBYES if presence.is_wide else ():
            self._system.serve_requests(subject)

    def take(self, item: Item) -> bool:
        """Takes a message from the inbox if a server tells of itself; whether it was that."""
        subject = item.texts[0]
        if item.numbers[0] != self._system.id or not subject.startswith(STATSZ[:12]):
            return False
        if subject.endswith((GOODBYES[0][-9:], GOODBYES[1][-9:])):
            self._presence.gone(subject.split(b".")[2].decode("latin-1"))
            return True
        if not subject.endswith(STATSZ[-7:]):
            return False
        try:
            told = msgspec.json.decode(item.texts[3], type=Statistics)
        except (msgspec.DecodeError, RecursionError):
            return True
        peer, jetstream = short_hash(told.server.name), told.statsz.jetstream
        self._known[peer] = told.server
        self._presence.heard(told.server.id, told.server.name, told.server.cluster)
        self._rooms[peer] = None if jetstream is None else jetstream.room()
        return True

    def name_of(self, peer: str) -> str:
        """A member's name, "" where unknown."""
        known = self._known.get(peer)
        return "" if known is None else known.name

    # ---- what the leader asks

    def others(self) -> set[str]:
        """The ids of the other members that can be reached, and ask before they answer."""
        return self._ours() & {*self._peers()}

    def online(self, peers: list[str]) -> list[str]:
        """The peers that are online, in random order."""
        there = self._there()
        found = [peer for peer in peers if peer in there]
        random.shuffle(found)
        return found

    def _there(self) -> set[str]:
        """Ids of this server and of those that can be reached."""
        return {self._own, *map(short_hash, self._presence.names())}

    def clusters(self) -> list[str]:
        """The names of the members' clusters."""
        return sorted({said.cluster for said in self._known.values()})

    def cluster_of(self, peer: str) -> str:
        """A member's cluster, "" where unknown."""
        known = self._known.get(peer)
        return "" if known is None else known.cluster

    def tags_of(self, peer: str) -> list[str] | None:
        """A member's tags in lower case; None: unknown."""
        known = self._known.get(peer)
        return None if known is None else [tag.lower() for tag in known.tags]

    def by_wishes(self) -> bool:
        """Whether groups get other members by wishes: some member is a nats-server 2.15, and no
        member is known to be an older one."""
        ours = self._ours()
        known = [self._known.get(peer) for peer in self._peers() if peer not in ours]
        versions = [_release(said.ver) for said in known if said is not None and said.ver]
        return bool(versions) and min(versions) >= WITH_WISHES

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
        to hold the stream: present members first, then members that are online; ApiError."""
        placement = config.placement
        reasons = Reasons()
        for cluster in clusters:
            wanted = Wanted(
                max(config.num_replicas, 1),
                cluster,
                in_memory=config.storage == "memory",
                max_bytes=max(config.max_bytes, 0),
                tags=() if placement is None else placement.tags,
            )
            found = place(
                wanted,
                self._members(),
                self._loads(),
                self._rules,
                existing=existing,
                leaving=leaving,
                ignored=ignored,
            )
            if not isinstance(found, Reasons):
                first = [*existing] or self.online(found)
                return cluster, first + [peer for peer in found if peer not in first]
            reasons.add(found)
        raise errcodes.CLUSTER_NO_PEERS(err=str(reasons))

    def _members(self) -> list[Member]:
        """All members, in random order."""
        peers = self._peers()
        random.shuffle(peers)
        there = self._there()
        return [self._member(peer, peer in there) for peer in peers]

    def _member(self, peer: str, online: bool) -> Member:
        said = self._known.get(peer)
        if said is None:
            return Member(peer, known=False)
        room = self._room() if peer == self._own else self._rooms.get(peer)
        tags = self.tags_of(peer) or []
        return Member(peer, cluster=said.cluster, tags=tags, online=online, room=room)

    def _loads(self) -> dict[str, Load]:
        loads: dict[str, Load] = {}
        for _, _, stream in self._state():
            replicated = len(stream.peers) > 1
            for peer in stream.peers:
                load = loads.get(peer, Load())
                loads[peer] = Load(load.streams + 1, load.replicated + replicated)
        return loads

    def heard(self, account: str, subject: str) -> bool:
        """Whether anybody in the account subscribes to a subject."""
        return account in self._accounts and self._accounts[account].subject_interest(
            subject.encode()
        )


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; (0, 0) where it has none."""
    numbers = version.split(".")[:2]
    return tuple(map(int, numbers)) if all(n.isdecimal() for n in numbers) else (0, 0)
