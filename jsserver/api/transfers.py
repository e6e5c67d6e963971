"""Handlers of STREAM.SNAPSHOT and STREAM.RESTORE, and the archives on their way.

A snapshot goes to the subject that its request names, in chunks whose replies the receiver answers;
a restore comes in on a subject of its own, in chunks that each are answered when they were taken.
Both end by themselves after some seconds of silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from jsserver.assets.names import is_believed
from jsserver.cext.bytes import subject_is_literal, subject_is_valid
from jsserver.instances import metafiles, recovery
from jsserver.instances.account import Account
from jsserver.instances.backend import AccountHandle, StoreError
from jsserver.instances.running import Stream
from jsserver.instances.shared import Shared
from jsserver.text import goformat, nuid
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError, ErrorBody
from jsserver.wire.types import RestoreRequest, SnapshotRequest, StreamConfig, StreamStateInfo

from .advisories import (
    Advisories,
    ClientInfo,
    Event,
    RestoreComplete,
    RestoreCreate,
    SnapshotComplete,
    SnapshotCreate,
)
from .call import Call
from .responder import Request, Responder
from .responses import TYPE_PREFIX, RestoreResponse, SnapshotResponse, StreamInfo
from .stream_api import normalised_single, stream_info, stream_state

if TYPE_CHECKING:
    from pathlib import Path

    from jsserver.instances.archive import Snapshot

log = logging.getLogger(__name__)

ACKS = "$JS.SNAPSHOT.ACK."
CHUNKS = "$JS.SNAPSHOT.RESTORE."
CHUNK_SIZE, CHUNK_LEAST, CHUNK_MOST = 128 << 10, 1 << 10, 1 << 20
WINDOW_SIZE, WINDOW_LEAST, WINDOW_MOST = 8 << 20, 1 << 10, 32 << 20
SILENCE = 5.0
"""Seconds without an answer, or without a chunk, after which a transfer ends."""
INTEREST = 2.0
"""Seconds that the receiver of a snapshot may take to listen."""
LOOK_AGAIN = 0.05
WAITING = 64 << 20
"""Bytes of a restore's chunks that wait to be taken: clients wait for an answer to each."""
CHUNK_OWN = 512
"""Bytes that a chunk counts beside its own: what it takes to keep it."""
RESTORES, RESTORES_OF_ACCOUNT = 16, 8
"""At the same time: each has a thread."""
SNAPSHOTS, SNAPSHOTS_OF_ACCOUNT = 64, 48
"""At the same time: each has a block and a window of bytes."""

NO_INTEREST = b"NATS/1.0 408 No Interest\r\n\r\n"
NO_ANSWER = b"NATS/1.0 408 No Flow Response\r\n\r\n"
FAILED = b"NATS/1.0 500 %s\r\n\r\n"
COMPLETE = b"NATS/1.0 204\r\n\r\n"


def _between(asked: int, default: int, least: int, most: int) -> int:
    return min(max(asked or default, least), most)


async def snapshot(call: Call) -> SnapshotResponse:
    """STREAM.SNAPSHOT: the archive follows the answer."""
    from jsserver.instances.archive import Snapshot  # few ask for one

    account = call.account
    request = await call.required(SnapshotRequest)
    stream = account.stream(call.args[0])
    deliver = request.deliver_subject
    fits = subject_is_valid(deliver) and subject_is_literal(deliver)
    if not fits or is_believed(deliver):
        raise errcodes.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    if stream.directory is None:
        raise errcodes.STREAM_SNAPSHOT(err="no impl")
    outgoing = Outgoing(call.shared, call.advisories, account, stream, request, call.client())
    call.transfers.begin(outgoing)
    try:
        if request.jsck:
            await call.shared.run(_check, stream)
        files, consumers = call.shared.files, not request.no_consumers
        outgoing.archive = await call.shared.run(Snapshot, files, stream, consumers)
    except BaseException:
        call.transfers.end(outgoing)
        raise
    outgoing.state = stream_state(stream)
    call.after = lambda: call.transfers.start(outgoing)
    return SnapshotResponse(config=stream.config, state=outgoing.state)


