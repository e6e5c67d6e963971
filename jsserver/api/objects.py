"""Requests on `$OBJ.<bucket>`: what objects there are, and one of them, sent or deleted.

The body is `{"action", "name", "deliver_subject", "offset"}`; what action is meant follows from the
rest where it is left out, but for `delete`. An object that is asked for with `deliver_subject`
follows the answer chunk by chunk, as fast as whoever receives it takes it, and ends with an empty
message whose status says how: `204 EOB` when all of it arrived as its meta says.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

import msgspec

from jsserver.assets.names import is_believed
from jsserver.cext.bytes import subject_is_literal, subject_is_valid, subjects_overlap
from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError
from jsserver.wire.errors import ApiError
from jsserver.wire.types import Uint64, Wire, always

from . import buckets
from .buckets import Bucket, ObjectMeta, ObjectResponse, Reader, Stored, bad, busy
from .call import Call
from .responses import Response

if TYPE_CHECKING:
    from jsserver.instances.shared import Shared

    from .uploads import Uploads

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
LIST_LIMIT = 256
"""Names of a page."""
LIST_ROOM = 256 << 10
"""Bytes that metas of a page have, more only where one has."""

NOT_FOUND = b"NATS/1.0 404 Object Not Found\r\n\r\n"
NOT_SENT = b"NATS/1.0 400 Object Not Sent\r\n\r\n"
NOT_TAKEN = "408 Object Not Taken"
FAILED = b"NATS/1.0 %s\r\n\r\n"


class ObjectRequest(Wire):
    """A body on `$OBJ.<bucket>`."""

    action: Literal["", "list", "get", "info", "delete"] = ""
    name: str = ""
    deliver_subject: str = ""
    offset: Uint64 = 0


class ListResponse(Response):
    """A page of a bucket's objects; `total` counts the names, those of deleted objects too."""

    bucket: str = ""
    next: int = 0
    """The offset of the next page; left out with the last one."""
    objects: list[ObjectResponse] = always([])


async def serve(call: Call) -> Response:
    """A request to the bucket that its subject names."""
    try:
        bucket = buckets.bucket_of(call.account, call.args[0])
        request = await call.request(ObjectRequest)
        action = request.action or _meant(request)
        _check_fields(request, action)
        if action == "list":
            return await _list(call, bucket, request)
        name = buckets.check_name(request.name)
        if action == "get":
            return await _get(call, bucket, name, request.deliver_subject)
        if action == "delete":
            return await _delete(call, bucket, name)
        stored = await call.shared.run(bucket.find, name)
        return buckets.shown(bucket.name, stored)
    except ApiError as error:
        return ObjectResponse(error=error.body)


def _uploads(call: Call) -> Uploads:
    assert call.objects is not None  # else nothing is served here
    return call.objects


def _meant(request: ObjectRequest) -> str:
    if request.deliver_subject:
        return "get"
    return "info" if request.name else "list"


def _check_fields(request: ObjectRequest, action: str) -> None:
    """What an action has no use for is a mistake of whoever asks."""
    useless: dict[str, dict[str, str | int]] = {
        "list": {"name": request.name, "deliver_subject": request.deliver_subject},
        "get": {"offset": request.offset},
        "info": {"deliver_subject": request.deliver_subject, "offset": request.offset},
        "delete": {"deliver_subject": request.deliver_subject, "offset": request.offset},
    }
    for field, value in useless[action].items():
        if value:
            raise bad(f"a request to {action} has no {field}")
    if action == "get" and not request.deliver_subject:
        raise bad("a request to get needs a deliver_subject")


async def _list(call: Call, bucket: Bucket, request: ObjectRequest) -> ListResponse:
    start = request.offset
    total, after, found = await call.shared.run(bucket.list, start, LIST_LIMIT, LIST_ROOM)
    return ListResponse(
        total=total,
        offset=min(start, total),
        limit=LIST_LIMIT,
        bucket=bucket.name,
        next=after if after < total else 0,
        objects=[buckets.shown(bucket.name, stored) for stored in found],
    )


async def _delete(call: Call, bucket: Bucket, name: str) -> ObjectResponse:
    """As client libraries delete: the meta says so, and the chunks go."""

    def gone(before: Stored | None) -> ObjectMeta:
        if before is None or before.meta.deleted:
            raise buckets.absent(name)
        meta = before.meta
        return msgspec.structs.replace(
            meta, name=name, deleted=True, size=0, chunks=0, digest="", mtime=None
        )

    writer = _uploads(call).writer
    replaced, _ = await writer.replace(bucket, name, gone)
    await writer.clear(bucket, replaced, "")
    return ObjectResponse(bucket=bucket.name, name=name, success=True)


# ---- an object on its way out --------------------------------------------------------------------


async def _get(call: Call, bucket: Bucket, name: str, deliver: str) -> ObjectResponse:
    _check_deliver(call, deliver)
    try:
        stored = await call.shared.run(bucket.find, name)
        link = stored.meta.link
        if link is not None:
            where = f"object {link.name!r} of bucket" if link.name else "bucket"
            raise bad(f"object {name!r} is a link to {where} {link.bucket!r}: ask there")
        if not buckets.is_token(stored.meta.nuid):
            raise bad(f"the meta of object {name!r} names no chunks")
    except ApiError as error:
        _end(call.account, deliver, NOT_FOUND if error.body.code == 404 else NOT_SENT)
        raise
    sending = Sending(bucket, stored.meta, deliver, call.connection)
    _uploads(call).sendings.begin(sending)
    call.after = lambda: _uploads(call).sendings.start(sending)
    return buckets.shown(bucket.name, stored)


def _check_deliver(call: Call, subject: str) -> None:
    """Chunks go to clients, and where whoever asks may receive or send them itself."""
    if not (subject_is_valid(subject) and subject_is_literal(subject)):
        raise bad("a deliver_subject is a subject without wildcards")
    if subject.startswith("$") or is_believed(subject):
        raise bad("a deliver_subject does not begin with $ or _R_")
    if not call.account.handle.may_receive(call.connection, subject.encode()):
        raise bad("no permission for this deliver_subject")
    for name, stream in call.account.streams.items():
        if any(subjects_overlap(own, subject) for own in stream.config.subjects):
            raise bad(f"stream {name} stores what is sent to this deliver_subject")


def _end(account: Account, deliver: str, status: bytes) -> None:
    account.handle.publish(deliver.encode(), b"", status, b"")


class Sending:
    """An object on its way to whoever listens on a subject."""

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
            _end(self.bucket.account, self._deliver, FAILED % status.encode())

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
        """Waits until whoever receives has taken what was sent; False: nobody does."""
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
        """Ends those of an account; whoever receives hears nothing more."""
        await self._end([t for t, one in self._tasks.items() if one.bucket.account is account])

    async def close(self) -> None:
        """Ends all, as `forget_account` does."""
        await self._end([*self._tasks])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
