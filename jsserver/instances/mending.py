"""Streams whose files could not be written, and a disk without room, until they are well again.

A stream that failed is opened again from its files as they were before, so what was refused is
gone and reads go on. It is written again when a write in its directory succeeds. A stream that a
group drives is not brought back here, as its member is opened anew. A configuration
that could not be put back when an update was refused is written as soon as it can be. While the
disk is full nothing is stored in any stream, but messages can be acknowledged, deleted and purged.
"""

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path

from .account import Account
from .backend import StoreError
from .running import Stream
from .shared import Shared

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Between two looks whether the disk works again."""
PROBE_BYTES = 4096
ROOM_BYTES = 128 << 10
"""More than a new stream takes."""


def probe(directory: Path, size: int = PROBE_BYTES) -> None:
    """A write that reaches the disk; OSError if it does not."""
    path = directory / ".jsserver.probe"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, bytes(size), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
        os.unlink(path)


class Mender:
    """Brings back what failed, a try a second for each stream.

    `make_room` makes the ballast again, or raises OSError; `has_room` tells the data plane."""

    def __init__(
        self, shared: Shared, make_room: Callable[[], None], has_room: Callable[[], None]
    ) -> None:
        self._shared = shared
        self._make_room = make_room
        self._has_room = has_room
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._ended: dict[tuple[str, str], float] = {}

    def stream_failed(self, account: Account, name: str, error: int) -> None:
        """A group of this stream's changes could not be written. It may still be being made."""
        reason = f"writing to disk failed: {os.strerror(error)}"
        account.intakes.failed(name)
        self._start((account.name, name), self._mend(account, name, reason))
        stream = account.streams.get(name)
        if stream is not None:
            stream.failing = reason

    def stream_unwritten(self, account: Account, name: str, reason: str) -> None:
        """The configuration of this stream or of a consumer of it could not be put back."""
        self._start((account.name, name), self._write_back(account, name, reason))

    def disk_full(self, error: int) -> None:
        """There is no room for what is to be stored, and the ballast was given up."""
        self._shared.full = f"writing to disk failed: {os.strerror(error)}"
        self._start(("", ""), self._wait_for_room())

    def no_room(self, account: Account, reason: str) -> None:
        """Something could not be made in the account's directory, as the disk is full. The data
        plane may still have room in the files that it has."""
        if not self._shared.full and account.directory is not None:
            self._shared.full = f"cannot make streams and consumers: {reason}"
            self._start(("", "room"), self._wait_to_make(account.directory.parent))

    def _start(self, key: tuple[str, str], work: Coroutine[None, None, None]) -> None:
        before = self._tasks.get(key)
        self._tasks[key] = task = asyncio.ensure_future(_after(before, work))
        task.add_done_callback(lambda done: self._finished(key, done))

    def _finished(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and task.exception() is not None:
            log.error("A stream that failed cannot be watched", exc_info=task.exception())

    async def close(self) -> None:
        """Ends all tries."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _mend(self, account: Account, name: str, reason: str) -> None:
        key = (account.name, name)
        title = f"Stream '{account.name} > {name}'"
        async with account.lock(name):  # held while a stream is made
            stream = account.streams.get(name)
        if stream is None:
            return
        stream.failing = reason
        log.error("%s: %s; publishes are refused", title, reason)
        if stream.member is not None:
            return  # it is opened anew: here it would take publishes without its group
        now = asyncio.get_running_loop().time()
        if now - self._ended.get(key, -RETRY_SECONDS) < RETRY_SECONDS:
            await asyncio.sleep(RETRY_SECONDS)  # what fails again at once
        while True:
            async with account.lock(name):
                stream = account.streams.get(name)
                if stream is None:
                    return
                try:
                    await self._shared.run(_bring_back, account, stream)
                    break
                except (OSError, StoreError) as failure:
                    log.debug("%s: %s", title, failure)
            await asyncio.sleep(RETRY_SECONDS)
        stream.failing = ""
        self._ended[key] = asyncio.get_running_loop().time()
        log.warning("%s: writing to disk works again", title)

    async def _write_back(self, account: Account, name: str, reason: str) -> None:
        title = f"Stream '{account.name} > {name}'"
        text = f"configuration could not be put back on disk: {reason}"
        told = False
        while True:
            async with account.lock(name):
                stream = account.streams.get(name)
                if stream is None:
                    return
                with contextlib.suppress(OSError):
                    await self._shared.run(account.instances.write_back, stream)
                if not stream.unwritten_assets():
                    break
                if not told:
                    log.error("%s: %s; a start would take the one that was refused", title, text)
                    told = True
                stream.failing = stream.failing or text
            await asyncio.sleep(RETRY_SECONDS)
        if told:
            if stream.failing == text:
                stream.failing = ""
            log.warning("%s: its configuration is on disk again", title)

    async def _wait_for_room(self) -> None:
        full = self._shared.full
        log.error("%s; publishes to streams on disk are refused until there is room", full)
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._shared.run(self._make_room)
                break
            except OSError as failure:
                if failure.errno not in (errno.ENOSPC, errno.EDQUOT):
                    log.debug("No room can be made: %s", failure)
        self._shared.full = ""
        self._has_room()
        log.warning("There is room on disk again")

    async def _wait_to_make(self, directory: Path) -> None:
        full = self._shared.full
        log.error("%s", full)
        while self._shared.full == full:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._shared.run(probe, directory, ROOM_BYTES)
            except OSError as failure:
                log.debug("No room in %s: %s", directory, failure)
                continue
            if self._shared.full == full:
                self._shared.full = ""
                log.warning("There is room for streams and consumers again")


async def _after(before: asyncio.Task[None] | None, work: Coroutine[None, None, None]) -> None:
    if before is not None:
        await asyncio.wait([before])
    await work


def _bring_back(account: Account, stream: Stream) -> None:
    stream.handle.reopen(mirror=stream.config.mirror is not None)
    account.instances.write_back(stream)
    if stream.directory is not None:
        probe(stream.directory)
    stream.handle.resume()
