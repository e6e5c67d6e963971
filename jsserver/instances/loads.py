"""Opens streams of an earlier life in batches, though each is asked for by itself.

A cluster assigns each stream by itself. Opened one by one, a thousand streams cost thousands of
syncs, and sixteen threads that take the GIL from each other.
"""

import asyncio

from . import recovery
from .account import Account
from .running import Stream

MOST = 128
"""Streams of one batch, so that the first streams run before the last ones are open."""

_Wait = tuple[Account, str, asyncio.Future[Stream | str]]


class Loads:
    """The batches of a server; used in its event loop."""

    def __init__(self) -> None:
        self._waiting: list[_Wait] = []
        self._running: asyncio.Task[None] | None = None

    async def load(self, account: Account, name: str) -> Stream | str:
        """Opens a stream on disk; a string says why it is offline."""
        future: asyncio.Future[Stream | str] = asyncio.get_running_loop().create_future()
        self._waiting.append((account, name, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        """Opens batch after batch until no task waits."""
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            accounts = {account.name: account for account, *_ in batch}
            for account in accounts.values():
                await self._load(account, {name: f for of, name, f in batch if of is account})
        self._running = None

    async def _load(
        self, account: Account, waiting: dict[str, asyncio.Future[Stream | str]]
    ) -> None:
        """Opens streams of one account; `waiting`: the futures of the tasks, by streams."""
        try:
            opened = await recovery.load_all(account, [*waiting])
        except Exception as error:
            for future in waiting.values():
                if not future.done():
                    future.set_exception(error)
            return
        for name, future in waiting.items():
            if not future.done():
                future.set_result(opened[name])
