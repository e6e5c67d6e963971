"""Parquet to stream: the archived messages published again, in order, as they were."""

import sys
import threading
from collections.abc import Sequence

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.reader import first_since
from jsserver_spark.cext.bytes import subject_is_literal, subject_is_valid
from jsserver_spark.errors import OptionError
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.arguments import ReplayOptions
from jsserver_spark.jobs.progress import Progress, duration
from jsserver_spark.jobs.replaying import Replay, ReplayResult, Source


def replay(
    options: ReplayOptions,
    root: str,
    *,
    to: str = "",
    first: int = 0,
    last: int = 0,
    subject_prefix: str = "",
    headers: str = "exact",
    ids: bool = False,
    mark: bool = False,
    create: bool = False,
    skip_unpublishable: bool = False,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Publishes an archive into stream `to` (default: the archived name). NatsError.

    `first`, `last`: bounds of the sequences. `headers`: exact, or plain (without those that act).
    `subject_prefix`: tokens that are put before each subject. `mark` adds `Nats-Replay-Source:
    <stream>/<seq>`. `create` makes the target as the archived stream was configured, unless it is
    there. `skip_unpublishable`: passes over messages whose subject, headers or size nobody can
    publish.
    """
    place = Place(root)
    archive = manifest.require(place, options.stream)
    source = Source(
        place=place,
        archive=archive,
        first=max(first, archive.first),
        last=min(last or archive.last, archive.last),
        subjects=options.filter_subjects,
        prefix=_prefix(subject_prefix),
        plain=headers == "plain",
        ids=ids,
        mark=mark,
    )
    source.since = command.time_of("startingTimestamp", options.starting_timestamp, source.since)
    source.until = command.time_of("endingTimestamp", options.ending_timestamp, source.until)
    if options.starting_timestamp:
        found = first_since(place, archive, source.since)
        source.first = max(source.first, archive.last + 1 if found is None else found)
    run = Replay(
        options.sink(ids=ids),
        source,
        to or archive.source,
        stop or threading.Event(),
        progress,
        skip=skip_unpublishable,
    )
    return run.run(paced=options.replay_mode == "original", create=create)


def _prefix(given: str) -> str:
    """With the dot that the subjects follow; OptionError where it cannot be their start."""
    tokens = given.removesuffix(".")
    if given and not (subject_is_valid(tokens) and subject_is_literal(tokens)):
        raise OptionError(f"--subject-prefix {given!r}: must be tokens of a subject, such as copy")
    return f"{tokens}." if tokens else ""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.replay().parse_args(argv)
    options = command.read_options(ReplayOptions, given, "jsserver-spark replay")
    with command.stopping() as stop, command.progress(f"replaying {options.stream}") as progress:
        result = replay(
            options,
            given.root,
            to=given.to,
            first=given.from_seq,
            last=given.until_seq,
            subject_prefix=given.subject_prefix,
            headers=given.headers,
            ids=given.ids,
            mark=given.mark,
            create=given.create,
            skip_unpublishable=given.skip_unpublishable,
            stop=stop,
            progress=progress,
        )
    command.show(given, _told(result), result)
    return command.DONE if result.complete else command.INTERRUPTED


def _told(result: ReplayResult) -> str:
    rate = result.rows / result.seconds if result.seconds else 0.0
    return (
        f"{result.stream}: {result.rows:,} messages published to {result.to} in"
        f" {duration(result.seconds)} ({rate:,.0f}/s), {result.before:,} were there already"
        + (f", {result.duplicates:,} were duplicates" if result.duplicates else "")
        + (f", {result.passed_over:,} were passed over" if result.passed_over else "")
    )


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.replay import main as job

    sys.exit(job())
