"""Works in steps that wait for the disk, those of many requests together: a round at a time.

A work is a generator. It yields what it waits for and is resumed when that is so, or with the error
that is its own. All works of a round take their steps one after another, in the order they came,
and then wait together: many new directories are made durable by one sync, many changes by one
commit group. Works that come while a round is under way are those of the next one.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from .backend import StreamHandle
from .syncs import Syncs


class Synced(msgspec.Struct, frozen=True):
    """Waits until these files and directories are on disk."""

    descriptors: Sequence[int]


class Durable(msgspec.Struct, frozen=True):
    """Waits until all that was done to a stream is durable."""

    handle: StreamHandle


R = TypeVar("R")
Work = Generator[Synced | Durable, None, R]


class _Item:
    """A work of a round, and what becomes of it."""

    __slots__ = ("error", "future", "result", "wait", "work")

    def __init__(self, work: Work[Any], future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.wait: Synced | Durable | None = None
        self.error: BaseException | None = None
        self.result: Any = None

    def step(self) -> bool:
        """Goes on until it waits again; False: it has ended."""
        error, self.error, self.wait = self.error, None, None
        try:
            self.wait = self.work.send(None) if error is None else self.work.throw(error)
        except StopIteration as end:
            self.result = end.value
        except BaseException as failure:
            self.error = failure
        return self.wait is not None


class Rounds:
    """Those of a server; used in its event loop, but for `alone`, which is for any thread."""

    def __init__(self) -> None:
        self._syncs = Syncs()
        self._waiting: list[_Item] = []
        self._running = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="api-round")

    async def together(self, work: Work[R]) -> R:
        """Carries a work out in the next round."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append(_Item(work, future))
        if not self._running:
            self._running = True
            loop.call_soon(self._begin, loop)  # with what else comes in this turn
        return await future

    def alone(self, work: Work[R]) -> R:
        """Blocking. Carries a work out in the calling thread; syncs are still those of all who wait
        for one."""
        return _carried_out(work, lambda descriptors: self._syncs.all(*descriptors))

    def close(self) -> None:
        """Ends its threads; no round is under way any more."""
        self._thread.shutdown(wait=False)
        self._syncs.close()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        items, self._waiting = self._waiting, []
        self._thread.submit(self._round, items, loop)

    def _round(self, items: list[_Item], loop: asyncio.AbstractEventLoop) -> None:
        try:
            left = items
            while left := [item for item in left if item.step()]:
                self._wait(left)
        except BaseException as error:
            for item in left:
                item.error = error
        finally:
            loop.call_soon_threadsafe(self._ended, items, loop)

    def _wait(self, items: list[_Item]) -> None:
        synced = [(i, i.wait.descriptors) for i in items if isinstance(i.wait, Synced)]
        if synced:
            errors = self._syncs.each([descriptors for _, descriptors in synced])
            for (item, _), error in zip(synced, errors, strict=True):
                item.error = error
        changed: dict[int, BaseException | None] = {}
        for item in items:
            if isinstance(item.wait, Durable):
                handle = item.wait.handle
                if id(handle) not in changed:
                    changed[id(handle)] = _durable(handle)
                item.error = changed[id(handle)]

    def _ended(self, items: list[_Item], loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting:
            self._begin(loop)
        else:
            self._running = False
        for item in items:
            if item.future.done():
                continue  # nobody waits for it any more
            if item.error is not None:
                item.future.set_exception(item.error)
            else:
                item.future.set_result(item.result)


def alone(work: Work[R]) -> R:
    """Blocking. Carries a work out by itself."""
    return _carried_out(work, _sync_all)


def _carried_out(work: Work[R], sync: Callable[[Sequence[int]], None]) -> R:
    error: BaseException | None = None
    while True:
        try:
            wait = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            result: R = end.value
            return result
        error = None
        try:
            if isinstance(wait, Synced):
                sync(wait.descriptors)
            else:
                wait.handle.wait_durable()
        except Exception as failure:
            error = failure


def _sync_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.fsync(descriptor)


def _durable(handle: StreamHandle) -> BaseException | None:
    try:
        handle.wait_durable()
    except Exception as error:
        return error
    return None
