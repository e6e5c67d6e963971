"""Running streams and consumers, and the steps that bring them in line with their assignments.

Functions wait for the disk, or are works that a round carries out (rounds.py); callers hold the
stream's lock. The configuration is written to the asset's directory before its handle in the data
plane changes: after a crash in between, the start finds the new configuration. A removal first
moves the directory away, so that a crash leaves a whole asset or none. If a step fails, the steps
before it are undone.
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
"""The folder in a stream's directory with a folder for each consumer that is kept on disk."""
MESSAGES = "msgs"
FOLDERS = (MESSAGES, CONSUMERS)
"""The folders in every stream's directory: one sync makes them all durable."""
STARTS_BY_STATE = ("last", "last_per_subject", "new")
"""Deliver policies that start at the stream's present end: its sequence is written at once."""


class Consumer:
    """A running consumer."""

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
        """The asset that its configuration file is signed for."""
        self.assignment = assignment
        """The assignment that it runs by."""
        self.handle = handle
        self.directory = directory
        self.unwritten = False
        """Whether the file may hold another configuration, which a start would take."""
        self.damaged = False
        """Whether the start had to drop a damaged part of its state."""
        self.member = member
        """Its member of a Raft group, if it is replicated."""

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
        """When it was created, in ns since the epoch."""
        return self.assignment.created


class Stream:
    """A running stream with its consumers."""

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
        """The assignment that it runs by."""
        self.handle = handle
        self.directory = directory
        self.member: StreamMember | None = None
        """Its member of a Raft group, if it is replicated."""
        self.failing = ""
        """Why it stores nothing at the moment, or lacks its configuration on disk; "": all is
        well."""
        self.unwritten = False
        """Whether the file may hold another configuration, which a start would take."""
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
        """The asset that its configuration file is signed for."""
        return self.name

    @property
    def created(self) -> int:
        """When it was created, in ns since the epoch."""
        return self.assignment.created

    @property
    def offline(self) -> dict[str, str]:
        """The reasons by consumer, for consumers on disk that do not run."""
        return self.assignment.offline

    def consumer(self, name: str) -> Consumer:
        """The consumer of this name; ApiError."""
        found = self.consumers.get(name)
        if found is None:
            raise self.assignment.absent(name)
        return found

    @property
    def listed(self) -> dict[str, Consumer]:
        """Its consumers, without those that mirrors and sources made for themselves."""
        return {name: c for name, c in self.consumers.items() if not c.config.direct}

    def unwritten_assets(self) -> list["Stream | Consumer"]:
        """The stream and the consumers that are `unwritten`."""
        assets: list[Stream | Consumer] = [self, *self.consumers.values()]
        return [asset for asset in assets if asset.unwritten]


