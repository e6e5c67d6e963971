"""Accounts of operator mode that the cluster has something of: fetched when they are needed here,
as streams may be assigned to a server before any user of their account comes to it.

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
"""Seconds after which an account is asked for again that was not to be had: twice as many each
time."""


class Needed:
    """Those of one server."""

    def __init__(self, tenants: Callable[[], Tenants | None]) -> None:
        """`tenants`: the accounts that run; None: the configuration says which accounts there
        are."""
        self._tenants = tenants
        self._coming: dict[str, asyncio.Task[None]] = {}

    def close(self) -> None:
        """Asks for none any more."""
        for task in self._coming.values():
            task.cancel()

    def lacks(self, account: str) -> bool:
        """Whether the account does not run, and may yet."""
        tenants = self._tenants()
        return tenants is not None and tenants.get(account) is None

    async def bring(self, account: str) -> bool:
        """Whether the account runs now: it is fetched if it did not."""
        tenants = self._tenants()
        if tenants is None:
            return False
        try:
            await tenants.ensure(account)
        except Refused:
            return False
        return True

    def want(self, account: str, still: Callable[[str], bool]) -> None:
        """Has the account run as soon as it is to be had, as long as it is wanted `still`."""
        if self.lacks(account) and account not in self._coming:
            task = asyncio.create_task(self._go_on(account, still))
            self._coming[account] = task
            task.add_done_callback(lambda _: self._coming.pop(account, None))

    async def _go_on(self, account: str, still: Callable[[str], bool]) -> None:
        pause = AGAIN_MIN
        while still(account) and not await self.bring(account):
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN_MAX)
