"""What the JetStream of all accounts uses: the data plane, settings, files, threads, the clock."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar

from jsserver import TYPE_CHECKING
from jsserver.assets.limits import Reservations, ServerSettings
from jsserver.process import garbage

from . import metafiles
from .asking import Asking
from .backend import Accounts
from .metafiles import MetaFiles
from .rounds import Rounds
from .turns import Turns

if TYPE_CHECKING:
    from jsserver.disk.keys import Keys

P = ParamSpec("P")
R = TypeVar("R")

WORKERS = 16
"""Threads for what waits for a disk, and requests in progress at the same time."""


class Shared:
    """One of a server."""

    def __init__(
        self,
        accounts: Accounts,
        settings: ServerSettings,
        hash64: metafiles.Hash64,
        clock: Callable[[], int] = time.time_ns,
        keys: Keys | None = None,
    ) -> None:
        self.accounts = accounts
        """The data plane's, also those without JetStream."""
        self.settings = settings
        self.files = MetaFiles(hash64, keys)
        self.rounds = Rounds()
        self.clock = clock
        self.reserved = Reservations()
        self.asking = Asking()
        self.turns = Turns()
        self.full = ""
        """Why nothing is stored in any stream on disk at the moment."""
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="api")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large")
        self._trash: deque[Path] = deque()
        self._eraser: Future[None] | None = None
        self._erasing = Lock()

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls something that may block, in a worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    async def compute(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls something that keeps the processor for long, in a thread where one of these runs at
        a time: of many that run Python at once each would take the GIL from the event loop."""

        def alone() -> R:
            with garbage.paused():
                return function(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._large, alone)

    def erase_later(self, directory: Path) -> None:
        """Removes a directory that nobody sees any more, without waiting for it; in any thread."""
        self._trash.append(directory)
        with self._erasing:
            if self._eraser is None or self._eraser.done():
                self._eraser = self._threads.submit(self._erase)

    def _erase(self) -> None:
        """Removes all that is to be removed, one after another."""
        while True:
            with self._erasing:
                if not self._trash:
                    self._eraser = None
                    return
            metafiles.erase(self._trash.popleft())

    async def erased(self) -> None:
        """Waits for what is being erased."""
        eraser = self._eraser
        if eraser is not None:
            await asyncio.wait([asyncio.wrap_future(eraser)])

    async def close(self) -> None:
        """Waits for what is being erased and ends the threads."""
        await self.erased()
        self._threads.shutdown(wait=False)
        self._large.shutdown(wait=False)
        self.rounds.close()
