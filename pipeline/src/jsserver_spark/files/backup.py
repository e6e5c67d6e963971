"""A stream's backup: nats-server's tar in an S2 stream, read from front to back."""

import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa

from jsserver_spark.cext.bytes import S2Stream
from jsserver_spark.cext.columns import Plain, block_key
from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.files.directory import Config, Location
from jsserver_spark.files.plan import (
    Block,
    BlockPart,
    BoundsFor,
    Found,
    Plan,
    Split,
    from_index,
    kept,
    survey,
)
from jsserver_spark.files.rows import batches_of, rows_of
from jsserver_spark.options import StoreOptions
from jsserver_spark.schema import Table

_READ = 1 << 20
_LARGEST_FILE = 1 << 30
_MAGIC = b"NATSARC1"


class _Plain:
    """The plain bytes of an S2 stream as tarfile reads them."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._stream = S2Stream()
        self._piece = memoryview(b"")
        self._ended = False

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0 and (self._piece or self._more()):
            parts.append(self._piece[:size])
            self._piece = self._piece[size:]
            size -= len(parts[-1])
        return b"".join(parts)

    def _more(self) -> bool:
        try:
            piece = self._stream.feed(b"")
            while not piece and not self._ended:
                data = self._file.read(_READ)
                self._ended = not data
                piece = self._stream.feed(data)
            if not piece:
                self._stream.finish()
        except ValueError as error:
            raise NatsError(f"{self._path} is damaged: {error}") from None
        except OSError as error:
            raise NatsError(f"{self._path}: {error.strerror}") from None
        self._piece = memoryview(piece)
        return bool(piece)


class Archive:
    """A backup's file. NatsError when it is damaged or of a form that is not read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def files(self) -> Iterator[tuple[str, IO[bytes], int]]:
        """Every file in it: name, content, size; the content is good until the next one."""
        try:
            with Path(self.path).open("rb") as raw:
                plain = _Plain(self.path, raw)
                start = plain.read(len(_MAGIC))
                if start == _MAGIC:
                    raise NatsError(
                        f"{self.path} is a backup of nats-server 2.15's form (NATSARC1), which is"
                        " not read: restore it, or make it with 2.14"
                    )
                plain._piece = memoryview(start + bytes(plain._piece))
                with tarfile.open(fileobj=plain, mode="r|", bufsize=_READ) as tar:  # type: ignore[call-overload]
                    for member in tar:
                        content = tar.extractfile(member) if member.isreg() else None
                        if content is not None:
                            yield member.name, content, member.size
        except tarfile.TarError as error:
            raise NatsError(f"{self.path} is damaged: {error}") from None
        except OSError as error:
            raise NatsError(f"{self.path}: {error.strerror or error}") from None

    def blocks(self) -> Iterator[tuple[int, IO[bytes], int]]:
        for name, content, size in self.files():
            number = _block(name)
            if number:
                yield number, content, size

    def surveyed(self, plain: Plain, stream: str) -> Iterator[Block]:
        """The blocks in order, each to be loaded before the next."""
        for number, content, size in self.blocks():
            key = block_key(f"{stream}-{number}")
            name = f"{self.path}: msgs/{number}.blk"
            yield Block(number, key, name, partial(self.load, content, size, plain))

    def load(self, content: IO[bytes], size: int, plain: Plain) -> Plain:
        if size > _LARGEST_FILE:
            raise NatsError(f"{self.path} is damaged: a block of {size} bytes")
        plain.clear()
        while data := content.read(_READ):
            plain.extend(data)
        if len(plain) != size:
            raise NatsError(f"{self.path} is damaged: it ends inside a block")
        return plain


def _block(name: str) -> int:
    """N of "msgs/N.blk", else 0."""
    folder, _, file = name.removeprefix("./").rpartition("/")
    stem, _, suffix = file.partition(".")
    return int(stem) if folder == "msgs" and suffix == "blk" and stem.isdecimal() else 0


def plan_backup(options: StoreOptions, location: Location, bounds_for: BoundsFor) -> Plan:
    """One split with everything: a backup can only be read from its start.

    Limits by age are not applied: what was live when the backup was made is.
    """
    archive = Archive(location.path)
    config: Config | None = None
    index = b""
    numbers = []
    end = b""
    for name, content, size in archive.files():
        number = _block(name)
        if number:
            numbers.append(number)
            end = _end(content)
        elif name.endswith("meta.inf") and "/" not in name.removeprefix("./"):
            config = Config.of(content.read(_READ), f"{location.path}: meta.inf")
        elif name.endswith("msgs/index.db") and size <= _LARGEST_FILE:
            index = content.read()
    if config is None:
        config = _config_beside(location)
    if options.stream and config.name != options.stream:
        raise OptionError(
            f"option 'stream' is {options.stream!r}, but {location.path} is a backup of stream"
            f" {config.name!r}"
        )
    bounds = bounds_for(config.name)
    found = from_index(index, config.name, numbers, end) if index else None
    if found is None:
        found = _surveyed(archive, config, numbers, options.mode == "PERMISSIVE")
    parts = tuple(
        BlockPart(block.number, block.first, block.last, block.gone)
        for block in kept(found.blocks, bounds)
    )
    split = Split(location, config.name, parts, bounds)
    splits = [split] if parts else []
    return Plan(config.name, config, splits, len(parts), found.tail_bytes_ignored, found.source)


def _end(content: IO[bytes]) -> bytes:
    """The last 8 bytes."""
    end = b""
    while data := content.read(_READ):
        end = (end + data)[-8:]
    return end


def _config_beside(location: Location) -> Config:
    path = Path(location.path).with_name("backup.json")
    try:
        return Config.of(path.read_bytes(), str(path))
    except OSError:
        raise NatsError(
            f"{location.path} holds no meta.inf and there is no {path}: this is no stream's backup"
        ) from None


def _surveyed(archive: Archive, config: Config, numbers: list[int], permissive: bool) -> Found:
    plain = Plain()
    # What a message's own life would remove by now was live then.
    then = msgspec.structs.replace(config, allow_msg_ttl=False)
    return survey(
        then,
        lambda: archive.surveyed(plain, config.name),
        max(numbers, default=0),
        permissive=permissive,
    )


def read_backup(
    options: StoreOptions, split: Split, table: Table | None
) -> Iterator[pa.RecordBatch]:
    """All rows of a backup's one split."""
    batches = batches_of(options, split, table)
    archive = Archive(split.location.path)
    wanted = {part.number: part for part in split.blocks}
    plain = Plain()
    for number, content, size in archive.blocks():
        part = wanted.get(number)
        if part is None:
            continue
        archive.load(content, size, plain)
        key = block_key(f"{split.stream}-{number}")
        name = f"{archive.path}: msgs/{number}.blk"
        yield from rows_of(options, split, part, plain, key, name, batches)
    if len(batches.rows):
        yield batches.take()
