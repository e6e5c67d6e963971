"""Stream to Parquet: range by range, each committed by an entry of the manifest."""

import functools
import itertools
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import msgspec

from jsserver_spark.archive import layout, manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive, ArchiveError, FileEntry
from jsserver_spark.archive.writer import READ, Limits, publish_drafts, write_range
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream, Patient, StreamInfo
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.arguments import ArchiveOptions
from jsserver_spark.jobs.progress import Progress, amount
from jsserver_spark.jobs.runner import Local, Runner, running
from jsserver_spark.live.fetch import fetch
from jsserver_spark.options import (
    SourceOptions,
)

POLL_S = 0.5
PATIENCE_S = 300.0
"""How long --follow bears a server that does not answer."""
FILL = 0.95
"""How full a file is planned: messages differ in size, and a rest is a file of its own."""
SPAN_MAX = 1 << 24
"""Sequences of one part at most, however few of them have messages."""


class ArchiveResult(msgspec.Struct):
    """What one run added to an archive."""

    stream: str
    root: str
    first: int = 0
    last: int = 0
    """It covers first to last now."""
    rows: int = 0
    bytes: int = 0
    """Of messages, and of files:"""
    size: int = 0
    files: int = 0
    missing: int = 0
    """Sequences in what was added that the stream held no message for."""
    lost: int = 0
    """Of these, those that were gone before they could be archived: by limits, a purge or acks."""
    seconds: float = 0.0
    complete: bool = True
    """False when it was asked to stop before it was done."""


class Part(msgspec.Struct, frozen=True):
    """Sequences that one task archives."""

    first: int
    last: int


class Task(msgspec.Struct, frozen=True):
    """What every task of a run knows."""

    root: str
    name: str
    run: str
    source: SourceOptions
    created: int
    limits: Limits

    def __call__(
        self, part: Part, told: Callable[[int], None] | None = None
    ) -> tuple[Part, list[FileEntry]]:
        """Reads a part from the stream straight into drafts of files."""
        stream = self.source.stream
        rows = fetch(self.source, stream, part.first, part.last, READ, self.created)
        place = Place(self.root)
        return part, write_range(
            place, self.name, self.run, part.first, part.last, self.limits, rows, told
        )