def _check(stream: Stream) -> None:
    """Reads every message."""
    state, at = stream.handle.state(), 0
    while at <= state.last_seq:
        _, at = stream.handle.pack(bytes(32), at, state.last_seq, CHUNK_MOST)
    lost = stream.handle.lost().sequences
    if lost:
        damaged = f"snapshot check failed: {len(lost)} messages are damaged"
        raise errcodes.STREAM_SNAPSHOT(err=damaged)


async def restore(call: Call) -> RestoreResponse:
    """STREAM.RESTORE: the archive comes in on the subject that is answered."""
    request = await call.required(RestoreRequest)
    account, name = call.account, call.args[0]
    if not request.config.name:
        request.config.name = name
    account.assignments.check_names(name, request.config)
    config = await call.work(normalised_single, account, request.config)
    account.assignments.check_restore(config)
    if name in account.assignments.streams or name in account.offline:
        raise errcodes.STREAM_NAME_EXIST_RESTORE_FAILED()
    if account.directory is None:
        raise errcodes.STREAM_RESTORE(err="there is no directory to unpack it in")
    incoming = Incoming(call.shared, call.advisories, account, config, call.client())
    call.transfers.begin(incoming)
    call.after = lambda: call.transfers.start(incoming)
    return RestoreResponse(deliver_subject=incoming.subject)


