"""Says of each mutant whether a test notices it."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.mutants.places import Mutant
from tests.mutants.reach import Reach
from tests.mutants.tree import Tree

#: Tests that run together: the more have passed, the more at once.
FIRST_SECONDS = 4.0
FIRST_TESTS = 30
#: Mutants that a test meets which is about them.
FEW = 20
#: What a run may take beyond what its tests took when they were recorded.
GRACE_SECONDS = 40.0
GRACE_TIMES = 4.0


@dataclass(frozen=True)
class Verdict:
    """`killed`, `survived`, `not reached` or `skipped`, and what says so in `by`: the test that
    failed, or how many passed, or why the mutant is equivalent."""

    mutant: Mutant
    result: str
    by: str

    def __str__(self) -> str:
        return f"{self.result} ({self.by}): {self.mutant}"

    def as_json(self) -> dict[str, Any]:
        mutant = self.mutant
        return {
            "key": mutant.key,
            "place": f"{mutant.path}:{mutant.line}",
            "before": mutant.before,
            "after": mutant.after,
            "result": self.result,
            "by": self.by,
        }


class Runner:
    """The warm process, started again where it has ended."""

    def __init__(self, tree: Tree, files: Sequence[str]) -> None:
        self.tree = tree
        self.files = files
        self.process: subprocess.Popen[str] | None = None

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.tree.command("tests.mutants.warm", *self.files),
            cwd=self.tree.folder,
            env=self.tree.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the tests cannot be imported in the copy of the tree")
        return process

    def failing(self, number: int, tests: Sequence[str], seconds: float) -> str:
        """The first test that fails with a mutant in force, empty where none does."""
        if self.process is None:
            self.process = self._started()
        assert self.process.stdin is not None and self.process.stdout is not None
        order = {"mutant": number, "tests": [*tests], "seconds": seconds}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        failed: str = json.loads(self.process.stdout.readline())
        if failed == "unknown":
            raise RuntimeError(f"record again: of these tests there are none: {' '.join(tests)}")
        return failed

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait(60)


class Judge:
    def __init__(self, runner: Runner, reach: Reach, skipped: dict[str, str], most: float) -> None:
        self.runner = runner
        self.reach = reach
        self.reaching = reach.reaching()
        self.differing = reach.differing()
        self.skipped = skipped
        self.most = most
        self.killers: dict[str, list[str]] = defaultdict(list)
        self.unreliable: set[str] = set()

    def verdict(self, number: int, mutant: Mutant) -> Verdict:
        if reason := self.skipped.get(mutant.key):
            return Verdict(mutant, "skipped", reason)
        if not self.reaching.get(mutant.key):
            return Verdict(mutant, "not reached", "no test comes here")
        able = self.differing.get(mutant.key, [])
        if not able:
            return Verdict(mutant, "survived", "no test has a case where this differs")
        ran = 0
        for tests, seconds in self._portions(mutant, able):
            ran += len(tests)
            killer = self._killer(number, tests, seconds)
            if killer:
                self._remember(mutant, killer)
                return Verdict(mutant, "killed", killer)
        return Verdict(mutant, "survived", f"{ran} of {len(able)} tests that meet it passed")

    def _portions(self, mutant: Mutant, able: list[str]) -> Iterator[tuple[list[str], float]]:
        """Tests with their seconds, in growing portions, and no more than the seconds that one
        mutant may cost. First those that meet few mutants, so are about this one. Then units, since
        they start no server; a dropped sync shows in tests of faults. Then those that killed others
        of this file, then the quickest."""
        told = {name: place for place, name in enumerate(self.killers[mutant.path])}
        likely = "tests/fault/" if mutant.kind == "durability" else "tests/unit/"

        def order(name: str) -> tuple[bool, bool, int]:
            many = len(self.reach.tests[name].reached) > FEW
            return many, not name.startswith(likely), told.get(name, len(told))

        left = sorted((name for name in able if name not in self.unreliable), key=order)
        most, count, total = FIRST_SECONDS, FIRST_TESTS, 0.0
        while left:
            portion, seconds = [left.pop(0)], 0.0
            seconds += self.reach.tests[portion[0]].seconds
            while left and len(portion) < count:
                more = self.reach.tests[left[0]].seconds
                if seconds + more > most or total + seconds + more > self.most:
                    break
                seconds += more
                portion.append(left.pop(0))
            if total and total + seconds > self.most:
                return
            total += seconds
            yield portion, seconds
            most, count = most * 3, count * 3

    def _killer(self, number: int, tests: list[str], seconds: float) -> str:
        """A test of servers has to fail twice: on a loaded machine one may fail by itself."""
        limit = GRACE_SECONDS + GRACE_TIMES * seconds
        while tests:
            failed = self.runner.failing(number, tests, limit)
            if failed not in tests or failed.startswith("tests/unit/"):
                return failed
            if self.runner.failing(number, [failed], limit):
                return failed
            self.unreliable.add(failed)
            tests = tests[tests.index(failed) + 1 :]
        return ""

    def _remember(self, mutant: Mutant, killer: str) -> None:
        killers = self.killers[mutant.path]
        if killer in killers:
            killers.remove(killer)
        if killer in self.reach.tests and self.reach.tests[killer].seconds < FIRST_SECONDS:
            killers.insert(0, killer)
            del killers[8:]
