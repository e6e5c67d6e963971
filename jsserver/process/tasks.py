"""Tasks that run beside the code that began them, held until they end."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Running tasks. The event loop holds tasks by weak references only, so a task that nobody
    awaits needs somebody who holds it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine in the running event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def cancel(self) -> None:
        """Cancels all tasks."""
        for task in self._running:
            task.cancel()

    async def under_way(self) -> None:
        """Returns when the tasks that run now have ended; others may have begun meanwhile."""
        if self._running:
            await asyncio.wait([*self._running])

    async def finished(self) -> None:
        """Returns when no task runs any more."""
        while self._running:
            await self.under_way()
