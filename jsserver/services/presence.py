"""Which servers can be reached: those that routes go to, and those of other clusters, which tell of
themselves through gateways.

Lives in the event loop; who is there may be asked for in any thread.
"""

from __future__ import annotations

from contextlib import suppress
from socket import SOCK_STREAM, getaddrinfo
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.config.gateways import Gateway

SILENT_MOST = 35.0
"""Seconds without its statistics after which a server of another cluster counts as gone: servers
publish them every 10 seconds."""


class Seen(NamedTuple):
    """A server of another cluster."""

    name: str
    at: float
    """When it was last heard, by a clock that only goes on."""
    leaves: bool = False
    """Whether it has said that it stops, or will soon."""


class Presence:
    """The servers beside this one."""

    def __init__(
        self,
        routed: Callable[[], Iterable[str]],
        own: str,
        cluster: Callable[[], str],
        *,
        wide: bool,
    ) -> None:
        """`routed`: names of the servers that routes go to; `own`: this server's name; `cluster`:
        its cluster's present name; `wide`: whether there may be other clusters."""
        self._routed = routed
        self._own = own
        self._cluster = cluster
        self.is_wide = wide
        self.came: Callable[[], None] = lambda: None
        """Is called when there is a new server of another cluster."""
        self.left: Callable[[str], None] = lambda name: None
        """Is called with the name of one that says goodbye."""
        self._seen: dict[str, Seen] = {}
        """Servers of other clusters by their ids, which change with each start."""

    def names(self) -> list[str]:
        """The names of the servers that can be reached."""
        oldest = monotonic() - SILENT_MOST
        seen = list(self._seen.values())
        far = (one.name for one in seen if one.at >= oldest and not one.leaves)
        return list(dict.fromkeys([*self._routed(), *far]))

    def heard(self, server: str, name: str, cluster: str) -> None:
        """The server with this id has published its statistics. One of this cluster counts by its
        route."""
        if not server or name == self._own or cluster == self._cluster():
            return
        now = monotonic()
        before = self._seen.pop(server, None)
        for id, seen in list(self._seen.items()):
            if seen.name == name or now - seen.at > SILENT_MOST:
                del self._seen[id]  # an earlier life of this server, or one that is gone
        self._seen[server] = Seen(name, now, before is not None and before.leaves)
        if before is None:
            self.came()

    def gone(self, server: str) -> None:
        """The server with this id stops, or will soon."""
        seen = self._seen.get(server)
        if seen is not None and not seen.leaves:
            self._seen[server] = seen._replace(leaves=True)
            self.left(seen.name)


def elsewhere(gateway: Gateway) -> int:
    """At how many addresses the configuration expects servers of other clusters: those of a name
    are looked up."""
    found = 0
    for remote in gateway.gateways:
        for url in remote.urls if remote.name != gateway.name else ():
            with suppress(OSError):  # the name is not known now
                found += len({at[4][0] for at in getaddrinfo(url.host, None, type=SOCK_STREAM)})
    return found