class Instances:
    """The running assets of an account. `directory`: its streams' folder; `erase`: removes a
    directory that is out of use, without waiting."""

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
        """The Raft groups of replicated assets; None: no cluster."""

    # ---- making it so ----------------------------------------------------------------------------

    def converge(self, running: Stream | None, wanted: StreamAssignment) -> Work[Stream]:
        """Brings a stream and its consumers in line with the assignment, and returns the running
        stream. `running`: the same stream as it runs now, with the same creation time; None: it
        does not run."""
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
        """As `converge`, for one consumer. `hold`: a new one delivers nothing before its
        `begin`."""
        if running is None:
            made = yield from self._make_consumer(stream, wanted, hold)
            return made
        yield from self._change_consumer(stream, running, wanted)
        return running

    def remove(self, stream: Stream) -> Work[None]:
        """Removes a stream, its messages and its consumers."""
        trash = None
        self._leave(stream, delete=True)
        if stream.directory is not None:
            with contextlib.suppress(StoreError):  # earlier requests are carried out
                yield Durable(stream.handle)
            stream.handle.withhold(True)  # later writes would find no file
            try:
                trash = yield from metafiles.discard(stream.directory, stream.directory.parent)
            except BaseException:
                stream.handle.withhold(False)
                raise
        stream.handle.close(True)
        if trash is not None:
            self._erase(trash)

    def remove_consumer(self, stream: Stream, consumer: Consumer) -> Work[None]:
        """Removes a consumer and its state."""
        trash = None
        if consumer.directory is not None and stream.directory is not None:
            trash = yield from metafiles.discard(consumer.directory, stream.directory)
        if consumer.member is None:
            consumer.handle.close(True)
        elif self.groups is not None:
            self.groups.leave_consumer(stream, consumer, delete=True)
        with contextlib.suppress(StoreError, OSError):  # the consumer is gone all the same
            yield Durable(stream.handle)
        if trash is not None:
            self._erase(trash)

    def open(
        self,
        wanted: StreamAssignment,
        directory: Path | None,
        *,
        synced: bool = False,
        made: bool = False,
    ) -> Stream:
        """Opens a stream with the data in its directory, without consumers, not served yet.
        `synced` as in AccountHandle.open_stream; `made`: the directory is new and on disk, which
        says nothing of the directory of the stream's group."""
        given = prepared.stream(wanted.config)
        driven = self.groups is not None and self.groups.drives(wanted)
        handle = self._handle.open_stream(_path(directory), given, synced or made)
        stream = Stream(wanted, handle, directory)
        if driven and self.groups is not None:
            try:
                self.groups.join(stream, synced=synced)
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
        """Opens a consumer with the state in its directory. It is served as soon as its stream
        is."""
        given = prepared.consumer(wanted.config, wanted.name)
        if self.groups is not None and stream.member is not None:
            member = self.groups.join_consumer(stream, wanted, given, _path(directory))
            if member is not None:
                return Consumer(stream.name, wanted, member.handle, directory, member)
        handle = stream.handle.open_consumer(given, _path(directory), hold=hold)
        return Consumer(stream.name, wanted, handle, directory)

    def write_back(self, stream: Stream) -> None:
        """Writes the configurations that a failed update could not put back."""
        for asset in stream.unwritten_assets():
            alone(self._write(asset, asset.assignment))

    def close(self, stream: Stream) -> None:
        """Stops a stream and its consumers, once all is on disk."""
        with contextlib.suppress(OSError):
            self.write_back(stream)
        self._leave(stream, delete=False)
        stream.handle.close(False)

    def _leave(self, stream: Stream, *, delete: bool) -> None:
        if self.groups is not None and stream.member is not None:
            self.groups.leave(stream, delete=delete)

    # ---- steps for streams -----------------------------------------------------------------------

    def _make(self, wanted: StreamAssignment) -> Work[Stream]:
        config, directory = wanted.config, None
        if config.storage == "file" and self._directory is not None:
            directory = self._directory / config.name
            meta = encode_meta(wanted)
            yield from self._files.create(directory, self._directory, config.name, meta, FOLDERS)
        try:
            if self.groups is not None and self.groups.drives(wanted):
                yield from self.groups.prepare(config.name)
            stream = self.open(wanted, directory, made=True)
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
                handle.wait_durable(synced=True)  # expired messages must not come back
            yield from self._replace(stream, wanted, apply, take_back)
        stream.assignment = wanted

    # ---- steps for consumers ---------------------------------------------------------------------

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
                    handle.begin()  # the update may have held it, and no answer will begin it

        if consumer.member is not None and new.pause_until != old.pause_until:
            handle.pause(consumers.pause_time(new))  # agreed on, whether or not it is on disk
        if wanted != consumer.assignment:
            yield from self._replace(consumer, wanted, apply, take_back)
            consumer.assignment = wanted

    # ---- steps for both --------------------------------------------------------------------------

    def _replace(
        self,
        asset: Stream | Consumer,
        wanted: StreamAssignment | ConsumerAssignment,
        apply: Callable[[], Work[None]],
        take_back: Callable[[], None],
    ) -> Work[None]:
        """Changes an asset's configuration on disk and in the data plane; if one fails, in
        neither."""
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
    """Whether two configurations differ only in the end of a pause."""
    replaced = msgspec.structs.replace(new, pause_until=old.pause_until)
    return new.pause_until != old.pause_until and consumers.same(old, replaced)


def encode_meta(assignment: StreamAssignment | ConsumerAssignment) -> bytes:
    """A meta.inf: creation time, a consumer's name, and the configuration as the API has it."""
    head = {"Created": goformat.rfc3339_nano(assignment.created)}
    config: StreamConfig | ConsumerConfig = assignment.config
    if isinstance(assignment, ConsumerAssignment):
        head["Name"] = assignment.name
        config = msgspec.structs.replace(assignment.stored, name=assignment.name)
    body = msgspec.json.encode(config)
    return goformat.escape_json(msgspec.json.encode(head)[:-1] + b"," + body[1:])
