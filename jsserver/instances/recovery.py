"""Loads an account's streams and consumers from disk, at the start and from archives.

An asset that cannot be served (damaged configuration, an option or API level that this server
lacks) stays untouched on disk and is listed as offline with the reason. It never keeps other assets
from being served.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from jsserver import API_LEVEL
from jsserver.assets import consumers, streams
from jsserver.assets.assigned import ConsumerAssignment, StreamAssignment, new_consumer
from jsserver.assets.changes import CreateStream, PutConsumer
from jsserver.cext.bytes import sync_file_system
from jsserver.disk.directories import make_directory, sync_directory
from jsserver.text import goformat
from jsserver.text.transforms import TransformError
from jsserver.wire import decode, errcodes
from jsserver.wire.errors import ApiError
from jsserver.wire.types import ConsumerConfig, StoredConsumer, StoredStream, StreamConfig

from . import damage, metafiles, positions, prepared
from .account import Account
from .backend import StoreError
from .progress import Progress, decoded
from .rounds import alone
from .running import CONSUMERS, MESSAGES, Stream, encode_meta

log = logging.getLogger(__name__)

PARALLEL = 4
"""Streams that are opened at the same time."""
FEW = 16
"""Streams that a thread opens before the event loop gets another turn."""
TOGETHER = 32
"""With at least this many streams, one sync of the whole file system replaces a sync per file: a
killed server may have left data that is not on disk yet."""

ASIDE = "aside"
"""An account's folder for streams that are no longer assigned, though no entry of the meta group
removed them: their messages may be wanted."""
NO_FOLDERS = 2
"""Links of a directory without subdirectories, where the file system counts links, as most do;
others report 1."""

K = TypeVar("K", StoredStream, StoredConsumer)
ReadMeta = Callable[[Path, str, Collection[str]], bytes]
"""Reads meta.inf: takes the directory, the asset and the directory's names; DamagedMeta."""


class _Offline(Exception):
    """An asset cannot be served; the text says why."""


class NotRestorable(Exception):
    """An archive cannot be restored; the text says why."""


async def restore(account: Account, config: StreamConfig, staged: Path, meta: bytes) -> Stream:
    """Restores a stream from a staged directory, with `config` in place of the archive's
    configuration, and serves it; NotRestorable, ApiError, OSError."""
    name = config.name
    created = _created(meta, name)
    async with account.lock(name):
        decision = account.assignments.propose(CreateStream(config, created))
        try:
            if not decision.is_open:
                raise errcodes.STREAM_NAME_EXIST_RESTORE_FAILED()
            assert decision.after is not None
            await account.shared.run(_check_consumers, account, staged, decision.after)
            opened = await account.shared.run(_take, account, staged, decision.after)
        finally:
            account.assignments.undo(decision)
        account.adopt(opened)
        return opened


async def restore_assigned(
    account: Account,
    wanted: StreamAssignment,
    staged: Path,
    meta: bytes,
    apart: Callable[[ConsumerAssignment], bool],
) -> list[tuple[ConsumerAssignment, Progress | None]]:
    """As `restore`, for a stream that a cluster has assigned to this server; the caller holds the
    stream's lock. Returns the archive's consumers with their states, None where there is none.
    Consumers that are `apart` are not started."""
    _created(meta, wanted.config.name)
    run = account.shared.run
    consumers = await run(_check_consumers, account, staged, wanted)
    found = await run(_progress, staged, consumers)
    for one in consumers:
        if apart(one):
            await run(metafiles.erase, staged / CONSUMERS / one.name)
    account.adopt(await run(_take, account, staged, wanted))
    return found


def _progress(
    staged: Path, consumers: list[ConsumerAssignment]
) -> list[tuple[ConsumerAssignment, Progress | None]]:
    found = []
    for consumer in consumers:
        try:
            state = decoded((staged / CONSUMERS / consumer.name / metafiles.STATE).read_bytes())
        except FileNotFoundError:
            state = None  # the consumer had delivered nothing
        except ValueError as error:
            raise NotRestorable(f"consumer {consumer.name}: {error}") from None
        found.append((consumer, state))
    return found


def _created(meta: bytes, name: str) -> int:
    """When the archive's stream was created; NotRestorable if the archive has no such stream."""
    try:
        stored = decode.parse(meta, StoredStream, strict=False)
        created = goformat.parse_rfc3339(stored.Created)
    except (decode.Unreadable, ValueError) as error:
        raise NotRestorable(f"{metafiles.INF}: {error}") from None
    if stored.name != name:
        raise NotRestorable("stream names do not match")
    return created


