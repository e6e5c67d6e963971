"""Buckets of objects as the client libraries keep them in streams (ADR-20), for the server itself.

A bucket is the stream `OBJ_<bucket>`. An object's chunks are the messages of `$O.<bucket>.C.<nuid>`
in their order; the last message of `$O.<bucket>.M.<its name in base64>` says which ones, and how
many. Nothing that such a message says is trusted: any client that may publish there can write one.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any

import msgspec

from jsserver.api.responses import Response
from jsserver.instances.account import Account
from jsserver.instances.backend import Message, StreamHandle
from jsserver.instances.running import Stream
from jsserver.text import goformat
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

PREFIX = "$OBJ."
"""What requests to buckets begin with."""
STREAM = "OBJ_"
"""What the name of a bucket's stream begins with."""
DIGEST = "SHA-256="
DIGEST_BYTES = 32
NAME_LIMIT = 4096
"""Bytes of an object's name: in base64 it is a token of a subject."""
_BUCKET = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Link(msgspec.Struct, omit_defaults=True):
    """Where an object that is a link leads; without a name to a whole bucket."""

    bucket: str = ""
    name: str = ""


class MetaOptions(msgspec.Struct, omit_defaults=True):
    """How an object was cut, or where it leads."""

    max_chunk_size: Count | None = None
    link: Link | None = None


