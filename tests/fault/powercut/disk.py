"""What a power cut may leave on a disk: images made from a record of what a server did to files.

Two models of a file system. `JOURNAL` is ext4's: changes of names reach the disk in the order in
which they were made, and any sync takes all that were made before it along. `LOOSE` promises only
what POSIX does: a directory's names are on disk after a sync of that directory. In both, of the
data that was not synced each sector of 512 bytes is there or not, or is torn.
"""

import mmap
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

OPEN, WRITE, TRUNCATE, SYNC, SYNC_ALL, RENAME, UNLINK, MKDIR, RMDIR = range(1, 10)
HEAD = struct.Struct("=IIqQQQIIII")
SECTOR = 512
JOURNAL, LOOSE = "journal", "loose"


@dataclass
class Event:
    """One call of the server's: see recorder.c."""

    kind: int
    time: int
    inode: int
    offset: int
    mark: int
    created: bool
    path: str
    path2: str
    data: bytes


def read_log(path: Path) -> list[Event]:
    """All whole records, in order; times are of CLOCK_MONOTONIC in ns."""
    events = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
        at = 0
        while at + HEAD.size <= len(log):
            size, kind, time, inode, offset, mark, n1, n2, n3, flags = HEAD.unpack_from(log, at)
            if at + size > len(log):
                break
            p = at + HEAD.size
            events.append(
                Event(
                    kind, time, inode, offset, mark, bool(flags),
                    log[p : p + n1].decode(), log[p + n1 : p + n1 + n2].decode(),
                    log[p + n1 + n2 : p + n1 + n2 + n3],
                )
            )  # fmt: skip
            at += size
    return events


