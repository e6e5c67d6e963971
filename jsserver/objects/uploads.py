"""Uploads to buckets: `$OBJ.<bucket>.info.<object>` begins one, its chunks come on
`$OBJ.<bucket>.chunks.<nonce>`, and the object is there when the last one is stored.

Chunks are stored as they come, where no meta leads to them, and the object's meta takes the place
of the one before when all are there, as many bytes as were promised, with the digest that was
promised if one was. An upload that ends otherwise, by a chunk that is refused or by silence, takes
its chunks with it. The stream's ack of each chunk is the answer to it, that of the last one is
together with what is known of the object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from jsserver.api.responder import Request
from jsserver.api.responses import TYPE_PREFIX
from jsserver.instances.account import Account
from jsserver.instances.backend import StoreError
from jsserver.instances.shared import Shared
from jsserver.process.tasks import Tasks
from jsserver.text import goformat, nuid
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

from . import buckets, intents
from .buckets import PREFIX, Bucket, MetaOptions, ObjectMeta, ObjectResponse, Stored, bad, busy
from .writer import Ack, Writer, read_ack

log = logging.getLogger(__name__)

INFO, CHUNKS = "info", "chunks"
"""The tokens behind a bucket's name."""
ANSWER = TYPE_PREFIX + "jsserver_object_upload_response"
CHUNKS_MOST = 1 << 31
LOOK_AGAIN = 0.25
"""Seconds between two looks for uploads that have fallen silent."""
COMPLETING = float("inf")
"""When one was touched last whose meta is being written: it ends by itself."""


class UploadRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What begins an upload: its object's meta, as far as that is known before."""

    name: str = ""
    bucket: str = ""
    nonce: str
    chunks: buckets.Count
    size: buckets.Count
    digest: str = ""
    description: str | None = None
    headers: dict[str, list[str] | str] | None = None
    metadata: dict[str, str] | None = None
    options: MetaOptions | None = None


class UploadResponse(ObjectResponse):
    """An upload has begun, or ended. When it ended the ack of the stream is part of it."""

    stream: str = ""
    seq: int = 0
    domain: str = ""
    nonce: str = ""


class Upload:
    """One that is under way."""

    __slots__ = (
        *("acked", "bucket", "bytes", "connection", "digest", "failed", "intent", "meta", "nonce"),
        *("promised", "received", "replies", "touched"),
    )

    def __init__(
        self, bucket: Bucket, request: UploadRequest, meta: ObjectMeta, connection: int
    ) -> None:
        from hashlib import sha256  # loads OpenSSL: only where an object comes

        self.bucket = bucket
        self.nonce = request.nonce
        self.promised = request.digest
        self.meta = meta
        self.connection = connection
        """Whose chunks are taken."""
        self.received = self.bytes = self.acked = 0
        self.digest = sha256()
        self.replies: dict[str, tuple[bytes, int]] = {}
        """Where chunks that wait for an ack are answered, and what they count, by what that ack
        comes on."""
        self.failed: ApiError | None = None
        self.touched = 0.0
        self.intent: asyncio.Task[None] | None = None
        """Writes the intent down; it is answered then."""


Key = tuple[Account, str, str]
"""An account, a bucket's name, an upload's nonce."""


class Limits(msgspec.Struct, frozen=True):
    """What holds for the uploads of each account."""

    at_once: int
    """Uploads of an account at the same time."""
    timeout: int
    """Nanoseconds without a chunk after which one ends."""


