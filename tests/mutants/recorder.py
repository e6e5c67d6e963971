"""A plugin of pytest that writes down which mutants each test meets.

What a fixture of a module or of the session meets counts for every test that takes the fixture.
"""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mutants import notes

#: The file that gets a line for each test: its name, its seconds, its result, and the numbers of
#: the mutants that it reached, and of those whose result was not the original's.
RECORD = "MUTANTS_RECORD"


def of_its_own() -> None:
    """Workers that run side by side keep notes of their own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        shutil.copy(os.environ[notes.VARIABLE], f"{os.environ[notes.VARIABLE]}.{worker}")
        os.environ[notes.VARIABLE] += f".{worker}"
        notes.notes = notes.opened()


class Recorder:
    def __init__(self) -> None:
        self.shared: dict[tuple[str, str], bytearray] = defaultdict(self._empty)
        self.test = self._empty()
        self.results: list[pytest.TestReport] = []

    def _empty(self) -> bytearray:
        return bytearray(len(notes.notes))

    def _taken(self) -> bytes:
        """The notes since they were taken last, but whose mutant is in force."""
        taken: bytes = bytes(notes.HEAD) + notes.notes[notes.HEAD :]
        notes.notes[:] = bytes(len(taken))
        return taken

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        _add(self.test, self._taken())
        try:
            return (yield)
        finally:
            _add(self.shared[fixturedef.baseid, fixturedef.argname], self._taken())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.results.clear()
        self.test = self._empty()
        self._taken()
        done = yield
        _add(self.test, self._taken())
        definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
        for name in item.fixturenames:  # type: ignore[attr-defined]
            for definition in definitions.get(name, ()):
                if definition.scope != "function":
                    _add(self.test, self.shared[definition.baseid, definition.argname])
        self._write(item.nodeid)
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.results.append(report)

    def _write(self, name: str) -> None:
        outcomes = {report.outcome for report in self.results}
        worst = next((o for o in ("failed", "skipped", "passed") if o in outcomes), "failed")
        places = range(notes.HEAD, len(self.test))
        line = {
            "test": name,
            "seconds": round(sum(report.duration for report in self.results), 3),
            "result": worst,
            "reached": [at - notes.HEAD for at in places if self.test[at]],
            "differed": [at - notes.HEAD for at in places if self.test[at] & notes.DIFFERED],
        }
        with open(os.environ[RECORD], "a") as record:
            record.write(json.dumps(line) + "\n")


def _add(into: bytearray, more: bytes | bytearray) -> None:
    for at, value in enumerate(more):
        if value:
            into[at] |= value


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        return  # its workers record
    of_its_own()
    config.pluginmanager.register(Recorder(), "recorder of mutants")