@dataclass
class File:
    """Bytes on disk, and what was written since, with the number of each event."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, int, bytes | None]] = field(default_factory=list)
    """(event, offset, data); without data the file was cut to `offset` bytes."""

    def settle(self, before: int) -> None:
        """Everything that was done before that event is on disk."""
        while self.pending and self.pending[0][0] < before:
            _, offset, data = self.pending.pop(0)
            apply(self.durable, offset, data)

    def after_cut(self, chance: random.Random) -> bytes:
        """What the file may hold after a cut."""
        content = bytearray(self.durable)
        # Cuts and growth are changes of the inode: a beginning of them is there.
        reached = chance.randint(0, len(self.pending))
        mood = chance.choice(["none", "all", "some", "torn"])
        for number, (_, offset, data) in enumerate(self.pending):
            if data is None:
                if number < reached:
                    apply(content, offset, None)
                continue
            for start, part in sectors(offset, data):
                if start + len(part) > len(content):
                    if number >= reached:
                        continue
                    content.extend(bytes(start + len(part) - len(content)))
                if mood == "all" or (mood != "none" and chance.random() < 0.5):
                    cut = len(part)
                    if mood == "torn" and chance.random() < 0.2:
                        cut = chance.randint(0, len(part))
                    content[start : start + cut] = part[:cut]
        return bytes(content)


def apply(content: bytearray, offset: int, data: bytes | None) -> None:
    """One write, or a cut to `offset` bytes."""
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(offset - len(content), 0)))
    content[offset : offset + len(data)] = data


def sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """The parts of a write that lie in one sector each."""
    end = offset + len(data)
    while offset < end:
        stop = min((offset // SECTOR + 1) * SECTOR, end)
        yield offset, data[len(data) - (end - offset) : len(data) - (end - stop)]
        offset = stop


@dataclass
class Naming:
    """A change of names: in directory `folder`, `name` comes to mean `inode` (0: nothing)."""

    event: int
    folder: int
    name: str
    inode: int


class Disk:
    """The files below `root` while a record is followed event by event."""

    def __init__(self, root: str, model: str = JOURNAL) -> None:
        self.root = root
        self.model = model
        self.files: dict[int, File] = {}
        self.names: dict[int, dict[str, int]] = {0: {}}
        """As the server sees them: directories by number, 0 being the root."""
        self.on_disk: dict[int, dict[str, int]] = {0: {}}
        self.pending: list[Naming] = []
        self._numbers: dict[int, int] = {}
        """The number of an inode that is in use; a number is never used again."""
        self._next = 1
        self._event = 0

    def follow(self, event: Event) -> None:
        """The next event of the record."""
        number = self._numbers.get(event.inode, 0)
        if event.kind == OPEN and event.created:
            self.files[self._new(event.inode)] = File()
            self._name(event.path, self._numbers[event.inode])
        elif event.kind == OPEN:
            pass
        elif event.kind == MKDIR:
            number = self._new(event.inode)
            self.names[number] = {}
            self.on_disk[number] = {}
            self._name(event.path, number)
        elif event.kind == WRITE:
            self.files[number].pending.append((self._event, event.offset, event.data))
        elif event.kind == TRUNCATE:
            self.files[number].pending.append((self._event, event.offset, None))
        elif event.kind == RENAME:
            number = self._lookup(event.path)
            self._name(event.path2, number)
            self._name(event.path, 0)
        elif event.kind in (UNLINK, RMDIR):
            self._name(event.path, 0)
        elif event.kind == SYNC_ALL:
            for file in self.files.values():
                file.settle(event.mark)
            self._settle_names(event.mark, None)
        elif event.kind == SYNC:
            if number in self.files:
                self.files[number].settle(event.mark)
            self._settle_names(event.mark, number)
        self._event += 1

    def _new(self, inode: int) -> int:
        self._numbers[inode] = self._next
        self._next += 1
        return self._next - 1

    def _folder(self, path: str) -> tuple[int, str]:
        parts = path.removeprefix(self.root).strip("/").split("/")
        folder = 0
        for part in parts[:-1]:
            folder = self.names[folder][part]
        return folder, parts[-1]

    def _lookup(self, path: str) -> int:
        folder, name = self._folder(path)
        return self.names[folder][name]

    def _name(self, path: str, number: int) -> None:
        folder, name = self._folder(path)
        if number:
            self.names[folder][name] = number
        else:
            self.names[folder].pop(name, None)
        self.pending.append(Naming(self._event, folder, name, number))

    def _settle_names(self, before: int, synced: int | None) -> None:
        """What a sync takes along: of everything (None), or of that file or directory."""
        journal = self.model == JOURNAL or synced is None
        rest = []
        for change in self.pending:
            if change.event < before and (journal or change.folder == synced):
                rename(self.on_disk, change)
            else:
                rest.append(change)
        self.pending = rest

    def image(self, to: Path, chance: random.Random) -> None:
        """Writes what a cut right now may leave."""
        names = {folder: dict(entries) for folder, entries in self.on_disk.items()}
        reached: dict[int, int] = {}
        if self.model == JOURNAL:
            # The two halves of a renaming are one change.
            stops = [0, *(i for i in range(1, len(self.pending)) if self._apart(i))]
            stops.append(len(self.pending))
            for change in self.pending[: chance.choice(stops)]:
                rename(names, change)
        else:
            for folder in names:
                own = [c.event for c in self.pending if c.folder == folder]
                reached[folder] = chance.choice([-1, *own])
            for change in self.pending:
                if change.event <= reached[change.folder]:
                    rename(names, change)
        self._write(to, 0, names, chance)

    def _apart(self, i: int) -> bool:
        return self.pending[i].event != self.pending[i - 1].event

    def _write(
        self, to: Path, folder: int, names: dict[int, dict[str, int]], chance: random.Random
    ) -> None:
        to.mkdir(parents=True, exist_ok=True)
        for name, number in names[folder].items():
            if number in self.files:
                (to / name).write_bytes(self.files[number].after_cut(chance))
            else:
                self._write(to / name, number, names, chance)


def rename(names: dict[int, dict[str, int]], change: Naming) -> None:
    """Carries a change of names out."""
    if change.inode:
        names[change.folder][change.name] = change.inode
    else:
        names[change.folder].pop(change.name, None)
