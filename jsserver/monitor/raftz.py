"""`/raftz`: the Raft groups that the server is a member of."""

from typing import TYPE_CHECKING

import msgspec

from jsserver.monitor.query import Query
from jsserver.monitor.sources import Server
from jsserver.text.goformat import duration, rfc3339_nano
from jsserver.wire.types import StreamStateInfo, Wire, always

if TYPE_CHECKING:
    from jsserver.cluster.groups import RaftMember

NEVER = "0001-01-01T00:00:00Z"
"""The time of an event that has not happened, or whose time is not kept."""
STATES = {
    "follower": "FOLLOWER",
    "candidate": "CANDIDATE",
    "elected": "LEADER",
    "leader": "LEADER",
    "stopped": "CLOSED",
}
"""nats-server's names for the roles of a member."""


class Peer(Wire):
    """Another member of a group."""

    name: str
    known: bool
    last_replicated_index: int = 0
    last_seen: str = ""
    """The time since, as a duration."""


class Group(Wire, kw_only=True):
    """A group as this server's member sees it; sizes in bytes."""

    id: str
    state: str
    size: int
    quorum_needed: int
    committed: int
    applied: int
    leader: str = ""
    leader_since: str = ""
    ever_had_leader: bool
    term: int
    voted_for: str = ""
    pterm: int
    pindex: int
    system_account: bool
    traffic_account: str
    ipq_proposal_len: int = always(0)
    ipq_entry_len: int = always(0)
    ipq_resp_len: int = always(0)
    ipq_apply_len: int = always(0)
    wal: StreamStateInfo
    wal_error: str = ""
    peers: dict[str, Peer]


Raftz = dict[str, dict[str, Group]]
"""The page: groups by account and name."""


class Wanted(msgspec.Struct):
    """The parameters of a request."""

    account: str = ""
    """The account of the groups; "": the system account."""
    group: str = ""
    """The name of a single group; "": all groups."""

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """From a query string."""
        return cls(account=query.text("acc"), group=query.text("group"))


def raftz(server: Server, wanted: Wanted) -> Raftz | None:
    """The page for a request; None: the server is in no group."""
    found = [] if server.meta is None else server.meta.holdings.groups()
    if not found:
        return None
    account = wanted.account or server.system_account
    page: Raftz = {}
    for member in sorted(found, key=lambda one: one.name):
        if member.account == account and wanted.group in ("", member.name):
            page.setdefault(account, {})[member.name] = _group(server, member)
    return page


def _group(server: Server, member: "RaftMember") -> Group:
    now = member.state
    since = member.led_since
    return Group(
        id=member.id,
        state=STATES[now.role],
        size=now.size,
        quorum_needed=now.quorum,
        committed=now.commit,
        applied=now.applied,
        leader=member.leader,
        leader_since=rfc3339_nano(since) if since else "",
        ever_had_leader=member.ever_led,
        term=now.term,
        voted_for=member.vote,
        pterm=now.last_term,
        pindex=now.last,
        system_account=True,
        traffic_account=server.system_account,
        wal=StreamStateInfo(
            messages=now.last + 1 - now.first,
            bytes=now.bytes,
            first_seq=now.first,
            first_ts=NEVER,
            last_seq=now.last,
            last_ts=NEVER,
        ),
        wal_error=member.error,
        peers={
            peer.id: Peer(
                name=peer.name,
                known=True,
                last_replicated_index=peer.match,
                last_seen=duration(peer.silent) if peer.silent >= 0 else "",
            )
            for peer in sorted(member.others)
        },
    )
