"""A module that holds its mutants behaves as it is, or as the one that is in force."""

import ast
from collections.abc import Iterator
from itertools import count, product

import pytest

from tests.mutants import notes
from tests.mutants.python import rewritten

DECISIONS = [
    "a < b",
    "a < b <= c",
    "a and b",
    "a and b and c",
    "a or b or c",
    "a > 1 and b >= c or not c",
    "(a or b) and (c if a <= 1 else b)",
]
CASES = list(product(range(3), repeat=3))


@pytest.fixture
def unforced() -> Iterator[None]:
    yield
    notes.force(0)


def results(text: str) -> list[bool]:
    code = compile(text, "decision", "eval")
    return [bool(eval(code, {"mutant_notes": notes, "a": a, "b": b, "c": c})) for a, b, c in CASES]


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.usefixtures("unforced")
def test_each_mutant_is_there_when_it_is_in_force(decision: str) -> None:
    numbers = count(1)
    text, mutants = rewritten("m.py", decision, lambda: next(numbers))
    held = ast.unparse(ast.parse(text).body[-1])
    assert results(held) == results(decision)
    assert len(mutants) == sum(decision.count(f" {sign}") for sign in "<>") + decision.count(
        " and "
    ) + decision.count(" or ")
    for number, mutant in enumerate(mutants, 1):
        notes.force(number)
        before, after = ast.unparse(ast.parse(mutant.before)), mutant.after
        whole = ast.unparse(ast.parse(decision)).replace(before, f"({after})")
        assert results(held) == results(whole) != results(decision), mutant


@pytest.mark.usefixtures("unforced")
def test_a_sync_is_left_out_when_its_mutant_is_in_force() -> None:
    text, (mutant,) = rewritten("m.py", "handle.wait_durable()\nhandle.close()\n", lambda: 1)
    assert (mutant.kind, mutant.line, mutant.after) == ("durability", 1, "pass")
    for number, called in ((0, ["wait_durable", "close"]), (1, ["close"])):
        seen: list[str] = []

        class Handle:
            def __getattr__(self, name: str, seen: list[str] = seen) -> object:
                return lambda: seen.append(name)

        notes.force(number)
        exec(compile(text, "module", "exec"), {"handle": Handle()})
        assert seen == called