class Transfer:
    """An archive on its way out or in, between a client and a stream."""

    def __init__(
        self,
        shared: Shared,
        advisories: Advisories,
        account: Account,
        stream: str,
        prefix: str,
        client: ClientInfo | None,
    ) -> None:
        self.shared = shared
        self.advisories = advisories
        self.account = account
        self.stream = stream
        self.client = client
        self.subject = f"{prefix}{stream}.{nuid.new()}"
        """Where the client sends."""
        self.began = shared.clock()

    @property
    def handle(self) -> AccountHandle:
        """The account in the data plane."""
        return self.shared.accounts[self.account.name]

    @property
    def pattern(self) -> str:
        """What it listens to."""
        return self.subject

    def receive(self, reply: bytes, payload: bytes) -> None:
        """Takes what the client sends."""
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Ends it before its time."""
        raise NotImplementedError

    async def run(self) -> None:
        """Brings it to its end."""
        raise NotImplementedError

    def tell(self, step: str, event: Event) -> None:
        """Tells listeners that it begins or ends."""
        self.advisories.transfer(self.account.name, self.stream, step, event)

    def seconds(self) -> float:
        """How long it took so far."""
        return (self.shared.clock() - self.began) / goformat.SECOND


class Outgoing(Transfer):
    """A snapshot."""

    archive: Snapshot
    state: StreamStateInfo

    def __init__(
        self,
        shared: Shared,
        advisories: Advisories,
        account: Account,
        stream: Stream,
        request: SnapshotRequest,
        client: ClientInfo | None,
    ) -> None:
        super().__init__(shared, advisories, account, stream.name, ACKS, client)
        self._deliver = request.deliver_subject.encode()
        self._size = _between(request.chunk_size, CHUNK_SIZE, CHUNK_LEAST, CHUNK_MOST)
        window = _between(request.window_size, WINDOW_SIZE, WINDOW_LEAST, WINDOW_MOST)
        self._free = asyncio.Semaphore(max(window // self._size, 1))

        self.heard = False
        """Whether somebody has listened where it goes; before, it keeps no other one waiting."""
        self._stopped = ""

    @property
    def pattern(self) -> str:
        """Answers name the size and the number of a chunk."""
        return f"{self.subject}.>"

    def receive(self, reply: bytes, payload: bytes) -> None:
        """A chunk arrived."""
        self._free.release()

    def stop(self, reason: str) -> None:
        """Sends no more."""
        self._stopped = reason
        self._free.release()

    async def run(self) -> None:
        """Sends everything, and then an empty message that says how it ended."""
        domain, name = self.shared.settings.domain, f"{self.account.name} > {self.stream}"
        log.info("Starting snapshot for stream '%s'", name)
        self.tell(
            "SNAPSHOT_CREATE",
            SnapshotCreate(stream=self.stream, state=self.state, client=self.client, domain=domain),
        )
        try:
            end = await self._send()
        except StoreError as error:
            end = FAILED % str(error).encode()
        self.handle.publish(self._deliver, b"", end, b"")
        if end not in (COMPLETE, b""):
            log.warning("Snapshot of stream '%s' failed: %s", name, end.decode().strip())
            return
        begun, ended = self.began, self.shared.clock()
        self.tell(
            "SNAPSHOT_COMPLETE",
            SnapshotComplete(
                stream=self.stream,
                start=goformat.rfc3339_nano(begun),
                end=goformat.rfc3339_nano(ended),
                client=self.client,
                domain=domain,
            ),
        )
        log.info("Completed snapshot of stream '%s' in %.3fs", name, self.seconds())

    async def _send(self) -> bytes:
        """The headers of the last message."""
        end, index = b"", 0
        latest = asyncio.get_running_loop().time() + INTEREST
        # The nats tool subscribes when it has the answer; a wildcard of inboxes hears until then.
        while not self.handle.subscribed(self._deliver):
            if self._stopped or asyncio.get_running_loop().time() > latest:
                break
            await asyncio.sleep(LOOK_AGAIN)
        if not self.handle.subject_interest(self._deliver):
            return NO_INTEREST
        self.heard = True
        while True:
            try:
                async with asyncio.timeout(SILENCE):
                    await self._free.acquire()
            except TimeoutError:
                return NO_ANSWER
            if self._stopped:
                return FAILED % self._stopped.encode()
            chunk = await self.shared.run(self.archive.read, self._size)
            if not self.handle.subject_interest(self._deliver):
                return NO_INTEREST
            if len(chunk) < self._size:
                if chunk:
                    self.handle.publish(self._deliver, b"", b"", chunk)
                return end
            index += 1
            reply = f"{self.subject}.{len(chunk)}.{index}"
            self.handle.publish(self._deliver, reply.encode(), b"", chunk)
            end = COMPLETE


class _Abandoned(Exception):
    """A restore that nobody waits for any more; the text says why."""


class Incoming(Transfer):
    """A restore: chunks wait for the thread that unpacks them, which asks for one after another."""

    def __init__(
        self,
        shared: Shared,
        advisories: Advisories,
        account: Account,
        config: StreamConfig,
        client: ClientInfo | None,
    ) -> None:
        super().__init__(shared, advisories, account, config.name, CHUNKS, client)
        self._config = config
        self._chunks: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
        self._waiting = 0
        self._broken = ""
        """Why no more is taken."""
        self._received = 0
        self._reply = b""
        """Where the chunk that is being taken is answered, or what became of it."""
        self._complete = False
        self._loop = asyncio.get_running_loop()

    def receive(self, reply: bytes, payload: bytes) -> None:
        """A chunk; an empty one is the end."""
        if self._broken or self._complete:
            return  # nobody takes it
        self._waiting += len(payload) + CHUNK_OWN
        if self._waiting > WAITING:
            self.stop("more chunks at once than can wait")
        elif not reply:
            self.stop("a chunk without a reply subject")
        else:
            self._chunks.put_nowait((reply, payload))

    def stop(self, reason: str) -> None:
        """Takes no more, and nothing of what waits."""
        self._broken = self._broken or reason
        while not self._chunks.empty():
            self._chunks.get_nowait()
        self._chunks.put_nowait((b"", b""))

    def take(self) -> bytes:
        """The next bytes of the archive, none at the end; in the thread that unpacks it."""
        return asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()

    async def _next(self) -> bytes:
        if self._complete:
            return b""
        if self._reply:
            self.handle.publish(self._reply, b"", b"", b"")
            self._reply = b""
        try:
            async with asyncio.timeout(SILENCE):
                self._reply, chunk = await self._chunks.get()
        except TimeoutError:
            raise _Abandoned(f"nothing came for {SILENCE:.0f} seconds") from None
        if self._broken:
            raise _Abandoned(self._broken)
        self._waiting -= len(chunk) + CHUNK_OWN
        self._received += len(chunk)
        self._complete = not chunk
        return chunk

    async def run(self) -> None:
        """Takes everything, makes the stream of it, and tells the client."""
        domain, name = self.shared.settings.domain, f"{self.account.name} > {self.stream}"
        self.tell(
            "RESTORE_CREATE",
            RestoreCreate(stream=self.stream, client=self.client, domain=domain),
        )
        log.info("Starting restore for stream '%s'", name)
        answer = StreamInfo()
        try:
            stream = await self._restored()
            answer = stream_info(self.account, stream)
            answer.domain = ""
            self._tell_created(stream)
        except _Abandoned as error:
            self._reply = b""
            answer.error = errcodes.STREAM_RESTORE(err=error).body
        except ApiError as error:
            answer.error = errcodes.STREAM_RESTORE(err=error.body.description).body
        except (recovery.NotRestorable, OSError, StoreError) as error:
            reason = error.strerror if isinstance(error, OSError) else ""
            answer.error = errcodes.STREAM_RESTORE(err=reason or error).body
        except Exception:
            log.exception("The restore of stream %r failed", name)
            reason = "internal error, see the server's log"
            answer.error = errcodes.STREAM_RESTORE(err=reason).body
        self.over(answer.error)
        self.handle.stop_requests(self.subject.encode())
        self.tell(
            "RESTORE_COMPLETE",
            RestoreComplete(
                stream=self.stream,
                start=goformat.rfc3339_nano(self.began),
                end=goformat.rfc3339_nano(self.shared.clock()),
                bytes=self._received,
                client=self.client,
                domain=domain,
            ),
        )
        if answer.error is not None:
            log.warning("Stream '%s': %s", name, answer.error.description)
        else:
            log.info("Completed restore of stream '%s' in %.3fs", name, self.seconds())
        if self._reply:
            answer.type = TYPE_PREFIX + "stream_create_response"
            body = goformat.escape_json(msgspec.json.encode(answer))
            self.handle.publish(self._reply, b"", b"", body)

    async def place(self, staged: Path, meta: bytes) -> Stream:
        """The stream that was restored: a staged directory has all of the archive but `meta`."""
        return await recovery.restore(self.account, self._config, staged, meta)

    def over(self, error: ErrorBody | None) -> None:
        """It has come to its end; `error`: what was wrong."""

    def _tell_created(self, stream: Stream) -> None:
        self.advisories.stream(self.account.name, self.stream, "create")
        for consumer in stream.consumers:
            self.advisories.consumer(self.account.name, self.stream, consumer, "create")

    async def _restored(self) -> Stream:
        from jsserver.instances.archive import Unpacked  # few need it

        directory = self.account.directory
        assert directory is not None  # else it was refused
        staged = await self.shared.run(metafiles.stage, directory)
        thread = ThreadPoolExecutor(1, "restore")
        try:
            room, storage = self._room(), self._config.storage
            unpacked = Unpacked(staged, self.shared.files, self.stream, room, storage)
            await self._loop.run_in_executor(thread, unpacked.unpack, self)
            return await self.place(staged, unpacked.meta)
        finally:
            thread.shutdown(wait=False)
            self.shared.erase_later(staged)

    def _room(self) -> int:
        """How many bytes the archive's files may have, which in memory take less; -1: any."""
        usage, own, all_of_them = self.handle.usage(), self.account.limits, self.shared.settings
        if self._config.storage == "memory":
            used, both = usage.memory, (own.max_memory, all_of_them.max_memory)
        else:
            used, both = usage.storage, (own.max_storage, all_of_them.max_storage)
        limits = [limit for limit in both if limit >= 0]
        return max(min(limits) - used, 0) if limits else -1


