"""The jobs' command lines: their texts, flags and options.

Loads nothing that only a running job needs, so that --help answers without PySpark and pyarrow.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from jsserver_spark.errors import OptionError
from jsserver_spark.jobs import command
from jsserver_spark.options import (
    ConnectionOptions,
    Options,
    SinkOptions,
    SourceOptions,
    count,
    one_of,
    option,
    seconds,
    size,
    text,
    texts,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ArchiveOptions(ConnectionOptions):
    """Archiving a stream."""

    stream: str = option("stream", text)
    flush_rows: int = option("flushRows", count(), 1_000_000)
    flush_bytes: int = option("flushBytes", size(1 << 10, 1 << 30), 128 << 20)
    flush_interval: float = option("flushInterval", seconds, 300.0)

    def check(self) -> None:
        super().check()
        if not self.stream:
            raise OptionError("option 'stream' is missing: the stream to archive")

    def source(self) -> SourceOptions:
        """How its ranges are read. What retention takes meanwhile becomes a gap of the archive."""
        shared = {name: getattr(self, name) for name in ConnectionOptions.__dataclass_fields__}
        return SourceOptions(**shared, stream=self.stream, fail_on_data_loss=False)


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


@dataclass(frozen=True, kw_only=True, repr=False)
class VerifyOptions(ConnectionOptions):
    """Verifying an archive."""

    stream: str = option("stream", text)

    def check(self) -> None:
        super().check()
        if not self.stream:
            raise OptionError("option 'stream' is missing: the stream that was archived")

    def source(self, stream: str) -> SourceOptions:
        shared = {name: getattr(self, name) for name in ConnectionOptions.__dataclass_fields__}
        return SourceOptions(**shared, stream=stream, fail_on_data_loss=False)


@dataclass(frozen=True, kw_only=True)
class CompactOptions(Options):
    """Merging an archive's files."""

    stream: str = option("stream", text)
    flush_rows: int = option("flushRows", count(), 1_000_000)
    flush_bytes: int = option("flushBytes", size(1 << 10, 1 << 30), 128 << 20)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportOptions(ConnectionOptions):
    """Reporting on a stream or its archive."""

    stream: str = option("stream", text)

    def source(self) -> SourceOptions:
        shared = {name: getattr(self, name) for name in ConnectionOptions.__dataclass_fields__}
        return SourceOptions(**shared, stream=self.stream, fail_on_data_loss=False)


ARCHIVE = """\
Archives a stream as Parquet files below ROOT (a folder, or a URI such as s3://bucket/folder).

It goes on behind what the archive holds. Files are named by the sequences they cover; they count
once an entry of the manifest names them, so a killed run loses and doubles nothing: start it
again."""


def archive() -> argparse.ArgumentParser:
    parser = command.parser("archive", ARCHIVE)
    parser.add_argument("root", metavar="ROOT")
    parser.add_argument("--name", default="", help="the stream's name in the archive")
    parser.add_argument(
        "--until-seq", type=command.natural, default=0, help="the last sequence to archive"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes")
    parser.add_argument(
        "--accept-recreated",
        action="store_true",
        help="go on although the stream was made anew: it holds the same messages",
    )
    parser.add_argument(
        "--fail-on-data-loss",
        action="store_true",
        help="end with 1 when messages were gone before they could be archived; --follow ends then",
    )
    command.add_options(parser, ArchiveOptions, "the stream and its server")
    command.add_runner(parser)
    return parser


REPLAY = """\
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


def replay() -> argparse.ArgumentParser:
    parser = command.parser("replay", REPLAY)
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


VERIFY = """\
Compares the archive below ROOT with its stream: the SHA-256 of each file, and each row's sequence,
subject, time, headers and payload with the message's. The archive was read by direct gets, where
the stream allows them; this asks the stream itself, through a consumer, or message by message where
a consumer would remove messages.

Messages that the stream no longer holds are no difference; they are counted. What the stream holds
behind the archive's last sequence is not archived yet, and no difference either."""


def verify() -> argparse.ArgumentParser:
    parser = command.parser("verify", VERIFY)
    parser.add_argument("root", metavar="ROOT")
    parser.add_argument("--name", default="", help="the stream's name in the archive")
    parser.add_argument(
        "--accept-recreated",
        action="store_true",
        help="compare although the stream was made anew",
    )
    command.add_options(parser, VerifyOptions, "the stream and its server")
    command.add_runner(parser)
    return parser


COMPACT = """\
Merges the small files of days that are over. A new entry of the manifest replaces the old files in
one step; then they are removed, and with them what killed runs left behind. Reads that are under
way go on in the new files."""


def compact() -> argparse.ArgumentParser:
    parser = command.parser("compact", COMPACT)
    parser.add_argument("root", metavar="ROOT")
    parser.add_argument(
        "--before", type=command.day, help="only days before this one (default: today)"
    )
    command.add_options(parser, CompactOptions, "the archive")
    command.add_runner(parser)
    return parser


EXPIRE = """\
Removes the files of days before a day (UTC) from the archive below ROOT. One entry of the manifest
takes them out; then they are removed. What comes behind is archived as before."""


def expire() -> argparse.ArgumentParser:
    parser = command.parser("expire", EXPIRE)
    parser.add_argument("root", metavar="ROOT")
    parser.add_argument(
        "--stream", default="", help="the stream that was archived (default: the only one)"
    )
    parser.add_argument("--before", type=command.day, required=True, help="a day, YYYY-MM-DD")
    return parser


REPORT = """\
Reports on the archive of a stream below ROOT; without ROOT on the stream at the server; with ROOT
and --live on the archive and what the stream holds behind it."""


def report() -> argparse.ArgumentParser:
    parser = command.parser("report", REPORT)
    parser.add_argument("root", metavar="ROOT", nargs="?", default="")
    parser.add_argument("--live", action="store_true", help="add what the stream holds behind it")
    parser.add_argument("--html", metavar="FILE", default="", help="write one page with plots")
    command.add_options(parser, ReportOptions, "the stream and its server")
    command.add_runner(parser)
    return parser


CHECK = """\
Prints the versions that driver and executors run, whether the formats are found there, whether the
server answers, and what is wrong and how to mend it. A small job is run at --master (default:
local[2], or what spark-submit says)."""


def check() -> argparse.ArgumentParser:
    parser = command.parser("check", CHECK)
    parser.add_argument("--master", default="", help="where to run the small job")
    parser.add_argument("--no-spark", action="store_true", help="do not start Spark")
    command.add_options(
        parser, ConnectionOptions, "the server (looked at when one of these is given)"
    )
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "archive": archive,
    "replay": replay,
    "verify": verify,
    "compact": compact,
    "expire": expire,
    "report": report,
    "check": check,
}
