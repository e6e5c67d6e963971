"""Streams and consumers that run, and the steps that make them what their assignments say.

Functions wait for the disk, or they are works that a round carries out (rounds.py); callers hold
the stream's lock. The configuration in an asset's directory comes first, then its handle
in the data plane: after a crash between the two the start finds what was decided. A removal takes
the directory away first, so that a crash leaves all of an asset or nothing. Where a step fails,
those before it are taken back.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from jsserver.assets import consumers
from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment
from jsserver.text import goformat
from jsserver.wire.types import ConsumerConfig, StreamConfig

from . import metafiles, prepared
from .backend import AccountHandle, ConsumerHandle, StoreError, StreamHandle
from .metafiles import MetaFiles
from .replicated import ConsumerMember, Groups, StreamMember
from .rounds import Durable, Work, alone

CONSUMERS = "obs"
"""The folder of a stream's directory that has one for each consumer kept on disk."""
MESSAGES = "msgs"
FOLDERS = (MESSAGES, CONSUMERS)
"""What a stream's directory has from the beginning: so one sync makes them all durable."""
STARTS_BY_STATE = ("last", "last_per_subject", "new")
"""Consumers that begin where the stream stood when they were made: it is written down at once."""


class Consumer:
    """A consumer that is served."""

    __slots__ = ("asset", "assignment", "damaged", "directory", "handle", "member", "unwritten")

    def __init__(
        self,
        stream: str,
        assignment: ConsumerAssignment,
        handle: ConsumerHandle,
        directory: Path | None,
        member: ConsumerMember | None = None,
    ) -> None:
        self.asset = f"{stream}/{assignment.name}"
        """What its configuration file is signed with."""
        self.assignment = assignment
        """What it is made after."""
        self.handle = handle
        self.directory = directory
        self.unwritten = False
        """Whether a start might find another configuration in its directory."""
        self.damaged = False
        """Whether a part of what the start found of its state could not be used."""
        self.member = member
        """What drives it, where it has replicas."""

    @property
    def config(self) -> ConsumerConfig:
        """The configuration in force."""
        return self.assignment.config

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.assignment.name

    @property
    def created(self) -> int:
        """When it was made."""
        return self.assignment.created


class Stream:
    """A stream that is served, with its consumers."""

    __slots__ = (
        "assignment",
        "consumers",
        "directory",
        "failing",
        "handle",
        "member",
        "started",
        "unwritten",
    )

    def __init__(
        self, assignment: StreamAssignment, handle: StreamHandle, directory: Path | None
    ) -> None:
        self.assignment = assignment
        """What it is made after."""
        self.handle = handle
        self.directory = directory
        self.member: StreamMember | None = None
        """What drives it, where it has replicas."""
        self.failing = ""
        """Why nothing is stored in it at the moment, or its configuration is not on disk."""
        self.unwritten = False
        """Whether a start might find another configuration in its directory."""
        self.consumers: dict[str, Consumer] = {}
        self.started = assignment.config.first_seq > 0
        """Whether it has a first sequence though it holds no message yet."""

    @property
    def config(self) -> StreamConfig:
        """The configuration in force."""
        return self.assignment.config

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.assignment.config.name

    @property
    def asset(self) -> str:
        """What its configuration file is signed with."""
        return self.name

    @property
    def created(self) -> int:
        """When it was made."""
        return self.assignment.created

    @property
    def offline(self) -> dict[str, str]:
        """Consumers on disk that are not served, and why."""
        return self.assignment.offline

    def consumer(self, name: str) -> Consumer:
        """The consumer of this name, or ApiError."""
        found = self.consumers.get(name)
        if found is None:
            raise self.assignment.absent(name)
        return found

    @property
    def listed(self) -> dict[str, Consumer]:
        """Its consumers but for those that mirrors and sources made for themselves."""
        return {name: c for name, c in self.consumers.items() if not c.config.direct}

    def unwritten_assets(self) -> list["Stream | Consumer"]:
        """Itself and those of its consumers that are `unwritten`."""
        assets: list[Stream | Consumer] = [self, *self.consumers.values()]
        return [asset for asset in assets if asset.unwritten]


