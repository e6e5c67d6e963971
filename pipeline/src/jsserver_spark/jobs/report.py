"""What an archive or a stream holds: rates, sizes, subjects and gaps, as tables and as a page."""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.manifest import Archive
from jsserver_spark.archive.reader import read_files
from jsserver_spark.archive.writer import READ
from jsserver_spark.jetstream import JetStream, StreamInfo
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.arguments import ReportOptions
from jsserver_spark.jobs.page import page
from jsserver_spark.jobs.progress import Progress, amount
from jsserver_spark.jobs.runner import Runner, running
from jsserver_spark.jobs.survey import Count, Survey, survey
from jsserver_spark.live.fetch import fetch
from jsserver_spark.options import SourceOptions
from jsserver_spark.schema import Table
from jsserver_spark.text.goformat import rfc3339_nano

COLUMNS = ("seq", "subject", "timestamp", "headers_raw", "data")
SPAN = 500_000
"""Sequences of one part."""
TOP = 20

_TABLE = Table(tuple(column for column in READ.columns if column.name in COLUMNS))


class Day(msgspec.Struct):
    """The archive's files of one day."""

    date: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    size: int = 0


class Report(msgspec.Struct):
    """A report's figures; times in ns since 1970, sizes in bytes."""

    stream: str
    source: str
    """Where its messages were read: archive, stream, or both."""
    first: int
    last: int
    found: Survey
    size: int = 0
    """Of the archive's files, and the messages in them:"""
    archived_bytes: int = 0
    days: list[Day] = []
    seconds: float = 0.0

    def top(self, most: int = TOP) -> list[tuple[str, Count]]:
        """The subjects with the most messages."""
        ranked = sorted(self.found.subjects.items(), key=lambda item: (-item[1].messages, item[0]))
        return ranked[:most]


class Part(msgspec.Struct, frozen=True):
    """Sequences to add up, of the archive at `root`, or of the stream where there is none."""

    first: int
    last: int
    root: str = ""


class Task(msgspec.Struct, frozen=True):
    """What every task of a run knows."""

    name: str
    source: SourceOptions

    def __call__(self, part: Part) -> Survey:
        if part.root:
            rows = read_files(Place(part.root), self.name, part.first, part.last, COLUMNS)
        else:
            rows = fetch(self.source, self.name, part.first, part.last, _TABLE)
        return survey(rows, part.first, part.last)


