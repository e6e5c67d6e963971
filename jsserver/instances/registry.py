"""The streams and consumers of an account: names to objects, their files, and changes to them.

The asyncio loop owns everything here; what waits for a disk runs in worker threads. Whoever changes
a stream or one of its consumers holds the stream's lock (`Account.lock`), so that changes to one
stream happen one after another, while different streams do not wait for each other. What must hold
across streams (subjects, limits) is claimed before the first await.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

import msgspec

from jsserver import goformat
from jsserver.assets import consumers
from jsserver.assets.limits import (
    AccountLimits,
    RequestStats,
    Reservations,
    ServerSettings,
    check_room,
)
from jsserver.assets.patterns import PatternIndex
from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError, ErrorTemplate
from jsserver.wire.types import ConsumerConfig, StreamConfig

from . import metafiles, params
from .backend import Accounts, ConsumerHandle, StoreError, StreamHandle
from .metafiles import MetaFiles

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

WORKERS = 4
"""Threads for what waits for a disk, and requests in progress at the same time."""


class Shared:
    """What all accounts use: the data plane, settings, files, threads, the clock."""

    def __init__(
        self,
        accounts: Accounts,
        settings: ServerSettings,
        hash64: metafiles.Hash64,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.accounts = accounts
        """The data plane's, also those without JetStream."""
        self.settings = settings
        self.files = MetaFiles(hash64)
        self.clock = clock
        self.reserved = Reservations()
        self.full = ""
        """Why nothing is stored in any stream on disk at the moment."""
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="api")
        self._erasing: set[asyncio.Future[None]] = set()

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls something that may block, in a worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    def erase_later(self, directory: Path) -> None:
        """Removes a directory that nobody sees any more, without waiting for it."""
        loop = asyncio.get_running_loop()
        task = loop.run_in_executor(self._threads, metafiles.erase, directory)
        self._erasing.add(task)
        task.add_done_callback(self._erasing.discard)

    async def close(self) -> None:
        """Waits for what is being erased and ends the threads."""
        if self._erasing:
            await asyncio.wait(self._erasing)
        self._threads.shutdown(wait=False)


class Consumer:
    """A consumer that is served."""

    __slots__ = ("config", "created", "directory", "handle", "name")

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        created: int,
        handle: ConsumerHandle,
        directory: Path | None,
    ) -> None:
        self.name = name
        self.config = config
        self.created = created
        self.handle = handle
        self.directory = directory


class Stream:
    """A stream that is served, with its consumers."""

    __slots__ = (
        "config",
        "consumers",
        "created",
        "directory",
        "failing",
        "filters",
        "handle",
        "offline",
        "started",
    )

    def __init__(
        self, config: StreamConfig, created: int, handle: StreamHandle, directory: Path | None
    ) -> None:
        self.config = config
        self.created = created
        self.handle = handle
        self.directory = directory
        self.failing = ""
        """Why nothing is stored in it at the moment."""
        self.consumers: dict[str, Consumer] = {}
        self.offline: dict[str, str] = {}
        """Consumers on disk that are not served, and why."""
        self.started = config.first_seq > 0
        """Whether it has a first sequence though it holds no message yet."""
        self.filters: PatternIndex[str] = PatternIndex()
        """Of a workqueue stream: what its consumers want."""

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.config.name

    def consumer(self, name: str) -> Consumer:
        """The consumer of this name, or ApiError."""
        found = self.consumers.get(name)
        if found is None:
            if name in self.offline:
                raise errcodes.CONSUMER_OFFLINE_REASON(err=self.offline[name])
            raise errcodes.CONSUMER_NOT_FOUND()
        return found

    def claim_filters(self, name: str, config: ConsumerConfig) -> None:
        """On a workqueue stream, checks that no other consumer wants the same and notes it."""
        if self.config.retention != "workqueue":
            return
        wanted = consumers.filters(config) or [">"]
        others = {o for f in wanted for o in self.filters.overlapping(f) if o != name}
        if others:
            unfiltered = not consumers.filters(config)
            if unfiltered:
                raise errcodes.CONSUMER_WQ_MULTIPLE_UNFILTERED()
            raise errcodes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()
        self.note_filters(name, config)

    def note_filters(self, name: str, config: ConsumerConfig) -> None:
        """Notes what a consumer of a workqueue stream wants."""
        if self.config.retention == "workqueue":
            for subject in consumers.filters(config) or [">"]:
                self.filters.add(subject, name)

    def release_filters(self, name: str, config: ConsumerConfig) -> None:
        """Takes back `claim_filters` or `note_filters`."""
        if self.config.retention == "workqueue":
            for subject in consumers.filters(config) or [">"]:
                self.filters.remove(subject, name)


