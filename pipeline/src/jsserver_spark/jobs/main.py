"""`jsserver-spark <job>`: the jobs' common command line."""

import importlib
import sys
from collections.abc import Sequence

JOBS = {
    "archive": "stream to Parquet",
    "replay": "Parquet to stream",
    "verify": "compare an archive with its stream",
    "compact": "merge an archive's small files",
    "expire": "remove an archive's oldest days",
    "report": "rates, sizes, subjects and gaps, as tables or one HTML page",
    "check": "what driver and executors run, and what is wrong",
}

USAGE = """\
usage: jsserver-spark JOB [options]      (jsserver-spark JOB --help)

{jobs}

Every job also runs as `spark-submit <site-packages>/jsserver_spark/jobs/JOB.py [options]`.
"""

FAILED = 2


def usage() -> str:
    return USAGE.format(jobs="\n".join(f"    {name:9}{what}" for name, what in JOBS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a job; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        (sys.stdout if arguments else sys.stderr).write(usage())
        return 0 if arguments else FAILED
    job = arguments[0]
    if job not in JOBS:
        sys.stderr.write(f"there is no job {job!r}\n\n{usage()}")
        return FAILED
    if {"-h", "--help"} & set(arguments[1:]):
        from jsserver_spark.jobs.arguments import PARSERS

        PARSERS[job]().print_help()
        return 0
    try:
        loaded = importlib.import_module(f"jsserver_spark.jobs.{job}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == "jsserver_spark":
            raise
        sys.stderr.write(
            f"the jobs of Spark need {missing}, which is not installed here: `pip install` of"
            " jsserver-spark brings it\n"
        )
        return FAILED
    code: int = loaded.main(arguments[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