def report(
    options: ReportOptions,
    root: str = "",
    *,
    live: bool = False,
    runner: Runner | None = None,
    master: str = "",
    processes: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Adds up an archive (`root`), a stream (no root), or both (`live`). NatsError."""
    started = time.monotonic()
    options = dataclasses.replace(options, stream=options.stream or command.only_stream(root))
    archive = manifest.require(Place(root), options.stream) if root else None
    info = _info(options) if live or archive is None else None
    parts = list(_parts(root, archive, info))
    made = Report(
        options.stream,
        "both" if archive and info else "archive" if archive else "stream",
        parts[0].first if parts else 1,
        parts[-1].last if parts else 0,
        Survey(),
    )
    if archive is not None:
        made.days = _days(archive)
        made.size = sum(day.size for day in made.days)
        made.archived_bytes = sum(day.bytes for day in made.days)
    if progress is not None:
        progress.total = made.last - made.first + 1
    told: Callable[[int], None] = progress.add if progress is not None else lambda _: None
    task = Task(options.stream, options.source())
    with running(runner, master, processes if len(parts) > 1 else 1) as chosen:
        for part, found in zip(parts, chosen.map(task, parts), strict=True):
            made.found.add(found)
            told(part.last - part.first + 1)
    made.seconds = time.monotonic() - started
    return made


def _info(options: ReportOptions) -> StreamInfo:
    api = JetStream(options, "jsserver-spark-report")
    try:
        return api.stream_info(options.stream)
    finally:
        api.close()


def _parts(root: str, archive: Archive | None, info: StreamInfo | None) -> Iterator[Part]:
    at = 1
    if archive is not None:
        at = archive.first
        for file in archive.files:  # gaps between files belong to the file behind them
            yield Part(at, file.last, root)
            at = file.last + 1
        if at <= archive.last:
            yield Part(at, archive.last, root)
            at = archive.last + 1
    if info is not None:
        at = max(at, info.state.first_seq) if archive is None else at
        while at <= info.state.last_seq:
            yield Part(at, min(at + SPAN - 1, info.state.last_seq))
            at += SPAN


def _days(archive: Archive) -> list[Day]:
    days: dict[str, Day] = {}
    for file in archive.files:
        day = days.setdefault(file.date, Day(file.date))
        day.files += 1
        day.rows += file.rows
        day.bytes += file.bytes
        day.size += file.size
    return list(days.values())


def tables(made: Report) -> str:
    """The report for a terminal."""
    found = made.found
    total = found.total
    times = sorted(found.times)
    lines = [
        f"{made.stream} ({made.source}): sequences {made.first:,} to {made.last:,}",
        f"{total.messages:,} messages, {amount(total.bytes)}, {found.with_headers:,} with headers,"
        f" largest payload {amount(found.largest)}",
    ]
    if made.days:
        share = 100 * made.size / made.archived_bytes if made.archived_bytes else 0.0
        lines.append(f"files take {amount(made.size)}, {share:.1f} % of what is in them")
        lines += ["", _day_table(made.days)]
    if times:
        span = found.span_us / 1e6
        peak = max(found.times.values(), key=lambda count: count.messages)
        lines += [
            "",
            f"from {_time(times[0] * found.span_us)} to {_time((times[-1] + 1) * found.span_us)}:"
            f" at most {peak.messages / span:,.0f} messages/s over {span:g} s",
        ]
    lines += ["", _subject_table(made), "", _size_table(found), "", gap_line(found)]
    return "\n".join(lines)


def _time(micros: int) -> str:
    return rfc3339_nano(micros * 1000)[:19] + "Z"


def _day_table(days: Sequence[Day]) -> str:
    rows = [("day", "files", "messages", "bytes", "on disk")]
    rows += [
        (day.date, f"{day.files}", f"{day.rows:,}", amount(day.bytes), amount(day.size))
        for day in days
    ]
    return command.table(rows, right=frozenset((1, 2, 3, 4)))


def _subject_table(made: Report) -> str:
    rows = [("subject", "messages", "share", "bytes")]
    whole = max(made.found.total.messages, 1)
    for subject, count in made.top():
        share = f"{100 * count.messages / whole:.1f} %"
        rows.append((subject, f"{count.messages:,}", share, amount(count.bytes)))
    more = len(made.found.subjects) - TOP
    if more > 0:
        rows.append((f"... {more:,} more", "", "", ""))
    return command.table(rows, right=frozenset((1, 2, 3)))


def size_class(n: int) -> str:
    """A class of payload sizes in words."""
    if n <= 1:
        return f"{n} B"
    return f"{amount(1 << (n - 1))} - {amount(1 << n)}"


def _size_table(found: Survey) -> str:
    rows = [("payload", "messages")]
    rows += [(size_class(n), f"{found.sizes[n]:,}") for n in sorted(found.sizes)]
    return command.table(rows, right=frozenset((1,)))


def gap_line(found: Survey, most: int = 10) -> str:
    """The gaps in words."""
    if not found.missing:
        return "no gaps"
    shown = ", ".join(
        f"{first:,}-{last:,}" if last > first else f"{first:,}" for first, last in found.gaps[:most]
    )
    more = ", ..." if len(found.gaps) > most else ""
    return f"{found.missing:,} sequences without a message: {shown}{more}"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.report().parse_args(argv)
    if given.live and not given.root:
        raise command.Wrong("--live needs ROOT; without ROOT the stream is read anyway")
    options = command.read_options(ReportOptions, given, "jsserver-spark report")
    with command.progress(f"reading {options.stream or given.root}") as progress:
        made = report(
            options,
            given.root,
            live=given.live,
            master=given.master,
            processes=given.processes,
            progress=progress,
        )
    if given.html:
        try:
            with open(given.html, "w", encoding="utf-8") as file:
                file.write(page(made))
        except OSError as error:
            raise command.Wrong(f"--html {given.html}: {error.strerror}") from None
    command.show(given, tables(made), _shown(made))
    return command.DONE


def _shown(made: Report) -> dict[str, object]:
    """For JSON: the top subjects and the spans of time in order, with their times."""
    out: dict[str, object] = msgspec.to_builtins(made, str_keys=True)
    found = made.found
    out["found"] = {
        "messages": found.total.messages,
        "bytes": found.total.bytes,
        "with_headers": found.with_headers,
        "largest": found.largest,
        "span_seconds": found.span_us / 1e6,
        "times": [
            {
                "time": _time(span * found.span_us),
                "messages": found.times[span].messages,
                "bytes": found.times[span].bytes,
            }
            for span in sorted(found.times)
        ],
        "subjects": [
            {"subject": subject, "messages": count.messages, "bytes": count.bytes}
            for subject, count in made.top()
        ],
        "distinct_subjects": len(found.subjects),
        "payloads": [{"below": 1 << n, "messages": found.sizes[n]} for n in sorted(found.sizes)],
        "missing": found.missing,
        "gaps": found.gaps,
    }
    return out


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.report import main as job

    sys.exit(job())
