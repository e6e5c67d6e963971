"""Where an archive lies: a folder of any file system that pyarrow reaches, and the names below it.

<root>/stream=ORDERS/date=2026-11-21/ORDERS-<first, 20 digits>-<last, 20 digits>.parquet
<root>/stream=ORDERS/_manifest/<number, 8 digits>.json
"""

import contextlib
import datetime
import os
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs

from jsserver_spark.errors import NatsError, OptionError

MANIFEST = "_manifest"
TEMPORARY = "_temporary"
"""Unfinished files lie here; Spark's readers pass over names that start with an underscore."""

PATIENCE_SECONDS = 30
"""For how long Google's client tries again by itself; it would for a quarter of an hour."""

_USER = re.compile(r"^(?:[^/]*@|[^@]*:.*@)")
_ENTRY = re.compile(r"(\d{8,})\.json")
_NAME = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")


class Absent(NatsError):
    """There is no such file."""


class Place:
    """A folder, given as a path or a URI (file, s3, gs, hdfs); travels to tasks. OptionError.

    As a text it is what messages may show: `uri` may hold a secret.
    """

    def __init__(self, uri: str) -> None:
        self.uri = os.path.abspath(uri) if uri and "://" not in uri else uri
        self._files, self._root = _file_system(uri)
        self.local = isinstance(self._files, pyarrow.fs.LocalFileSystem)

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.uri,)

    def __str__(self) -> str:
        return _shown(self.uri)

    def path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def named(self, name: str = "") -> Iterator[None]:
        """Turns what a file system says into one line with the place in it. NatsError, Absent."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            what = f"{self}/{name}" if name else str(self)
            reason = str(error).partition("\n")[0]
            kind = Absent if isinstance(error, FileNotFoundError) else NatsError
            raise kind(f"{what}: {reason}") from None

    def make_folder(self, name: str) -> None:
        with self.named(name):
            self._files.create_dir(self.path(name), recursive=True)

    def names(self, folder: str, *, deep: bool = False) -> list[str]:
        """The files below a folder, relative to this place, in order; none without it."""
        cut = len(self._root) + 1
        kind = pyarrow.fs.FileType.File
        found = self._listed(folder, deep)
        return sorted(info.path[cut:] for info in found if info.type == kind)

    def folders(self) -> list[str]:
        """The folders in this place."""
        kind = pyarrow.fs.FileType.Directory
        return sorted(info.base_name for info in self._listed() if info.type == kind)

    def _listed(self, folder: str = "", deep: bool = False) -> list[pyarrow.fs.FileInfo]:
        path = self.path(folder) if folder else self._root
        chosen = pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=deep)
        with self.named(folder):
            try:
                return list(self._files.get_file_info(chosen))
            except FileNotFoundError:  # pyarrow's answer when it is made while they look for it
                return []

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where there is none."""
        with self.named(name):
            info = self._files.get_file_info(self.path(name))
        return int(info.size) if info.type == pyarrow.fs.FileType.File else None

    def age(self, name: str) -> float:
        """Seconds since a file was written; 0 where nobody knows."""
        with self.named(name):
            info = self._files.get_file_info(self.path(name))
        if info.mtime is None:
            return 0.0
        now = datetime.datetime.now(datetime.UTC)
        return float((now - info.mtime).total_seconds())

    def read(self, name: str) -> bytes:
        """A small file whole. Absent."""
        with self.named(name), self._files.open_input_stream(self.path(name)) as file:
            return bytes(file.read())

    def open(self, name: str) -> pa.NativeFile:
        """A file at random positions. Absent."""
        with self.named(name):
            return self._files.open_input_file(self.path(name))

    def create(self, name: str) -> pa.NativeFile:
        """A file to be written from its beginning; its folder must be there."""
        with self.named(name):
            return self._files.open_output_stream(self.path(name))

    def move(self, name: str, to: str) -> None:
        """Gives a file its name, in place of one that has it."""
        with self.named(name):
            if not self.local:  # not every store replaces
                self.remove(to)
            self._files.move(self.path(name), self.path(to))

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with self.named(name):
            if self._files.get_file_info(self.path(name)).type == pyarrow.fs.FileType.File:
                self._files.delete_file(self.path(name))

    def remove_folder(self, name: str) -> None:
        """Removes a folder and what is in it, if it is there."""
        with self.named(name):
            kind = self._files.get_file_info(self.path(name)).type
            if kind == pyarrow.fs.FileType.Directory:
                self._files.delete_dir(self.path(name))

    def sync(self, name: str) -> None:
        """Makes a file and its name durable, where that is ours to do: on a local disk."""
        if not self.local:
            return
        with self.named(name):
            for path in (self.path(name), os.path.dirname(self.path(name))):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)


def _file_system(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
    if not uri:
        raise OptionError("the archive's root is missing: a folder or a URI such as s3://bucket/x")
    try:
        if "://" not in uri:
            return pyarrow.fs.LocalFileSystem(), os.path.abspath(uri).rstrip("/")
        found = pyarrow.fs.FileSystem.from_uri(_patient(uri))
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].replace(uri, _shown(uri))
        raise OptionError(f"the archive's root {_shown(uri)!r} cannot be used: {reason}") from None
    return found[0], found[1].rstrip("/")


def _shown(uri: str) -> str:
    """Without user, password and query, where keys of a store stand."""
    scheme, found, rest = uri.partition("://")
    if not found:
        return uri
    # A key that somebody did not quote may hold a slash, and is the reason of an error then.
    return f"{scheme}://{_USER.sub('', rest.partition('?')[0])}"


def _patient(uri: str) -> str:
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme not in ("gs", "gcs") or "retry_limit_seconds" in parts.query:
        return uri
    query = "&".join(filter(None, (parts.query, f"retry_limit_seconds={PATIENCE_SECONDS}")))
    return parts._replace(query=query).geturl()


def check_name(stream: str) -> str:
    """The name, where it can be a folder's. OptionError."""
    if not _NAME.fullmatch(stream):
        raise OptionError(f"{stream!r} is no stream's name")
    return stream


def folder_of(stream: str) -> str:
    return f"stream={stream}"


def manifest_of(stream: str) -> str:
    return f"{folder_of(stream)}/{MANIFEST}"


def entry_name(stream: str, number: int) -> str:
    return f"{manifest_of(stream)}/{number:08d}.json"


def entry_number(name: str) -> int | None:
    """The number in an entry's name, None for other files."""
    found = _ENTRY.fullmatch(name.rpartition("/")[2])
    return int(found[1]) if found else None


def date_of(nanos: int) -> str:
    """The day of a time in ns since 1970, in UTC."""
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=nanos // 86_400_000_000_000)
    return day.isoformat()


def file_name(stream: str, date: str, first: int, last: int) -> str:
    """Relative to the archive's root; first to last is what the file covers, gaps included."""
    return f"{folder_of(stream)}/date={date}/{stream}-{first:020d}-{last:020d}.parquet"


def draft_name(stream: str, run: str, first: int) -> str:
    """Where a run writes the file that will cover `first` and more."""
    return f"{folder_of(stream)}/{TEMPORARY}/{run}/{first:020d}.parquet"


def streams_in(place: Place) -> list[str]:
    """The streams that are archived there."""
    found = [name[7:] for name in place.folders() if name.startswith("stream=")]
    return [name for name in found if any(map(entry_number, place.names(manifest_of(name))))]
