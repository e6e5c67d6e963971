"""What a member of a Raft group knows of the group, in the form that pages and answers show.

Pure data: no clock, file or network.
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
"""Nanoseconds of silence after which a member counts as not current."""


class Other(NamedTuple):
    """Another member of the group; `silent`: ns since it was last heard, -1: never."""

    id: str
    name: str
    match: int
    """The last index of the log that it has confirmed to this leader."""
    silent: int


class RaftMember(NamedTuple):
    """This server's member of a group."""

    account: str
    """The account that owns the group's asset."""
    name: str
    id: str
    """This server's id."""
    state: GroupState
    others: list[Other]
    led_since: int = 0
    """When this server became the leader, in ns since the epoch; 0: it is not the leader."""
    ever_led: bool = False
    """Whether the group has had a leader since this member started."""

    @property
    def leader(self) -> str:
        """The id of the group's leader, "" for none."""
        return self.state.leader.decode("latin-1")

    @property
    def vote(self) -> str:
        """The id of the member that this one voted for in its present term, "" for none."""
        return self.state.vote.decode("latin-1")

    @property
    def error(self) -> str:
        """The disk error that stopped this member; "": none."""
        return os.strerror(self.state.error) if self.state.error else ""


class Replica(Wire):
    """Another member of a group, as answers show it; `active`: ns since it was last heard."""

    name: str
    current: bool
    observer: bool = False
    offline: bool = False
    active: int = always(0)
    lag: int = 0
    """Committed entries that it has not confirmed."""
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
    """This server's member of a group at this moment; None: the group is closed. `own`: this
    server's id. Any thread may call."""
    try:
        state, peers = group.state(), group.peers()
    except ValueError:
        return None
    return RaftMember(
        account, name, own, state, others(peers, own, name_of), led_since, ever_led
    )


def peer_state(size: int, peers: Iterable[str], extension: bytes = b"\0\0") -> bytes:
    """A group's members, in the form that its log has them; `size`: how many members it expects;
    `extension`: the two bytes that say whether the cluster extends another domain."""
    ids = "".join(peers).encode("latin-1")
    return struct.pack("<II", size, len(ids) // 8) + ids + extension


def others(peers: Iterable[Peer], own: str, name_of: Callable[[str], str]) -> list[Other]:
    """The members other than this server."""
    found = []
    for peer in peers:
        id = peer.id.decode("latin-1")
        if id != own:
            found.append(Other(id, name_of(id), peer.match, peer.silent))
    return found


def electorate(member: RaftMember, name: str, is_online: Callable[[str], bool]) -> list[Wire]:
    """All members sorted by name, including this server, whose name is `name`."""
    own = Replica(name=name, current=True, peer=member.id)
    return [*sorted([own, *replicas(member, is_online)], key=lambda one: one.name)]


def trouble(now: GroupState | None, recovers: bool, leader: str) -> str:
    """What keeps a member of the meta group from being healthy, in nats-server's words; "":
    nothing. `now`: None where the server takes no part; `recovers`: whether it still applies
    entries from before its start; `leader`: who leads, "" where that is not known."""
    if now is None:
        return "JetStream meta layer is not running"
    if recovers:
        return "JetStream is still recovering meta layer"
    if not leader:
        return "JetStream has not established contact with a meta leader"
    if now.lost or now.applied < now.commit:
        return "JetStream is not current with the meta leader"
    return ""


def has_quorum(member: RaftMember) -> bool:
    """Whether enough members were heard lately for one of them to lead."""
    heard = sum(0 <= other.silent < LOST for other in member.others)
    return heard + 1 >= member.state.quorum


def replicas(member: RaftMember, is_online: Callable[[str], bool]) -> list[Replica]:
    """The other members, sorted by name. `is_online`: whether the server of this name is online. A
    member that does not lead can tell only of the leader whether it is current."""
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
    """As `replicas`, but of the assigned members, including those that the group lacks so far."""
    assigned = {*peers} - {member.id}
    known = [one for one in replicas(member, is_online) if one.peer in assigned]
    for peer in assigned - {one.peer for one in known}:
        name = name_of(peer)
        known.append(Replica(name=name, current=False, offline=not is_online(name), peer=peer))
    return sorted(known, key=lambda one: one.name)


def is_lost(now: GroupState, term: int) -> bool:
    """Whether what was proposed in this term and is not applied never will be."""
    return now.last_term > term and now.applied >= now.last
