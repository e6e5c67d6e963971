"""Where streams lie in a store directory, and how their files are opened: regular ones, to read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jsserver.disk.storedir import user_of

if TYPE_CHECKING:
    from jsserver.disk.keys import Keys

WHOLE_MAX = 1 << 30
"""Bytes of a file that is read whole: no server writes a larger block."""

KEY_FILE = "meta.key"
"""Where nats-server keeps the key of an encrypted stream."""

_BLOCK = re.compile(r"([0-9]{1,18})\.blk")
_RAFT = "_js_"


class Unreadable(Exception):
    """A file or folder cannot be looked at; the text says why."""


class NoStore(Exception):
    """The directory holds no streams; the text says what it should be."""


@dataclass(frozen=True)
class Place:
    """The folder of a stream."""

    account: str
    name: str
    folder: Path
    keys: Keys | None = None
    """What opens an encrypted one."""

    def messages(self) -> tuple[Path, frozenset[str]]:
        """The folder of its blocks, and names in it that an interrupted purge has replaced."""
        fresh = self.folder / "__new_msgs__"
        names = names_in(fresh) if fresh.is_dir() else []
        if any(_BLOCK.fullmatch(name) for name in names):
            return fresh, frozenset()
        gone = {f"{name[:-4]}.blk" for name in names if name.endswith(".key")}
        return self.folder / "msgs", frozenset(gone)

    def consumers(self) -> list[str]:
        """The names of its consumers' folders."""
        return folders_in(self.folder / "obs")


@dataclass(frozen=True)
class Layout:
    """A store directory: its streams, and what in its upper folders belongs to no stream."""

    root: Path
    streams: list[Place]
    foreign: list[tuple[Path, str]]

    def chosen(self, account: str, stream: str) -> list[Place]:
        """The streams of that account and name, "": of any."""
        return [
            place
            for place in self.streams
            if account in ("", place.account) and stream in ("", place.name)
        ]


def root_of(given: str) -> Path:
    """The folder of accounts of a store directory: the directory, or `jetstream` in it; NoStore."""
    top = Path(given)
    if not top.is_dir():
        raise NoStore(f"{given}: no such directory" if not top.exists() else f"{given}: no folder")
    return top / "jetstream" if (top / "jetstream").is_dir() else top


def layout(given: str, keys: Keys | None = None) -> Layout:
    """The streams of a store directory, or of the folder `jetstream` in it; NoStore, Unreadable.
    `keys` open those that are encrypted."""
    root = root_of(given)
    streams: list[Place] = []
    foreign: list[tuple[Path, str]] = []
    for name in names_in(root):
        path = root / name
        if name.startswith("."):
            continue
        if path.is_symlink():
            foreign.append((path, "a symbolic link, which is not followed"))
        elif not path.is_dir():
            foreign.append((path, "no folder of an account"))
        elif (path / _RAFT).is_dir():
            foreign.append((path / _RAFT, "Raft groups of a cluster, which are not looked at"))
        elif (path / "streams").is_dir():
            inside = path / "streams"
            streams += [Place(name, n, inside / n, keys) for n in folders_in(inside)]
            foreign += _beside(inside)
        elif os.listdir(path):
            foreign.append((path, "an account's folder without streams"))
    if not streams and not any((root / n / "streams").is_dir() for n in names_in(root)):
        own = names_in(root)
        if own and not any(name.startswith(".jsserver") for name in own):
            raise NoStore(
                f"{given}: no store directory: there is no folder streams in any folder of it"
            )
    return Layout(root, streams, foreign)


def _beside(folder: Path) -> Iterator[tuple[Path, str]]:
    for name in names_in(folder):
        path = folder / name
        if path.is_symlink():
            yield path, "a symbolic link, which is not followed"
        elif not path.is_dir() and not name.startswith("."):
            yield path, "no folder of a stream"


def names_in(folder: Path) -> list[str]:
    """The names in a folder, in order; none where there is no such folder. Unreadable."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None


def folders_in(folder: Path) -> list[str]:
    """The folders in a folder that are no links, and no leftovers; Unreadable."""
    found = []
    for name in names_in(folder):
        path = folder / name
        if not name.startswith(".") and path.is_dir() and not path.is_symlink():
            found.append(name)
    return found


def numbers_of(names: list[str], hidden: frozenset[str] = frozenset()) -> list[int]:
    """The numbers of the blocks among these names, ascending."""
    found = (_BLOCK.fullmatch(name) for name in names if name not in hidden)
    return sorted({int(match[1]) for match in found if match} - {0})


def whole(path: Path, most: int = WHOLE_MAX) -> bytes:
    """The bytes of a regular file; FileNotFoundError, Unreadable. No link is followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        link = " (a symbolic link is not followed)" if path.is_symlink() else ""
        raise Unreadable(f"{error.strerror}{link}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("no regular file")
        if status.st_size > most:
            raise Unreadable(f"{status.st_size} bytes, more than a server reads")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from None
    finally:
        os.close(descriptor)


def found(path: Path) -> bytes | None:
    """The bytes of a regular file, None where there is none; Unreadable."""
    try:
        return whole(path)
    except FileNotFoundError:
        return None


def server_on(root: Path) -> str:
    """Who runs on a store directory, in words; "": nobody is known to. jsserver locks it;
    nats-server does not, and is known by the files that it has open."""
    if user := user_of(str(root)):
        return user
    inside = os.path.realpath(root) + os.sep
    for process in filter(str.isdecimal, names_in(Path("/proc"))):
        try:
            held = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{process}/fd")]
            with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().strip()
        except OSError:
            continue
        is_server = name.startswith(("nats-server", "jsserver"))
        if is_server and any(path.startswith(inside) for path in held):
            return f"{name} (pid {process})"
    return ""