def _take(account: Account, staged: Path, wanted: StreamAssignment) -> Stream:
    """Opens the stream in a staged directory, at its final place."""
    if wanted.config.storage == "memory":
        return _take_into_memory(account, staged, wanted)
    assert account.directory is not None
    directory = account.directory / wanted.config.name
    return _put_in_place(account, staged, directory, encode_meta(wanted))


def _check_consumers(
    account: Account, staged: Path, wanted: StreamAssignment
) -> list[ConsumerAssignment]:
    """Rewrites the consumers of a staged directory as a creation would; NotRestorable."""
    shared, limits = account.shared, account.limits
    stream = StreamAssignment(wanted.config, wanted.created)
    for name in _subdirectories(staged / CONSUMERS):
        directory, asset = staged / CONSUMERS / name, f"{stream.config.name}/{name}"
        try:
            names = os.listdir(directory)
            stored, created = _read(shared.files.read, directory, asset, StoredConsumer, names)
            asked = ConsumerConfig(
                **{f: getattr(stored, f) for f in ConsumerConfig.__struct_fields__}
            )
            config = consumers.normalise(asked, stream.config, shared.settings, limits, False)
            config.metadata = asked.metadata
            durable = msgspec.structs.replace(config, durable_name=config.durable_name or name)
            consumers.check(durable, stream.config, shared.settings, limits)
            change = PutConsumer(stream.config.name, name, config, created)
            consumer = account.assignments.judge(stream, change, None)
        except (_Offline, ApiError) as error:
            raise _no_consumer(name, error) from None
        stream.consumers[name] = consumer
        stream.claim(consumer)
        shared.files.put(directory, asset, encode_meta(consumer))
    return [*stream.consumers.values()]


def _no_consumer(name: str, error: Exception) -> NotRestorable:
    code = f" ({error.err_code})" if isinstance(error, ApiError) else ""
    which = f"error restoring consumer [{goformat.quote(name)}]"
    return NotRestorable(f"{which}: {_reason(error)}{code}")


def _put_in_place(account: Account, staged: Path, directory: Path, body: bytes) -> Stream:
    account.shared.files.put(staged, directory.name, body)
    metafiles.place(staged, directory)
    try:
        return _load_whole(account, directory, directory.name)
    except NotRestorable:
        metafiles.erase(alone(metafiles.discard(directory, directory.parent)))
        raise


def _take_into_memory(account: Account, staged: Path, wanted: StreamAssignment) -> Stream:
    """Copies the stream in a staged directory into a new one in memory."""
    name, instances = wanted.config.name, account.instances
    filed = msgspec.structs.replace(wanted.config, storage="file")
    account.shared.files.put(staged, name, encode_meta(StreamAssignment(filed, wanted.created)))
    source = _load_whole(account, staged, name)
    try:
        stream = instances.open(wanted, None)
        try:
            stream.handle.fill(source.handle)
            for consumer, was in source.consumers.items():
                read = instances.open_consumer(stream, was.assignment, was.directory)
                read.directory = None
                stream.consumers[consumer] = read
                wanted.consumers[consumer] = was.assignment
        except BaseException:
            stream.handle.close(True)
            raise
    finally:
        source.handle.close(True)
    return stream


def _load_whole(account: Account, directory: Path, name: str) -> Stream:
    """Opens a directory's stream with all its consumers; NotRestorable if any of them fails."""
    found = _load_stream(account, directory, name)
    if isinstance(found, str):
        raise NotRestorable(found)
    if found.offline:
        found.handle.close(True)
        reasons = (f"consumer {name}: {why}" for name, why in found.offline.items())
        raise NotRestorable("; ".join(reasons))
    for consumer, opened in found.consumers.items():
        if opened.damaged:
            found.handle.close(True)
            raise _no_consumer(consumer, errcodes.CONSUMER_STORE_FAILED(err="corrupt state file"))
    return found


async def recover(account: Account) -> None:
    """Opens all streams and consumers of an account's directory, and serves them."""
    directory = account.directory
    if directory is None or not directory.is_dir():
        return
    for leftover in metafiles.leftovers(directory, await account.shared.run(os.listdir, directory)):
        account.shared.erase_later(leftover)
    names = await account.shared.run(_subdirectories, directory)
    opened = await load_all(account, names)
    for n, name in enumerate(names):
        found = opened[name]
        if isinstance(found, Stream):
            account.adopt(found)
        else:
            log.error("Stream '%s > %s' is offline: %s", account.name, name, found)
            account.offline[name] = found
        if n % FEW == 0:
            await asyncio.sleep(0)  # others have their turn


