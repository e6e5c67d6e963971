"""The lock of a stream's name: who changes the stream is alone, who changes consumers of different
names goes side by side."""

import asyncio
from collections import deque


class StreamLock:
    """Given in the order in which it was asked for; used in one event loop."""

    def __init__(self) -> None:
        self._whole = False
        self._consumers: set[str] = set()
        self._waiting: deque[tuple[str | None, asyncio.Future[None]]] = deque()

    async def take(self, consumer: str | None) -> None:
        """Waits until nobody has it who must not have it at the same time: for None that is
        everybody, for a consumer who changes the stream or this consumer."""
        if not self._waiting and self._is_free(consumer):
            self._give(consumer)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (consumer, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given, and nobody takes it
                self.let(consumer)
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._pass_on()
            raise

    def let(self, consumer: str | None) -> None:
        """Ends what `take` began."""
        if consumer is None:
            self._whole = False
        else:
            self._consumers.remove(consumer)
        self._pass_on()

    def _is_free(self, consumer: str | None) -> bool:
        if self._whole:
            return False
        return consumer not in self._consumers if consumer is not None else not self._consumers

    def _give(self, consumer: str | None) -> None:
        if consumer is None:
            self._whole = True
        else:
            self._consumers.add(consumer)

    def _pass_on(self) -> None:
        while self._waiting and self._is_free(self._waiting[0][0]):
            consumer, turn = self._waiting.popleft()
            if not turn.done():  # else it is cancelled, and has not heard of it yet
                self._give(consumer)
                turn.set_result(None)


class Hold:
    """What `async with` takes: the lock for a consumer or, with None, for the whole stream."""

    __slots__ = ("_consumer", "_lock")

    def __init__(self, lock: StreamLock, consumer: str | None) -> None:
        self._lock = lock
        self._consumer = consumer

    async def __aenter__(self) -> None:
        await self._lock.take(self._consumer)

    async def __aexit__(self, *_: object) -> None:
        self._lock.let(self._consumer)
