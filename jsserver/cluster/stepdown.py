"""Chooses a group's next leader by the wishes in a request that the present leader steps down.

No clock or network: the members and the facts about them are handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jsserver.text.identity import short_hash
from jsserver.wire import decode, errcodes
from jsserver.wire.types import Placement, Wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class StepdownRequest(Wire):
    """META.LEADER.STEPDOWN, STREAM.LEADER.STEPDOWN, CONSUMER.LEADER.STEPDOWN."""

    placement: Placement | None = None


class Known(Protocol):
    """Facts about servers, by their ids."""

    def online(self, peers: list[str]) -> list[str]:
        """The peers that are online, in random order."""

    def cluster_of(self, peer: str) -> str:
        """A server's cluster, "" where unknown."""

    def tags_of(self, peer: str) -> Sequence[str] | None:
        """A server's tags in lower case; None: unknown."""


def successor(body: bytes, own: str, peers: Iterable[str], known: Known) -> str:
    """The id of the member that is to lead, "": any. `own`: this server's id, the present leader;
    `peers`: ids of all members. ApiError: no member meets the request."""
    if not decode.has_object(body):
        return ""
    placement = decode.decode(body, StepdownRequest, strict=True).placement
    if placement is None:
        return ""
    if placement.preferred:
        return _preferred(placement.preferred, own, peers)
    for peer in known.online([peer for peer in peers if peer != own]):
        if _meets(peer, placement, known):
            return peer
    raise errcodes.CLUSTER_NO_PEERS(err="no replacement peer connected")


def _preferred(wanted: str, own: str, peers: Iterable[str]) -> str:
    peer = short_hash(wanted)
    if peer not in peers:
        raise errcodes.CLUSTER_NO_PEERS(err=f'preferred server "{wanted}" not known')
    if peer == own:
        raise errcodes.CLUSTER_NO_PEERS(err=f'preferred server "{wanted}" is already leader')
    return peer


def _meets(peer: str, placement: Placement, known: Known) -> bool:
    """Whether a member is in the wanted cluster and has all wanted tags."""
    wanted = {tag.strip().lower() for tag in placement.tags}
    cluster = known.cluster_of(peer)
    return (not placement.cluster or placement.cluster == cluster) and wanted <= {
        *(known.tags_of(peer) or ())
    }
