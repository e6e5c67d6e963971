"""What a mutant is, and the list of those that are equivalent to the server as it is."""

import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")

#: What an operator is changed to: a comparison at its edge, and the other way to join conditions.
CHANGES = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "and": "or", "or": "and"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file. `kind` is `durability` or `edges`; `path` is relative to the tree.

    `again` tells apart those of a file that read the same: how many of them come before.
    """

    path: str
    line: int
    kind: str
    before: str
    after: str
    again: int = 0

    @property
    def key(self) -> str:
        """Names the mutant as long as its expression stays as it is, wherever it moves."""
        return f"{self.path}|{self.before}|{self.after}|{self.again}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def told_apart(mutants: Iterable[Mutant]) -> list[Mutant]:
    """The mutants of one file, with `again` set."""
    seen: Counter[tuple[str, str]] = Counter()
    apart = []
    for mutant in mutants:
        same = (mutant.before, mutant.after)
        apart.append(replace(mutant, again=seen[same]))
        seen[same] += 1
    return apart


def equivalent(mutants: Iterable[Mutant]) -> dict[str, str]:
    """Why a mutant changes nothing that anybody could notice, by key.

    An entry of the list means every mutant of its file that reads so. Raises ValueError where an
    entry has no mutant any more.
    """
    reasons: dict[str, str] = {}
    mutants = list(mutants)
    paths = {mutant.path for mutant in mutants}
    for entry in tomllib.loads(EQUIVALENT.read_text()).get("mutant", []):
        wanted = (entry["path"], entry["before"], entry["after"])
        keys = [m.key for m in mutants if (m.path, m.before, m.after) == wanted]
        if not keys and entry["path"] in paths:
            raise ValueError(f"{EQUIVALENT.name}: there is no mutant {' | '.join(wanted)}")
        reasons |= dict.fromkeys(keys, entry["reason"])
    return reasons
