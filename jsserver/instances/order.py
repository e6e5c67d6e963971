"""What one connection asks of an account, in its order: a request waits for those before it that it
depends on, and for no others.

Two requests depend on each other where one of them changes what the other one looks at or changes.
Those that claim something (subjects, limits, what a work queue's consumer takes) may take it from
each other. They wait until the ones before them are judged. What these leave is theirs until they
end, so a refusal may come too early then, but no consent: who is refused is judged once more.

A request waits for earlier ones alone, and while it holds no lock: so there is no circle.
"""

import asyncio
import enum
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile


class Effect(enum.Enum):
    """What a request does."""

    LOOKS = enum.auto()
    CHANGES = enum.auto()
    CLAIMS = enum.auto()
    """It changes something, and whether it may depends on what others claim."""


class Stage(enum.IntEnum):
    """How far a request is."""

    ASKED = 0
    JUDGED = 1
    """It claims what it is to have, or claims nothing."""
    ENDED = 2


class Place:
    """That of one request among those of its connection.

    `stream`: None is all of the account's; `consumer`: None is the stream with all of its
    consumers. While it waits in `aside`, others of its connection have their turn."""

    __slots__ = (
        *("_behind", "_left", "_turn", "aside", "consumer", "effect", "line", "stage", "stream"),
    )

    def __init__(
        self,
        stream: str | None,
        consumer: str | None,
        effect: Effect,
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.stream = stream
        self.consumer = consumer
        self.effect = effect
        self.aside = aside
        self.stage = Stage.ASKED
        self.line: Line | None = None
        """Where others of its connection are under way, too."""
        self._left = 0
        """How many it waits for."""
        self._turn: asyncio.Future[None] | None = None
        self._behind: list[tuple[Place, Stage]] | None = None
        """Those that wait until it is so far."""

    @property
    def waits(self) -> bool:
        """Whether its turn has not come."""
        return self._left > 0

    async def turn(self) -> None:
        """Returns when its turn has come."""
        if self._left:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def reach(self, stage: Stage) -> None:
        """It is so far now."""
        self.stage = stage
        if self.line is not None:
            self.line.unjudged.pop(self, None)
        behind = self._behind
        if behind is not None:
            self._behind = [one for one in behind if one[1] > stage] or None
            for place, wanted in behind:
                if wanted <= stage:
                    place._step()

    def refused(self) -> bool:
        """Whether earlier ones under way may be why it was refused: it waits for their end then."""
        if self.stage is Stage.ASKED and self.line is not None:
            for earlier in self.line.before(self):
                if _dependence(self, earlier) is Stage.JUDGED:
                    self.follow(earlier, Stage.ENDED)
        return self.waits

    def follow(self, earlier: "Place", wanted: Stage) -> None:
        """It waits until that one is so far."""
        if earlier.stage < wanted:
            if earlier._behind is None:
                earlier._behind = []
            earlier._behind.append((self, wanted))
            self._left += 1

    def _step(self) -> None:
        self._left -= 1
        if not self._left and self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


def _dependence(later: Place, earlier: Place) -> Stage:
    """How far the earlier one must be before the later one begins."""
    if later.effect is Effect.LOOKS and earlier.effect is Effect.LOOKS:
        return Stage.ASKED
    if later.stream is None or earlier.stream is None:
        return Stage.ENDED
    alone = later.consumer is None or earlier.consumer is None
    if later.stream == earlier.stream and (alone or later.consumer == earlier.consumer):
        return Stage.ENDED
    claims = later.effect is Effect.CLAIMS and earlier.effect is Effect.CLAIMS
    among = later.stream == earlier.stream or later.consumer is earlier.consumer is None
    return Stage.JUDGED if claims and among else Stage.ASKED


Places = dict[Place, None]
"""In the order in which they were asked."""


class Line:
    """The requests of one connection that are under way."""

    __slots__ = ("all", "named", "parts", "unjudged")

    def __init__(self) -> None:
        self.all: Places = {}
        self.named: dict[tuple[str | None, str | None], Places] = {}
        """By stream and consumer."""
        self.parts = 0
        """How many name a consumer."""
        self.unjudged: Places = {}
        """Those that claim something, and are not judged yet."""

    def before(self, place: Place) -> Iterator[Place]:
        """Those that were asked before one of them."""
        return takewhile(lambda other: other is not place, self.all)

    def add(self, place: Place) -> None:
        """It comes behind all others, and waits for some of them."""
        if self.all:
            for earlier in self._near(place):
                place.follow(earlier, _dependence(place, earlier))
        place.line = self
        self.all[place] = None
        self.named.setdefault((place.stream, place.consumer), {})[place] = None
        self.parts += place.consumer is not None
        if place.effect is Effect.CLAIMS and place.stage is Stage.ASKED:
            self.unjudged[place] = None

    def remove(self, place: Place) -> None:
        """It has ended."""
        name = place.stream, place.consumer
        del self.all[place], self.named[name][place]
        if not self.named[name]:
            del self.named[name]
        self.parts -= place.consumer is not None
        place.reach(Stage.ENDED)

    def _near(self, place: Place) -> Places:
        """All that it may depend on, and few others."""
        if place.stream is None or (place.consumer is None and self.parts):
            return self.all
        near = dict(self.unjudged)
        for name in ((None, None), (place.stream, None), (place.stream, place.consumer)):
            if name in self.named:
                near |= self.named[name]
        return near


class Order:
    """Of the requests to one account."""

    def __init__(self) -> None:
        self._lone: dict[int, Place] = {}
        """Of connections of which one request is under way, as with most."""
        self._lines: dict[int, Line] = {}
        """Of all others."""

    def enter(self, connection: int, place: Place) -> None:
        """It comes behind those of its connection that entered before."""
        line = self._lines.get(connection)
        if line is None:
            first = self._lone.setdefault(connection, place)
            if first is place:
                return
            del self._lone[connection]
            line = self._lines[connection] = Line()
            line.add(first)
        line.add(place)

    def leave(self, connection: int, place: Place) -> None:
        """It has ended, or was given up."""
        if place.line is None:
            del self._lone[connection]
            return
        line = self._lines[connection]
        line.remove(place)
        if not line.all:
            del self._lines[connection]


def unasked() -> Place:
    """The place of a change that no connection asks for."""
    return Place(None, None, Effect.CHANGES, nullcontext)
