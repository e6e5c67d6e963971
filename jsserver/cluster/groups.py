"""What a member of a Raft group knows of the group's other members, as pages and answers show it.

Plain data: no clock, file or network.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.cext.groups import GroupFace, GroupState, Peer

LOST = 10 * 10**9
"""Nanoseconds after which a member that was not heard is not current."""


class Other(NamedTuple):
    """Another member; `silent` in ns, -1: it was not heard."""

    id: str
    name: str
    match: int
    """The index up to which it has confirmed the log to this leader."""
    silent: int


class RaftMember(NamedTuple):
    """This server's part in a group."""

    account: str
    """Whose asset the group is of."""
    name: str
    id: str
    """Of this server."""
    state: GroupState
    others: list[Other]
    led_since: int = 0
    """When this server began to lead, in ns since the epoch; 0: it does not."""
    ever_led: bool = False
    """Whether anybody has led since this server takes part."""

    @property
    def leader(self) -> str:
        """The id of the member that leads, "" for none."""
        return self.state.leader.decode("latin-1")

    @property
    def vote(self) -> str:
        """The id of the member that this one has voted for in its term, "" for none."""
        return self.state.vote.decode("latin-1")

    @property
    def error(self) -> str:
        """What the disk says, where it refuses."""
        return os.strerror(self.state.error) if self.state.error else ""


class Replica(Wire):
    """Another member of a group as answers show it; `active` in ns since it was heard."""

    name: str
    current: bool
    observer: bool = False
    offline: bool = False
    active: int = always(0)
    lag: int = 0
    """Entries that it has not confirmed of those that are committed."""
    peer: str = ""


def member_of(
    group: GroupFace,
    account: str,
    name: str,
    own: str,
    name_of: Callable[[str], str],
    led_since: int,
    ever_led: bool,
) -> RaftMember | None:
    """The part of the server whose id is `own` in a group, as of now; None: it is closed. In any
    thread."""
    try:
        state, peers = group.state(), group.peers()
    except ValueError:
        return None
    return RaftMember(
        account, name, own, state, others(peers, own, name_of), led_since, ever_led
    )


def peer_state(size: int, peers: Iterable[str]) -> bytes:
    """The members of a new group as its log says them; `size`: how many there are to be."""
    ids = "".join(peers).encode()
    return struct.pack("<II", size, len(ids) // 8) + ids + b"\0\0"


def others(peers: Iterable[Peer], own: str, name_of: Callable[[str], str]) -> list[Other]:
    """The members that are not this server."""
    found = []
    for peer in peers:
        id = peer.id.decode("latin-1")
        if id != own:
            found.append(Other(id, name_of(id), peer.match, peer.silent))
    return found


def electorate(member: RaftMember, name: str, is_online: Callable[[str], bool]) -> list[Wire]:
    """All members by their names, this server, which is called so, too."""
    own = Replica(name=name, current=True, peer=member.id)
    return [*sorted([own, *replicas(member, is_online)], key=lambda one: one.name)]


def has_quorum(member: RaftMember) -> bool:
    """Whether so many members were heard lately that one of them can lead."""
    heard = sum(0 <= other.silent < LOST for other in member.others)
    return heard + 1 >= member.state.quorum


def replicas(member: RaftMember, is_online: Callable[[str], bool]) -> list[Replica]:
    """The other members by their names. `is_online`: whether the server with this name can be
    reached. One that does not lead knows of the leader alone whether it is current."""
    found = []
    for other in sorted(member.others, key=lambda one: one.name):
        leads = member.leader == member.id
        heard = 0 <= other.silent < LOST
        has_all = other.match >= member.state.applied if leads else other.id == member.leader
        lag = member.state.commit - other.match if leads else 0
        found.append(
            Replica(
                name=other.name,
                current=heard and has_all,
                offline=not is_online(other.name),
                active=max(other.silent, 0),
                lag=max(lag, 0),
                peer=other.id,
            )
        )
    return found


def all_assigned(
    member: RaftMember,
    peers: Iterable[str],
    name_of: Callable[[str], str],
    is_online: Callable[[str], bool],
) -> list[Replica]:
    """As `replicas`, of those that are assigned: also where the group does not have them yet."""
    assigned = {*peers} - {member.id}
    known = [one for one in replicas(member, is_online) if one.peer in assigned]
    for peer in assigned - {one.peer for one in known}:
        name = name_of(peer)
        known.append(Replica(name=name, current=False, offline=not is_online(name), peer=peer))
    return sorted(known, key=lambda one: one.name)
