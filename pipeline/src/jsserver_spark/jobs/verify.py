"""The archive against the stream: every file's bytes, and every row against its message."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jsserver_spark.archive import manifest, reader
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive, ArchiveError
from jsserver_spark.archive.writer import READ
from jsserver_spark.jetstream import JetStream
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.arguments import VerifyOptions
from jsserver_spark.jobs.progress import Progress
from jsserver_spark.jobs.runner import Runner, running
from jsserver_spark.live.fetch import fetch
from jsserver_spark.options import SourceOptions

COMPARED = ("subject", "timestamp", "ts_nanos", "headers_raw", "data")
COLUMNS = ("seq", *COMPARED)
RUNS_MAX = 100
"""Runs of differences that are listed; where there are more they are only counted."""

Run = tuple[int, int]


class Difference(msgspec.Struct):
    """Sequences in one range that are not as they should be, as runs, in order."""

    rows: int = 0
    """That are the same on both sides."""
    removed: int = 0
    """Archived, and no longer in the stream."""
    missing: list[Run] = []
    """In the stream, not in the archive."""
    different: list[Run] = []
    """In both, not the same."""
    damaged: list[str] = []
    """What is wrong with files, a line each."""
    missing_rows: int = 0
    different_rows: int = 0

    def add(self, other: "Difference") -> None:
        self.rows += other.rows
        self.removed += other.removed
        self.missing_rows += other.missing_rows
        self.different_rows += other.different_rows
        self.missing = _listed(self.missing + other.missing)
        self.different = _listed(self.different + other.different)
        self.damaged += other.damaged


class VerifyResult(msgspec.Struct):
    """What a comparison found."""

    stream: str
    root: str
    first: int
    last: int
    found: Difference
    behind: int = 0
    """Messages of the stream behind the archive."""
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        found = self.found
        return not (found.missing_rows or found.different_rows or found.damaged)


class Part(msgspec.Struct, frozen=True):
    """Sequences to compare, and the file that has them; none where no row was archived."""

    first: int
    last: int
    file: manifest.FileEntry | None = None


class Task(msgspec.Struct, frozen=True):
    """What every task of a run knows."""

    root: str
    source: SourceOptions

    def __call__(self, part: Part) -> Difference:
        out = Difference()
        place = Place(self.root)
        rows: Iterator[pa.RecordBatch] = iter(())
        if part.file is not None:
            wrong = reader.check_file(place, part.file)
            if wrong:
                out.damaged.append(f"{part.file.name} {wrong}")
            if wrong and place.size(part.file.name) != part.file.size:
                return out
            rows = reader.read_file(place, part.file, COLUMNS, part.first, part.last)
        live = fetch(self.source, self.source.stream, part.first, part.last, READ, own=True)
        try:
            compare(rows, live, part.last, out)
        except ArchiveError as error:
            out.damaged.append(str(error))
        return out


class _Cursor:
    """Batches of rows, taken up to a sequence."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.RecordBatch | None = None

    def head(self) -> int | None:
        """The last sequence of the batch at hand; None at the end."""
        while self._rest is None or not len(self._rest):
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
        return int(self._rest.column("seq")[len(self._rest) - 1].as_py())

    def up_to(self, seq: int) -> pa.Table | None:
        """The rows up to `seq`; None where there are none."""
        taken = []
        while (end := self.head()) is not None:
            assert self._rest is not None
            cut = len(self._rest)
            if end > seq:
                cut = int(np.searchsorted(self._rest.column("seq").to_numpy(), seq, "right"))
            if cut:
                taken.append(self._rest.slice(0, cut).select(COLUMNS))
            if end > seq:
                self._rest = self._rest.slice(cut)
                break
            self._rest = None
        return pa.Table.from_batches(taken) if taken else None


def compare(
    archived: Iterator[pa.RecordBatch], live: Iterator[pa.RecordBatch], last: int, out: Difference
) -> None:
    """Adds the differences of two runs of rows, both in order of seq, that end at `last`."""
    left, right = _Cursor(archived), _Cursor(live)
    while True:
        ends = [end for end in (left.head(), right.head()) if end is not None]
        if not ends:
            return
        end = min(ends)
        _compare_rows(left.up_to(end), right.up_to(end), out)


def _compare_rows(left: pa.Table | None, right: pa.Table | None, out: Difference) -> None:
    if left is None:
        assert right is not None
        _note(out, right.column("seq").to_numpy(), "missing")
        return
    if right is None:
        out.removed += len(left)
        return
    ours, theirs = left.column("seq").to_numpy(), right.column("seq").to_numpy()
    if not np.array_equal(ours, theirs):
        here, there = np.isin(ours, theirs), np.isin(theirs, ours)
        out.removed += int((~here).sum())
        _note(out, theirs[~there], "missing")
        left, right = left.filter(pa.array(here)), right.filter(pa.array(there))
    different = np.zeros(len(left), bool)
    for name in COMPARED:
        one, other = left.column(name), right.column(name)
        if not one.equals(other):
            different |= _unequal(one, other)
    out.rows += len(left) - int(different.sum())
    _note(out, left.column("seq").to_numpy()[different], "different")


