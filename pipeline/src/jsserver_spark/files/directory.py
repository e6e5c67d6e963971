"""Where a stream lies on disk, and its files as they are read: never written, never locked."""

import errno
import logging
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from jsserver_spark.cext.bytes import hh64
from jsserver_spark.cext.columns import Plain, block_key
from jsserver_spark.cext.store import BLOCK_HEAD, plain_size
from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.files.keys import Keys, Seed, server_key
from jsserver_spark.options import StoreOptions

log = logging.getLogger("jsserver_spark.store")

ARCHIVE = "stream.tar.s2"
_BLOCK = re.compile(r"[0-9]{1,18}\.blk")
_END = 8
_RETRIES = 5
_RETRY_SECONDS = 0.05


@dataclass(frozen=True)
class Location:
    """A stream on disk: its directory, or the file of a backup. Pickled into tasks."""

    path: str
    account: str
    archive: bool = False

    def open(self, options: StoreOptions) -> "StreamFiles":
        """OptionError when the stream is encrypted and no key is given."""
        return StreamFiles(Path(self.path), self.account, options)


# ---- finding it --------------------------------------------------------------------------------


def locate(options: StoreOptions) -> Location:
    """The one stream that the options name. OptionError lists what is there."""
    path = options.path.removeprefix("file://").removeprefix("file:")
    if re.match(r"[a-z][a-z0-9]+:", path):
        raise OptionError(
            f"option 'path' is {options.path!r}: files are opened directly, so it must be a path"
            " that all executors see"
        )
    root = Path(path).absolute()
    if not root.exists():
        raise OptionError(f"option 'path': there is no {root}")
    if root.is_file():
        return Location(str(root), options.account, archive=True)
    if (root / ARCHIVE).is_file():
        return Location(str(root / ARCHIVE), options.account, archive=True)
    if (root / "meta.inf").exists():
        return _named(_stream(root), options.stream)
    return _chosen(root, options)


def _named(found: Location, stream: str) -> Location:
    if stream and Path(found.path).name != stream:
        raise OptionError(
            f"option 'stream' is {stream!r}, but {found.path} is stream {Path(found.path).name!r}"
        )
    return found


def _stream(path: Path) -> Location:
    return Location(str(path), path.parent.parent.name if path.parent.name == "streams" else "")


def _chosen(root: Path, options: StoreOptions) -> Location:
    """Out of a store or an account's folder."""
    accounts = _accounts(root)
    if not accounts:
        raise OptionError(
            f"option 'path': {root} is no store directory, no stream's directory and no backup"
        )
    if len(accounts) > 1 or accounts[0].name != root.name:
        named = [account for account in accounts if account.name == options.account]
        if not named:
            names = ", ".join(account.name for account in accounts)
            raise OptionError(
                f"option 'account' is {options.account!r}; {root} has the accounts {names}"
            )
        accounts = named
    streams = sorted(
        entry
        for entry in (accounts[0] / "streams").iterdir()
        if not entry.name.startswith(".") and (entry / "meta.inf").exists()
    )
    if options.stream:
        streams_named = [entry for entry in streams if entry.name == options.stream]
    else:
        streams_named = streams if len(streams) == 1 else []
    if not streams_named:
        names = ", ".join(entry.name for entry in streams) or "none"
        given = f"is {options.stream!r}" if options.stream else "is missing"
        raise OptionError(f"option 'stream' {given}; {accounts[0]} has the streams {names}")
    return _stream(streams_named[0])


def _accounts(root: Path) -> list[Path]:
    """The folders of accounts at or below a folder."""
    if (root / "streams").is_dir():
        return [root]
    top = root / "jetstream" if (root / "jetstream").is_dir() else root
    return sorted(entry for entry in top.iterdir() if (entry / "streams").is_dir())


# ---- reading it --------------------------------------------------------------------------------


class Config(msgspec.Struct, frozen=True):
    """What must be known of a stream's meta.inf."""

    name: str
    created: str = ""
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    discard: str = "old"
    allow_msg_ttl: bool = False

    @classmethod
    def of(cls, text: bytes, what: str) -> "Config":
        """NatsError names `what` when it is no configuration."""
        try:
            raw: dict[str, Any] = msgspec.json.decode(text, type=dict)
            found = msgspec.convert(raw.get("config", raw), cls)
        except msgspec.DecodeError as error:
            raise NatsError(f"{what} is no configuration of a stream: {error}") from None
        return msgspec.structs.replace(found, created=str(raw.get("Created", raw.get("created"))))

    @property
    def removes_inside(self) -> bool:
        """Whether messages may go for good without a mark, and not only the first ones."""
        return self.max_msgs_per_subject > 0 or self.allow_msg_ttl

    @property
    def trims(self) -> bool:
        """Whether limits by count and bytes remove old messages."""
        return self.discard != "new"


