"""Who of a group's members answers while none of them leads: exactly one, where that is possible.

Plain data: time and what can be reached are handed in. Who led last has either answered already,
or passes on what came since then to who leads next. Where that one is gone, who is elected answers,
and until then the first of those that are there.
"""

from __future__ import annotations

from collections.abc import Set

PATIENCE = 0.5
"""Seconds for which who led last is trusted to answer, while nobody leads."""
LATELY = 5.0
"""Seconds after which nobody waits any more for what a former leader has not answered."""


class Succession:
    """Who leads one group, and who led it before; look() keeps up with it."""

    def __init__(self, own: str) -> None:
        """`own`: the id of this server."""
        self._own = own
        self._last = ""
        """The id of who led last; "": nobody is known to have led."""
        self._nobody_since: float | None = None
        """Since when nobody leads; None: somebody does, or nobody looked yet."""
        self.leads = False
        """Whether this server led at the last look."""
        self._led_until = -LATELY
        """When it was first seen to lead no more."""
        self._led_from = 0.0
        """When it was first seen to lead, the last time."""

    @property
    def last(self) -> str:
        """The id of who leads, or led last; "": nobody is known to have led."""
        return self._last

    def look(self, leader: str, leads: bool, now: float) -> None:
        """`leader`: the id of who is elected, "" for nobody; `leads`: whether that is this server,
        which has all that was agreed on before; `now`: seconds of a clock that only goes on."""
        if self.leads and not leads:
            self._led_until = now
        if leads and not self.leads:
            self._led_from = now
        self.leads = leads
        if leads or (leader and leader != self._own):
            self._last, self._nobody_since = self._own if leads else leader, None
        elif self._nobody_since is None:
            self._nobody_since = now

    def note(self, leader: str) -> None:
        """Somebody leads, as it is seen between two looks."""
        self._last, self._nobody_since = leader, None

    def led_lately(self, now: float) -> bool:
        """Whether this server led at the last look, or not long before."""
        return self.leads or now - self._led_until < LATELY

    def is_settled(self, now: float) -> bool:
        """Whether this server has led for so long that nothing is left of who led before."""
        return self.leads and now - self._led_from >= LATELY

    def answers(self, elected: bool, there: Set[str], now: float) -> bool:
        """Whether this server answers now that nobody leads. `elected`: it will lead in a moment;
        `there`: the ids of the members that can be reached from here, without its own."""
        if self._last == self._own:
            return True
        patient = self._nobody_since is None or now - self._nobody_since < PATIENCE
        if self._last in there and patient:
            return False
        return elected or self._own < min(there, default="~")
