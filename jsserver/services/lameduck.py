"""Lame duck mode: a server that is about to stop closes its clients' connections a few at a time.

Loaded when the signal for it arrives.
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
"""Seconds at most between two closed connections."""
PAUSE_MIN = 0.001
"""Seconds at least; with many clients several are closed at once."""


def paces(clients: int, seconds: float) -> tuple[int, float]:
    """How many connections to close at once, and the seconds before the next, so that all are
    closed within `seconds`."""
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
    """Announces the server's end, and closes its clients' connections; the server may stop then.
    `send_elsewhere`: tells clients the URLs of other servers, None: there are none to tell."""
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
