"""Lets many tasks that become ready together go on in small groups, so that others come between."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 8
"""Tasks that go on in one turn of the event loop: they take about a millisecond."""


async def spread(items: Iterable[T]) -> AsyncIterator[T]:
    """Gives the items in small groups."""
    for number, item in enumerate(items):
        if number % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        yield item


class Turns:
    """Those that wait for their turn, first come first served."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def come(self) -> None:
        """Returns when the turn of the calling task has come."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next)
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        left = AT_ONCE
        while left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                left -= 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
