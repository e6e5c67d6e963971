"""Finds an account's streams and consumers on disk and brings them back into service.

What cannot be served (damaged configuration, an option or API level that this server does not
have) is left untouched on disk and listed as offline with the reason; it never keeps others from
coming up.
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
"""Streams that a thread opens between two turns of the loop."""
TOGETHER = 32
"""From so many streams on what they have is synced with all that is on the file system, not file by
file: a killed server may have left what is not on disk."""

ASIDE = "aside"
"""The folder of an account for streams that no assignment names any more, and that no entry of a
cluster's meta group removed: somebody may want what is in them."""
NO_FOLDERS = 2
"""Links of a directory without others in it, where the file system counts them, as most do; others
say 1."""

K = TypeVar("K", StoredStream, StoredConsumer)
ReadMeta = Callable[[Path, str, Collection[str]], bytes]
"""The meta.inf of a directory, of this asset, with these names in it; DamagedMeta."""


class _Offline(Exception):
    """Why an asset cannot be served."""


class NotRestorable(Exception):
    """A stream cannot be made of an archive; the text says why."""


async def restore(account: Account, config: StreamConfig, staged: Path, meta: bytes) -> Stream:
    """Serves the stream that a staged directory has, with this configuration instead of the
    archive's; NotRestorable, ApiError, OSError."""
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
    """As `restore`, of a stream that a cluster has assigned to this server; its lock is held.
    Returns the consumers of the archive and how far they are. Those that are `apart` do not run
    yet."""
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
            state = None  # it had delivered nothing
        except ValueError as error:
            raise NotRestorable(f"consumer {consumer.name}: {error}") from None
        found.append((consumer, state))
    return found


def _created(meta: bytes, name: str) -> int:
    """When the stream of an archive was made; NotRestorable where it is no stream of this name."""
    try:
        stored = decode.parse(meta, StoredStream, strict=False)
        created = goformat.parse_rfc3339(stored.Created)
    except (decode.Unreadable, ValueError) as error:
        raise NotRestorable(f"{metafiles.INF}: {error}") from None
    if stored.name != name:
        raise NotRestorable("stream names do not match")
    return created


def _take(account: Account, staged: Path, wanted: StreamAssignment) -> Stream:
    """The opened stream that a staged directory has."""
    if wanted.config.storage == "memory":
        return _take_into_memory(account, staged, wanted)
    assert account.directory is not None
    directory = account.directory / wanted.config.name
    return _put_in_place(account, staged, directory, encode_meta(wanted))


def _check_consumers(
    account: Account, staged: Path, wanted: StreamAssignment
) -> list[ConsumerAssignment]:
    """The consumers of a staged directory become what a creation makes of them; NotRestorable."""
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
    """The stream in files that a staged directory has is opened, and left for one in memory."""
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
    """The opened stream of a directory with all of its consumers, or NotRestorable."""
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
    """Opens everything on disk that belongs to the account and serves it."""
    directory = account.directory
    if directory is None or not directory.is_dir():
        return
    for leftover in metafiles.leftovers(directory, await account.shared.run(os.listdir, directory)):
        account.shared.erase_later(leftover)
    names = await account.shared.run(_subdirectories, directory)
    together = len(names) >= TOGETHER and not account.shared.settings.sync_interval
    synced = await account.shared.run(_sync, directory) if together else None

    left = iter(names)
    opened: dict[str, Stream | str] = {}

    async def some() -> None:
        while few := list(islice(left, FEW)):
            opened.update(await account.shared.run(_load_few, account, directory, few, synced))

    await asyncio.gather(*(some() for _ in range(PARALLEL)))
    if synced is not None and await account.shared.run(_sync, directory) is None:
        await account.shared.run(_sync_each, opened)
    for n, name in enumerate(names):
        found = opened[name]
        if isinstance(found, Stream):
            account.adopt(found)
        else:
            log.error("Stream '%s > %s' is offline: %s", account.name, name, found)
            account.offline[name] = found
        if n % FEW == 0:
            await asyncio.sleep(0)  # others have their turn


def _sync(directory: Path) -> int | None:
    """The device whose file system has everything on disk now; None where it cannot be had."""
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


def _sync_each(opened: dict[str, Stream | str]) -> None:
    """Stream by stream, so that one that cannot be written is alone offline."""
    for name, found in opened.items():
        if isinstance(found, Stream) and found.directory is not None:
            try:
                metafiles.sync_files(found.directory / MESSAGES)
            except OSError as error:
                found.handle.close(False)
                opened[name] = _reason(error)


def _subdirectories(directory: Path) -> list[str]:
    try:
        if os.stat(directory).st_nlink == NO_FOLDERS:
            return []
        with os.scandir(directory) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except FileNotFoundError:
        return []


def load(account: Account, name: str) -> Stream | str:
    """The opened stream that the account has on disk under this name, or why it is offline."""
    assert account.directory is not None
    return _load_stream(account, account.directory / name, name)


def move(directory: Path, place: Path) -> None:
    """Gives a stream's directory, which nobody has open, another place on the same file system."""
    make_directory(str(place.parent))
    os.rename(directory, place)
    sync_directory(str(place.parent))
    sync_directory(str(directory.parent))


def set_aside(account: Account, name: str) -> None:
    """What the account has on disk under this name, which nobody has open, goes to the folder for
    streams that no assignment names any more, and the log says where."""
    assert account.directory is not None
    aside = account.directory.parent / ASIDE / f"{name}.{time.time_ns()}"
    move(account.directory / name, aside)
    log.warning(
        "Stream '%s > %s' is assigned to this server no more: what it had is now in %s",
        account.name,
        name,
        goformat.quote(str(aside)),
    )


def _load_few(
    account: Account, directory: Path, names: list[str], synced: int | None
) -> dict[str, Stream | str]:
    return {name: _load_stream(account, directory / name, name, synced) for name in names}


def _load_stream(
    account: Account, directory: Path, name: str, synced: int | None = None
) -> Stream | str:
    """The opened stream of a directory, or why it is offline; what is on the device `synced` is on
    disk, and the caller syncs what opening changes."""
    instances = account.instances
    try:
        names = os.listdir(directory)
        config, created = _read_stream(account.shared.files.read, directory, name, names)
        together = synced is not None and _device(f"{directory}/{MESSAGES}") == synced
        assignment = StreamAssignment(config, created)
        stream = instances.open(assignment, directory, together)
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
    """The configuration of a directory's stream, and when it was created."""
    stored, created = _read(read, directory, name, StoredStream, names)
    config = StreamConfig(**{f: getattr(stored, f) for f in StreamConfig.__struct_fields__})
    if config.name != name:
        raise _Offline(f"configuration of stream {goformat.quote(config.name)} found here")
    streams.check_first_seq(config)
    return config, created


def survey(directory: Path, read: ReadMeta) -> Iterator[tuple[str, str]]:
    """Each stream of a folder of streams, and each of its consumers (`stream > consumer`), with why
    it would be offline ("": it would not). Only configurations are looked at, and nothing is
    changed."""
    for name in _subdirectories(directory):
        yield from survey_stream(directory / name, read)


def survey_stream(folder: Path, read: ReadMeta) -> Iterator[tuple[str, str]]:
    """The same of one stream's folder."""
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


def _device(directory: str) -> int | None:
    """Of a directory, which may be a link to another file system."""
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
    """Why an asset is offline; whatever is wrong with it, the others come up."""
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
    """A stored configuration and when its asset was created; `names` are those in its directory."""
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