def _unequal(
    one: pa.ChunkedArray, other: pa.ChunkedArray
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    differ = pc.fill_null(pc.not_equal(one, other), False).to_numpy(zero_copy_only=False)
    absent = pc.not_equal(pc.is_null(one), pc.is_null(other)).to_numpy(zero_copy_only=False)
    return np.asarray(differ | absent, bool)


def _note(out: Difference, seqs: "np.ndarray[tuple[int], np.dtype[np.int64]]", kind: str) -> None:
    if not len(seqs):
        return
    cuts = np.flatnonzero(np.diff(seqs) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(seqs, cuts)[: RUNS_MAX + 1]]
    if kind == "missing":
        out.missing = _listed(out.missing + runs)
        out.missing_rows += len(seqs)
    else:
        out.different = _listed(out.different + runs)
        out.different_rows += len(seqs)


def _listed(runs: list[Run]) -> list[Run]:
    return manifest.joined(runs)[:RUNS_MAX]


def verify(
    options: VerifyOptions,
    root: str,
    *,
    name: str = "",
    accept_recreated: bool = False,
    runner: Runner | None = None,
    master: str = "",
    processes: int = 0,
    progress: Progress | None = None,
) -> VerifyResult:
    """Compares an archive with its stream. NatsError where that cannot be done."""
    started = time.monotonic()
    place = Place(root)
    archive = manifest.require(place, name or options.stream)
    api = JetStream(options, "jsserver-spark-verify")
    try:
        info = api.stream_info(options.stream)
    finally:
        api.close()
    if info.created != archive.created and not accept_recreated:
        advice = "--accept-recreated compares them nevertheless"
        raise manifest.of_another(place, archive, info.created, advice)
    total = Difference()
    if progress is not None:
        progress.total = archive.rows
    task = Task(place.uri, options.source(options.stream))
    with running(runner, master, processes) as chosen:
        parts = _parts(archive, info.state.first_seq, info.state.last_seq)
        _gather(chosen.map(task, parts), total, progress)
    return VerifyResult(
        archive.stream,
        str(place),
        archive.first,
        archive.last,
        total,
        max(0, info.state.last_seq - archive.last),
        time.monotonic() - started,
    )


def _gather(found: Iterator[Difference], total: Difference, progress: Progress | None) -> None:
    told: Callable[[int], None] = progress.add if progress is not None else lambda _: None
    for part in found:
        total.add(part)
        told(part.rows + part.removed)


def _parts(archive: Archive, first: int, last: int) -> Iterator[Part]:
    """Each file, and what lies between files; `first` to `last` is what the stream holds."""
    at = archive.first
    for file in archive.files:
        if at < file.first and first < file.first:
            yield Part(max(at, first), file.first - 1)
        yield Part(file.first, file.last, file)
        at = file.last + 1
    if max(at, first) <= min(archive.last, last):
        yield Part(max(at, first), min(archive.last, last))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.verify().parse_args(argv)
    options = command.read_options(VerifyOptions, given, "jsserver-spark verify")
    with command.progress(f"verifying {options.stream}") as progress:
        result = verify(
            options,
            given.root,
            name=given.name,
            accept_recreated=given.accept_recreated,
            master=given.master,
            processes=given.processes,
            progress=progress,
        )
    shown = {**msgspec.to_builtins(result), "equal": result.equal}
    command.show(given, _told(result), shown)
    return command.DONE if result.equal else command.DIFFERENT


def _told(result: VerifyResult) -> str:
    found = result.found
    lines = [
        f"{result.stream}: sequences {result.first:,} to {result.last:,},"
        f" {found.rows:,} rows are equal, {found.removed:,} are only archived, {result.behind:,}"
        " sequences are not archived yet"
    ]
    lines += found.damaged
    for what, runs, rows in (
        ("not in the archive", found.missing, found.missing_rows),
        ("different", found.different, found.different_rows),
    ):
        if rows:
            shown = ", ".join(
                f"{first}-{last}" if last > first else f"{first}" for first, last in runs
            )
            more = "" if len(runs) < RUNS_MAX else ", ..."
            lines.append(f"{rows:,} messages are {what}: {shown}{more}")
    lines.append("equal" if result.equal else "NOT equal")
    return "\n".join(lines)


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.verify import main as job

    sys.exit(job())
