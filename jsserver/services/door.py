"""Admits connections of users with tokens, or refuses them, and closes them when their time is
over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jsserver.access.auth import Admission
from jsserver.access.clients import CLOSE_CODES, Connect
from jsserver.access.refusal import Refused
from jsserver.cext.engine import DataPlane, Item
from jsserver.process.logs import Logger

PRUNE_SECONDS = 0.02
"""Seconds between the error for too many subscriptions and the close, so that the error arrives."""
LONGEST_TIMER = 30 * 86_400.0
"""Seconds; a connection that may stay longer is checked again then."""

REFUSED = CLOSE_CODES["Authentication Failure"]
EXPIRED = CLOSE_CODES["Authentication Expired"]
REVOKED = CLOSE_CODES["Credentials Revoked"]
TOO_MANY = CLOSE_CODES["Maximum Account Connections Exceeded"]
TOO_MANY_SUBSCRIPTIONS = CLOSE_CODES["Maximum Subscriptions Exceeded"]


class Door:
    """Admissions, in the event loop's thread only. `decide`: admits or refuses a connection;
    whether it was admitted."""

    def __init__(
        self,
        plane: DataPlane,
        log: Logger,
        decide: Callable[[Item, Connect, Admission | Refused], bool],
    ) -> None:
        self._plane = plane
        self._log = log
        self._decide = decide
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def settle(self, item: Item, options: Connect, outcome: Admission | Refused) -> None:
        """Admits a connection, for as long as it may stay, or refuses it."""
        if isinstance(outcome, Refused):
            self._log.debug(f"cid:{item.cid} - {outcome}")
        if not self._decide(item, options, outcome) or isinstance(outcome, Refused):
            return
        if outcome.max_subscriptions == 0:
            self.prune(item.cid)
        if outcome.lasts is not None:
            self._end_after(item.cid, outcome.lasts)

    def prune(self, cid: int) -> None:
        """Closes a connection with more subscriptions than are allowed."""
        asyncio.get_running_loop().call_later(
            PRUNE_SECONDS,
            self._plane.close_connection,
            cid,
            TOO_MANY_SUBSCRIPTIONS,
            b"maximum subscriptions exceeded",
        )

    def closed(self, cid: int) -> None:
        """A connection was closed."""
        timer = self._timers.pop(cid, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Stops closing connections."""
        for timer in self._timers.values():
            timer.cancel()

    def _end_after(self, cid: int, seconds: float) -> None:
        self.closed(cid)
        loop = asyncio.get_running_loop()
        if seconds > LONGEST_TIMER:
            rest = seconds - LONGEST_TIMER
            timer = loop.call_later(LONGEST_TIMER, self._end_after, cid, rest)
        else:
            timer = loop.call_later(
                seconds,
                self._plane.close_connection,
                cid,
                EXPIRED,
                b"User Authentication Expired",
            )
        self._timers[cid] = timer
