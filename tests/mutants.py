"""Breaks the control plane in one place at a time and names what no test notices.

    python -m tests.mutants durability
    python -m tests.mutants edges --count 40 --seed 7 jsserver/api/transfers.py

`durability` leaves out, one by one, each call that waits for the disk or syncs a file. `edges`
changes comparisons by one, and swaps `and` and `or`, at places drawn by the seed. Each mutant runs
in a copy of the tree; the quick tests go first and the first failure ends its run. The exit code is
1 where a mutant survives, 2 where the tests fail as it is.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("bench", "cext", "docs", "jsserver", "packaging", "tests", "pyproject.toml", "README.md")
FOLDERS = ("api", "instances", "access", "disk", "services")
SECONDS = 900

#: A statement of its own that makes something durable, or waits until it is.
DURABILITY = re.compile(
    r"^ *(?:await )?(?:[\w.]+\.)?"
    r"(?:wait_durable|sync_directory|fsync|fdatasync|shows|sync_files|_sync|(?<=call\.)settle)"
    r"\(.*\)(?: +#.*)?$"
)
#: What runs against each mutant, quick tests first.
TESTS = (
    ("-n", "2", "-m", "not slow", "tests/unit", "--deselect", "tests/unit/test_source.py"),
    ("tests/fault/test_held_disk.py", "tests/fault/test_powercut_assets.py"),
    ("-n", "2", "tests/client"),
)
OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


@dataclass(frozen=True)
class Mutant:
    """One changed line of one file."""

    path: Path
    number: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.before.strip()}  ->  {self.after.strip()}"


def durability(files: list[Path]) -> Iterator[Mutant]:
    for path in files:
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if DURABILITY.match(line):
                indent = line[: len(line) - len(line.lstrip())]
                yield Mutant(path, number, line, f"{indent}pass")


def edges(files: list[Path]) -> Iterator[Mutant]:
    """Changes of operators; of a line with the same operator twice the first one changes."""
    for path in files:
        text = (ROOT / path).read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            found: list[tuple[ast.AST, int]] = []
            if isinstance(node, ast.Compare):
                ends = [node.left, *node.comparators]
                found = [(op, ends[n].end_lineno or 0) for n, op in enumerate(node.ops)]
            elif isinstance(node, ast.BoolOp):
                found = [(node.op, node.values[0].end_lineno or 0)]
            for operator, number in found:
                old, new = OPERATORS.get(type(operator), ("", ""))
                line = lines[number - 1]
                if old and f" {old} " in line:
                    after = line.replace(f" {old} ", f" {new} ", 1)
                    yield Mutant(path, number, line, after)


def copied(folder: Path) -> Path:
    """The tree as it is, with what was built in place."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("*.html", "__pycache__")
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


def failing(tree: Path, tests: tuple[tuple[str, ...], ...]) -> str:
    """The first test that fails in a tree, empty where none does."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    for words in tests:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", *words]
        try:
            done = subprocess.run(
                command, cwd=tree, env=env, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return "a test that did not end"
        if done.returncode:
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return failed[0] if failed else done.stdout[-300:]
    return ""


def noticed(tree: Path, mutant: Mutant, tests: tuple[tuple[str, ...], ...]) -> str:
    """The first test that fails with the mutant in place, empty where none does."""
    target = tree / mutant.path
    lines = target.read_text().splitlines(keepends=True)
    whole = "".join(lines)
    lines[mutant.number - 1] = f"{mutant.after}\n"
    target.write_text("".join(lines))
    try:
        return failing(tree, tests)
    finally:
        target.write_text(whole)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("kind", choices=("durability", "edges"))
    parser.add_argument("files", nargs="*", type=Path, help="default: those that answer requests")
    parser.add_argument("--count", type=int, default=0, help="so many of them, drawn; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", help="words for pytest in place of the usual tests")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    files = args.files or [
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in sorted((ROOT / "jsserver" / folder).glob("*.py"))
    ]
    mutants = list((durability if args.kind == "durability" else edges)(files))
    if args.count:
        mutants = random.Random(args.seed).sample(mutants, min(args.count, len(mutants)))
    if args.list:
        print(*mutants, sep="\n")
        return 0
    tests = (tuple(args.tests),) if args.tests else TESTS
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copied(Path(folder))
        if broken := failing(tree, tests):
            print(f"the tests fail without any change: {broken}", file=sys.stderr)
            return 2
        for mutant in mutants:
            killer = noticed(tree, mutant, tests)
            print(f"{'killed by ' + killer if killer else 'SURVIVES'}: {mutant}", flush=True)
            if not killer:
                survivors.append(mutant)
    print(f"{len(mutants)} mutants, {len(survivors)} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
