"""Objects on their way out: chunk by chunk, as fast as the receiver takes them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection

from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError
from jsserver.instances.shared import Shared

from .buckets import Bucket, ObjectMeta, Reader, busy

log = logging.getLogger(__name__)

WINDOW = 1 << 20
"""Bytes that may wait for a receiver before the next chunk is sent to it."""
LOOK_AGAIN, LOOK_AGAIN_LAST = 0.001, 0.05
"""Seconds between two looks whether they are fewer: the first, and the longest ones."""
SENDINGS, SENDINGS_OF_ACCOUNT, SENDINGS_OF_ONE = 256, 192, 16
"""Objects that are sent at the same time: of a server, of an account, and to who asks through one
connection."""
STALLED = 1.0
"""Seconds without room for the next chunk after which one makes room for others."""

NOT_TAKEN = "408 Object Not Taken"
FAILED = b"NATS/1.0 %s\r\n\r\n"


def end(account: Account, deliver: str, status: bytes) -> None:
    """Sends the empty message that says how it ended."""
    account.handle.publish(deliver.encode(), b"", status, b"")


class Sending:
    """An object on its way to the subscribers of a subject."""

    def __init__(self, bucket: Bucket, meta: ObjectMeta, deliver: str, connection: int) -> None:
        self.bucket = bucket
        self.meta = meta
        self.connection = connection
        self.waits_since = math.inf
        """Since when its receiver has not taken enough for the next chunk."""
        self.given_up = False
        self._deliver = deliver
        self._to = deliver.encode()

    async def run(self, shared: Shared) -> None:
        """Sends everything, and then an empty message that says how it ended."""
        try:
            status = await self._send(shared)
        except StoreError as error:
            status = f"500 {error}"
        if status is not None:
            end(self.bucket.account, self._deliver, FAILED % status.encode())

    async def _send(self, shared: Shared) -> str | None:
        """How it ended; None where nobody listens any more."""
        handle, reader = self.bucket.account.handle, Reader(self.bucket, self.meta)
        while True:
            chunk = await shared.run(reader.next)
            if not await self._room():
                return NOT_TAKEN if self.given_up else None
            if chunk is None:
                return "204 EOB"
            if isinstance(chunk, str):
                return chunk
            handle.publish(self._to, b"", b"", chunk)

    async def _room(self) -> bool:
        """Waits until the receiver has taken what was sent; False: nobody does."""
        pause = LOOK_AGAIN
        while not self.given_up:
            waiting = self.bucket.account.handle.outstanding(self._to)
            if waiting <= WINDOW:
                self.waits_since = math.inf
                return waiting >= 0
            self.waits_since = min(self.waits_since, asyncio.get_running_loop().time())
            await asyncio.sleep(pause)
            pause = min(pause * 2, LOOK_AGAIN_LAST)
        return False


class Sendings:
    """The objects that are on their way out. In the event loop's thread alone."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._begun: set[Sending] = set()
        self._tasks: dict[asyncio.Task[None], Sending] = {}

    def begin(self, sending: Sending) -> None:
        """Counts one, or ApiError."""
        own = sum(other.connection == sending.connection for other in self._begun)
        if own >= SENDINGS_OF_ONE:
            raise busy(f"{own} objects are being sent to this client")
        account = [one for one in self._begun if one.bucket.account is sending.bucket.account]
        if len(account) >= SENDINGS_OF_ACCOUNT:
            self._give_up_one_of(account)
        elif len(self._begun) >= SENDINGS:
            self._give_up_one_of(self._begun)
        self._begun.add(sending)

    def _give_up_one_of(self, sendings: Collection[Sending]) -> None:
        """Ends the one whose receiver has taken nothing for longest, or ApiError."""
        slowest = min(sendings, key=lambda one: one.waits_since)
        if slowest.waits_since + STALLED > asyncio.get_running_loop().time():
            raise busy(f"{len(sendings)} objects are being sent")
        slowest.given_up = True
        self._begun.discard(slowest)

    def start(self, sending: Sending) -> None:
        """Lets one go on by itself, after its request was answered."""
        task = asyncio.get_running_loop().create_task(self._run(sending))
        self._tasks[task] = sending
        task.add_done_callback(self._tasks.pop)

    async def _run(self, sending: Sending) -> None:
        try:
            await sending.run(self._shared)
        except Exception:
            log.exception("Sending an object of stream %r failed", sending.bucket.stream.name)
        finally:
            self._begun.discard(sending)

    async def forget_account(self, account: Account) -> None:
        """Ends those of an account; their receivers hear nothing more."""
        await self._end([t for t, one in self._tasks.items() if one.bucket.account is account])

    async def close(self) -> None:
        """Ends all, as `forget_account` does."""
        await self._end([*self._tasks])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
