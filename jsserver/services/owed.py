"""Answers that nobody would give, or two servers would, as the lead of an asset changes while the
meta group's decision about it comes to its members.

Lives in the event loop. A member that does not lead keeps how it would answer for a while. Who led
shortly before passes the request on to who leads next: that one answers, unless it did so already.
Servers that do not know these messages hear nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jsserver.services.membership import Duty, Owes

if TYPE_CHECKING:
    from jsserver.cext.engine import Item

SUBJECT = "$JSC.OWED."
"""On which a server hears what others pass on to it: the subject of an answer."""
KEPT_MAX = 256
"""Answers that are kept."""


class Owed:
    """Those of a server."""

    def __init__(self, system: Any, own: str) -> None:
        """`own`: the id of this server."""
        self._system = system
        self._own = own
        self._kept: dict[str, Callable[[], None]] = {}
        """How requests would be answered, by the subjects of their answers."""
        self._early: dict[str, None] = {}
        """What was passed on before this server knew of it."""

    def begin(self) -> None:
        """Others may pass requests on from now on."""
        self._system.serve_requests(f"{SUBJECT}{self._own}".encode())

    def settle(self, owes: Owes, reply: str, answer: Callable[[], None]) -> None:
        """This server answers, or another one does."""
        if owes.answers:
            answer()
        elif owes.duty is Duty.PASS:
            self._early.pop(reply, None)
            self._keep(reply, answer)
            self._pass_on(reply, owes.leader)
        else:
            self._keep(reply, answer)

    def _keep(self, reply: str, answer: Callable[[], None]) -> None:
        if reply in self._early:
            del self._early[reply]
            answer()
        elif reply:
            self._kept[reply] = answer
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]

    def _pass_on(self, reply: str, leader: str) -> None:
        if reply and leader and leader != self._own:
            text = reply.encode("utf-8", "surrogateescape")
            self._system.publish(f"{SUBJECT}{leader}".encode(), b"", b"", text)

    def take(self, item: Item) -> bool:
        """Whether a message out of the inbox is what another server passes on."""
        subject, _, _, payload = item.texts
        if item.numbers[0] != self._system.id or subject != f"{SUBJECT}{self._own}".encode():
            return False
        reply = payload.decode("utf-8", "surrogateescape")
        answer = self._kept.pop(reply, None)
        if answer is not None:
            answer()
        else:
            self._early[reply] = None
            if len(self._early) > KEPT_MAX:
                del self._early[next(iter(self._early))]
        return True
