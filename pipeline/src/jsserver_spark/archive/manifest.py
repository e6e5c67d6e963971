"""What an archive holds: entries that are only ever added, each the commit of one step.

An entry `add` names new files; an entry `all` (compact, expire, and every hundredth) names every
file and stands for all before it. Readers go back from the newest to the last `all`; what no entry
names is not there.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec

from jsserver_spark import __version__
from jsserver_spark.archive import layout
from jsserver_spark.archive.layout import Place
from jsserver_spark.errors import NatsError
from jsserver_spark.text.goformat import parse_rfc3339, rfc3339_nano

VERSION = 1
WHOLE_EVERY = 100
"""So many entries a reader has to read at most."""
GAPS_MAX = 1000
"""Runs of gaps that a file's entry lists; where there are more it only counts them."""

_AT_ONCE = 16
"""Entries that are read side by side: in a remote store each takes two round trips."""


class ArchiveError(NatsError):
    """An archive is not what its manifest says, or another writer is at work on it."""


class FileEntry(msgspec.Struct, frozen=True):
    """One file: `first` to `last` is what it covers, gaps included; times are ns since 1970."""

    name: str
    """Relative to the archive's root."""
    date: str
    first: int
    last: int
    rows: int
    bytes: int
    """Of subjects, headers and payloads."""
    size: int
    """Of the file."""
    min_time: int
    max_time: int
    sha256: str
    missing: int = 0
    """Sequences it covers and has no row for."""
    gaps: tuple[tuple[int, int], ...] | None = ()
    """They as runs (first, last); None where there are more than GAPS_MAX."""


class Entry(msgspec.Struct, frozen=True):
    """A step of an archive; it covers the sequences `first` to `last`."""

    version: int
    number: int
    kind: Literal["add", "all"]
    stream: str
    source: str
    """The stream's name at the server."""
    created: str
    """When the server made the stream, RFC 3339 with nanoseconds."""
    first: int
    last: int
    files: tuple[FileEntry, ...]
    written: str
    by: str
    config: dict[str, Any] = {}
    """The stream's configuration as the server gave it."""


# Made here and not at its first use: threads that do that together crash (msgspec 0.22).
_ENTRY = msgspec.json.Decoder(Entry)


