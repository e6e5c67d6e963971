"""Members of groups that cannot go on are opened anew after a while.

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
"""Seconds after which a member that cannot go on is opened anew."""
AGAIN = 5.0
"""Seconds after which it is tried again where that failed."""


class Anew:
    """Those of a server."""

    def __init__(
        self,
        log: Logger,
        asset: Callable[[str, str, str], Stream | Consumer | None],
        reopen: Callable[[Name, bool], None],
    ) -> None:
        """`asset`: what runs under the names of an account, a stream and a consumer; `reopen`:
        opens an asset, a stream with its consumers; where asked for, with nothing."""
        self._log = log
        self._asset = asset
        self._reopen = reopen
        self._seen: weakref.WeakSet[Member] = weakref.WeakSet()
        """Members that are to be opened anew."""
        self._failed: set[Name] = set()
        """Streams that are to be opened once more."""

    def look(self, member: Member) -> None:
        """Where a member cannot go on it is opened anew, with nothing where what it has is not what
        the group agreed on. One that is being made is looked at again when it is open: what it
        told before found nobody."""
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
            return  # it was removed or opened meanwhile
        asset = member.name
        self._reopen(asset if empty else asset._replace(consumer=""), empty)

    def failed(self, asset: Name, step: Step) -> None:
        """A step failed: one that opens something anew is taken again, as a disk may have room
        then."""
        whole = asset._replace(consumer="")
        if step.anew and whole not in self._failed:
            self._failed.add(whole)
            asyncio.get_running_loop().call_later(AGAIN, self._again, whole, step.empty)

    def _again(self, asset: Name, empty: bool) -> None:
        self._failed.discard(asset)
        self._reopen(asset, empty)


def _halted(member: Member) -> int:
    """NEWS_FAILED or NEWS_DIVERGED where it cannot go on, else 0."""
    try:
        return member.replica.halted()
    except ValueError:
        return 0  # it is closed