async def load_all(account: Account, names: list[str]) -> dict[str, Stream | str]:
    """Opens streams on disk; a string says why a stream is offline. No stream is served yet, but a
    replicated one by its group."""
    directory = account.directory
    assert directory is not None
    together = len(names) >= TOGETHER and not account.shared.settings.sync_interval
    synced = await account.shared.run(_sync, directory) if together else None

    left = iter(names)
    opened: dict[str, Stream | str] = {}

    async def some() -> None:
        while few := list(islice(left, FEW)):
            opened.update(await account.shared.run(_load_few, account, directory, few, synced))

    await asyncio.gather(*(some() for _ in range(PARALLEL)))
    if synced is not None and await account.shared.run(_sync, directory) is None:
        await account.shared.run(_sync_each, account, opened)
    return opened


def _sync(directory: Path) -> int | None:
    """Syncs a directory's file system. Its device; None: that failed."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        sync_file_system(descriptor)
        return os.fstat(descriptor).st_dev
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _sync_each(account: Account, opened: dict[str, Stream | str]) -> None:
    """Syncs stream by stream, so that a failing one goes offline alone."""
    for name, found in opened.items():
        if isinstance(found, Stream) and found.directory is not None:
            try:
                metafiles.sync_files(found.directory / MESSAGES)
            except OSError as error:
                account.instances.close(found)
                opened[name] = _reason(error)


def _subdirectories(directory: Path) -> list[str]:
    try:
        if os.stat(directory).st_nlink == NO_FOLDERS:
            return []
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except FileNotFoundError:
        return []


def move(directory: Path, place: Path) -> None:
    """Moves a stream's directory, which is not open, within the file system."""
    make_directory(str(place.parent))
    os.rename(directory, place)
    sync_directory(str(place.parent))
    sync_directory(str(directory.parent))


def set_aside(
    account: Account, name: str, why: str = "is assigned to this server no more"
) -> None:
    """Moves a stream that is not open to the folder ASIDE, and logs where."""
    assert account.directory is not None
    aside = account.directory.parent / ASIDE / f"{name}.{time.time_ns()}"
    move(account.directory / name, aside)
    log.warning(
        "Stream '%s > %s' %s: what it had is now in %s",
        account.name,
        name,
        why,
        goformat.quote(str(aside)),
    )


def tell_unassigned(account: Account, assigned: Collection[str]) -> None:
    """Warns of streams that the account has on disk and that no assignment of a cluster gives to
    this server: they stay there, and are not served."""
    if account.directory is None:
        return
    for name in _subdirectories(account.directory):
        if name not in assigned:
            log.warning(
                "Stream '%s > %s' is on disk here, and no assignment names it: it is kept in %s",
                account.name,
                name,
                goformat.quote(str(account.directory / name)),
            )


def _load_few(
    account: Account, directory: Path, names: list[str], synced: int | None
) -> dict[str, Stream | str]:
    return {name: _load_stream(account, directory / name, name, synced) for name in names}


def _load_stream(
    account: Account, directory: Path, name: str, synced: int | None = None
) -> Stream | str:
    """Opens a directory's stream; a string says why it is offline. Data on the device `synced`
    needs no sync, and the caller syncs what opening changes."""
    instances = account.instances
    try:
        names = os.listdir(directory)
        config, created = _read_stream(account.shared.files.read, directory, name, names)
        together = synced is not None and _device(f"{directory}/{MESSAGES}") == synced
        assignment = StreamAssignment(config, created)
        stream = instances.open(assignment, directory, synced=together)
    except Exception as error:
        return _reason(error)
    try:
        files = account.shared.files
        files.convert(directory, name, encode_meta(assignment), metafiles.INDEX)
        files.convert_note(directory / positions.FILE)
    except Exception as error:
        stream.handle.close(True)
        return _reason(error)
    for leftover in metafiles.leftovers(directory, names):
        metafiles.erase(leftover)
    for consumer in _subdirectories(directory / CONSUMERS):
        _load_consumer(account, stream, directory / CONSUMERS / consumer)
    for level, line in damage.lines(stream.handle.lost()):
        log.log(level, "Stream '%s > %s': %s", account.name, name, line)
    return stream


def _read_stream(
    read: ReadMeta, directory: Path, name: str, names: Collection[str]
) -> tuple[StreamConfig, int]:
    """The configuration of a directory's stream, and its creation time in ns."""
    stored, created = _read(read, directory, name, StoredStream, names)
    config = StreamConfig(**{f: getattr(stored, f) for f in StreamConfig.__struct_fields__})
    if config.name != name:
        raise _Offline(f"configuration of stream {goformat.quote(config.name)} found here")
    streams.check_first_seq(config)
    return config, created


