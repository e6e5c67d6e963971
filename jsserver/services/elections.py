"""Tells whom it concerns which of a cluster's groups have a leader here, and which can have none.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from jsserver.cluster.groups import RaftMember, electorate, has_quorum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jsserver.api.advisories import Advisories
    from jsserver.cluster.meta import Name

PERIOD = 2.5
"""Seconds between two looks for groups that can have no leader."""
AGAIN = 10.0
"""Seconds for which a group can have none before that is told, and told again."""


class Elections:
    """begin() and close() frame the looks for lost quorums."""

    def __init__(
        self,
        advisories: Advisories,
        *,
        name: str,
        cluster: Callable[[], str],
        names: Callable[[], Iterable[str]],
        leaderless: Callable[[], list[tuple[Name, RaftMember]]],
    ) -> None:
        """`name`: this server's; `cluster`: what the cluster is called now; `names`: of servers
        that this one is connected to; `leaderless`: groups of the streams and consumers that it
        holds which nobody leads."""
        self._advisories = advisories
        self._name = name
        self._cluster = cluster
        self._names = names
        self._leaderless = leaderless
        self._lost: dict[Name, float] = {}
        """Groups that can have no leader, and when that is to be told."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Looks from now on."""
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def asset(self, asset: Name, member: RaftMember) -> None:
        """This server leads a stream or a consumer now."""
        members = electorate(member, self._name, self._online())
        self._advisories.elected(*asset, self._name, members)

    def domain(self, member: RaftMember) -> None:
        """This server leads the meta group now."""
        members = electorate(member, self._name, self._online())
        self._advisories.domain_leader(member.id, self._cluster(), members)

    def removed(self) -> None:
        """This server was removed from the cluster."""
        self._advisories.server_removed(self._cluster())

    def _online(self) -> Callable[[str], bool]:
        return {*self._names()}.__contains__

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)
        now, lost = time.monotonic(), {}
        for asset, member in self._leaderless():
            if has_quorum(member):
                continue
            due = self._lost.get(asset, now + AGAIN)
            if now >= due:
                members = electorate(member, self._name, self._online())
                self._advisories.quorum_lost(*asset, members)
                due = now + AGAIN
            lost[asset] = due
        self._lost = lost
