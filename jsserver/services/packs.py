"""Tokens of accounts that the other servers of the system account have and this one has missed, as
while it was down: asked for now and then, all at once.

Lives in the event loop. Loaded where a directory of this server is to have all tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from jsserver.access.accounts import Accounts
from jsserver.access.resolvers import Directory
from jsserver.cext.engine import Item
from jsserver.text.nuid import token

ALL = "$SYS.REQ.CLAIMS.PACK"
"""On which servers are asked for all tokens, with a digest of those that are here."""
INBOX = "$SYS._PACK."
FIRST_SECONDS = 2.0
"""After a start the others are asked so soon: by then there are routes to them."""
PERIOD = 60.0
"""Seconds between two askings where the configuration says nothing else, as with nats-server."""
KEPT_MAX = 1 << 16
"""Tokens that wait to be looked at; more of them come with the next asking."""


class Packs:
    """Of one server; close() ends it."""

    def __init__(
        self,
        accounts: Accounts,
        system_account: str,
        directory: Directory,
        period: float,
        merge: Callable[[str, str], Awaitable[None]],
    ) -> None:
        """`period`: seconds, 0 is the default; `merge` takes an account and its token, which may be
        older than the one that is here."""
        self._system = accounts[system_account]
        self._directory = directory
        self._period = period or PERIOD
        self._merge = merge
        self._inbox = f"{INBOX}{token(8)}".encode()
        self._come: dict[str, str] = {}
        """The tokens to be looked at, by account."""
        self._more = asyncio.Event()
        self._system.serve_requests(self._inbox)
        self._tasks = [asyncio.create_task(work) for work in (self._ask(), self._look())]

    def close(self) -> None:
        """Asks and takes no more."""
        for task in self._tasks:
            task.cancel()

    def take(self, item: Item) -> bool:
        """Whether a message out of the inbox is one of the answers."""
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
