"""Advisories about the leaders of a cluster's groups, and about groups that lost their quorum.

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
"""Seconds between two checks for groups without a quorum."""
AGAIN = 10.0
"""Seconds without a quorum before the advisory, and between its repetitions."""


class Elections:
    """Sends the advisories; begin() and close() frame the checks for lost quorums."""

    def __init__(
        self,
        advisories: Advisories,
        *,
        name: str,
        cluster: Callable[[], str],
        names: Callable[[], Iterable[str]],
        leaderless: Callable[[], list[tuple[Name, RaftMember]]],
    ) -> None:
        """`name`: this server's; `cluster`: the cluster's present name; `names`: names of the
        servers this one is connected to; `leaderless`: groups without a leader, among the assets of
        this server."""
        self._advisories = advisories
        self._name = name
        self._cluster = cluster
        self._names = names
        self._leaderless = leaderless
        self._lost: dict[Name, float] = {}
        """Groups without a quorum, and the time of their next advisory."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begins to check for lost quorums."""
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def close(self) -> None:
        """Stops the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def asset(self, asset: Name, member: RaftMember) -> None:
        """This server was elected leader of a stream or a consumer."""
        members = electorate(member, self._name, self._online())
        self._advisories.elected(*asset, self._name, members)

    def domain(self, member: RaftMember) -> None:
        """This server was elected meta leader."""
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
