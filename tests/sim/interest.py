"""The subscriptions that servers of a simulated cluster know of each other. A member that looks for
a leader sees by these which members run and whether one of them leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.stream_world import SECOND

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.servers import Server

SHOWN = (b"$NRG.V.", b"$NRG.P.")
"""Prefixes of two subjects of a group: all members subscribe to the first, only the leader to the
second."""
ROUTE = SECOND // 2
"""The most ns that a broken route takes to come back."""


class Interest:
    """Carries subscriptions from server to server like messages. No subscription is lost while a
    route stands: where the link is cut, the subscription arrives after the cut has healed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.due: dict[tuple[int, int], int] = {}
        """By sender and receiver: when the sender is to tell its subscriptions."""

    def begins(self, server: Server) -> None:
        """A server starts and dials the others, which tell it their subscriptions."""
        for other in self.cluster.servers:
            if other is not server:
                self._later(other, server)

    def changed(self, server: Server) -> None:
        """The subscriptions of a server have changed."""
        for other in self.cluster.servers:
            if other is not server:
                self.due.setdefault((server.number, other.number), self.cluster.now)
        self.look()

    def lost(self, server: Server, other: Server) -> None:
        """A route broke: the server forgets the other one's subscriptions until a new route
        stands."""
        server.sees(other.number, frozenset())
        self._later(other, server)

    def _later(self, server: Server, other: Server) -> None:
        when = self.cluster.now + self.cluster.below(ROUTE)
        self.due[server.number, other.number] = when

    def look(self) -> None:
        """Sends the subscriptions that are due."""
        cluster = self.cluster
        for pair, when in list(self.due.items()):
            server, other = (cluster.servers[number] for number in pair)
            if not server.up or not other.up:
                del self.due[pair]  # the next start tells all
            elif max(when, server.paused_until) <= cluster.now and cluster.reaches(*pair):
                del self.due[pair]
                cluster.route(*pair, other.sees, server.number, server.shows())