class Transfers(Responder):
    """Those under way of all accounts. In the event loop's thread alone."""

    def __init__(
        self, shared: Shared, advisories: Advisories, finished: Callable[[int, int], None]
    ) -> None:
        self.shared = shared
        self.advisories = advisories
        self._finished = finished
        self._by_subject: dict[str, Transfer] = {}
        self._tasks: dict[asyncio.Task[None], Transfer] = {}

    def begin(self, transfer: Transfer) -> None:
        """Notes one, or ApiError; what is sent to its subject is taken from now on."""
        others = [t for t in self._by_subject.values() if type(t) is type(transfer)]
        same = [t for t in others if (t.account, t.stream) == (transfer.account, transfer.stream)]
        if any(isinstance(other, Outgoing) and other.heard for other in same):
            raise errcodes.STREAM_SNAPSHOT(err="snapshot in progress")
        if isinstance(transfer, Incoming) and same:
            raise errcodes.STREAM_NAME_EXIST_RESTORE_FAILED()
        own = sum(other.account is transfer.account for other in others)
        if isinstance(transfer, Incoming) and (
            len(others) >= RESTORES or own >= RESTORES_OF_ACCOUNT
        ):
            busy = f"{own} streams of this account are being restored, {len(others)} in all"
            raise errcodes.STREAM_RESTORE(err=busy)
        if isinstance(transfer, Outgoing) and (
            len(others) >= SNAPSHOTS or own >= SNAPSHOTS_OF_ACCOUNT
        ):
            busy = f"{own} snapshots of this account are on their way, {len(others)} in all"
            raise errcodes.STREAM_SNAPSHOT(err=busy)
        transfer.handle.serve_requests(transfer.pattern.encode())
        self._by_subject[transfer.subject] = transfer

    def end(self, transfer: Transfer) -> None:
        """Forgets one."""
        if self._by_subject.pop(transfer.subject, None) is not None:
            transfer.handle.stop_requests(transfer.pattern.encode())

    def start(self, transfer: Transfer) -> asyncio.Task[None]:
        """Lets one go on by itself, after its request was answered; done when it has ended."""
        task = asyncio.get_running_loop().create_task(self._run(transfer))
        self._tasks[task] = transfer
        task.add_done_callback(self._tasks.pop)
        return task

    async def _run(self, transfer: Transfer) -> None:
        try:
            await transfer.run()
        except Exception:
            log.exception("The transfer of stream %r failed", transfer.stream)
        finally:
            self.end(transfer)

    def receive(self, request: Request, subject: str) -> bool:
        """Takes what is of a transfer."""
        if not subject.startswith((ACKS, CHUNKS)):
            return False
        tokens = 5 if subject.startswith(ACKS) else 6
        transfer = self._by_subject.get(".".join(subject.split(".")[:tokens]))
        if transfer is not None and transfer.account.name == request.account:
            transfer.receive(request.reply, request.payload)
        self._finished(request.connection, request.cost)
        return True

    async def forget_account(self, account: Account) -> None:
        """JetStream is taken from an account: returns when its streams may be closed."""
        reason = errcodes.NOT_ENABLED_FOR_ACCOUNT().body.description
        await self._end([t for t in self._tasks.items() if t[1].account is account], reason)

    async def close(self) -> None:
        """Ends all."""
        await self._end([*self._tasks.items()], "the server stops")

    async def _end(self, tasks: list[tuple[asyncio.Task[None], Transfer]], reason: str) -> None:
        for _, transfer in tasks:
            transfer.stop(reason)
        if tasks:
            await asyncio.wait([task for task, _ in tasks])
