"""Fetches accounts of operator mode whose streams or consumers are assigned to this server: an
assignment may come before any user of its account connects here.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jsserver.access.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.services.tenants import Tenants

AGAIN_MIN, AGAIN_MAX = 1.0, 60.0
"""Seconds before a failed fetch is tried again: twice as many after each failure."""


class Needed:
    """The fetches of one server."""

    def __init__(self, tenants: Callable[[], Tenants | None]) -> None:
        """`tenants`: the accounts that run in operator mode; None in the other modes, where the
        configuration names all accounts."""
        self._tenants = tenants
        self._coming: dict[str, asyncio.Task[None]] = {}

    def close(self) -> None:
        """Cancels all fetches."""
        for task in self._coming.values():
            task.cancel()

    def lacks(self, account: str) -> bool:
        """Whether the account does not run here and could be fetched."""
        tenants = self._tenants()
        return tenants is not None and tenants.get(account) is None

    async def bring(self, account: str) -> bool:
        """Fetches the account if it does not run; whether it runs now."""
        tenants = self._tenants()
        if tenants is None:
            return False
        try:
            await tenants.ensure(account)
        except Refused:
            return False
        return True

    def want(self, account: str, still: Callable[[str], bool]) -> None:
        """Fetches the account in the background, again and again while `still(account)` holds."""
        if self.lacks(account) and account not in self._coming:
            task = asyncio.create_task(self._go_on(account, still))
            self._coming[account] = task
            task.add_done_callback(lambda _: self._coming.pop(account, None))

    async def _go_on(self, account: str, still: Callable[[str], bool]) -> None:
        pause = AGAIN_MIN
        while still(account) and not await self.bring(account):
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN_MAX)
