"""Tasks that run beside the code that began them."""

import asyncio

from jsserver.process.tasks import Tasks


def test_finished_waits_for_tasks_that_a_task_begins() -> None:
    async def story() -> list[str]:
        tasks, may_end = Tasks(), asyncio.Event()
        ended: list[str] = []

        async def second() -> None:
            await may_end.wait()
            ended.append("second")

        async def first() -> None:
            tasks.begin(second())
            ended.append("first")

        tasks.begin(first())
        await tasks.under_way()
        assert ended == ["first"]
        may_end.set()
        await tasks.finished()
        return ended

    assert asyncio.run(story()) == ["first", "second"]


def test_cancelled_tasks_end() -> None:
    async def story() -> bool:
        tasks = Tasks()
        task = tasks.begin(asyncio.Event().wait())
        tasks.cancel()
        async with asyncio.timeout(5):
            await tasks.finished()
        return task.cancelled()

    assert asyncio.run(story())
