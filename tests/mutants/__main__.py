"""Breaks the server in one place at a time and names what no test notices.

    python -m tests.mutants record                          what each test meets; once, 10 minutes
    python -m tests.mutants record tests/unit/test_auth.py  again, for tests that changed
    python -m tests.mutants durability
    python -m tests.mutants edges --count 40 --seed 7 jsserver/api/transfers.py

`durability` leaves out, one by one, each call that waits for the disk or syncs a file. `edges`
changes comparisons at their edge (`<` and `<=`), and swaps `and` and `or`. All mutants are in one
copy of the tree, and a number says which is in force; so a mutant costs only those of its tests in
which it can make a difference, until the first failure. The exit code is 1 where a mutant survives
or no test reaches it, 2 where there is nothing to judge by.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.judge import Judge, Runner, Verdict
from tests.mutants.places import Mutant, equivalent
from tests.mutants.reach import KEPT, Reach
from tests.mutants.tree import Tree, sources


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="find out which tests meet which mutants")
    record.add_argument("tests", nargs="*", help="words for pytest; default: all that may matter")
    record.add_argument("--workers", type=int, default=2, help="tests side by side")
    for kind in ("durability", "edges"):
        judged = commands.add_parser(kind, help="judge these mutants")
        judged.add_argument("files", nargs="*", type=Path, help="default: what answers requests")
        judged.add_argument("--count", type=int, default=0, help="so many, drawn; 0: all")
        judged.add_argument("--seed", type=int, default=1, help="what they are drawn by")
        judged.add_argument("--left", action="store_true", help="not those killed before")
        judged.add_argument("--list", action="store_true", help="only print them")
        judged.add_argument(
            "--seconds", type=float, default=120, help="of tests that a mutant may cost"
        )
    return parser.parse_args()


def result_file(kind: str) -> Path:
    return KEPT / f"{kind}.json"


def killed_before(kind: str) -> dict[str, str]:
    """What killed a mutant in former runs, by its key."""
    path = result_file(kind)
    before = json.loads(path.read_text()) if path.exists() else []
    return {each["key"]: each["by"] for each in before if each["result"] == "killed"}


def keep(kind: str, verdicts: list[Verdict]) -> None:
    """Writes what is known now over what was known."""
    path = result_file(kind)
    known = {each["key"]: each for each in json.loads(path.read_text())} if path.exists() else {}
    known |= {verdict.mutant.key: verdict.as_json() for verdict in verdicts}
    path.write_text(json.dumps(list(known.values()), indent=1) + "\n")


def chosen(args: argparse.Namespace, tree: Tree) -> dict[int, Mutant]:
    wanted = {n: each for n, each in tree.mutants.items() if each.kind == args.command}
    if args.left:
        before = killed_before(args.command)
        wanted = {n: each for n, each in wanted.items() if each.key not in before}
    if args.count:
        drawn = random.Random(args.seed).sample(sorted(wanted), min(args.count, len(wanted)))
        wanted = {n: wanted[n] for n in sorted(drawn)}
    return wanted


def judged(args: argparse.Namespace, tree: Tree, reach: Reach) -> int:
    wanted = chosen(args, tree)
    if args.list:
        print(*wanted.values(), sep="\n")
        return 0
    unknown = [each for each in wanted.values() if each.key not in reach.keys]
    if unknown:
        print(f"not recorded: {len(unknown)} mutants, the first is {unknown[0]}", file=sys.stderr)
        return 2
    tree.make()
    files = sorted({name.partition("::")[0] for name in reach.tests})
    runner = Runner(tree, files)
    judge = Judge(runner, reach, equivalent(tree.mutants.values()), args.seconds)
    verdicts: list[Verdict] = []
    try:
        for number, mutant in wanted.items():
            verdicts.append(judge.verdict(number, mutant))
            print(f"[{len(verdicts)}/{len(wanted)}] {verdicts[-1]}", flush=True)
            keep(args.command, verdicts[-1:])
    finally:
        runner.close()
    totals = Counter(verdict.result for verdict in verdicts)
    print(", ".join(f"{count} {result}" for result, count in sorted(totals.items())))
    print(f"in {result_file(args.command)}")
    return 1 if totals["survived"] + totals["not reached"] else 0


def main() -> int:
    args = arguments()
    reach = Reach()
    reach.load()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        files = [] if args.command == "record" else args.files
        tree = Tree(Path(folder) / "tree", sources(files))
        if args.command == "record":
            tree.make()
            reach.record(tree, args.tests, args.workers)
            return 0 if reach.tests else 2
        return judged(args, tree, reach)


if __name__ == "__main__":
    sys.exit(main())
