"""Runs reloads of a server's configuration one after another, as they are requested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from jsserver.process.logs import Logger

if TYPE_CHECKING:
    from jsserver.services.followers import Parts

FAILED = "Failed to reload server configuration"


class Reload:
    """The reloads of a server; in its event loop."""

    def __init__(self, log: Logger, parts: Callable[[], Parts]) -> None:
        """`parts`: returns the server's parts at the beginning of a reload."""
        self._log = log
        self._parts = parts
        self._ready = asyncio.Event()
        self._lock = asyncio.Lock()
        self._waiting: asyncio.Task[str] | None = None
        self._under_way: asyncio.Task[str] | None = None
        self._closed = False

    def begin(self) -> None:
        """The server has started: runs reloads that were requested before."""
        self._ready.set()

    async def close(self) -> None:
        """Waits for a running reload, and begins none any more."""
        self._closed = True
        self._ready.set()
        async with self._lock:
            pass

    def ask(self) -> asyncio.Task[str]:
        """Requests a reload that reads the file no earlier than now. The result says why nothing
        was changed; "": the reload succeeded."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run())
        return self._waiting

    async def _run(self) -> str:
        await self._ready.wait()
        async with self._lock:
            self._waiting = None
            if self._closed:
                return "the server ends"
            self._under_way = asyncio.current_task()
            # Imported late: most servers never need it.
            from jsserver.services.followers import ReloadError
            from jsserver.services.reloading import Reloading

            try:
                await Reloading(self._parts()).run()
            except ReloadError as error:
                lines = str(error).splitlines()
            except Exception as error:
                lines = [f"Internal error: {error!r}"]
            else:
                return ""
            for line in lines:
                self._log.error(f"{FAILED}: {line}")
            return "; ".join(lines)
