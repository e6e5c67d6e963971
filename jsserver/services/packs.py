"""Synchronizes account tokens between the full resolvers of a cluster: asks the other servers for
all their tokens from time to time, as this server may have missed some while it was down.

Lives in the event loop. Loaded only where the resolver keeps a directory of all tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jsserver.access.accounts import Accounts
from jsserver.access.resolvers import Directory
from jsserver.cext.engine import Item
from jsserver.text.nuid import token

ALL = "$SYS.REQ.CLAIMS.PACK"
"""Subject of the request for all tokens; its body is a digest of the tokens that are here."""
INBOX = "$SYS._PACK."
FIRST_SECONDS = 2.0
"""Seconds from the start to the first request: by then there are routes to the other servers."""
PERIOD = 60.0
"""Seconds between two requests by default, as with nats-server."""
KEPT_MAX = 1 << 16
"""Tokens that wait to be merged at most; the next request brings the rest."""


class Packs:
    """The synchronization of one server; close() ends it."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        directory: Directory,
        period: float,
        merge: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`period`: seconds between requests, 0 for the default; `merge` takes an account and a
        token, which may be older than the one in the directory."""
        self._system = accounts[system_account]
        self._directory = directory
        self._period = period or PERIOD
        self._merge = merge
        self._inbox = f"{INBOX}{token(8)}".encode()
        self._come: dict[str, str] = {}
        """Tokens that wait to be merged, by account."""
        self._more = asyncio.Event()
        self._system.serve_requests(self._inbox)
        self._tasks = [asyncio.create_task(work) for work in (self._ask(), self._look())]

    def close(self) -> None:
        """Stops asking and merging."""
        for task in self._tasks:
            task.cancel()

    def take(self, item: Item) -> bool:
        """Whether a message is an answer to a request for tokens; if so, keeps its token."""
        subject, _, _, payload = item.texts
        if subject != self._inbox or item.numbers[0] != self._system.id:
            return False
        account, found, text = payload.decode("utf-8", "replace").partition("|")
        if found and len(self._come) < KEPT_MAX:
            self._come[account] = text
            self._more.set()
        return True

    async def _ask(self) -> None:
        pause = min(FIRST_SECONDS, self._period)
        while True:
            await asyncio.sleep(pause)
            pause = self._period
            self._system.publish(ALL.encode(), self._inbox, b"", self._directory.digest)

    async def _look(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._come:
                await self._merge(*self._come.popitem())
