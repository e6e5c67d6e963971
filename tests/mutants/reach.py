"""Keeps which tests meet which mutants, in `build/mutants`."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.places import ROOT
from tests.mutants.recorder import RECORD
from tests.mutants.tree import Tree

KEPT = ROOT / "build" / "mutants"
MAP = KEPT / "reach.json"
#: What answers for the control plane. Left out: rules about sources, what takes minutes, and what
#: runs another server than the copy's.
TESTS = ("tests/unit", "tests/client", "tests/fault")
LEFT_OUT = (
    "tests/unit/test_source.py",
    "tests/unit/test_source_rules.py",
    "tests/unit/test_project.py",
    "tests/unit/test_layers.py",
    "tests/unit/test_floors.py",
    "tests/unit/test_environment.py",
    "tests/unit/test_layers_pipeline.py",
    "tests/unit/test_dead_code.py",
    "tests/client/test_binary.py",
    "tests/client/test_install.py",
    "tests/fault/test_soak.py",
    "tests/fault/test_store_kill.py",
)


@dataclass
class Test:
    """What is known of one test."""

    seconds: float
    result: str
    reached: set[str] = field(default_factory=set)
    differed: set[str] = field(default_factory=set)


class Reach:
    """The tests by name, and the keys of all mutants that were there when they were recorded."""

    def __init__(self) -> None:
        self.tests: dict[str, Test] = {}
        self.keys: set[str] = set()

    def load(self) -> None:
        if not MAP.exists():
            return
        kept = json.loads(MAP.read_text())
        keys = kept["keys"]
        self.keys = set(keys)
        for name, test in kept["tests"].items():
            reached, differed = ({keys[at] for at in test[of]} for of in ("reached", "differed"))
            self.tests[name] = Test(test["seconds"], test["result"], reached, differed)

    def save(self) -> None:
        keys = sorted(self.keys)
        places = {key: at for at, key in enumerate(keys)}
        tests = {
            name: {
                "seconds": test.seconds,
                "result": test.result,
                "reached": [places[key] for key in sorted(test.reached)],
                "differed": [places[key] for key in sorted(test.differed)],
            }
            for name, test in self.tests.items()
        }
        KEPT.mkdir(parents=True, exist_ok=True)
        MAP.write_text(json.dumps({"keys": keys, "tests": tests}))

    def take(self, tree: Tree, record: Path) -> None:
        """Takes over what a run recorded; the tests of its files as they were are forgotten."""
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        files = {line["test"].partition("::")[0] for line in lines}
        kept = {n: test for n, test in self.tests.items() if n.partition("::")[0] not in files}
        keys = {number: mutant.key for number, mutant in tree.mutants.items()}
        self.tests = kept
        self.keys |= set(keys.values())
        for line in lines:
            reached, differed = ({keys[at] for at in line[of]} for of in ("reached", "differed"))
            self.tests[line["test"]] = Test(line["seconds"], line["result"], reached, differed)

    def record(self, tree: Tree, words: Sequence[str], workers: int) -> None:
        """Runs tests with no mutant in force, and keeps what they meet. `words` are pytest's."""
        record = tree.folder.parent / "record"
        record.unlink(missing_ok=True)
        chosen = [*words] or [*TESTS, "-m", "not slow", *(f"--ignore={path}" for path in LEFT_OUT)]
        side_by_side = ("-n", str(workers), "--dist", "loadfile") if workers > 1 else ()
        command = tree.command("pytest", "-p", "tests.mutants.recorder", *side_by_side, *chosen)
        env = {**tree.environment(), RECORD: str(record)}
        subprocess.run(command, cwd=tree.folder, env=env, check=False)
        if record.exists():
            self.take(tree, record)
            self.save()

    def reaching(self) -> dict[str, list[str]]:
        """The tests that reach a mutant, by its key."""
        found = defaultdict(list)
        for name, test in self.tests.items():
            for key in test.reached:
                found[key].append(name)
        return found

    def differing(self) -> dict[str, list[str]]:
        """The tests that can notice a mutant, by its key: they pass without it. Quickest first."""
        found = defaultdict(list)
        for name, test in sorted(self.tests.items(), key=lambda item: item[1].seconds):
            if test.result == "passed":
                for key in test.differed:
                    found[key].append(name)
        return found
