"""Which of several servers answers what more than one of them may take for its own: at most one.

A server that may not be the only one asks the others before it answers. A server that is asked has
either taken the right to answer, or cedes it, and then asks before it answers itself. Of two that
ask at the same time, the one with the greater id goes on. So what a former leader has done, its
successor does not do again, and what the former leader has left, the successor does.

Plain data: time and messages are handed in. Messages of one server to another keep their order.
"""

from __future__ import annotations

from collections.abc import Set
from enum import Enum, auto

KNOWN_MAX = 4096
"""Rights that are remembered."""


class Turn(Enum):
    """What a server does about a right that it wants."""

    ACT = auto()
    """It has the right from now on, and answers."""
    WAIT = auto()
    """It waits for what others say."""
    LEAVE = auto()
    """It has answered already, or is about to, or another server has the right."""


class _Known(Enum):
    """What a server remembers of a right."""

    TAKEN = auto()
    """This server has it."""
    CEDED = auto()
    """Another one may have it."""


class Rights:
    """What one server knows about rights to answer, by their keys."""

    def __init__(self, own: str) -> None:
        """`own`: the id of this server."""
        self._own = own
        self._known: dict[str, _Known] = {}
        self._asking: dict[str, set[str]] = {}
        """The ids of the servers that have said nothing yet, by what they were asked about."""

    def want(self, key: str, others: Set[str]) -> Turn:
        """This server is to answer. `others`: the ids of servers that may have answered, which are
        to be asked if the turn is WAIT; none: nobody else can have."""
        if self.has(key) or key in self._asking:
            return Turn.LEAVE
        if not others:
            return self._take(key)
        self._asking[key] = {*others}
        return Turn.WAIT

    def asked(self, key: str, by: str) -> bool:
        """Another server wants to answer: whether this one cedes the right."""
        if self._known.get(key) is _Known.TAKEN or (key in self._asking and self._own > by):
            return False
        self._cede(key)
        return True

    def told(self, key: str, by: str, *, ceded: bool) -> Turn:
        """Another server has said whether it cedes the right."""
        missing = self._asking.get(key)
        if missing is None:
            return Turn.LEAVE
        if not ceded:
            self._cede(key)
            return Turn.LEAVE
        missing.discard(by)
        return Turn.WAIT if missing else self._take(key)

    def missing(self, key: str) -> Set[str]:
        """The ids of the servers that have been asked and have said nothing yet."""
        return self._asking.get(key, frozenset())

    def only(self, key: str, there: Set[str]) -> Turn:
        """Of the others, only these can be reached by now, or are waited for."""
        missing = self._asking.get(key)
        if missing is None:
            return Turn.LEAVE
        missing &= there
        return Turn.WAIT if missing else self._take(key)

    def is_ceded(self, key: str) -> bool:
        """Whether another server may have the right."""
        return self._known.get(key) is _Known.CEDED

    def give_up(self, key: str) -> None:
        """This server has the right and will not use it: any may have it."""
        self._known.pop(key, None)

    def has(self, key: str) -> bool:
        """Whether this server has the right."""
        return self._known.get(key) is _Known.TAKEN

    def _take(self, key: str) -> Turn:
        self._remember(key, _Known.TAKEN)
        return Turn.ACT

    def _cede(self, key: str) -> None:
        self._remember(key, _Known.CEDED)

    def _remember(self, key: str, what: _Known) -> None:
        self._asking.pop(key, None)
        self._known.pop(key, None)
        self._known[key] = what
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
