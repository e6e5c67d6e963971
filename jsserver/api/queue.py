"""API requests that wait: each connection's in the order they came, the connections in turn."""

from collections import Counter, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class RequestQueue(Generic[T]):
    """Hands requests out so that no connection waits for all that another one has asked.

    `most` and `most_infos` are how many may wait, of requests and of those that only look;
    `at_once` is how many of one connection may be in progress at the same time.
    """

    def __init__(self, most: int, most_infos: int, at_once: int) -> None:
        self._most = {False: most, True: most_infos}
        self._at_once = at_once
        self._lines: dict[int, deque[tuple[T, bool]]] = {}
        self._turns: dict[int, None] = {}
        """Connections of which a request may begin, in the order of their turns."""
        self._busy: Counter[int] = Counter()
        self._waiting = {False: 0, True: 0}

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return sum(self._waiting.values())

    def __bool__(self) -> bool:
        """Whether a request may begin."""
        return bool(self._turns)

    def put(self, connection: int, request: T, info: bool) -> list[T]:
        """Adds a request, and returns what is dropped because too many wait: all of its kind from
        the connection that has most of them."""
        line = self._lines.get(connection)
        if line is None:
            line = self._lines[connection] = deque()
            if self._busy[connection] < self._at_once:
                self._turns[connection] = None
        line.append((request, info))
        self._waiting[info] += 1
        if self._waiting[info] <= self._most[info]:
            return []
        return self._drop(info)

    def take(self) -> tuple[int, T]:
        """The connection and the request whose turn it is; `done` when it was worked on."""
        connection = next(iter(self._turns))
        del self._turns[connection]
        line = self._lines[connection]
        request, info = line.popleft()
        self._waiting[info] -= 1
        self._busy[connection] += 1
        if not line:
            del self._lines[connection]
        elif self._busy[connection] < self._at_once:
            self._turns[connection] = None
        return connection, request

    def done(self, connection: int) -> None:
        """A request of this connection is no longer in progress."""
        self._busy[connection] -= 1
        if self._busy[connection] < self._at_once and connection in self._lines:
            self._turns.setdefault(connection)
        if not self._busy[connection]:
            del self._busy[connection]

    def again(self, connection: int) -> None:
        """One that was done with for the time being is in progress again."""
        self._busy[connection] += 1

    def _drop(self, info: bool) -> list[T]:
        counts = {c: sum(i == info for _, i in line) for c, line in self._lines.items()}
        connection = max(counts, key=lambda c: counts[c])
        line = self._lines[connection]
        dropped = [request for request, i in line if i == info]
        self._waiting[info] -= len(dropped)
        kept = deque(entry for entry in line if entry[1] != info)
        if kept:
            self._lines[connection] = kept
        else:
            del self._lines[connection]
            self._turns.pop(connection, None)
        return dropped
