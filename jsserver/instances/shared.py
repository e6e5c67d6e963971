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
from typing import ParamSpec, Protocol, TypeVar

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
    from jsserver.wire.types import ClusterInfo, StreamAlternate

    from .running import Consumer, Stream

P = ParamSpec("P")
R = TypeVar("R")

WORKERS = 16
"""Threads for what waits for a disk, and requests in progress at the same time."""


class Member(Protocol):
    """This server as a member of a cluster that decides which streams and consumers there are."""

    def remove_consumer(self, account: str, stream: str, consumer: str) -> None:
        """Has the cluster asked that a consumer be no more."""

    def consumers_of(self, account: str, stream: str) -> int:
        """How many consumers a stream has, whichever members hold them."""

    def alternates_of(self, account: str, stream: str, near: str) -> list[StreamAlternate]:
        """A stream and its mirrors in the account, those in the cluster `near` first; none where
        the stream has no mirror."""

    def serve(self, account: str) -> None:
        """The account has JetStream from now on."""

    @property
    def cluster(self) -> str:
        """What the cluster is called now."""

    def placed(self, asset: Stream | Consumer) -> ClusterInfo | None:
        """Who leads and holds an asset that has replicas."""


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
        self.member: Member | None = None
        """Who knows what a cluster has decided, where it decides what there is."""
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