def survey(directory: Path, read: ReadMeta) -> Iterator[tuple[str, str]]:
    """The streams and consumers (`stream > consumer`) of a folder of streams; with each why it
    would be offline, "" where it would not. Only reads configurations."""
    for name in _subdirectories(directory):
        yield from survey_stream(directory / name, read)


def survey_stream(folder: Path, read: ReadMeta) -> Iterator[tuple[str, str]]:
    """The same for a single stream's folder."""
    name = folder.name
    try:
        prepared.stream(_read_stream(read, folder, name, os.listdir(folder))[0])
    except Exception as error:
        yield name, _reason(error)
        return
    yield name, ""
    for consumer in _subdirectories(folder / CONSUMERS):
        place, asset = folder / CONSUMERS / consumer, f"{name}/{consumer}"
        try:
            _read(read, place, asset, StoredConsumer, os.listdir(place))
        except Exception as error:
            yield f"{name} > {consumer}", _reason(error)


def read_stream(folder: Path, read: ReadMeta) -> StreamAssignment | str:
    """What a stream's folder says of the stream and its consumers, or why the stream would be
    offline. Only configurations are looked at, and nothing is changed."""
    try:
        config, created = _read_stream(read, folder, folder.name, os.listdir(folder))
        found = StreamAssignment(config, created)
        for consumer in _subdirectories(folder / CONSUMERS):
            found.consumers[consumer] = _read_consumer(read, folder, consumer)
    except Exception as error:
        return _reason(error)
    return found


def _read_consumer(read: ReadMeta, folder: Path, consumer: str) -> ConsumerAssignment:
    place, asset = folder / CONSUMERS / consumer, f"{folder.name}/{consumer}"
    stored, created = _read(read, place, asset, StoredConsumer, os.listdir(place))
    config = ConsumerConfig(**{f: getattr(stored, f) for f in ConsumerConfig.__struct_fields__})
    return new_consumer(consumer, config, created)


def _device(directory: str) -> int | None:
    """The device of a directory, which may be a link to another file system; None: unknown."""
    try:
        return os.stat(directory).st_dev
    except OSError:
        return None


def _load_consumer(account: Account, stream: Stream, directory: Path) -> None:
    name = directory.name
    try:
        asset, names = f"{stream.name}/{name}", os.listdir(directory)
        stored, created = _read(account.shared.files.read, directory, asset, StoredConsumer, names)
        config = ConsumerConfig(**{f: getattr(stored, f) for f in ConsumerConfig.__struct_fields__})
        wanted = new_consumer(name, config, created)
        opened = account.instances.open_consumer(stream, wanted, directory)
        opened.damaged = opened.handle.damaged()
        account.shared.files.convert(directory, asset, encode_meta(wanted), metafiles.STATE)
    except Exception as error:
        reason = _reason(error)
    else:
        stream.assignment.consumers[name] = wanted
        stream.consumers[name] = opened
        return
    log.error("Consumer '%s > %s > %s' is offline: %s", account.name, stream.name, name, reason)
    stream.offline[name] = reason


def _reason(error: Exception) -> str:
    """Why an asset is offline. Any error counts: the other assets are to be served."""
    match error:
        case ApiError():
            return error.body.description
        case _Offline() | StoreError() | TransformError():
            return str(error)
        case OSError():
            return goformat.failure(error)
    return f"{type(error).__name__}: {error}"


def _read(
    read: ReadMeta, directory: Path, asset: str, kind: type[K], names: Collection[str]
) -> tuple[K, int]:
    """A stored configuration and its creation time; `names`: the files of the directory."""
    try:
        body = read(directory, asset, names)
        if metafiles.is_encrypted(names, body):
            raise _Offline("encrypted, and the configuration has no key")
        stored = decode.parse(body, kind, strict=True)
        created = goformat.parse_rfc3339(stored.Created)
    except (metafiles.DamagedMeta, decode.Unreadable) as error:
        raise _Offline(str(error)) from None
    except ValueError as error:
        raise _Offline(f"{metafiles.INF}: {error}") from None
    level = stored.metadata.get(streams.REQUIRED_LEVEL, "0")
    if not level.isdecimal() or int(level) > API_LEVEL:
        raise _Offline(f"unsupported - required API level: {level}, current API level: {API_LEVEL}")
    return stored, created
