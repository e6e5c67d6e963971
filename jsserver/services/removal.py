"""This server's removal from its cluster while it runs: JetStream ends here, as on a nats-server.

What the server holds may be placed anew elsewhere, so nothing of it may take messages any more. All
stays on disk. A restart joins the cluster again.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.process.logs import Logger
    from jsserver.services.held import Held
    from jsserver.services.jetstream import JetStream


class Removal:
    """Ends JetStream once; `shut` ends this server's part in the meta group."""

    def __init__(
        self,
        log: Logger,
        held: Held | None,
        jetstream: JetStream,
        shut: Callable[[], None],
    ) -> None:
        self.removed = False
        """Whether the meta group has removed this server since it started."""
        self.since = 0
        """The last entry of the meta group that was there before this server was: one that was
        down when it was removed joins again."""
        self.ended: Callable[[], None] = lambda: None
        """Is called once nothing of JetStream is served here."""
        self._log = log
        self._held = held
        self._jetstream = jetstream
        self._shut = shut
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The group has agreed on the removal."""
        self.removed = True
        if self._task is None:
            self._log.error(
                "This server was removed from the JetStream cluster: JetStream stops here. What the"
                " server holds stays on disk. Restart the server to let it join again"
            )
            self._task = asyncio.create_task(self._end())

    async def done(self) -> None:
        """Waits until JetStream has ended, if it was to."""
        if self._task is not None:
            await self._task

    async def _end(self) -> None:
        if self._held is not None:
            await self._held.close()
        await self._jetstream.leave()
        await asyncio.to_thread(self._shut)
        self.ended()
