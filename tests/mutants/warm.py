"""Runs tests in forks of a process that has imported them all, so that a run pays for no start.

    python -m tests.mutants.warm tests/unit ...

Takes orders as lines of JSON: the number of the `mutant` in force, the names of the `tests`, the
`seconds` after which they are ended. Answers each with a line: the test that failed first, empty
where none did.
"""

import contextlib
import json
import os
import select
import signal
import sys
from typing import Any

import pytest

from tests.mutants import notes

LATE = "a test that did not end"
QUIET = ("-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no")
UNKNOWN = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


class First:
    """The first failure."""

    test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid


def child(order: dict[str, Any], out: int) -> None:
    os.setsid()
    notes.force(order["mutant"])
    first = First()
    code = pytest.main(["-x", *QUIET, *order["tests"]], plugins=[first])
    if code in UNKNOWN and not first.test:
        first.test = "unknown"
    elif code and not first.test:
        first.test = f"pytest ended with {int(code)}"
    os.write(out, first.test.encode() or b"-")


def run(order: dict[str, Any]) -> str:
    into, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            child(order, out)
        os._exit(0)
    os.close(out)
    ready, _, _ = select.select([into], [], [], order["seconds"])
    said = os.read(into, 65536).decode() if ready else LATE
    os.close(into)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return {"": "the end of the tests' process", "-": ""}.get(said, said)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)
    pytest.main(["--collect-only", *QUIET, *sys.argv[1:]])
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
