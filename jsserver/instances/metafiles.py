"""Configuration files of streams and consumers: meta.inf with its checksum meta.sum.

The checksum is HighwayHash-64 of the bytes of meta.inf, keyed with the SHA-256 of the asset's name
(`STREAM`, or `STREAM/CONSUMER`), as 16 hexadecimal digits of its little-endian bytes.

Functions wait for the disk, or they are works that a round carries out (rounds.py). A new asset's
directory appears complete or not at all, because it is filled under another name first. An update
replaces two files, one after the other: a crash in between leaves meta.sum.tmp, which `read` takes
as the sum of the meta.inf beside it. A removed directory leaves its name in one step and is emptied
afterwards. Names that start with `.new-` or `.del-` are what a crash left of that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from jsserver import TYPE_CHECKING
from jsserver.cext.bytes import close_files, make_directory_of, place_directory, sha256
from jsserver.disk.directories import make_directory, private, sync_directory, write_whole
from jsserver.text import nuid

from .rounds import Synced, Work, alone

if TYPE_CHECKING:
    from jsserver.disk.keys import Keys, Seed

Hash64 = Callable[[bytes, bytes], int]
"""HighwayHash-64 of data under a key of 32 bytes: hash(key, data)."""

INF, SUM = "meta.inf", "meta.sum"
INDEX, STATE = "msgs/index.db", "o.dat"
"""What nats-server keeps of a stream's messages, and of a consumer's position."""
NOTE = b"\xffjsN"
"""How a note begins that is encrypted: no JSON does."""
READ_BYTES = 64 << 10
KEY = "meta.key"
"""Where nats-server keeps the key of an encrypted meta.inf."""


class DamagedMeta(Exception):
    """The configuration of an asset cannot be trusted; the text says why."""


class Locked(DamagedMeta):
    """No key of the configuration opens it."""


class NotRestored(OSError):
    """A configuration could be neither replaced nor put back: which of the two a start will find
    is not known."""


def account_of(directory: Path, asset: str) -> str:
    """Whose asset it is that has this directory: ACCOUNT/streams/STREAM, or obs/CONSUMER in it."""
    return directory.parents[3 if "/" in asset else 1].name


def context_of(asset: str) -> str:
    """What the key of an asset is made for, beside the account."""
    return asset.replace("/", ".")


def make_folders(directory: Path, folders: Sequence[str]) -> Work[None]:
    """Makes a directory with empty folders in it, durably; nothing where it is there. Its parent is
    there."""
    try:
        opened = make_directory_of(str(directory), folders, {})
    except FileExistsError:
        return
    try:
        opened.append(os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY))
        yield Synced(opened)
    finally:
        close_files(opened)


class MetaFiles:
    """Reads and writes configuration files."""

    def __init__(self, hash64: Hash64, keys: Keys | None = None) -> None:
        """keys: what those of new assets are encrypted with."""
        self._hash64 = hash64
        self._keys = keys

    def checksum(self, asset: str, body: bytes) -> bytes:
        """What meta.sum holds for this meta.inf."""
        key = sha256(asset.encode())
        return self._hash64(key, body).to_bytes(8, "little").hex().encode()

    def create(
        self, directory: Path, staging: Path, asset: str, body: bytes, folders: Sequence[str] = ()
    ) -> Work[None]:
        """Makes the directory of a new asset, with empty folders in it; `staging` is a folder on
        the same file system."""
        try:
            yield from self._create(directory, staging, asset, body, folders)
        except FileNotFoundError:  # it may be the first one there
            make_directory(directory.parent)
            yield from self._create(directory, staging, asset, body, folders)

    def _create(
        self, directory: Path, staging: Path, asset: str, body: bytes, folders: Sequence[str]
    ) -> Work[None]:
        temporary = f"{staging}/.new-{nuid.new()}"
        parent = os.path.dirname(directory)
        contents = {}
        if self._keys is not None:
            seed, contents[KEY] = self._keys.new(
                account_of(Path(directory), asset), context_of(asset)
            )
            body = seed.seal(body)
        contents |= {INF: body, SUM: self.checksum(asset, body)}
        opened: list[int] = []
        try:
            opened = make_directory_of(temporary, folders, contents)
            yield Synced(opened)
            names = place_directory(temporary, directory, parent)
        except BaseException:
            erase(temporary)
            raise
        finally:
            close_files(opened)
        try:
            yield Synced([names])
        except BaseException:
            os.rename(directory, temporary)  # no start finds what was refused
            erase(temporary)
            raise
        finally:
            os.close(names)

    def put(self, directory: Path, asset: str, body: bytes) -> None:
        """Writes the configuration of an asset that nobody knows yet, in clear: `convert` encrypts
        it."""
        alone(self._write(directory, asset, body))

    def update(self, directory: Path, asset: str, body: bytes) -> Work[None]:
        """Replaces the configuration of an asset; where that fails, the one before stays, but for
        NotRestored."""
        before = _bytes(f"{directory}/{INF}")
        seed = self._seed(directory, asset, before)
        if seed is not None:
            body = seed.seal(body)
        yield from self._write(directory, asset, body, ".tmp")
        try:
            yield from _put_in_place(directory)
        except OSError as error:
            try:
                yield from self._write(directory, asset, before, ".tmp")
                yield from _put_in_place(directory)
            except OSError:
                raise NotRestored(error.errno, error.strerror) from error
            raise

    def _write(self, directory: Path, asset: str, body: bytes, suffix: str = "") -> Work[None]:
        """Writes both files durably, under their names with the suffix."""
        with contextlib.ExitStack() as opened:
            descriptors = [_opened(directory, opened)]
            for name, content in ((INF, body), (SUM, self.checksum(asset, body))):
                path = directory / f"{name}{suffix}"
                file = opened.enter_context(open(path, "wb", opener=private))
                file.write(content)
                file.flush()
                descriptors.append(file.fileno())
            yield Synced(descriptors)

    def read(self, directory: Path, asset: str, names: Collection[str]) -> bytes:
        """The meta.inf of an asset, checked against its sum, with a broken update put right.

        `names` are those in its directory."""
        sealed, sum_of_it = self._checked(directory, asset)
        if self._is_cut_short(directory, asset, sealed):
            _follow_key(directory)
            sealed, sum_of_it = self._checked(directory, asset)
        body = self._unsealed(directory, asset, sealed)
        if sum_of_it != SUM:
            (directory / sum_of_it).rename(directory / SUM)
            sync_directory(directory)
            return body
        for name in (f"{KEY}.tmp", f"{INF}.tmp", f"{SUM}.tmp"):
            if name in names:
                with contextlib.suppress(OSError):
                    os.unlink(f"{directory}/{name}")
        return body

    def look(self, directory: Path, asset: str, names: Collection[str]) -> bytes:
        """The same, and everything stays as it is."""
        return self._unsealed(directory, asset, self._checked(directory, asset)[0])

    def _seed(self, directory: Path, asset: str, sealed: bytes) -> Seed | None:
        """What this meta.inf is sealed with; None: it is in clear, or there are no keys. Locked."""
        try:
            key_file = _bytes(f"{directory}/{KEY}") if self._keys is not None else b""
        except FileNotFoundError:
            return None
        if self._keys is None or not is_encrypted([KEY], sealed):
            return None
        seed = self._keys.seed(account_of(directory, asset), context_of(asset), key_file)
        if seed is None:
            raise Locked(
                f"neither the key nor the previous key of the configuration opens {KEY} of"
                f" {asset.replace('/', ' > ')}"
            )
        return seed

    def _unsealed(self, directory: Path, asset: str, sealed: bytes) -> bytes:
        """The plain meta.inf, as far as there are keys; Locked, DamagedMeta."""
        seed = self._seed(directory, asset, sealed)
        if seed is None:
            return sealed
        body = seed.unseal(sealed)
        if body is None:
            body = seed.unseal(_present(f"{directory}/{INF}.tmp"))  # a conversion was cut short
        if body is None:
            raise DamagedMeta(f"{INF} is not what was sealed with {KEY}")
        return body

    def _sealed_anew(
        self, directory: Path, asset: str, name: str, was: Seed | None, new: Seed
    ) -> bytes:
        """A file of an asset under another seed. An index.db has a checksum behind it."""
        state, end = _bytes(f"{directory}/{name}"), 0
        if name == INDEX:
            state, end = state[:-8], 8
        plain = was.unseal(state) if was is not None else None
        sealed = new.seal(state if plain is None else plain)
        if end:
            total: int = self._hash64(sha256(asset.encode()), sealed)
            sealed += total.to_bytes(8, "little")
        return sealed

    def write_note(self, path: Path, body: bytes) -> None:
        """A small file of JSON beside what it tells of, durably; it may be there."""
        make_directory(path.parent)
        replace(path, body if self._keys is None else NOTE + self._keys.seal_note(body))

    def read_note(self, path: Path) -> bytes:
        """What such a file holds; OSError, Locked."""
        sealed = path.read_bytes()
        if not sealed.startswith(NOTE):
            return sealed
        body = self._keys.open_note(sealed[len(NOTE) :]) if self._keys is not None else None
        if body is None:
            raise Locked(f"no key of the configuration opens {path.name}")
        return body

    def convert_note(self, path: Path) -> None:
        """Encrypts such a file, if there is one, as one that is written now; OSError, Locked."""
        if self._keys is not None and path.exists():
            sealed = path.read_bytes()
            opened = self._keys.open_note(sealed[len(NOTE) :], current=True)
            if not sealed.startswith(NOTE) or opened is None:
                self.write_note(path, self.read_note(path))

    def _is_cut_short(self, directory: Path, asset: str, sealed: bytes) -> bool:
        """Whether meta.key is of a conversion whose meta.inf has no name yet."""
        key_file = _present(f"{directory}/{KEY}") if self._keys is not None else b""
        if self._keys is None or not key_file:
            return False
        seed = self._keys.seed(account_of(directory, asset), context_of(asset), key_file)
        if seed is None or seed.unseal(sealed) is not None:
            return False
        return seed.unseal(_present(f"{directory}/{INF}.tmp")) is not None

    def convert(self, directory: Path, asset: str, body: bytes, position: str = "") -> None:
        """Encrypts the configuration of an asset as one that is made now, where it is in clear or
        under other keys; `position`: a file beside it that is sealed with the same seed, too."""
        if self._keys is None:
            return
        account, context = account_of(directory, asset), context_of(asset)
        sealed = _bytes(f"{directory}/{INF}")
        was = self._seed(directory, asset, sealed)
        if was is not None and self._keys.is_current(
            account, context, _bytes(f"{directory}/{KEY}")
        ):
            return
        new, key_file = self._keys.new(account, context)
        sealed = new.seal(body)
        files = {KEY: key_file, INF: sealed, SUM: self.checksum(asset, sealed)}
        for name, content in files.items():
            write_whole(directory / f"{name}.tmp", content)
        if position:
            self._convert_beside(directory, asset, position, was, new)
        sync_directory(directory)
        os.rename(f"{directory}/{KEY}.tmp", f"{directory}/{KEY}")
        sync_directory(directory)
        _follow_key(directory)

    def _convert_beside(
        self, directory: Path, asset: str, name: str, was: Seed | None, new: Seed
    ) -> None:
        """Writes a file of an asset aside, under another seed."""
        path = directory / f"{name}.tmp"
        try:
            times = os.stat(directory / name)  # by which the log knows the file
            body = self._sealed_anew(directory, asset, name, was, new)
        except FileNotFoundError:  # a commit may remove it meanwhile
            path.unlink(missing_ok=True)
            return
        write_whole(path, body)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        sync_directory(path.parent)

    def _checked(self, directory: Path, asset: str) -> tuple[bytes, str]:
        """The meta.inf of an asset, and the file that holds its sum; DamagedMeta."""
        try:
            body = _bytes(f"{directory}/{INF}")
        except OSError as error:
            raise DamagedMeta(f"{INF}: {error.strerror}") from None
        want = self.checksum(asset, body)
        for name in (SUM, f"{SUM}.tmp"):
            if _present(f"{directory}/{name}").strip() == want:
                return body, name
        raise DamagedMeta(f"{SUM} is not the checksum of {INF}")


def _follow_key(directory: Path) -> None:
    """What a conversion wrote aside gets its names, after that of meta.key. Those that have none
    when a crash comes are found by the key that does not open meta.inf, which is the last but
    one."""
    for name in (INDEX, STATE):
        path = directory / name
        aside = path.with_name(f"{path.name}.tmp")
        if aside.exists():
            if path.exists():
                aside.rename(path)
            else:  # a commit has removed it meanwhile
                aside.unlink()
            sync_directory(path.parent)
    for name in (INF, SUM):
        os.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")
    sync_directory(directory)


def _opened(directory: Path, until: contextlib.ExitStack) -> int:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    until.callback(os.close, descriptor)
    return descriptor


def _put_in_place(directory: Path) -> Work[None]:
    for name in (INF, SUM):
        os.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")
    yield from _names_of(directory)


def _names_of(*directories: Path) -> Work[None]:
    """The names in these directories are on disk afterwards."""
    with contextlib.ExitStack() as opened:
        yield Synced([_opened(directory, opened) for directory in directories])


def stage(directory: Path) -> Path:
    """A new empty directory beside assets, which a start removes."""
    make_directory(directory)
    staged = directory / f".new-{nuid.new()}"
    staged.mkdir(mode=0o700)
    return staged


def replace(path: Path, body: bytes) -> None:
    """A file that may be there, durably: it has the one or the other content."""
    new = path.with_name(f"{path.name}.tmp")
    write_whole(new, body)
    new.rename(path)
    sync_directory(path.parent)


def sync_files(directory: Path) -> None:
    """Brings what a directory and the files in it have to disk."""
    with os.scandir(directory) as entries:
        files = [entry.path for entry in entries if entry.is_file()]
    for path in files:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_directory(directory)


def place(staged: Path, directory: Path) -> None:
    """Gives a staged directory, whose files are durable, the name of an asset."""
    for folder, _, _ in os.walk(staged):
        sync_directory(folder)
    staged.rename(directory)
    sync_directory(directory.parent)


def is_encrypted(names: Collection[str], body: bytes) -> bool:
    """Whether this meta.inf, beside files of these names, is one that nats-server has encrypted."""
    if KEY not in names:
        return False
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def discard(directory: Path, staging: Path) -> Work[Path]:
    """Takes a directory away from its name for good; what is returned is to be erased.

    Where that cannot be made durable the directory keeps its name, and OSError says why."""
    trash = staging / f".del-{nuid.new()}"
    os.rename(directory, trash)
    try:
        yield from _names_of(*{directory.parent, staging})
    except OSError:
        os.rename(trash, directory)
        raise
    return trash


def withdraw(directory: Path, staging: Path) -> Work[None]:
    """Takes away and erases the directory of an asset that is refused after all: no start finds it.

    Where that cannot be made durable it is so all the same, but for a power cut."""
    trash = staging / f".del-{nuid.new()}"
    os.rename(directory, trash)
    with contextlib.suppress(OSError):
        yield from _names_of(*{directory.parent, staging})
    erase(trash)


def erase(directory: str | Path) -> None:
    """Removes a directory with everything in it; what cannot be removed stays."""
    _erase(directory)


def _erase(directory: str | Path) -> None:
    with contextlib.suppress(OSError):
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _erase(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
        os.rmdir(directory)


def leftovers(directory: Path, names: Collection[str]) -> list[Path]:
    """Of the names in a directory, what an interrupted creation or removal left there."""
    return [directory / name for name in names if name.startswith((".new-", ".del-"))]


def _bytes(path: str) -> bytes:
    """What a file holds. A start reads two for each stream, so without a buffer of Python's."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        while piece := os.read(descriptor, READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _present(path: str) -> bytes:
    """What a file holds; nothing where it cannot be read."""
    try:
        return _bytes(path)
    except OSError:
        return b""