def archive(
    options: ArchiveOptions,
    root: str,
    *,
    name: str = "",
    until: int = 0,
    follow: bool = False,
    accept_recreated: bool = False,
    fail_on_data_loss: bool = False,
    runner: Runner | None = None,
    master: str = "",
    processes: int = 0,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> ArchiveResult:
    """Archives what the stream holds behind what the archive holds. NatsError, ArchiveError.

    `name`: the stream's name in the archive. `until`: the last sequence. `follow`: goes on with
    what comes until `stop` is set; with `fail_on_data_loss` it also ends when messages were gone
    before they could be archived, which the result counts as `lost`.
    """
    place = Place(root)
    name = name or options.stream
    with manifest.writing(place, name):
        if place.local:  # elsewhere a draft may be another machine's: compact removes old ones
            place.remove_folder(f"{layout.folder_of(name)}/{layout.TEMPORARY}")
        with running(runner, master, processes) as chosen:
            run = _Run(
                options,
                place,
                name,
                chosen,
                stop or threading.Event(),
                progress,
                fail_on_data_loss=fail_on_data_loss,
            )
            try:
                run.open(accept_recreated)
                if follow:
                    run.follow()
                else:
                    run.pass_over(until)
            finally:
                run.close()
            return run.result


class _Run:
    """One run of the archiver."""

    def __init__(
        self,
        options: ArchiveOptions,
        place: Place,
        name: str,
        runner: Runner,
        stop: threading.Event,
        progress: Progress | None,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self.result = ArchiveResult(name, str(place))
        self._fail_on_data_loss = fail_on_data_loss
        self._following = False
        self._options = options
        self._place = place
        self._name = name
        self._runner = runner
        self._stop = stop
        self._progress = progress
        self._id = uuid.uuid4().hex
        self._server = Patient(options, "jsserver-spark-archive")
        self._started = time.monotonic()
        self._archive: Archive

    def close(self) -> None:
        self.result.seconds = time.monotonic() - self._started
        self._server.close()
        draft = layout.draft_name(self._name, self._id, 0)
        self._place.remove_folder(draft.rpartition("/")[0])

    def open(self, accept_recreated: bool) -> None:
        """Where to go on."""
        info = self._server.ask_once(self._info)
        found = manifest.load(self._place, self._name)
        if found is None:
            found = Archive(
                stream=self._name,
                source=info.name,
                created=info.created,
                number=0,
                first=info.state.first_seq or 1,
                last=(info.state.first_seq or 1) - 1,
                files=(),
                config=info.raw["config"],
            )
        elif found.created != info.created:
            found = self._recreated(found, info, accept_recreated)
        self._archive = msgspec.structs.replace(found, config=info.raw["config"])
        self._note()

    def _recreated(self, found: Archive, info: StreamInfo, accept: bool) -> Archive:
        if not accept:
            advice = (
                "Archive it under another name (--name), or go on behind the archived sequences"
                " where it holds the same messages, as a restored backup does (--accept-recreated)"
            )
            raise manifest.of_another(self._place, found, info.created, advice)
        if info.state.last_seq < found.last:
            raise ArchiveError(
                f"stream {info.name!r} ends at sequence {info.state.last_seq}, the archive at"
                f" {found.last}: it does not hold what was archived"
            )
        return msgspec.structs.replace(found, created=info.created)

    def _note(self) -> None:
        self.result.first = self._archive.first
        self.result.last = self._archive.last

    # ---- what to archive -----------------------------------------------------------------------

    def pass_over(self, until: int) -> None:
        """Once, up to what is there now."""
        info = self._server.ask(self._info)
        last = min(until or info.state.last_seq, info.state.last_seq)
        if self._progress is not None:
            held = info.state.last_seq - max(info.state.first_seq - 1, self._archive.last)
            self._progress.total = max(min(info.state.messages, held), 0)
        self._write(self._parts(info, last))
        self.result.complete = self._archive.last >= last

    def follow(self) -> None:
        """Whole files as soon as there is enough for one, the rest after `flushInterval`."""
        self._following = True
        written = answered = time.monotonic()
        while not self._stop.is_set():
            try:
                info = self._server.ask_once(self._info)
                self._same(info)
                parts = list(self._parts(info, info.state.last_seq))
                late = time.monotonic() - written >= self._options.flush_interval
                whole = parts if late else parts[:-1]
                if whole:
                    self._write(iter(whole))
                if late or whole or not parts:
                    written = time.monotonic()
                answered = time.monotonic()
            except ArchiveError:
                raise
            except NatsError as error:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
                command.warn(f"{error}; trying again")
            self._stop.wait(POLL_S)

    def _parts(self, info: StreamInfo, last: int) -> Iterator[Part]:
        """What is behind the archive up to `last`, cut where a file will be full."""
        state = info.state
        at = self._archive.last + 1
        rows = self._options.flush_rows
        span = rows
        if state.messages:
            average = max(1, state.bytes // state.messages)
            rows = max(1, min(rows, int(FILL * self._options.flush_bytes) // average))
            span = rows * (state.last_seq - state.first_seq + 1) // state.messages
        span = max(1, min(span, SPAN_MAX))
        if at < state.first_seq - 1 and state.first_seq <= last:
            # What retention took is part of the first file, and nothing to ask the server for.
            yield Part(at, min(last, state.first_seq - 1 + span))
            at = min(last, state.first_seq - 1 + span) + 1
        while at <= last:
            yield Part(at, min(last, at + span - 1))
            at += span

    # ---- archiving it --------------------------------------------------------------------------

    def _write(self, parts: Iterator[Part]) -> None:
        limits = Limits(self._options.flush_rows, self._options.flush_bytes)
        task = Task(
            root=self._place.uri,
            name=self._name,
            run=self._id,
            source=self._options.source(),
            created=self._archive.created,
            limits=limits,
        )
        wanted = itertools.takewhile(lambda _: not self._stop.is_set(), parts)
        told = self._progress.add if self._progress is not None else None
        here = isinstance(self._runner, Local)  # rows can be told of as they come
        each = functools.partial(task, told=told) if here else task
        for part, files in self._runner.map(each, wanted):
            self._commit(part, files)
            if told is not None and not here:
                told(sum(file.rows for file in files))

    def _info(self, js: JetStream) -> StreamInfo:
        return js.stream_info(self._options.stream)

    def _same(self, info: StreamInfo) -> None:
        if info.created != self._archive.created:
            raise ArchiveError(
                f"stream {info.name!r} was deleted and made anew while it was archived; what was"
                f" committed ends at sequence {self._archive.last}"
            )

    def _commit(self, part: Part, files: list[FileEntry]) -> None:
        info = self._server.ask(self._info)
        self._same(info)
        before = self._archive
        entry = layout.entry_name(self._name, before.number + 1)
        if self._place.size(entry) is not None:
            raise ArchiveError(
                f"{self._place}/{entry} is there already: another writer is at work on this"
                " archive; start again when it is done"
            )
        publish_drafts(self._place, self._name, self._id, files)
        self._archive = manifest.commit(self._place, before, "add", files, part.first, part.last)
        self.result.rows += sum(file.rows for file in files)
        self.result.bytes += sum(file.bytes for file in files)
        self.result.size += sum(file.size for file in files)
        self.result.files += len(files)
        rows = sum(file.rows for file in files)
        self.result.missing += part.last - part.first + 1 - rows
        self._note()
        self._note_loss(part, files, info.state.first_seq)

    def _note_loss(self, part: Part, files: list[FileEntry], first: int) -> None:
        """Counts what the part lacks in front of `first`, where the stream begins by now."""
        lost = min(part.last, first - 1) - part.first + 1 - rows_before(files, first)
        if lost <= 0:
            return
        self.result.lost += lost
        command.warn(
            f"{lost:,} messages of sequences {part.first:,} to {min(part.last, first - 1):,} were"
            " gone before they could be archived"
        )
        if self._fail_on_data_loss and self._following:
            self._stop.set()


def rows_before(files: Sequence[FileEntry], seq: int) -> int:
    """How many rows the files have before a sequence; about, where one does not list its gaps."""
    rows = 0
    for file in files:
        if file.last < seq:
            rows += file.rows
        elif file.first < seq:
            width = seq - file.first
            if file.gaps is None:
                rows += file.rows * width // (file.last - file.first + 1)
            else:
                gone = (min(last, seq - 1) - first + 1 for first, last in file.gaps if first < seq)
                rows += width - sum(gone)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.archive().parse_args(argv)
    options = command.read_options(ArchiveOptions, given, "jsserver-spark archive")
    if given.follow and given.until_seq:
        raise command.Wrong("--follow and --until-seq exclude each other")
    if options.given("flushInterval") and not given.follow:
        raise command.Wrong("--flush-interval is for --follow; without it everything is written")
    with command.stopping() as stop, command.progress(f"archiving {options.stream}") as progress:
        result = archive(
            options,
            given.root,
            name=given.name,
            until=given.until_seq,
            follow=given.follow,
            accept_recreated=given.accept_recreated,
            fail_on_data_loss=given.fail_on_data_loss,
            master=given.master,
            processes=given.processes,
            stop=stop,
            progress=progress,
        )
    command.show(given, told(result), result)
    if result.lost and given.fail_on_data_loss:
        return command.DIFFERENT
    return command.DONE if result.complete else command.INTERRUPTED


def told(result: ArchiveResult) -> str:
    rate = result.rows / result.seconds if result.seconds else 0.0
    share = f", {100 * result.size / result.bytes:.0f} % of the messages" if result.bytes else ""
    return (
        f"{result.stream}: {result.rows:,} rows in {result.files} files,"
        f" {amount(result.size)}{share}, {result.seconds:.1f} s, {rate:,.0f} rows/s; the archive"
        f" covers sequences {result.first:,} to {result.last:,}"
        + (f"; {result.missing:,} of the new ones have no message" if result.missing else "")
    )


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.archive import main as job

    sys.exit(job())
