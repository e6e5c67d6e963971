"""A stream as an archive in nats-server's form, and back: a tar of its files, compressed.

Archives of nats-server 2.15, which has another form, are read, too.

The tar has meta.inf and meta.sum, blocks of messages under msgs/, and each consumer's meta.inf,
meta.sum and o.dat under obs/NAME/. Nothing of an archive that is read is trusted: only these names
are taken, what is written is bounded, and checksums are made anew.

Everything here waits for the disk.
"""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from jsserver.cext.bytes import S2Stream, s2_encode, sha256
from jsserver.disk.directories import private

from . import message_archive
from .backend import StoreError
from .message_archive import BLOCK, GONE, STATE, record
from .metafiles import INF, SUM, MetaFiles
from .recovery import NotRestorable
from .running import CONSUMERS, FOLDERS, MESSAGES, Stream, encode_meta

INDEX = "index.db"
HEADER_LIMIT = 1 << 16
"""Bytes of a name or attributes that stand before an entry."""
META_LIMIT = 1 << 20
"""Bytes of a configuration."""
STATE_LIMIT = 1 << 30
"""Bytes of a consumer's state."""
OWNER = "nats"
PIECE = 1 << 18


class Snapshot:
    """The archive of a stream as it is now, made while it is read.

    StoreError where a purge or a limit takes the next messages and all before them first, as
    nats-server ends it where a block is gone: nobody shall restore less than there was unawares.
    """

    def __init__(self, files: MetaFiles, stream: Stream, with_consumers: bool) -> None:
        self._files = files
        self._stream = stream
        # Positions first: a consumer that is behind its stream goes on, one that is ahead cannot.
        self._consumers = [
            (name, encode_meta(consumer.assignment), consumer.handle.encode_state())
            for name, consumer in (stream.consumers.items() if with_consumers else ())
            if consumer.directory is not None
        ]
        stream.handle.wait_durable()
        self._state = stream.handle.state()
        self._pieces = self._written()
        self._ready = bytearray()

    def read(self, size: int) -> bytes:
        """The next bytes, so many while there are so many left."""
        while len(self._ready) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._ready += s2_encode(piece)
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def _written(self) -> Iterator[bytes]:
        name = self._stream.name
        yield from self._meta("", name, encode_meta(self._stream.assignment))
        state, number = self._state, 0
        at = state.first_seq
        while at <= state.last_seq:
            if self._stream.handle.state().first_seq > at:
                raise StoreError(f"messages from {at} on were removed while they were read")
            number += 1
            key = sha256(f"{name}-{number}".encode())
            block, at = self._stream.handle.pack(key, at, state.last_seq, BLOCK)
            yield _entry(f"{MESSAGES}/{number}.blk", block)
        if state.last_seq and self._stream.handle.get(state.last_seq) is None:
            # In a block of its own, where nats-server looks for it: else the sequence of a last
            # message that is gone would be used again.
            number += 1
            key = sha256(f"{name}-{number}".encode())
            gone = record(key, GONE | state.last_seq, state.last_ts)
            yield _entry(f"{MESSAGES}/{number}.blk", gone)
        for consumer, meta, position in self._consumers:
            folder = f"{CONSUMERS}/{consumer}/"
            yield from self._meta(folder, f"{name}/{consumer}", meta)
            yield _entry(folder + STATE, position)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def _meta(self, folder: str, asset: str, body: bytes) -> Iterator[bytes]:
        yield _entry(folder + INF, body) + _entry(folder + SUM, self._files.checksum(asset, body))


def _entry(name: str, content: bytes) -> bytes:
    """A file in a tar, as nats-server writes it."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = 0o600
    info.uname = info.gname = OWNER
    padding = -len(content) % tarfile.BLOCKSIZE
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(padding)


class Source(Protocol):
    """Where an archive comes from."""

    def take(self) -> bytes:
        """The next bytes; none at the end. NotRestorable if there is to be no end."""


class _Member(tarfile.TarInfo):
    """An entry of a kind and of a size that is taken."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        found = super().frombuf(buf, encoding, errors)
        if found.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
            if not 0 <= found.size <= HEADER_LIMIT:
                raise NotRestorable(f"an entry's attributes of {found.size} bytes")
        elif found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise NotRestorable("unexpected content")
        return found


