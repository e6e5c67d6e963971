"""Messages that the server itself stores in streams, and the acks that streams answer them with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from jsserver.instances.account import Account
from jsserver.instances.backend import AccountHandle
from jsserver.instances.shared import Shared
from jsserver.text import nuid
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError, ErrorBody

from . import intents
from .buckets import Bucket, ObjectMeta, Stored, bad, busy, is_token

ACKS = "$JS.OBJECT.ACK."
"""What streams answer on; only what they send there is heard."""
PATIENCE = 10.0
"""Seconds after which a stream that does not answer is asked whether it has the message."""
ATTEMPTS = 16
"""How often others may write to an object between a look at it and a write before that is given
up."""

WRONG_LAST = (
    errcodes.STREAM_WRONG_LAST_SEQUENCE.err_code,
    errcodes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.err_code,
)
ROLLUP = (
    b"NATS/1.0\r\nNats-Rollup: sub\r\nNats-Expected-Last-Subject-Sequence: %d\r\n"
    b"Nats-Expected-Stream: %s\r\n\r\n"
)


class Ack(msgspec.Struct, omit_defaults=True):
    """What a stream answers a publish with."""

    stream: str = ""
    seq: int = 0
    domain: str = ""
    error: ErrorBody | None = None


def read_ack(answer: bytes) -> Ack:
    """An ack, or ApiError where it is none or says what is wrong."""
    try:
        ack = msgspec.json.decode(answer, type=Ack)
    except msgspec.DecodeError:
        raise busy("the stream's answer is no ack") from None
    if ack.error is not None:
        raise ApiError(ack.error.code, ack.error.err_code, ack.error.description)
    return ack


class Writer:
    """In the event loop's thread alone."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._prefix = f"{ACKS}{nuid.token(16)}."
        self._served: dict[str, AccountHandle] = {}
        self._count = 0
        self._waiting: dict[str, tuple[str, Callable[[bytes], None]]] = {}

    def send(
        self,
        account: Account,
        subject: bytes,
        headers: bytes,
        data: bytes,
        then: Callable[[bytes], None],
    ) -> str:
        """Publishes a message in an account. `then` gets the answer, unless it is given up by the
        name that is returned."""
        if self._served.get(account.name) is not account.handle:
            account.handle.serve_acks(f"{self._prefix}*".encode())
            self._served[account.name] = account.handle
        self._count += 1
        reply = f"{self._prefix}{self._count}"
        self._waiting[reply] = account.name, then
        account.handle.publish(subject, reply.encode(), headers, data)
        return reply

    def give_up(self, reply: str) -> None:
        """An answer is not waited for any more."""
        self._waiting.pop(reply, None)

    def receive(self, account: str, subject: str, payload: bytes) -> bool:
        """Whether a message is an answer, which its waiting task gets then."""
        if not subject.startswith(ACKS):
            return False
        wanted, then = self._waiting.pop(subject, ("", None))
        if then is not None and wanted == account:
            then(payload)
        return True

    async def _store(self, bucket: Bucket, subject: bytes, headers: bytes, data: bytes) -> bytes:
        """The answer to a message; ApiError where none comes and the stream has not got it."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def then(payload: bytes) -> None:
            if not answer.done():
                answer.set_result(payload)

        reply = self.send(bucket.account, subject, headers, data, then)
        try:
            while True:
                await asyncio.wait([answer], timeout=PATIENCE)
                if answer.done():
                    return answer.result()
                # What waits for a disk that is slow becomes the object when it is not any more.
                message = await self._shared.run(bucket.handle.last_for, subject)
                if message is None or message.data != data or bucket.stream.config.no_ack:
                    raise busy("the stream does not answer")
        finally:
            self.give_up(reply)

    async def replace(
        self, bucket: Bucket, name: str, make: Callable[[Stored | None], ObjectMeta]
    ) -> tuple[Stored | None, Ack]:
        """Writes an object's meta over the one that is there, whatever others write meanwhile.
        `make` says what it is to be, or raises. Returns what was replaced, and the ack."""
        if bucket.stream.config.no_ack:
            raise bad(f"stream {bucket.stream.name} gives no acks: nobody knows what it stored")
        subject = bucket.subject(name)
        for _ in range(ATTEMPTS):
            message = await self._shared.run(bucket.last, name)
            try:
                before = None if message is None else bucket.read(message)
            except ApiError:
                before = None  # damaged: what takes its place is not
            meta = make(before)
            await self._intend(bucket, name, before, "" if meta.deleted else meta.nuid)
            seq = 0 if message is None else message.seq
            head = ROLLUP % (seq, bucket.stream.name.encode())
            if not bucket.runs:
                raise errcodes.STREAM_NOT_FOUND()
            body = msgspec.json.encode(meta)
            try:
                ack = read_ack(await self._store(bucket, subject, head, body))
            except ApiError as error:
                if error.err_code in WRONG_LAST:
                    continue
                raise
            return before, ack
        raise busy(f"others write to object {name!r} all the time")

    async def _intend(self, bucket: Bucket, name: str, before: Stored | None, place: str) -> None:
        """Chunks that go when an object's are in this place: a start finds what a crash leaves."""
        old = before.meta.nuid if before is not None and before.meta.chunks else place
        if old != place and is_token(old):
            with contextlib.suppress(OSError):  # a full disk has room again when they went
                await self._shared.run(intents.write, bucket, name, old)

    async def clear(self, bucket: Bucket, before: Stored | None, place: str) -> None:
        """What was replaced, by an object with chunks in this place or by none, loses its own."""
        old = before.meta.nuid if before is not None else place
        if old != place and await bucket.forget(old):
            await self._shared.run(intents.remove, bucket.account, old)