class ObjectMeta(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What the last message of an object's subject says, as client libraries write and read it."""

    name: str
    description: str | None = None
    headers: dict[str, list[str] | str] | None = None
    metadata: dict[str, str] | None = None
    options: MetaOptions | None = None
    bucket: str = ""
    nuid: str = ""
    size: Count = msgspec.field(default_factory=int)
    chunks: Count = msgspec.field(default_factory=int)
    mtime: str | None = None
    digest: str | None = None
    deleted: bool = False

    @property
    def link(self) -> Link | None:
        """Where it leads, instead of having chunks of its own."""
        return self.options.link if self.options is not None else None


class ObjectResponse(Response):
    """An answer about one object: what its meta says, with when it was stored."""

    bucket: str = ""
    name: str = ""
    description: str | None = None
    headers: dict[str, list[str] | str] | None = None
    metadata: dict[str, str] | None = None
    options: MetaOptions | None = None
    nuid: str = ""
    size: int | None = None
    chunks: int | None = None
    mtime: str = ""
    digest: str = ""
    deleted: bool | None = None
    success: bool | None = None


class Stored(msgspec.Struct, frozen=True):
    """An object's meta, and the sequence and time of its message."""

    meta: ObjectMeta
    seq: int
    ts: int


def bad(reason: str) -> ApiError:
    """The error of a request that cannot be meant, or does not fit what there is."""
    return ApiError(errcodes.BAD_REQUEST.code, errcodes.BAD_REQUEST.err_code, reason)


def busy(reason: str) -> ApiError:
    """The error of what can be asked for again later."""
    of = errcodes.CLUSTER_NOT_AVAIL
    return ApiError(of.code, of.err_code, reason)


def absent(name: str) -> ApiError:
    """The error where an object is not there, or not any more."""
    of = errcodes.NO_MESSAGE_FOUND
    return ApiError(of.code, of.err_code, f"object {goformat.quote(name)} not found")


def is_token(text: str) -> bool:
    """Whether it can be the id of an upload or the place of an object's chunks."""
    return _TOKEN.fullmatch(text) is not None


def in_base64(name: str) -> str:
    """An object's name as a token."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def check_name(name: str) -> str:
    """The name, or ApiError where no object can have it."""
    if not name:
        raise bad("the name of an object is needed")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise bad("the name of an object is text in UTF-8") from None
    if size > NAME_LIMIT:
        raise bad(f"the name of an object has up to {NAME_LIMIT} bytes, not {size}")
    return name


def digest_text(digest: Any) -> str:
    """A digest as metas have it."""
    return DIGEST + base64.urlsafe_b64encode(digest.digest()).decode()


def same_digest(one: str, other: str) -> bool:
    """Whether two digests are the same, whatever their case before `=`, with padding or without."""

    def plain(text: str) -> bytes | None:
        algorithm, _, value = text.partition("=")
        if algorithm.upper() + "=" != DIGEST:
            return None
        value = value.rstrip("=")
        try:
            found = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
        except (ValueError, binascii.Error):
            return None
        return found if len(found) == DIGEST_BYTES else None

    return plain(one) is not None and plain(one) == plain(other)


def bucket_of(account: Account, name: str) -> Bucket:
    """The bucket of this name in an account, or ApiError."""
    if _BUCKET.fullmatch(name) is None:
        raise bad(f"{goformat.quote(name)} cannot be the name of a bucket")
    stream = account.stream(STREAM + name)
    if not {f"$O.{name}.C.>", f"$O.{name}.M.>"} <= {*stream.config.subjects}:
        raise bad(f"stream {stream.name} is no bucket of objects: it has other subjects")
    if stream.config.subject_transform is not None:
        raise bad(f"stream {stream.name} is no bucket of objects: it stores under other subjects")
    return Bucket(account, name, stream)


class Bucket:
    """A bucket. Its methods wait for the disk, but for those that name subjects."""

    def __init__(self, account: Account, name: str, stream: Stream) -> None:
        self.account = account
        self.name = name
        self.stream = stream

    @property
    def handle(self) -> StreamHandle:
        """Its stream in the data plane."""
        return self.stream.handle

    @property
    def runs(self) -> bool:
        """Whether it is still the bucket of this name."""
        return self.account.streams.get(self.stream.name) is self.stream

    def chunks(self, nuid: str) -> bytes:
        """The subject of an object's chunks."""
        return f"$O.{self.name}.C.{nuid}".encode()

    def subject(self, name: str) -> bytes:
        """The subject of an object's meta."""
        return f"$O.{self.name}.M.{in_base64(name)}".encode()

    def last(self, name: str) -> Message | None:
        """The message of an object, deleted or not, which is durable."""
        return self._durable(self.handle.last_for(self.subject(name)))

    def find(self, name: str) -> Stored:
        """An object, or ApiError."""
        message = self.last(name)
        stored = None if message is None else self.read(message)
        if stored is None or stored.meta.deleted:
            raise absent(name)
        if stored.meta.name != name:
            raise ApiError(500, errcodes.BAD_REQUEST.err_code, f"the meta of {name!r} is damaged")
        return stored

    def list(self, start: int, most: int, room: int) -> tuple[int, int, list[Stored]]:
        """How many names there are, deleted ones too; where the next page begins, which is behind
        the last name after the last one; and the objects of at most so many names from one on,
        whose metas have together at most `room` bytes, or of one."""
        total, found = self.handle.subjects(f"$O.{self.name}.M.*".encode(), start, most)
        objects: list[Stored] = []
        at = min(start, total)
        for subject in found:
            message = self._durable(self.handle.last_for(subject))
            size = 0 if message is None else len(message.data)
            if size > room and objects:
                return total, at, objects
            room -= size
            at += 1
            try:
                stored = None if message is None else self.read(message)
            except ApiError:
                continue  # written by somebody else: no object of it can be told
            if stored is not None and not stored.meta.deleted:
                objects.append(stored)
        return total, at, objects

    def read(self, message: Message) -> Stored | None:
        """What an object's message says, None where it says that there is none; or ApiError."""
        if not message.data:
            return None
        try:
            meta = msgspec.json.decode(message.data, type=ObjectMeta)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            where = message.subject.decode("utf-8", "replace")
            reason = f"the meta in message {message.seq} on {where} is damaged: {error}"
            raise ApiError(500, errcodes.BAD_REQUEST.err_code, reason) from None
        return Stored(meta, message.seq, message.ts)

    def _durable(self, message: Message | None) -> Message | None:
        if message is not None and self.handle.unsettled(message.seq):
            self.handle.wait_durable()
        return message

    async def forget(self, nuid: str) -> bool:
        """Removes an object's chunks, where the stream lets anything be removed. False: the stream
        runs no more."""
        if not is_token(nuid):
            return True  # written by somebody who wants other chunks to go with these
        async with self.account.lock(self.stream.name):
            config = self.stream.config
            if self.runs and not config.sealed and not config.deny_purge:
                await self.account.shared.run(self._purge, self.chunks(nuid))
            return self.runs

    def _purge(self, subject: bytes) -> None:
        self.handle.purge(subject, 0, 0)
        self.handle.wait_durable()


def shown(bucket: str, stored: Stored) -> ObjectResponse:
    """An object as answers show it."""
    meta = stored.meta
    return ObjectResponse(
        bucket=bucket,
        name=meta.name,
        description=meta.description or None,
        headers=meta.headers or None,
        metadata=meta.metadata or None,
        options=meta.options,
        nuid=meta.nuid,
        size=meta.size,
        chunks=meta.chunks,
        mtime=goformat.rfc3339_nano(stored.ts),
        digest=meta.digest or "",
        deleted=meta.deleted,
    )


class Reader:
    """An object's chunks, one after another, held against what its meta says."""

    def __init__(self, bucket: Bucket, meta: ObjectMeta) -> None:
        from hashlib import sha256  # loads OpenSSL: only where an object is read

        self._bucket = bucket
        self._meta = meta
        self._subject = bucket.chunks(meta.nuid)
        self._seq = 1
        self._chunks = 0
        self._size = 0
        self._digest = sha256()

    def next(self) -> bytes | str | None:
        """Waits for the disk. The next chunk; why there is none, as a status; None at the end."""
        meta = self._meta
        if self._chunks == meta.chunks:
            if self._size != meta.size:
                return "500 Object Size Mismatch"
            if meta.digest and not same_digest(meta.digest, digest_text(self._digest)):
                return "500 Object Digest Mismatch"
            return None
        message = self._bucket.handle.next_for(self._subject, self._seq)
        if message is None:
            return "410 Object Gone"
        self._seq = message.seq + 1
        self._chunks += 1
        self._size += len(message.data)
        if self._size > meta.size:
            return "500 Object Size Mismatch"
        self._digest.update(message.data)
        return message.data
