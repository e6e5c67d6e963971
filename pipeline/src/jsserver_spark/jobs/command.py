"""What the jobs' command lines share: options named like the formats', exit codes, and output."""

import argparse
import contextlib
import dataclasses
import datetime
import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jobs.progress import Progress
from jsserver_spark.options import Options
from jsserver_spark.positions import nanos_at

DONE = 0
DIFFERENT = 1
FAILED = 2
INTERRUPTED = 130
EXIT_CODES = (
    "exit codes: 0 done, 1 something is not as it should be (verify, check, archive"
    " --fail-on-data-loss),"
    " 2 the job could not be done, 130 interrupted (what was committed stays; start again)"
)

HELP = {
    "servers": "URLs with commas between them; the first that answers is used",
    "user": "name to log in with",
    "password": "password to log in with",
    "token": "token to log in with",
    "credentialsFile": "a .creds file",
    "credentials": "the text of a .creds file",
    "nkeySeedFile": "a file with an nkey's seed",
    "tls.caFile": "certificates to trust",
    "tls.certFile": "the client's certificate",
    "tls.keyFile": "the client's key",
    "tls.verify": "whether the server's certificate is checked",
    "connectTimeout": "such as 5s",
    "requestTimeout": "such as 10s",
    "jsDomain": "JetStream's domain",
    "apiPrefix": "prefix of JetStream's API",
    "stream": "the stream's name",
    "replayMode": "fast, or original: at the pace the messages once came",
    "filterSubjects": "only these, with commas between them; * and > are wildcards",
    "startingTimestamp": "only messages from this time on, such as 2026-11-21T12:00:00Z",
    "endingTimestamp": "only messages up to this time",
    "maxInflight": "so many messages may wait for their acks",
    "maxInflightBytes": "so many bytes may",
    "ackTimeout": "how long an ack may take, such as 10s",
    "flushRows": "a file is full with so many rows",
    "flushBytes": "a file is full with so many bytes of messages, such as 128MiB",
    "flushInterval": "with --follow: what came is written after so long, such as 5m",
}

_T = TypeVar("_T", bound=Options)


class Wrong(NatsError):
    """A command line that cannot be served."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise Wrong(f"{self.prog}: {message} (--help shows what there is)")


def parser(job: str, text: str) -> argparse.ArgumentParser:
    """A parser for one job; `--json` is in it."""
    made = _Parser(
        prog=f"jsserver-spark {job}",
        description=text,
        epilog=EXIT_CODES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print one JSON object, no table")
    return made


def flag_of(name: str) -> str:
    """The flag of an option: --tls-ca-file for tls.caFile."""
    return "--" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).replace(".", "-").lower()


def add_options(to: argparse.ArgumentParser, kind: type[Options], title: str) -> None:
    """A flag for each option of a kind."""
    group = to.add_argument_group(title)
    for field in dataclasses.fields(kind):
        name = field.metadata["name"]
        default = field.default
        said = ",".join(default) if isinstance(default, tuple) else default
        text = HELP[name] + (f" (default: {said})" if said not in ("", 0, False) else "")
        group.add_argument(flag_of(name), metavar="VALUE", dest=f"option {name}", help=text)


def add_runner(to: argparse.ArgumentParser) -> None:
    group = to.add_argument_group("where it runs")
    group.add_argument("--master", default="", help="run as tasks of Spark at this master")
    group.add_argument(
        "--processes", type=natural, default=0, help="processes of its own (default: cores)"
    )


def natural(text: str) -> int:
    """A whole number from 1."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def day(text: str) -> str:
    """A day, YYYY-MM-DD."""
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-11-21") from None


def time_of(name: str, text: str, otherwise: int) -> int:
    """Nanoseconds since 1970 of an option, if it is given. OptionError."""
    return nanos_at(text, name) if text else otherwise


def only_stream(root: str) -> str:
    """The stream that is archived there, where it is the only one. OptionError."""
    from jsserver_spark.archive import layout  # pyarrow, which --help does without
    from jsserver_spark.archive.layout import Place

    there = layout.streams_in(Place(root)) if root else []
    if len(there) == 1:
        return there[0]
    archived = f": archived are {', '.join(there)}" if there else ""
    raise OptionError(f"option 'stream' is missing{archived}")


def read_options(kind: type[_T], given: argparse.Namespace, what: str) -> _T:
    """The options among the flags. OptionError."""
    return kind.read(given_options(given), what)


def given_options(given: argparse.Namespace) -> Mapping[str, str]:
    """By the options' names, those that were given."""
    return {
        name.removeprefix("option "): value
        for name, value in vars(given).items()
        if name.startswith("option ") and value is not None
    }


def run(job: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """A job's exit code; what went wrong is one line on stderr."""
    try:
        return job(sys.argv[1:] if argv is None else argv)
    except NatsError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set; a second signal ends the process as usual."""
    stop = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def progress(what: str, total: int = 0) -> Iterator[Progress]:
    shown = Progress(what, total)
    try:
        yield shown
    finally:
        shown.close()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def warn(text: str) -> None:
    sys.stderr.write(f"warning: {text}\n")


def show(given: argparse.Namespace, told: str, result: Any) -> None:
    """What a job found on stdout: in words or, with --json, as one object."""
    say(json.dumps(msgspec.to_builtins(result), indent=1) if given.json else told)


def table(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Rows as columns side by side, the first row a head; those in `right` flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
