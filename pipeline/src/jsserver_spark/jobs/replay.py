"""Parquet to stream: the archived messages published again, in order, as they were."""

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.archive.reader import first_since
from jsserver_spark.cext.bytes import subject_is_literal, subject_is_valid
from jsserver_spark.errors import OptionError
from jsserver_spark.jobs import command
from jsserver_spark.jobs.progress import Progress, duration
from jsserver_spark.jobs.replaying import Replay, ReplayResult, Source
from jsserver_spark.options import (
    ConnectionOptions,
    SinkOptions,
    count,
    one_of,
    option,
    seconds,
    size,
    text,
    texts,
)

TEXT = """\
Publishes what is archived below ROOT into a stream: subjects, headers and payloads byte for byte,
in order, over one connection.

The target holds nothing, or just what this replay published before: then it goes on behind that, so
a killed replay is started again, and a second one adds nothing. With --ids it may hold other
messages: each message gets a Nats-Msg-Id of stream, time of creation and sequence, and the target
drops those it has within its duplicate_window, and only within that.

Headers that act act again: Nats-Msg-Id (the target may drop a message as a duplicate: then the
replay ends with an error, for the rest would not be what was archived), Nats-Expected-* (checked
against the target), Nats-Rollup, Nats-TTL (counted from now), Nats-Schedule* and Nats-Batch-*.
--headers plain leaves these out."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ReplayOptions(ConnectionOptions):
    """Replaying an archive."""

    stream: str = option("stream", text)
    replay_mode: str = option("replayMode", one_of("fast", "original"), "fast")
    filter_subjects: tuple[str, ...] = option("filterSubjects", texts, ())
    starting_timestamp: str = option("startingTimestamp", text)
    ending_timestamp: str = option("endingTimestamp", text)
    max_inflight: int = option("maxInflight", count(1, 1 << 20), 4096)
    max_inflight_bytes: int = option("maxInflightBytes", size(1 << 10), 8 << 20)
    ack_timeout: float = option("ackTimeout", seconds, 10.0)

    def check(self) -> None:
        super().check()
        if not self.stream:
            raise OptionError("option 'stream' is missing: the stream that was archived")

    def sink(self, *, ids: bool) -> SinkOptions:
        """Without ids the publisher does not try again: it could store a message twice."""
        shared = {name: getattr(self, name) for name in ConnectionOptions.__dataclass_fields__}
        return SinkOptions(
            **shared,
            max_inflight=self.max_inflight,
            max_inflight_bytes=self.max_inflight_bytes,
            ack_timeout=self.ack_timeout,
            retries=5 if ids else 0,
        )


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
    given = _parser().parse_args(argv)
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
    if given.json:
        command.say_json(result)
    else:
        rate = result.rows / result.seconds if result.seconds else 0.0
        command.say(
            f"{result.stream}: {result.rows:,} messages published to {result.to} in"
            f" {duration(result.seconds)} ({rate:,.0f}/s), {result.before:,} were there already"
            + (f", {result.duplicates:,} were duplicates" if result.duplicates else "")
            + (f", {result.passed_over:,} were passed over" if result.passed_over else "")
        )
    return command.DONE if result.complete else command.INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("replay", TEXT)
    parser.add_argument("root", metavar="ROOT")
    parser.add_argument("--to", default="", help="the target stream (default: the archived one)")
    parser.add_argument("--create", action="store_true", help="make the target, as archived")
    parser.add_argument("--from-seq", type=command.natural, default=0, help="the first sequence")
    parser.add_argument("--until-seq", type=command.natural, default=0, help="the last sequence")
    parser.add_argument("--subject-prefix", default="", help="tokens before each subject")
    parser.add_argument(
        "--headers",
        choices=("exact", "plain"),
        default="exact",
        help="plain: without headers that a server acts on (default: exact)",
    )
    parser.add_argument("--ids", action="store_true", help="add a Nats-Msg-Id to each message")
    parser.add_argument(
        "--skip-unpublishable",
        action="store_true",
        help="pass over and count messages whose subject, headers or size nobody can publish",
    )
    parser.add_argument("--mark", action="store_true", help="add Nats-Replay-Source: stream/seq")
    command.add_options(parser, ReplayOptions, "the archived stream and the target's server")
    return parser


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.replay import main as job

    sys.exit(job())
