"""Small files of past days become large ones, and what nobody needs any more is removed."""

import itertools
import sys
import time
import uuid
from collections.abc import Sequence

import msgspec

from jsserver_spark.archive import layout, manifest, reader
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive, ArchiveError, FileEntry
from jsserver_spark.archive.writer import READ, Limits, publish_drafts, write_range
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.arguments import CompactOptions
from jsserver_spark.jobs.progress import Progress, amount
from jsserver_spark.jobs.runner import Runner, running

LEFT_S = 86_400.0
"""On stores without locks a file that no entry names may be another writer's for so long."""


class CompactResult(msgspec.Struct):
    """What was merged and removed."""

    stream: str
    root: str
    merged: int = 0
    """Files that were merged, into so many:"""
    into: int = 0
    rows: int = 0
    size_before: int = 0
    size_after: int = 0
    removed: int = 0
    """Files that were removed."""
    seconds: float = 0.0


Group = tuple[FileEntry, ...]


class Task(msgspec.Struct, frozen=True):
    """What every task of a run knows."""

    root: str
    stream: str
    run: str

    def __call__(self, group: Group) -> tuple[Group, FileEntry]:
        """Writes the rows of neighbours as one draft. ArchiveError when a file is damaged."""
        place = Place(self.root)
        for file in group:
            wrong = reader.check_file(place, file)
            if wrong:
                raise ArchiveError(f"{place}/{file.name} {wrong}; nothing was changed")
        columns = READ.arrow_schema().names
        rows = itertools.chain.from_iterable(
            reader.read_file(place, file, columns, file.first, file.last) for file in group
        )
        whole = Limits(rows=1 << 62, bytes=1 << 62)
        first, last = group[0].first, group[-1].last
        made = write_range(place, self.stream, self.run, first, last, whole, rows)
        if len(made) != 1 or made[0].rows != sum(file.rows for file in group):
            raise ArchiveError(f"{place}: merging {first} to {last} lost rows; nothing was changed")
        return group, made[0]


def groups(archive: Archive, before: str, rows: int, size: int) -> list[Group]:
    """Neighbours of one day before `before` that fit into one file together, two at least."""
    found: list[Group] = []
    open_: list[FileEntry] = []
    for file in archive.files:
        fits = (
            open_
            and open_[-1].date == file.date
            and open_[-1].last + 1 == file.first
            and sum(f.rows for f in open_) + file.rows <= rows
            and sum(f.bytes for f in open_) + file.bytes <= size
        )
        if not fits:
            found.append(tuple(open_))
            open_ = []
        if file.date < before:
            open_.append(file)
    found.append(tuple(open_))
    return [group for group in found if len(group) > 1]


def compact(
    options: CompactOptions,
    root: str,
    *,
    before: str = "",
    runner: Runner | None = None,
    master: str = "",
    processes: int = 0,
    progress: Progress | None = None,
) -> CompactResult:
    """Merges files of days before `before` (default: today, UTC). ArchiveError."""
    started = time.monotonic()
    place = Place(root)
    name = options.stream or command.only_stream(root)
    manifest.require(place, name)
    result = CompactResult(name, str(place))
    run = uuid.uuid4().hex
    with manifest.writing(place, name):
        archive = manifest.require(place, name)
        before = before or layout.date_of(time.time_ns())
        wanted = groups(archive, before, options.flush_rows, options.flush_bytes)
        if progress is not None:
            progress.total = sum(file.rows for group in wanted for file in group)
        made: dict[int, FileEntry] = {}
        with running(runner, master, processes if len(wanted) > 1 else 1) as chosen:
            for group, file in chosen.map(Task(place.uri, name, run), wanted):
                made[file.first] = file
                _count(result, group, file)
                if progress is not None:
                    progress.add(file.rows)
        if made:
            publish_drafts(place, name, run, made.values())
            files = _replaced(archive, made)
            archive = manifest.commit(place, archive, "all", files, archive.first, archive.last)
        result.removed = remove_left(place, archive)
    result.seconds = time.monotonic() - started
    return result


def _count(result: CompactResult, group: Group, file: FileEntry) -> None:
    result.merged += len(group)
    result.into += 1
    result.rows += file.rows
    result.size_before += sum(old.size for old in group)
    result.size_after += file.size


def _replaced(archive: Archive, made: dict[int, FileEntry]) -> list[FileEntry]:
    files: list[FileEntry] = []
    for file in archive.files:
        if file.first in made:
            files.append(made[file.first])
        elif not files or file.last > files[-1].last:
            files.append(file)
    return files


def remove_left(place: Place, archive: Archive) -> int:
    """Removes files of the stream that its manifest does not name; how many."""
    known = {file.name for file in archive.files}
    entries = layout.manifest_of(archive.stream)
    removed = 0
    for name in place.names(layout.folder_of(archive.stream), deep=True):
        if name in known or name.startswith(f"{entries}/"):
            continue
        if place.local or place.age(name) > LEFT_S:
            place.remove(name)
            removed += 1
    if place.local:
        place.remove_folder(f"{layout.folder_of(archive.stream)}/{layout.TEMPORARY}")
    return removed


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.compact().parse_args(argv)
    options = command.read_options(CompactOptions, given, "jsserver-spark compact")
    with command.progress(f"compacting {options.stream or given.root}") as progress:
        result = compact(
            options,
            given.root,
            before=given.before or "",
            master=given.master,
            processes=given.processes,
            progress=progress,
        )
    told = (
        f"{result.stream}: {result.merged} files became {result.into},"
        f" {amount(result.size_before)} became {amount(result.size_after)};"
        f" {result.removed} files were removed"
    )
    command.show(given, told, result)
    return command.DONE


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.compact import main as job

    sys.exit(job())