class Archive(msgspec.Struct, frozen=True):
    """One stream's archive at one moment: what its manifest adds up to."""

    stream: str
    source: str
    created: int
    number: int
    first: int
    last: int
    """It covers first to last; a new archive covers nothing: last is first - 1."""
    files: tuple[FileEntry, ...]
    config: dict[str, Any]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def gaps(self) -> list[tuple[int, int]]:
        """Known runs without a row, between files and in them."""
        found: list[tuple[int, int]] = []
        at = self.first
        for file in self.files:
            if file.first > at:
                found.append((at, file.first - 1))
            found += file.gaps or ()
            at = file.last + 1
        if at <= self.last:
            found.append((at, self.last))
        return joined(found)


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs in order, those that touch as one."""
    out: list[tuple[int, int]] = []
    for first, last in runs:
        if out and out[-1][1] + 1 == first:
            out[-1] = (out[-1][0], last)
        else:
            out.append((first, last))
    return out


def load(place: Place, stream: str) -> Archive | None:
    """The archive of a stream, None where there is none yet. ArchiveError."""
    layout.check_name(stream)
    names = place.names(layout.manifest_of(stream))
    numbers = sorted(n for n in map(layout.entry_number, names) if n is not None)
    entries: list[Entry] = []
    for entry in _from_the_newest(place, stream, numbers):
        if entries and entry.number != entries[-1].number - 1:
            break
        entries.append(entry)
        if entry.kind == "all":
            break
    if not entries:
        return None
    if entries[-1].kind != "all" and entries[-1].number != 1:
        missing = layout.entry_name(stream, entries[-1].number - 1)
        raise ArchiveError(f"{place}: the manifest's entry {missing} is missing")
    return _folded(place, entries[::-1])


def require(place: Place, stream: str) -> Archive:
    """The archive of a stream; ArchiveError names those there are."""
    found = load(place, stream)
    if found is None:
        others = ", ".join(layout.streams_in(place)) or "none"
        raise ArchiveError(f"{place} has no archive of stream {stream!r}; there are: {others}")
    return found


def of_another(place: Place, archive: Archive, created: int, advice: str) -> ArchiveError:
    """For a stream made at another time, `created` (ns since 1970), than the one archived."""
    return ArchiveError(
        f"the archive at {place} holds stream {archive.source!r} that was made at"
        f" {rfc3339_nano(archive.created)}; the server's was made at {rfc3339_nano(created)}: it"
        f" was deleted and made anew. {advice}"
    )


def _folded(place: Place, entries: list[Entry]) -> Archive:
    files: list[FileEntry] = []
    last = entries[0].first - 1
    for entry in entries:
        if entry.first != last + 1:
            name = layout.entry_name(entry.stream, entry.number)
            raise ArchiveError(
                f"{place}: {name} starts at sequence {entry.first}, but the entries before it"
                f" end at {last}: two writers were at work"
            )
        files += entry.files
        last = entry.last
    newest = entries[-1]
    return Archive(
        stream=newest.stream,
        source=newest.source,
        created=parse_rfc3339(newest.created),
        number=newest.number,
        first=entries[0].first,
        last=last,
        files=tuple(sorted(files, key=lambda file: file.first)),
        config=newest.config,
    )


def _from_the_newest(place: Place, stream: str, numbers: Sequence[int]) -> Iterator[Entry]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for end in range(len(numbers), 0, -_AT_ONCE):
            some = numbers[max(end - _AT_ONCE, 0) : end]
            for found in [pool.submit(_read, place, stream, number) for number in some[::-1]]:
                yield found.result()


def _read(place: Place, stream: str, number: int) -> Entry:
    name = layout.entry_name(stream, number)
    try:
        entry = _ENTRY.decode(place.read(name))
        parse_rfc3339(entry.created)
    except (msgspec.DecodeError, ValueError) as error:
        raise ArchiveError(f"{place}/{name} is no manifest entry: {error}") from None
    if entry.version > VERSION:
        raise ArchiveError(
            f"{place}/{name} has version {entry.version}; this jsserver knows {VERSION}"
        )
    if entry.number != number or entry.stream != stream:
        raise ArchiveError(f"{place}/{name} belongs to another place")
    return entry


def commit(
    place: Place,
    before: Archive,
    kind: Literal["add", "all"],
    files: Sequence[FileEntry],
    first: int,
    last: int,
) -> Archive:
    """Writes the entry that follows `before`: `add` with new files, `all` with every file.

    It covers first to last. ArchiveError when another writer was faster: nothing is changed then.
    """
    number = before.number + 1
    if kind == "add" and number % WHOLE_EVERY == 0:
        kind, files, first = "all", (*before.files, *files), before.first
    entry = Entry(
        version=VERSION,
        number=number,
        kind=kind,
        stream=before.stream,
        source=before.source,
        created=rfc3339_nano(before.created),
        first=first,
        last=last,
        files=tuple(files),
        written=rfc3339_nano(time.time_ns()),
        by=f"jsserver {__version__}",
        config=before.config,
    )
    name = layout.entry_name(before.stream, entry.number)
    if not _create(place, name, msgspec.json.format(msgspec.json.encode(entry), indent=1)):
        raise ArchiveError(
            f"{place}/{name} is there already: another writer is at work on this archive;"
            " nothing was committed, start again when it is done"
        )
    if kind == "all":
        return _folded(place, [entry])
    return msgspec.structs.replace(
        before, number=entry.number, last=last, files=(*before.files, *entry.files)
    )


def _create(place: Place, name: str, body: bytes) -> bool:
    """Writes a file that must not be there yet; False when it is.

    On a local file system that is one step. Other stores offer no such step through pyarrow: there
    two writers that commit within the same moment are not told apart.
    """
    if place.local:
        with place.named(name):
            made = _create_local(place.path(name), body)
        if made:
            place.sync(name)
        return made
    if place.size(name) is not None:
        return False
    with place.named(name), place.create(name) as remote:
        remote.write(body)
    return True


def _create_local(path: str, body: bytes) -> bool:
    """False when there is such a file. OSError."""
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    return True


@contextlib.contextmanager
def writing(place: Place, stream: str) -> Iterator[None]:
    """Keeps other writers of this archive out for as long as the block runs. ArchiveError.

    A lock of the local file system, gone with its process; on other stores only `commit` tells that
    there is another writer.
    """
    layout.check_name(stream)
    place.make_folder(layout.manifest_of(stream))
    if not place.local:
        yield
        return
    name = f"{layout.manifest_of(stream)}/lock"
    with contextlib.ExitStack() as opened:
        with place.named(name):
            file = opened.enter_context(open(place.path(name), "ab"))
            mine = _locked(file.fileno())
        if not mine:
            raise ArchiveError(
                f"{place}: another process is writing the archive of stream {stream!r};"
                " start again when it is done"
            )
        yield


def _locked(descriptor: int) -> bool:
    """False when another process holds the lock. OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
