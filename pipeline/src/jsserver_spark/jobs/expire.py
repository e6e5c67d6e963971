"""Days that an archive need not keep."""

import itertools
import sys
from collections.abc import Sequence

import msgspec

from jsserver_spark.archive import manifest
from jsserver_spark.archive.layout import Place
from jsserver_spark.jobs import arguments, command
from jsserver_spark.jobs.compact import remove_left
from jsserver_spark.jobs.progress import amount


class ExpireResult(msgspec.Struct):
    """What was taken out of an archive, which holds first to last now."""

    stream: str
    root: str
    files: int
    rows: int
    size: int
    first: int
    last: int


def expire(root: str, stream: str, before: str) -> ExpireResult:
    """Takes out the files of days before `before` (YYYY-MM-DD). ArchiveError."""
    place = Place(root)
    manifest.require(place, stream)
    with manifest.writing(place, stream):
        archive = manifest.require(place, stream)
        # Days never go back along the sequences of one run; across runs a clock may have been set
        # back: what lies behind a file that stays, stays too.
        gone = tuple(itertools.takewhile(lambda file: file.date < before, archive.files))
        if gone:
            kept = archive.files[len(gone) :]
            first = kept[0].first if kept else archive.last + 1
            archive = manifest.commit(place, archive, "all", kept, first, archive.last)
            remove_left(place, archive)
    return ExpireResult(
        stream,
        str(place),
        len(gone),
        sum(file.rows for file in gone),
        sum(file.size for file in gone),
        archive.first,
        archive.last,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    return command.run(_main, argv)


def _main(argv: Sequence[str]) -> int:
    given = arguments.expire().parse_args(argv)
    stream = given.stream or command.only_stream(given.root)
    result = expire(given.root, stream, given.before)
    told = (
        f"{result.stream}: {result.files} files with {result.rows:,} rows,"
        f" {amount(result.size)}, were removed; the archive starts at sequence {result.first:,}"
    )
    command.show(given, told, result)
    return command.DONE


if __name__ == "__main__":
    # Tasks find what they are made of by its module's name, which is not __main__ over there.
    from jsserver_spark.jobs.expire import main as job

    sys.exit(job())
