"""Who changes a stream is alone, who changes its consumers goes side by side: in order."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from jsserver.instances.locks import Hold, StreamLock


class World:
    """Takes a lock for others and notes who has it."""

    def __init__(self) -> None:
        self.lock = StreamLock()
        self.inside: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, who: str, consumer: str | None = None) -> None:
        self.ends[who] = asyncio.Event()
        self.tasks[who] = asyncio.ensure_future(self._hold(who, consumer))
        await settled()

    async def _hold(self, who: str, consumer: str | None) -> None:
        async with Hold(self.lock, consumer):
            self.inside.append(who)
            try:
                await self.ends[who].wait()
            finally:
                self.inside.remove(who)

    async def end(self, who: str) -> None:
        self.ends[who].set()
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_consumers_go_side_by_side_and_streams_alone() -> None:
    async def check() -> None:
        world = World()
        await world.ask("a", "A")
        await world.ask("b", "B")
        assert world.inside == ["a", "b"]
        await world.ask("a again", "A")
        await world.ask("c", "C")
        assert world.inside == ["a", "b"], "in the order in which they came"
        await world.ask("whole")
        await world.ask("d", "D")
        await world.end("a")
        assert world.inside == ["b", "a again", "c"]
        for who in ("b", "a again", "c"):
            await world.end(who)
        assert world.inside == ["whole"]
        await world.end("whole")
        assert world.inside == ["d"]
        await world.end("d")

    run(check())


def test_who_gives_up_leaves_the_lock_to_others() -> None:
    async def check() -> None:
        world = World()
        await world.ask("whole")
        await world.ask("a", "A")
        await world.ask("b", "B")
        world.tasks["a"].cancel()
        await settled()
        await world.end("whole")
        assert world.inside == ["b"]
        await world.ask("second")
        await world.ask("c", "C")
        world.ends["b"].set()  # the lock is given to one that is cancelled before it hears of it
        await asyncio.sleep(0)
        world.tasks["second"].cancel()
        await settled()
        assert world.inside == ["c"]
        await world.end("c")
        await world.ask("last")
        assert world.inside == ["last"]
        await world.end("last")

    run(check())
