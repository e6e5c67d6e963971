"""Asks other servers before this one answers what one of them may have answered: `Rights` decides.

Lives in the event loop. Servers that do not know these messages, as nats-servers, are not asked.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from jsserver.cluster.rights import Rights, Turn
from jsserver.instances.backend import PlaneClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from jsserver.cext.engine import AccountHandle, Item

SUBJECT = b"$JSC.RIGHT."
"""Before the id of a server, on which that one hears questions and answers about rights: a word,
the id of who says it, and the right's key."""
ASK, CEDE, KEEP = b"ask", b"cede", b"keep"
PATIENCE = 2.0
"""Seconds for which servers that can be reached are waited for."""
PAUSE = 0.1
"""Seconds between two looks at which can be."""
WAITING_MAX = 1024
"""The most answers that wait for others; further ones are left out."""


class Asking:
    """The rights of one server."""

    def __init__(self, system: AccountHandle, own: str) -> None:
        """`own`: the id of this server."""
        self._system = system
        self._own = own
        self._to_own = SUBJECT + own.encode()
        self._rights = Rights(own)
        self._acts: dict[str, Callable[[], None]] = {}
        """What is done once this server has a right, by the right's key."""

    def begin(self) -> None:
        """Others may ask from now on."""
        self._system.serve_requests(self._to_own)

    def has(self, key: str) -> bool:
        """Whether this server has a right."""
        return self._rights.has(key)

    def give_up(self, key: str) -> None:
        """This server has a right, and will not use it."""
        self._rights.give_up(key)

    def want(
        self, key: str, others: Callable[[], Set[str]], act: Callable[[], None], *, sure: bool
    ) -> None:
        """This server is to answer: `act` does so, at once or later, unless another server has.
        `others`: the ids of those that may have; `sure`: none of them can have before this one."""
        if len(self._acts) >= WAITING_MAX:
            return
        asked: set[str] = set()
        if not sure or self._rights.is_ceded(key):
            asked = self._heard_by(others())
        match self._rights.want(key, asked):
            case Turn.ACT:
                act()
            case Turn.WAIT:
                self._acts[key] = act
                for other in asked:
                    self._say(other, ASK, key)
                loop = asyncio.get_running_loop()
                loop.call_later(PAUSE, self._look, key, act, loop.time() + PATIENCE)

    def _heard_by(self, others: Set[str]) -> set[str]:
        return {one for one in others if self._system.subject_interest(SUBJECT + one.encode())}

    def _say(self, to: str, word: bytes, key: str) -> None:
        text = b" ".join((word, self._own.encode(), key.encode("utf-8", "surrogateescape")))
        self._system.publish(SUBJECT + to.encode(), b"", b"", text)

    def _look(self, key: str, act: Callable[[], None], end: float) -> None:
        """Waits no more for servers that are gone, and at the end for none."""
        if self._acts.get(key) is not act:
            return
        loop = asyncio.get_running_loop()
        with suppress(PlaneClosed):  # this server has ended meanwhile
            there = self._heard_by(self._rights.missing(key)) if loop.time() < end else set()
            self._turn(key, self._rights.only(key, there))
            loop.call_later(PAUSE, self._look, key, act, end)

    def _turn(self, key: str, turn: Turn) -> None:
        if turn is Turn.WAIT:
            return
        act = self._acts.pop(key, None)
        if turn is Turn.ACT and act is not None:
            act()

    def take(self, item: Item) -> bool:
        """Whether a message out of the inbox is about a right."""
        subject, _, _, payload = item.texts
        if item.numbers[0] != self._system.id or subject != self._to_own:
            return False
        word, _, rest = payload.partition(b" ")
        by, _, named = rest.partition(b" ")
        key, other = named.decode("utf-8", "surrogateescape"), by.decode("utf-8", "replace")
        if word == ASK:
            cedes = self._rights.asked(key, other)
            if cedes:
                self._acts.pop(key, None)
            self._say(other, CEDE if cedes else KEEP, key)
        elif word in (CEDE, KEEP):
            self._turn(key, self._rights.told(key, other, ceded=word == CEDE))
        return True
