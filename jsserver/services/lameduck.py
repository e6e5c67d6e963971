"""Lame duck mode: a server that is about to end sends its clients elsewhere, a few at a time.

Loaded with the signal that asks for it.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from jsserver.access.clients import CLOSE_CODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsserver.access.info import Urls
    from jsserver.cext.engine import DataPlane
    from jsserver.config.options import Options
    from jsserver.listeners.listeners import Listeners
    from jsserver.process.logs import Logger
    from jsserver.services.events import Events
    from jsserver.services.routes import Routes

PAUSE_MAX = 1.0
"""Seconds between two clients that are sent away, at most."""
PAUSE_MIN = 0.001
"""What several clients share, where there are many."""


def paces(clients: int, seconds: float) -> tuple[int, float]:
    """How many clients leave at once, and the seconds from then to the next, so that all have left
    in time."""
    pause = seconds / max(clients, 1)
    if pause >= PAUSE_MIN:
        return 1, min(pause, PAUSE_MAX)
    return -int(-clients * PAUSE_MIN // seconds), PAUSE_MIN


async def lame_duck(
    options: Options,
    log: Logger,
    plane: DataPlane,
    listeners: Listeners,
    events: Events | None,
    routes: Routes | None,
    send_elsewhere: Callable[[Urls | None], None],
) -> None:
    """Tells everybody that the server is about to end, and cuts its clients; it may end then.
    `send_elsewhere` tells clients where else they may connect, None: anywhere."""
    log.info("Entering lame duck mode, stop accepting new clients")
    if events is not None:
        events.lame_duck()
    listeners.close_clients()
    if not plane.stats()["connections"]:
        return
    send_elsewhere(routes.leave() if routes is not None else None)
    grace = options.lame_duck_grace_period / 1e9
    await asyncio.sleep(grace)
    log.info("Closing existing clients")
    cids = [item.cid for item in plane.connections()]
    seconds = options.lame_duck_duration / 1e9 - grace
    at_once, pause = paces(len(cids), seconds)
    for start in range(0, len(cids), at_once):
        for cid in cids[start : start + at_once]:
            plane.close_connection(cid, CLOSE_CODES["Server Shutdown"])
        if start + at_once < len(cids):
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