class StreamFiles:
    """The files of one stream's directory."""

    def __init__(self, directory: Path, account: str, options: StoreOptions) -> None:
        self.directory = directory
        self.encrypted = (directory / "meta.key").exists()
        self._keys: Keys | None = None
        if self.encrypted:
            if not options.encryption_key_file:
                raise OptionError(
                    f"{directory} is encrypted: option 'encryptionKeyFile' must name a file with"
                    " the server's key"
                )
            self._keys = Keys(server_key(options.encryption_key_file), account or options.account)
        self.config = self._config(options)
        self.name = self.config.name
        self.messages, self._hidden = self._messages()
        self._raw = Plain()

    def _config(self, options: StoreOptions) -> Config:
        """meta.inf, checked against its sum, which an update replaces a moment later."""
        path = self.directory / "meta.inf"
        key = block_key(self.directory.name)
        for attempt in range(_RETRIES):
            try:
                text = path.read_bytes()
            except OSError as error:
                raise NatsError(f"{path}: {error.strerror}") from None
            total = hh64(key, text).to_bytes(8, "little").hex().encode()
            sums = {_content(self.directory / name) for name in ("meta.sum", "meta.sum.tmp")}
            if total in sums:
                break
            if attempt + 1 < _RETRIES:
                time.sleep(_RETRY_SECONDS)
        else:
            fault = f"{self.directory}: meta.sum is not the checksum of meta.inf"
            if options.mode != "PERMISSIVE":
                raise NatsError(f"{fault}; option mode=PERMISSIVE reads on")
            log.warning("%s", fault)
        if self._keys is not None:
            seed = self._keys.seed(self.directory / "meta.key", self.directory.name)
            text = seed.open(text, str(path))
        return Config.of(text, str(path))

    def _messages(self) -> tuple[Path, frozenset[str]]:
        """The folder of the blocks, and files in it that an interrupted purge has replaced."""
        fresh = self.directory / "__new_msgs__"
        names = _names(fresh)
        if any(_BLOCK.fullmatch(name) for name in names):
            return fresh, frozenset()
        gone = {f"{name[:-4]}.blk" for name in names if name.endswith(".key")}
        return self.directory / "msgs", frozenset(gone)

    def numbers(self) -> list[int]:
        """The blocks that are there, ascending."""
        names = (name for name in _names(self.messages) if _BLOCK.fullmatch(name))
        found = {int(name[:-4]) for name in names if name not in self._hidden}
        return sorted(found - {0})

    def block(self, number: int) -> Path:
        return self.messages / f"{number}.blk"

    def size(self, number: int) -> int:
        """Bytes of a block's file. FileNotFoundError."""
        return self.block(number).stat().st_size

    def plain_size(self, number: int) -> int:
        """Bytes of a block without its compression, by which caches know it. FileNotFoundError."""
        with self.block(number).open("rb") as file:
            return plain_size(file.read(BLOCK_HEAD), file.seek(0, os.SEEK_END))

    def key(self, number: int) -> bytes:
        """The key of a block's checksums."""
        return block_key(f"{self.name}-{number}")

    def load(self, number: int, into: Plain) -> int:
        """A block's plain bytes into `into`; its file's size.

        FileNotFoundError when it is gone, NatsError when it cannot be read or decoded.
        """
        path = self.block(number)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise NatsError(f"{path}: {error.strerror}") from None
        try:
            size = os.fstat(descriptor).st_size
            self._raw.read(descriptor, size)
        except OSError as error:
            raise NatsError(f"{path}: {error.strerror or os.strerror(errno.EIO)}") from None
        finally:
            os.close(descriptor)
        self._decode(number, path, into)
        return size

    def _decode(self, number: int, path: Path, into: Plain) -> None:
        raw = self._raw
        if self._keys is not None and len(raw):
            seed = self._seed(self._keys, number, path)
            with memoryview(raw) as view:
                seed.decrypt(view)
        if not raw.packed:
            into.swap(raw)
            return
        try:
            into.unpack(raw)
        except ValueError as error:
            raise Damaged(path, 0, str(error)) from None

    def _seed(self, keys: Keys, number: int, path: Path) -> Seed:
        """A block's key; its file goes together with the block."""
        key_file = self.messages / f"{number}.key"
        try:
            return keys.seed(key_file, f"{self.name}:{number}")
        except OSError as error:
            if not path.exists():
                raise FileNotFoundError(path) from None
            raise Damaged(path, 0, f"{key_file}: {error.strerror}") from None

    def side(self, number: int) -> bytes | None:
        """Our sidecar of a block."""
        return _content(self.messages / f"{number}.jsx")

    def end(self, number: int) -> tuple[int, bytes]:
        """The size of a block without its compression, and its last 8 bytes. FileNotFoundError."""
        with self.block(number).open("rb") as file:
            head = file.read(BLOCK_HEAD)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END))
            return plain_size(head, size), file.read(_END)

    def dictionary(self) -> bytes | None:
        """Our subjects.jsd, which says what the subjects in sidecars are."""
        return _content(self.directory / "subjects.jsd")

    def index(self) -> bytes | None:
        """The plain index.db with its checksum made anew, None when there is none to be trusted."""
        body = _content(self.messages / "index.db")
        if body is None or self._keys is None:
            return body
        key = block_key(self.name)
        if len(body) < 8 or hh64(key, body[:-8]).to_bytes(8, "little") != body[-8:]:
            return None
        seed = self._keys.seed(self.directory / "meta.key", self.directory.name)
        try:
            plain = seed.open(body[:-8], "index.db")
        except NatsError:
            return None
        return plain + hh64(key, plain).to_bytes(8, "little")


class Damaged(NatsError):
    """Bytes of a block that are no good record."""

    def __init__(self, block: Path | str, offset: int, what: str = "no good record") -> None:
        super().__init__(block, offset, what)
        self.block, self.offset, self.what = block, offset, what

    def __str__(self) -> str:
        return (
            f"{self.block} is damaged at offset {self.offset}: {self.what};"
            " option mode=PERMISSIVE reads on behind it"
        )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NatsError(f"{folder}: {error.strerror}") from None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes().strip() if path.name.startswith("meta.sum") else path.read_bytes()
    except OSError:
        return None


def tail_of(plain: Plain) -> bytes:
    """The last 8 bytes, by which caches know a block."""
    with memoryview(plain) as view:
        return bytes(view[-8:])
