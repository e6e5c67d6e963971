"""What the rewritten server asks at each mutant: is it in force? And notes that it was met.

The notes are a file that the tests share with the servers that they start, so that what a killed
server met is there, too. Eight bytes hold the number of the mutant in force (0: none). Then each
mutant has one: 0 where nothing met it, REACHED, or REACHED | DIFFERED where its result was not the
original's.
"""

import mmap
import operator
import os
from collections.abc import Callable
from typing import Any

VARIABLE = "MUTANTS_NOTES"
HEAD = 8
REACHED, DIFFERED = 1, 2


def opened() -> Any:
    path = os.environ.get(VARIABLE)
    if path is None:
        return bytearray(1 << 16)
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


notes = opened()


def force(number: int) -> None:
    notes[:HEAD] = number.to_bytes(HEAD, "little")


def here(number: int) -> bool:
    """Whether this mutant is in force, where trying both ways would do too much."""
    notes[HEAD + number] = REACHED | DIFFERED
    return int.from_bytes(notes[:HEAD], "little") == number


def _compared(old: Callable[..., Any], new: Callable[..., Any]) -> Callable[[int, Any, Any], Any]:
    def compared(number: int, left: Any, right: Any) -> Any:
        was, now = old(left, right), new(left, right)
        notes[HEAD + number] |= REACHED if was == now else REACHED | DIFFERED
        return now if int.from_bytes(notes[:HEAD], "little") == number else was

    return compared


lt = _compared(operator.lt, operator.le)
le = _compared(operator.le, operator.lt)
gt = _compared(operator.gt, operator.ge)
ge = _compared(operator.ge, operator.gt)