class Uploads:
    """Those of all accounts. In the event loop's thread alone."""

    def __init__(
        self,
        shared: Shared,
        accounts: Mapping[str, Account],
        writer: Writer,
        limits: Limits,
        finished: Callable[[int, int], None],
    ) -> None:
        """`accounts`: those with JetStream. `finished` hears of each message that is taken, when
        its connection may go on: the connection, and what the message counts."""
        self._shared = shared
        self._accounts = accounts
        self._writer = writer
        self._limits = limits
        self._finished = finished
        self._open: dict[Key, Upload] = {}
        self._tasks = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self._gone: set[int] = set()
        """Connections that ended since the last look."""
        self._closing = False

    # ---- what clients send ---------------------------------------------------------------------

    def receive(self, request: Request, subject: str) -> bool:
        """Whether a message is of an upload, which takes it then. Its subject as text."""
        if not subject.startswith(PREFIX):
            return False
        tokens = subject[len(PREFIX) :].split(".", 2)
        if len(tokens) != 3:
            return False
        bucket, kind, rest = tokens
        if kind not in (INFO, CHUNKS):
            return False
        try:
            account = self._accounts.get(request.account)
            if account is None:
                raise errcodes.NOT_ENABLED_FOR_ACCOUNT()
            if self._closing:
                raise errcodes.CLUSTER_NOT_AVAIL()
            if kind == INFO:
                self._begin(account, request, bucket, rest)
                self._finished(request.connection, request.cost)
            else:
                self._take(account, request, bucket, rest)
        except (ApiError, StoreError) as error:
            self._refuse(request.account, request.reply, _told(error))
            self._finished(request.connection, request.cost)
        return True

    def _begin(self, account: Account, message: Request, name: str, place: str) -> None:
        bucket = buckets.bucket_of(account, name)
        request = _read(message.payload, bucket, place)
        if bucket.stream.config.no_ack:
            raise bad(f"stream {bucket.stream.name} gives no acks: nobody knows what it stored")
        if bucket.stream.config.sealed:
            raise errcodes.STREAM_SEALED()
        key = (account, name, request.nonce)
        if key in self._open:
            raise bad(f"an upload with the nonce {request.nonce} is under way")
        own = sum(one is account for one, _, _ in self._open)
        most = self._limits.at_once
        if own >= most:
            raise busy(f"{own} uploads are under way, as many as an account may have")
        meta = ObjectMeta(
            name=request.name,
            description=request.description,
            headers=request.headers,
            metadata=request.metadata,
            options=request.options,
            bucket=name,
            nuid=nuid.new(),
            size=request.size,
            chunks=request.chunks,
        )
        upload = Upload(bucket, request, meta, message.connection)
        upload.touched = self._now()
        self._open[key] = upload
        self._watch()
        if request.chunks == 0:
            self._tasks.begin(self._complete(key, upload, message.reply, None))
        else:
            upload.intent = self._tasks.begin(self._intend(key, upload, message.reply))

    async def _intend(self, key: Key, upload: Upload, reply: bytes) -> None:
        meta = upload.meta
        try:
            await self._shared.run(intents.write, upload.bucket, meta.name, meta.nuid)
        except OSError as error:
            self._fail(key, upload, errcodes.STREAM_STORE_FAILED(err=goformat.reason(error)))
        if upload.failed is not None:
            self._refuse(key[0].name, reply, upload.failed)
        else:
            self._answer(key[0], reply, _begun(upload))

    def _take(self, account: Account, message: Request, bucket: str, nonce: str) -> None:
        """A chunk: its connection is done with it when the stream is."""
        key = (account, bucket, nonce)
        upload = self._open.get(key)
        if upload is None:
            text = f"no upload with the nonce {goformat.quote(nonce)} to this bucket is under way"
            raise ApiError(404, errcodes.NO_MESSAGE_FOUND.err_code, text)
        if upload.connection != message.connection:
            raise bad("the upload was begun through another connection")
        if upload.received == upload.meta.chunks:
            raise bad(f"all {upload.received} chunks of the upload have come already")
        try:
            if not upload.bucket.runs:
                raise errcodes.STREAM_NOT_FOUND()
            if not message.payload:
                raise bad("a chunk without a byte")
            size = upload.bytes + len(message.payload)
            left = upload.meta.chunks - upload.received - 1
            if size + left > upload.meta.size:
                raise bad(
                    f"{upload.meta.size} bytes in {upload.meta.chunks} chunks were promised, "
                    f"and {size} came in {upload.received + 1}"
                )
        except ApiError as error:
            self._fail(key, upload, error)
            raise
        upload.touched = self._now()
        upload.received += 1
        upload.bytes += len(message.payload)
        upload.digest.update(message.payload)
        self._store(key, upload, message)

    def _store(self, key: Key, upload: Upload, message: Request) -> None:
        reply, connection, cost = message.reply, message.connection, message.cost
        sent = ""

        def then(answer: bytes) -> None:
            upload.replies.pop(sent, None)
            self._finished(connection, cost)
            self._stored(key, upload, reply, answer)

        place = upload.bucket.chunks(upload.meta.nuid)
        sent = self._writer.send(key[0], place, b"", message.payload, then)
        upload.replies[sent] = reply, cost

    def _stored(self, key: Key, upload: Upload, reply: bytes, answer: bytes) -> None:
        """The stream has stored a chunk, or refused it."""
        if upload.failed is not None:
            self._refuse(key[0].name, reply, upload.failed)
            return
        try:
            ack = read_ack(answer)
        except ApiError as error:
            self._fail(key, upload, error)
            self._refuse(key[0].name, reply, error)
            return
        upload.touched = self._now()
        upload.acked += 1
        if upload.acked == upload.meta.chunks:
            self._tasks.begin(self._complete(key, upload, reply, ack))
        elif reply:
            key[0].handle.publish(reply, b"", b"", answer)

    # ---- how one ends --------------------------------------------------------------------------

    async def _complete(self, key: Key, upload: Upload, reply: bytes, ack: Ack | None) -> None:
        """All is stored: the object is there, or nothing of it."""
        account, meta, bucket = key[0], upload.meta, upload.bucket
        try:
            if upload.bytes != meta.size:
                raise bad(f"{meta.size} bytes were promised, and {upload.bytes} came")
            digest = buckets.digest_text(upload.digest)
            if upload.promised and not buckets.same_digest(upload.promised, digest):
                raise bad(f"the digest is {digest}, and {upload.promised} was promised")
            meta.digest = digest
            upload.touched = COMPLETING
            before, ack = await self._writer.replace(bucket, meta.name, lambda _: meta)
        except (ApiError, StoreError) as error:
            refused = _told(error)
            self._fail(key, upload, refused)
            self._refuse(account.name, reply, refused)
            return
        self._open.pop(key, None)
        ts = self._shared.clock()
        try:
            message = await self._shared.run(bucket.handle.get, ack.seq)
            ts = ts if message is None else message.ts  # None: it was replaced already
            await self._writer.clear(bucket, before, meta.nuid)
        except StoreError as error:
            log.warning("Replaced chunks stay in stream %s: %s", bucket.stream.name, error)
        await self._done_with(upload)
        self._answer(account, reply, _ended(upload, ack, ts))

    def _fail(self, key: Key, upload: Upload, error: ApiError) -> None:
        """Ends one: its chunks go."""
        if upload.failed is not None:
            return
        upload.failed = error
        self._open.pop(key, None)
        for sent, (reply, cost) in upload.replies.items():
            self._writer.give_up(sent)
            self._finished(upload.connection, cost)
            self._refuse(key[0].name, reply, error)
        upload.replies.clear()
        self._tasks.begin(self._forget(upload))

    async def _forget(self, upload: Upload) -> None:
        bucket = upload.bucket
        try:
            if not await bucket.forget(upload.meta.nuid):
                return  # a start finds the intent
        except StoreError as error:
            log.warning("Chunks of an upload stay in stream %s: %s", bucket.stream.name, error)
            return
        await self._done_with(upload)

    async def _done_with(self, upload: Upload) -> None:
        if upload.intent is not None:
            await upload.intent
            account, nuid = upload.bucket.account, upload.meta.nuid
            await self._shared.run(intents.remove, account, nuid)

    async def recover(self, account: Account) -> None:
        """Of an account that was opened: what a crash has cut off goes."""
        for intent in await self._shared.run(lambda: list(intents.left(account))):
            try:
                bucket = buckets.bucket_of(account, intent.bucket)
                message = await self._shared.run(bucket.last, intent.name)
                stored = None if message is None else bucket.read(message)
                if stored is None or stored.meta.deleted or stored.meta.nuid != intent.nuid:
                    await bucket.forget(intent.nuid)
            except ApiError:
                pass  # the bucket is no more, or its object is somebody else's
            except StoreError as error:
                log.warning("Chunks of an upload stay in bucket %s: %s", intent.bucket, error)
                continue
            await self._shared.run(intents.remove, account, intent.nuid)

    def connection_gone(self, connection: int) -> None:
        """A connection has ended: nobody sends the rest of its uploads."""
        if self._open:
            self._gone.add(connection)

    def _watch(self) -> None:
        """Ends those that have fallen silent, as long as there are any."""
        if self._timer is None and self._open and not self._closing:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_AGAIN, self._look)

    def _look(self) -> None:
        self._timer = None
        seconds = self._limits.timeout / goformat.SECOND
        silent = self._now() - seconds
        gone, self._gone = self._gone, set()
        for key, upload in list(self._open.items()):
            if upload.touched < silent:
                self._fail(key, upload, busy(f"nothing of the upload came for {seconds:g} seconds"))
            elif upload.connection in gone and upload.received < upload.meta.chunks:
                self._fail(key, upload, busy("the connection of the upload is closed"))
        self._watch()

    async def forget_account(self, account: Account) -> None:
        """JetStream is taken from an account: returns when its streams may be closed."""
        for key, upload in list(self._open.items()):
            if key[0] is account and upload.touched != COMPLETING:
                self._fail(key, upload, errcodes.NOT_ENABLED_FOR_ACCOUNT())
        await self._tasks.under_way()

    def refuse(self) -> None:
        """Begins none any more, and takes no chunk."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Ends all, after refuse()."""
        for key, upload in list(self._open.items()):
            if upload.touched != COMPLETING:
                self._fail(key, upload, errcodes.CLUSTER_NOT_AVAIL())
        await self._tasks.finished()

    # ---- small things --------------------------------------------------------------------------

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _answer(self, account: Account, reply: bytes, answer: UploadResponse) -> None:
        if reply and account.name in self._shared.accounts:
            answer.type = ANSWER
            body = goformat.escape_json(msgspec.json.encode(answer))
            account.handle.publish(reply, b"", b"", body)

    def _refuse(self, account: str, reply: bytes, error: ApiError) -> None:
        if reply and account in self._shared.accounts:
            answer = UploadResponse(type=ANSWER, error=error.body)
            body = goformat.escape_json(msgspec.json.encode(answer))
            self._shared.accounts[account].publish(reply, b"", b"", body)