class _Plain:
    """What a source has, decompressed, as tarfile reads it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stream = S2Stream()
        self._piece = memoryview(b"")
        self._ended = False

    def begins_with(self, start: bytes) -> bool:
        """Whether these bytes come next; they are taken if so."""
        found = self.read(len(start))
        if found == start:
            return True
        self._piece = memoryview(found + bytes(self._piece))
        return False

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0 and (self._piece or self._more()):
            part = self._piece[:size]
            self._piece = self._piece[size:]
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _more(self) -> bool:
        try:
            piece = self._stream.feed(b"")
            while not piece and not self._ended:
                data = self._source.take()
                self._ended = not data
                piece = self._stream.feed(data)
            if not piece:
                self._stream.finish()
        except ValueError as error:
            raise NotRestorable(str(error)) from None
        self._piece = memoryview(piece)
        return bool(piece)


class Unpacked:
    """What an archive had, in the directory of a stream to be."""

    def __init__(
        self, directory: Path, files: MetaFiles, stream: str, room: int, storage: str
    ) -> None:
        self._directory = directory
        self._files = files
        self._stream = stream
        self._room = room
        """How many bytes it may hold; -1: any number."""
        self._storage = storage
        """Where the stream will be."""
        self.meta = b""
        """The stream's configuration in the archive."""
        self._seen: dict[str, set[str]] = {}

    def unpack(self, source: Source) -> None:
        """Takes everything; NotRestorable, OSError."""
        for folder in FOLDERS:
            (self._directory / folder).mkdir(mode=0o700)
        plain = _Plain(source)
        if plain.begins_with(message_archive.MAGIC):
            for name, content in message_archive.files(plain, self._stream):
                self._take(name, len(content), io.BytesIO(content).read)
        else:
            self._untar(plain)
        if not self.meta:
            raise NotRestorable(f"no {INF} in it")
        for consumer, names in self._seen.items():
            if not names >= {INF, SUM}:
                raise NotRestorable(f"consumer {consumer!r} has no configuration in it")
        # To its end, so that the sender hears that all has arrived.
        while source.take():
            pass

    def _untar(self, plain: _Plain) -> None:
        try:
            with tarfile.open(
                fileobj=plain,  # type: ignore[call-overload]
                mode="r|",
                tarinfo=_Member,
                bufsize=PIECE,
            ) as tar:
                for member in tar:
                    if member.size < 0:
                        raise NotRestorable(f"an entry of {member.size} bytes")
                    content = tar.extractfile(member)
                    assert content is not None  # a regular file
                    self._take(member.name, member.size, content.read)
        except tarfile.TarError as error:
            raise NotRestorable(f"no archive: {error}") from None

    def _take(self, path: str, size: int, read: Callable[[int], bytes]) -> None:
        match path.split("/"):
            case ["meta.inf"]:
                self.meta = _small(path, size, read)
            case ["msgs", name] if _is_block(name) or name == INDEX:
                self._write(self._directory / MESSAGES / name, size, read)
            case ["obs", consumer, "meta.inf"]:
                meta = _small(path, size, read)
                asset = f"{self._stream}/{consumer}"
                self._files.put(self._folder(consumer, INF), asset, meta)
            case ["obs", consumer, "meta.sum"]:
                self._folder(consumer, SUM)  # made anew beside meta.inf
            case ["obs", consumer, "o.dat"]:
                if size > STATE_LIMIT:
                    raise NotRestorable(f"{path} of {size} bytes")
                self._write(self._folder(consumer, STATE) / STATE, size, read)
            case _:
                pass  # what others put beside

    def _folder(self, consumer: str, name: str) -> Path:
        if not _is_name(consumer):
            raise NotRestorable(f"a consumer named {consumer!r}")
        directory = self._directory / CONSUMERS / consumer
        if consumer not in self._seen:
            directory.mkdir(mode=0o700)
        self._seen.setdefault(consumer, set()).add(name)
        return directory

    def _write(self, path: Path, size: int, read: Callable[[int], bytes]) -> None:
        if 0 <= self._room < size:
            what = "memory" if self._storage == "memory" else "storage"
            raise NotRestorable(f"insufficient {what} resources available")
        left = size
        with open(path, "xb", opener=private) as file:
            while left:
                piece = read(min(left, PIECE))
                if not piece:
                    raise NotRestorable(f"it ends inside {path.name}")
                left -= len(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if self._room > 0:
            self._room -= size


def _small(path: str, size: int, read: Callable[[int], bytes]) -> bytes:
    if size > META_LIMIT:
        raise NotRestorable(f"{path} of {size} bytes")
    return read(size)


def _is_block(name: str) -> bool:
    number = name.removesuffix(".blk")
    return number.isascii() and number.isdigit() and name == f"{int(number[:10])}.blk"


def _is_name(name: str) -> bool:
    """Whether a consumer may have it, and a file system takes it as one folder."""
    plain = not any(c in " \t\r\n\f.*>\\/\0" for c in name)
    return plain and 0 < len(name.encode("utf-8", "surrogateescape")) <= 255