def _failed(template: ErrorTemplate, error: Exception) -> ApiError:
    """An operation's own error for a failure below the API; any other failure goes on as it is."""
    if not isinstance(error, (OSError, StoreError)):
        raise error
    text = error.strerror if isinstance(error, OSError) else None
    return template(err=text or str(error))


def _not_created(template: ErrorTemplate, asset: str, name: str, error: Exception) -> ApiError:
    """The error of a creation that failed below the API; why it failed is for the log.

    A name that no file can have (a NUL in it) fails like a disk that takes none."""
    if not isinstance(error, (OSError, StoreError, ValueError)):
        raise error
    log.error("Error creating store for %s %s: %s", asset, goformat.quote(name), error)
    return template(err=f"error creating store for {asset}")


class Account:
    """JetStream of one account."""

    def __init__(
        self, name: str, shared: Shared, directory: Path | None, limits: AccountLimits
    ) -> None:
        self.name = name
        self.handle = shared.accounts[name]
        self.shared = shared
        self.directory = directory / "streams" if directory is not None else None
        self.limits = limits
        self.streams: dict[str, Stream] = {}
        self.offline: dict[str, str] = {}
        """Streams on disk that are not served, and why."""
        self.reserved = Reservations()
        self.stats = RequestStats()
        self._subjects: PatternIndex[str] = PatternIndex()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def lock(self, stream: str) -> asyncio.Lock:
        """Serialises changes to a stream, whether it exists or not."""
        lock = self._locks.get(stream)
        if lock is None:
            lock = self._locks[stream] = asyncio.Lock()
        return lock

    def stream(self, name: str) -> Stream:
        """The stream of this name, or ApiError."""
        found = self.streams.get(name)
        if found is None:
            if name in self.offline:
                raise errcodes.STREAM_OFFLINE_REASON(err=self.offline[name])
            raise errcodes.STREAM_NOT_FOUND()
        return found

    # ---- claims ----------------------------------------------------------------------------------

    def check_counts(self, config: StreamConfig) -> None:
        """Raises if the account may not have one more stream, or so many consumers on one."""
        limits = self.limits
        new = config.name not in self.streams and config.name not in self.offline
        if new and 0 <= limits.max_streams <= self.reserved.streams:
            raise errcodes.MAXIMUM_STREAMS_LIMIT()
        if 0 < limits.max_consumers < config.max_consumers:
            raise errcodes.MAXIMUM_CONSUMERS_LIMIT()

    def check_room(self, config: StreamConfig, old: StreamConfig | None) -> None:
        """Raises if there is no room for this stream, or to change `old` into it."""
        shared = self.shared
        check_room(config, old, self.limits, self.reserved, shared.reserved, shared.settings)

    def check_overlap(self, config: StreamConfig) -> None:
        """Raises if another stream has a subject in common with this one."""
        for subject in config.subjects:
            for owner in self._subjects.overlapping(subject):
                if owner != config.name:
                    raise errcodes.STREAM_SUBJECT_OVERLAP()

    def _claim(self, config: StreamConfig, sign: int) -> None:
        """Takes (+1) or gives back (-1) a stream's subjects and reservations."""
        change = self._subjects.add if sign > 0 else self._subjects.remove
        for subject in config.subjects:
            change(subject, config.name)
        self.reserved.add_stream(config, sign)
        self.shared.reserved.add_stream(config, sign)

    # ---- streams ---------------------------------------------------------------------------------

    async def create_stream(self, config: StreamConfig) -> Stream:
        """Makes a stream of a checked configuration; its lock is held."""
        self.check_overlap(config)
        self._claim(config, 1)
        try:
            stream = await self.shared.run(self._create_stream, config, self.shared.clock())
        except Exception as error:
            self._claim(config, -1)
            raise _not_created(errcodes.STREAM_CREATE, "stream", config.name, error) from error
        self.streams[config.name] = stream
        return stream

    def _create_stream(self, config: StreamConfig, created: int) -> Stream:
        directory = None
        given = params.of_stream(config)
        if config.storage == "file" and self.directory is not None:
            directory = self.directory / config.name
            body = encode_meta(config, created)
            metafiles.make_directory(self.directory)
            self.shared.files.create(directory, self.directory, config.name, body)
        try:
            handle = self.handle.open_stream(_path(directory), given)
            try:
                handle.activate()
            except BaseException:
                handle.close(True)
                raise
        except BaseException:
            if directory is not None:
                metafiles.erase(metafiles.discard(directory, directory.parent))
            raise
        return Stream(config, created, handle, directory)

    async def update_stream(self, stream: Stream, config: StreamConfig) -> None:
        """Gives a stream a checked configuration; its lock is held."""
        old = stream.config
        self.check_overlap(config)
        self._claim(old, -1)
        self._claim(config, 1)
        try:
            await self.shared.run(self._update_stream, stream, config)
        except Exception as error:
            self._claim(config, -1)
            self._claim(old, 1)
            raise _failed(errcodes.STREAM_UPDATE, error) from error
        stream.config = config

    def _update_stream(self, stream: Stream, config: StreamConfig) -> None:
        given = params.of_stream(config)
        if stream.directory is not None and config.max_age != stream.config.max_age:
            stream.handle.wait_durable()  # what is too old by now stays gone, whatever happens
        self._write_stream(stream, config)
        try:
            stream.handle.update(given)
            stream.handle.wait_durable()
        except BaseException:
            with contextlib.suppress(StoreError):
                stream.handle.update(params.of_stream(stream.config), back=True)
            with contextlib.suppress(OSError):
                self._write_stream(stream, stream.config)
            raise

    def _write_stream(self, stream: Stream, config: StreamConfig) -> None:
        if stream.directory is not None:
            body = encode_meta(config, stream.created)
            self.shared.files.update(stream.directory, stream.name, body)

    async def delete_stream(self, stream: Stream) -> None:
        """Removes a stream with everything in it; its lock is held."""
        del self.streams[stream.name]
        try:
            trash = await self.shared.run(self._delete_stream, stream)
        except Exception as error:
            self.streams[stream.name] = stream
            raise _failed(errcodes.STREAM_DELETE, error) from error
        self._claim(stream.config, -1)
        self._count_consumers(-len(stream.consumers))
        if trash is not None:
            self.shared.erase_later(trash)

    def _delete_stream(self, stream: Stream) -> Path | None:
        trash = None
        if stream.directory is not None:  # first: a crash leaves all of the stream, or nothing
            trash = metafiles.discard(stream.directory, stream.directory.parent)
        stream.handle.close(True)
        return trash

    def _count_consumers(self, change: int) -> None:
        self.reserved.consumers += change
        self.shared.reserved.consumers += change

    # ---- consumers -------------------------------------------------------------------------------

    async def create_consumer(self, stream: Stream, name: str, config: ConsumerConfig) -> Consumer:
        """Makes a consumer of a checked configuration; the stream's lock is held."""
        stream.claim_filters(name, config)
        try:
            consumer = await self.shared.run(self._create_consumer, stream, name, config)
        except Exception as error:
            stream.release_filters(name, config)
            raise _not_created(errcodes.CONSUMER_CREATE, "consumer", name, error) from error
        stream.consumers[name] = consumer
        self._count_consumers(1)
        return consumer

    def _create_consumer(self, stream: Stream, name: str, config: ConsumerConfig) -> Consumer:
        created = self.shared.clock()
        directory = None
        served = config if config.durable_name else with_threshold(config)
        given = params.of_consumer(served, name)
        if stream.directory is not None and not config.mem_storage:
            directory = stream.directory / "obs" / name
            body = encode_meta(config, created, name)
            asset = f"{stream.name}/{name}"
            self.shared.files.create(directory, stream.directory, asset, body)
        try:
            handle = stream.handle.open_consumer(given, _path(directory), hold=True)
        except BaseException:
            if directory is not None and stream.directory is not None:
                metafiles.erase(metafiles.discard(directory, stream.directory))
            raise
        return Consumer(name, served, created, handle, directory)

    async def update_consumer(
        self, stream: Stream, consumer: Consumer, config: ConsumerConfig
    ) -> None:
        """Gives a consumer a checked configuration; the stream's lock is held."""
        old = consumer.config
        stream.release_filters(consumer.name, old)
        try:
            stream.claim_filters(consumer.name, config)
        except ApiError:
            stream.note_filters(consumer.name, old)
            raise
        try:
            await self.shared.run(self._update_consumer, stream, consumer, config)
        except Exception as error:
            stream.release_filters(consumer.name, config)
            stream.note_filters(consumer.name, old)
            raise _failed(errcodes.CONSUMER_CREATE, error) from error
        consumer.config = config

    def _update_consumer(self, stream: Stream, consumer: Consumer, config: ConsumerConfig) -> None:
        given = params.of_consumer(config, consumer.name)
        self._write_consumer(stream, consumer, config)
        try:
            consumer.handle.update(given)
            stream.handle.wait_durable()
        except BaseException:
            with contextlib.suppress(StoreError):
                before = params.of_consumer(consumer.config, consumer.name)
                consumer.handle.update(before, back=True)
            with contextlib.suppress(OSError):
                self._write_consumer(stream, consumer, consumer.config)
            raise

    def _write_consumer(self, stream: Stream, consumer: Consumer, config: ConsumerConfig) -> None:
        if consumer.directory is not None:
            body = encode_meta(config, consumer.created, consumer.name)
            asset = f"{stream.name}/{consumer.name}"
            self.shared.files.update(consumer.directory, asset, body)

    async def pause_consumer(self, stream: Stream, consumer: Consumer, until: str) -> None:
        """Sets a consumer's pause_until ("": none); the stream's lock is held."""
        config = msgspec.structs.replace(consumer.config, pause_until=until)
        consumers.note_level(config)
        try:
            await self.shared.run(self._pause_consumer, stream, consumer, config)
        except Exception as error:
            raise _failed(errcodes.CONSUMER_CREATE, error) from error
        consumer.config = config

    def _pause_consumer(self, stream: Stream, consumer: Consumer, config: ConsumerConfig) -> None:
        until = consumers.pause_time(config)
        self._write_consumer(stream, consumer, config)
        try:
            consumer.handle.pause(until)
        except BaseException:
            with contextlib.suppress(OSError):
                self._write_consumer(stream, consumer, consumer.config)
            raise

    async def delete_consumer(self, stream: Stream, consumer: Consumer) -> None:
        """Removes a consumer; the stream's lock is held."""
        del stream.consumers[consumer.name]
        try:
            trash = await self.shared.run(self._delete_consumer, stream, consumer)
        except Exception as error:
            stream.consumers[consumer.name] = consumer
            raise _failed(errcodes.CONSUMER_CREATE, error) from error
        stream.release_filters(consumer.name, consumer.config)
        self._count_consumers(-1)
        if trash is not None:
            self.shared.erase_later(trash)

    def _delete_consumer(self, stream: Stream, consumer: Consumer) -> Path | None:
        trash = None
        if consumer.directory is not None and stream.directory is not None:  # first, as of streams
            trash = metafiles.discard(consumer.directory, stream.directory)
        consumer.handle.close(True)
        with contextlib.suppress(StoreError, OSError):  # it is gone; its removals follow it
            stream.handle.wait_durable()
        return trash

    # ---- start and stop --------------------------------------------------------------------------

    def adopt(self, stream: Stream) -> None:
        """Takes a stream that was found on disk and begins to serve it."""
        self._claim(stream.config, 1)
        for consumer in stream.consumers.values():
            stream.note_filters(consumer.name, consumer.config)
        self._count_consumers(len(stream.consumers))
        self.streams[stream.name] = stream
        stream.handle.activate(hold=bool(stream.offline))

    async def close(self) -> None:
        """Stops serving and flushes everything."""
        found = list(self.streams.values())
        self.streams.clear()
        await asyncio.gather(*(self.shared.run(s.handle.close, False) for s in found))


def _path(directory: Path | None) -> str | None:
    return None if directory is None else str(directory)


def with_threshold(config: ConsumerConfig) -> ConsumerConfig:
    """An ephemeral consumer's configuration, with the default threshold if it names none."""
    if config.inactive_threshold > 0:
        return config
    return msgspec.structs.replace(config, inactive_threshold=consumers.DEFAULT_INACTIVE_THRESHOLD)


def encode_meta(
    config: StreamConfig | ConsumerConfig, created: int, consumer: str | None = None
) -> bytes:
    """A meta.inf: creation time, a consumer's name, and the configuration as in the API."""
    head = {"Created": goformat.rfc3339_nano(created)}
    if isinstance(config, ConsumerConfig):
        assert consumer is not None
        head["Name"] = consumer
        config = msgspec.structs.replace(config, name=consumer)
    body = msgspec.json.encode(config)
    return goformat.escape_json(msgspec.json.encode(head)[:-1] + b"," + body[1:])