def _read(body: bytes, bucket: Bucket, place: str) -> UploadRequest:
    """What begins an upload, or ApiError. `place` is what its subject says of the object's name:
    a client that may publish there may write that object."""
    try:
        request = msgspec.json.decode(body, type=UploadRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errcodes.INVALID_JSON(err=error) from None
    request.name = buckets.check_name(request.name or place)
    if place not in (request.name, buckets.in_base64(request.name)):
        raise bad("the last token of the subject is not the object's name, nor that in base64")
    if request.bucket not in ("", bucket.name):
        raise bad(f"the bucket of the subject is {bucket.name}, not {request.bucket!r}")
    if not buckets.is_token(request.nonce):
        raise bad("a nonce has 1 to 64 letters, digits, _ or -")
    if request.digest and not buckets.same_digest(request.digest, request.digest):
        raise bad("a digest is SHA-256= and 32 bytes in base64")
    if request.chunks > CHUNKS_MOST:
        raise bad(f"an object has up to {CHUNKS_MOST} chunks")
    if request.chunks > request.size or (request.size and not request.chunks):
        raise bad(f"{request.size} bytes do not come in {request.chunks} chunks")
    if request.options is not None and request.options.link is not None:
        raise bad("a link is no upload: it is written by a client's object store")
    return request


def _told(error: ApiError | StoreError) -> ApiError:
    """What clients hear of an error, which may be that a stream is closed at this moment."""
    if isinstance(error, ApiError):
        return error
    return errcodes.STREAM_STORE_FAILED(err=str(error))


def _begun(upload: Upload) -> UploadResponse:
    answer = UploadResponse(nonce=upload.nonce, stream=upload.bucket.stream.name)
    answer.bucket, answer.name = upload.bucket.name, upload.meta.name
    answer.nuid, answer.size, answer.chunks = upload.meta.nuid, upload.meta.size, upload.meta.chunks
    return answer


def _ended(upload: Upload, ack: Ack, ts: int) -> UploadResponse:
    stored = buckets.shown(upload.bucket.name, Stored(upload.meta, ack.seq, ts))
    fields = {name: getattr(stored, name) for name in stored.__struct_fields__}
    return UploadResponse(
        **fields, stream=ack.stream, seq=ack.seq, domain=ack.domain, nonce=upload.nonce
    )
