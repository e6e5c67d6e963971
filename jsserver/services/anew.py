"""Reopens members of groups that have failed.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from jsserver.cext import replicas as NEWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.cluster.follow import Step
    from jsserver.cluster.meta import Name
    from jsserver.instances.running import Consumer, Stream
    from jsserver.process.logs import Logger
    from jsserver.services.membership import Member

ANEW = 1.0
"""Seconds before a member that has failed is reopened."""
AGAIN = 5.0
"""Seconds before the next attempt, if the reopening fails."""


class Anew:
    """Reopens the members of one server."""

    def __init__(
        self,
        log: Logger,
        asset: Callable[[str, str, str], Stream | Consumer | None],
        reopen: Callable[[Name, bool], None],
    ) -> None:
        """`asset` finds the running stream or consumer by account, stream and consumer. `reopen`
        reopens a consumer, or a stream with its consumers; True: without its data."""
        self._log = log
        self._asset = asset
        self._reopen = reopen
        self._seen: weakref.WeakSet[Member] = weakref.WeakSet()
        """Failed members whose reopening is scheduled."""
        self._failed: set[Name] = set()
        """Streams whose next attempt is scheduled."""

    def look(self, member: Member) -> None:
        """Schedules the reopening of a member if the member has failed; without its data if these
        differ from what the group agreed on. Also called when an asset has been opened: a member
        may have failed before its asset could be found."""
        what = _halted(member)
        if not what or member in self._seen or not self._runs(member):
            return
        self._seen.add(member)
        self._log.error(f"The replica of '{member.name}' has stopped: {member.replica.why()}")
        empty = what == NEWS.NEWS_DIVERGED
        asyncio.get_running_loop().call_later(ANEW, self._open, member, empty)

    def _runs(self, member: Member) -> bool:
        now = self._asset(*member.name)
        return now is not None and now.member is member

    def _open(self, member: Member, empty: bool) -> None:
        if not self._runs(member):
            return  # the asset was removed or reopened meanwhile
        asset = member.name
        self._reopen(asset if empty else asset._replace(consumer=""), empty)

    def failed(self, asset: Name, step: Step) -> None:
        """Schedules another attempt after a failed step that reopens: the disk may have room by
        then."""
        whole = asset._replace(consumer="")
        if step.anew and whole not in self._failed:
            self._failed.add(whole)
            asyncio.get_running_loop().call_later(AGAIN, self._again, whole, step.empty)

    def _again(self, asset: Name, empty: bool) -> None:
        self._failed.discard(asset)
        self._reopen(asset, empty)


def _halted(member: Member) -> int:
    """NEWS_FAILED or NEWS_DIVERGED if the member has failed, else 0."""
    try:
        return member.replica.halted()
    except ValueError:
        return 0  # the member is closed