class Instances:
    """What runs of one account. `directory` is where its streams lie; `erase` removes a directory
    that nobody sees any more, without waiting for it."""

    def __init__(
        self,
        handle: AccountHandle,
        files: MetaFiles,
        directory: Path | None,
        erase: Callable[[Path], None],
    ) -> None:
        self._handle = handle
        self._files = files
        self._directory = directory
        self._erase = erase
        self.groups: Groups | None = None
        """What drives streams and consumers that have replicas."""

    # ---- making it so ----------------------------------------------------------------------------

    def converge(self, running: Stream | None, wanted: StreamAssignment) -> Work[Stream]:
        """Makes a stream and its consumers what the assignment says, and returns what runs then.
        What is so already is left alone. `running` is of the same creation, or None."""
        if running is None:
            running = yield from self._make(wanted)
        else:
            yield from self._change(running, wanted)
        consumers = dict(running.consumers)
        try:
            for name, consumer in running.consumers.items():
                if not _is_of(consumer, wanted.consumers.get(name)):
                    yield from self.remove_consumer(running, consumer)
                    del consumers[name]
            for name, one in wanted.consumers.items():
                there = consumers.get(name)
                consumers[name] = yield from self.converge_consumer(running, there, one)
        finally:
            running.consumers = consumers
        return running

    def converge_consumer(
        self,
        stream: Stream,
        running: Consumer | None,
        wanted: ConsumerAssignment,
        hold: bool = False,
    ) -> Work[Consumer]:
        """As `converge`, of one consumer. `hold`: a new one delivers nothing before its `begin`."""
        if running is None:
            made = yield from self._make_consumer(stream, wanted, hold)
            return made
        yield from self._change_consumer(stream, running, wanted)
        return running

    def remove(self, stream: Stream) -> Work[None]:
        """Removes a stream with everything in it."""
        trash = None
        self._leave(stream, delete=True)
        if stream.directory is not None:
            with contextlib.suppress(StoreError):  # what was asked before is done
                yield Durable(stream.handle)
            stream.handle.withhold(True)  # what comes from now on would find no file
            try:
                trash = yield from metafiles.discard(stream.directory, stream.directory.parent)
            except BaseException:
                stream.handle.withhold(False)
                raise
        stream.handle.close(True)
        if trash is not None:
            self._erase(trash)

    def remove_consumer(self, stream: Stream, consumer: Consumer) -> Work[None]:
        """Removes a consumer."""
        trash = None
        if consumer.directory is not None and stream.directory is not None:
            trash = yield from metafiles.discard(consumer.directory, stream.directory)
        if consumer.member is None:
            consumer.handle.close(True)
        elif self.groups is not None:
            self.groups.leave_consumer(stream, consumer, delete=True)
        with contextlib.suppress(StoreError, OSError):  # it is gone; its removals follow it
            yield Durable(stream.handle)
        if trash is not None:
            self._erase(trash)

    def open(
        self, wanted: StreamAssignment, directory: Path | None, synced: bool = False
    ) -> Stream:
        """A stream with what its directory holds, without consumers and not served yet. `synced`
        as in AccountHandle.open_stream."""
        given = prepared.stream(wanted.config)
        driven = self.groups is not None and self.groups.drives(wanted)
        handle = self._handle.open_stream(_path(directory), given, synced and not driven)
        stream = Stream(wanted, handle, directory)
        if driven and self.groups is not None:
            try:
                self.groups.join(stream)
            except BaseException:
                handle.close(False)
                raise
        return stream

    def open_consumer(
        self,
        stream: Stream,
        wanted: ConsumerAssignment,
        directory: Path | None,
        hold: bool = False,
    ) -> Consumer:
        """A consumer with the state that its directory holds, served as soon as the stream is."""
        given = prepared.consumer(wanted.config, wanted.name)
        if self.groups is not None and stream.member is not None:
            member = self.groups.join_consumer(stream, wanted, given, _path(directory))
            if member is not None:
                return Consumer(stream.name, wanted, member.handle, directory, member)
        handle = stream.handle.open_consumer(given, _path(directory), hold=hold)
        return Consumer(stream.name, wanted, handle, directory)

    def write_back(self, stream: Stream) -> None:
        """Writes the configurations that could not be put back when an update failed."""
        for asset in stream.unwritten_assets():
            alone(self._write(asset, asset.assignment))

    def close(self, stream: Stream) -> None:
        """Stops a stream and its consumers, with everything on disk."""
        with contextlib.suppress(OSError):
            self.write_back(stream)
        self._leave(stream, delete=False)
        stream.handle.close(False)

    def _leave(self, stream: Stream, *, delete: bool) -> None:
        if self.groups is not None and stream.member is not None:
            self.groups.leave(stream, delete=delete)

    # ---- the steps for streams -------------------------------------------------------------------

    def _make(self, wanted: StreamAssignment) -> Work[Stream]:
        config, directory = wanted.config, None
        if config.storage == "file" and self._directory is not None:
            directory = self._directory / config.name
            meta = encode_meta(wanted)
            yield from self._files.create(directory, self._directory, config.name, meta, FOLDERS)
        try:
            if self.groups is not None and self.groups.drives(wanted):
                yield from self.groups.prepare(config.name)
            stream = self.open(wanted, directory, synced=True)
            try:
                if stream.member is None:
                    stream.handle.activate()
            except BaseException:
                stream.handle.close(True)
                raise
        except BaseException:
            if directory is not None:
                yield from metafiles.withdraw(directory, directory.parent)
            raise
        return stream

    def _change(self, stream: Stream, wanted: StreamAssignment) -> Work[None]:
        old, new, handle = stream.config, wanted.config, stream.handle

        def apply() -> Work[None]:
            handle.update(prepared.stream(new))
            yield Durable(handle)

        def take_back() -> None:
            handle.update(prepared.stream(old), back=True)

        if new != old:
            if stream.directory is not None and new.max_age != old.max_age:
                handle.wait_durable(synced=True)  # what is too old by now stays gone
            yield from self._replace(stream, wanted, apply, take_back)
        stream.assignment = wanted

    # ---- the steps for consumers -----------------------------------------------------------------

    def _make_consumer(
        self, stream: Stream, wanted: ConsumerAssignment, hold: bool
    ) -> Work[Consumer]:
        directory = None
        config = wanted.config
        if stream.directory is not None and not config.mem_storage and not config.direct:
            directory = stream.directory / CONSUMERS / wanted.name
            asset = f"{stream.name}/{wanted.name}"
            meta = encode_meta(wanted)
            yield from self._files.create(directory, stream.directory, asset, meta)
        try:
            if self.groups is not None and stream.member is not None:
                yield from self.groups.prepare(stream.name, wanted.name)
            groups = self.groups
            state = b"" if groups is None else groups.begins_with(stream.name, wanted.name)
            if directory is not None and state:
                metafiles.replace(directory / metafiles.STATE, state)
            made = self.open_consumer(stream, wanted, directory, hold)
            if directory is not None and wanted.config.deliver_policy in STARTS_BY_STATE:
                try:
                    yield Durable(stream.handle)
                except BaseException:
                    made.handle.close(True)
                    raise
            return made
        except BaseException:
            if directory is not None and stream.directory is not None:
                yield from metafiles.withdraw(directory, stream.directory)
            raise

    def _change_consumer(
        self, stream: Stream, consumer: Consumer, wanted: ConsumerAssignment
    ) -> Work[None]:
        old, new, handle = consumer.config, wanted.config, consumer.handle
        updated = not _only_pauses(old, new)

        def apply() -> Work[None]:
            if updated:
                handle.update(prepared.consumer(new, wanted.name))
                yield Durable(stream.handle)
            if new.pause_until != old.pause_until:
                handle.pause(consumers.pause_time(new))

        def take_back() -> None:
            if updated:
                try:
                    handle.update(prepared.consumer(old, wanted.name), back=True)
                finally:
                    handle.begin()  # if the update held it, no answer will end that

        if consumer.member is not None and new.pause_until != old.pause_until:
            handle.pause(consumers.pause_time(new))  # it is agreed on, whatever the disk says
        if wanted != consumer.assignment:
            yield from self._replace(consumer, wanted, apply, take_back)
            consumer.assignment = wanted

    # ---- what both have --------------------------------------------------------------------------

    def _replace(
        self,
        asset: Stream | Consumer,
        wanted: StreamAssignment | ConsumerAssignment,
        apply: Callable[[], Work[None]],
        take_back: Callable[[], None],
    ) -> Work[None]:
        """Gives an asset another configuration, on disk and in the data plane, or in neither."""
        yield from self._write(asset, wanted)
        try:
            yield from apply()
        except BaseException:
            with contextlib.suppress(StoreError):
                take_back()
            try:
                yield from self._write(asset, asset.assignment)
            except OSError:
                asset.unwritten = True
            raise

    def _write(
        self, asset: Stream | Consumer, assignment: StreamAssignment | ConsumerAssignment
    ) -> Work[None]:
        if asset.directory is None:
            return
        try:
            yield from self._files.update(asset.directory, asset.asset, encode_meta(assignment))
        except metafiles.NotRestored:
            asset.unwritten = True
            raise
        asset.unwritten = False


def _is_of(consumer: Consumer, wanted: ConsumerAssignment | None) -> bool:
    return wanted is not None and wanted.created == consumer.created


def _path(directory: Path | None) -> str | None:
    return None if directory is None else str(directory)


def _only_pauses(old: ConsumerConfig, new: ConsumerConfig) -> bool:
    """Whether two configurations differ in how long the consumer pauses and in nothing else."""
    replaced = msgspec.structs.replace(new, pause_until=old.pause_until)
    return new.pause_until != old.pause_until and consumers.same(old, replaced)


def encode_meta(assignment: StreamAssignment | ConsumerAssignment) -> bytes:
    """A meta.inf: creation time, a consumer's name, and the configuration as in the API."""
    head = {"Created": goformat.rfc3339_nano(assignment.created)}
    config: StreamConfig | ConsumerConfig = assignment.config
    if isinstance(assignment, ConsumerAssignment):
        head["Name"] = assignment.name
        config = msgspec.structs.replace(assignment.stored, name=assignment.name)
    body = msgspec.json.encode(config)
    return goformat.escape_json(msgspec.json.encode(head)[:-1] + b"," + body[1:])
