"""Requests on `$OBJ.<bucket>`: what objects there are, and one of them, sent or deleted.

The body is `{"action", "name", "deliver_subject", "offset"}`; what action is meant follows from the
rest where it is left out, but for `delete`. An object that is asked for with `deliver_subject`
follows the answer chunk by chunk, as fast as the receiver takes them, and ends with an empty
message whose status says how: `204 EOB` when all of it arrived as its meta says.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jsserver.api.call import Call
from jsserver.api.responses import Response
from jsserver.api.stream_api import capturing
from jsserver.assets.names import is_believed
from jsserver.cext.bytes import subject_is_literal, subject_is_valid
from jsserver.wire.errors import ApiError
from jsserver.wire.types import Uint64, Wire, always

from . import buckets, sending
from .buckets import Bucket, ObjectMeta, ObjectResponse, Stored, bad
from .sending import Sending, Sendings
from .writer import Writer

LIST_LIMIT = 256
"""Names of a page."""
LIST_ROOM = 256 << 10
"""Bytes that metas of a page have, more only where one has."""

NOT_FOUND = b"NATS/1.0 404 Object Not Found\r\n\r\n"
NOT_SENT = b"NATS/1.0 400 Object Not Sent\r\n\r\n"


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


class Requests:
    """Answers them, each in its turn."""

    def __init__(self, writer: Writer, sendings: Sendings) -> None:
        self._writer = writer
        self._sendings = sendings

    async def serve(self, call: Call) -> Response:
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
                return await self._get(call, bucket, name, request.deliver_subject)
            if action == "delete":
                return await self._delete(bucket, name)
            stored = await call.shared.run(bucket.find, name)
            return buckets.shown(bucket.name, stored)
        except ApiError as error:
            return ObjectResponse(error=error.body)

    async def _delete(self, bucket: Bucket, name: str) -> ObjectResponse:
        """As client libraries delete: the meta says so, and the chunks go."""

        def gone(before: Stored | None) -> ObjectMeta:
            if before is None or before.meta.deleted:
                raise buckets.absent(name)
            meta = before.meta
            return msgspec.structs.replace(
                meta, name=name, deleted=True, size=0, chunks=0, digest="", mtime=None
            )

        replaced, _ = await self._writer.replace(bucket, name, gone)
        await self._writer.clear(bucket, replaced, "")
        return ObjectResponse(bucket=bucket.name, name=name, success=True)

    async def _get(self, call: Call, bucket: Bucket, name: str, deliver: str) -> ObjectResponse:
        await _check_deliver(call, deliver)
        try:
            stored = await call.shared.run(bucket.find, name)
            link = stored.meta.link
            if link is not None:
                where = f"object {link.name!r} of bucket" if link.name else "bucket"
                raise bad(f"object {name!r} is a link to {where} {link.bucket!r}: ask there")
            if not buckets.is_token(stored.meta.nuid):
                raise bad(f"the meta of object {name!r} names no chunks")
        except ApiError as error:
            status = NOT_FOUND if error.body.code == 404 else NOT_SENT
            sending.end(call.account, deliver, status)
            raise
        begun = Sending(bucket, stored.meta, deliver, call.connection)
        self._sendings.begin(begun)
        call.after = lambda: self._sendings.start(begun)
        return buckets.shown(bucket.name, stored)


def _meant(request: ObjectRequest) -> str:
    if request.deliver_subject:
        return "get"
    return "info" if request.name else "list"


def _check_fields(request: ObjectRequest, action: str) -> None:
    """Refuses fields that an action has no use for: they are a mistake of the client."""
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


async def _check_deliver(call: Call, subject: str) -> None:
    """Chunks go to clients, on a subject that the asking client may use itself."""
    if not (subject_is_valid(subject) and subject_is_literal(subject)):
        raise bad("a deliver_subject is a subject without wildcards")
    if subject.startswith("$") or is_believed(subject):
        raise bad("a deliver_subject does not begin with $ or _R_")
    if not call.account.handle.may_receive(call.connection, subject.encode()):
        raise bad("no permission for this deliver_subject")
    for name in await capturing(call, subject):
        raise bad(f"stream {name} stores what is sent to this deliver_subject")
