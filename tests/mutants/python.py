"""Finds the mutants of Python modules, and rewrites a module so that it holds all of its own."""

import ast
import copy
from collections.abc import Callable

from tests.mutants.places import CHANGES, Mutant, told_apart

OPERATORS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.And: "and", ast.Or: "or"}
CLASSES = {sign: node for node, sign in OPERATORS.items()}
FUNCTIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
#: Calls that make something durable, or wait until it is; left out where they are statements.
SYNCS = {"wait_durable", "sync_directory", "fsync", "fdatasync", "shows", "sync_files", "_sync"}
PRELUDE = "from tests.mutants import notes as mutant_notes"


class Rewriter(ast.NodeTransformer):
    """Puts every mutant of a module beside what it changes.

    `number` gives a mutant's number, in the order in which they are found.
    """

    def __init__(self, path: str, number: Callable[[], int]) -> None:
        self.path = path
        self.number = number
        self.found: list[Mutant] = []

    def _new(self, node: ast.expr, kind: str, before: str, after: str) -> ast.expr:
        self.found.append(Mutant(self.path, node.lineno, kind, before, after))
        return ast.Constant(self.number())

    def _here(self, number: ast.expr) -> ast.expr:
        return ast.Call(_function("here"), [number], [])

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        before = ast.unparse(node)
        kept = ast.Expr(self.visit(node.value))
        if not isinstance(call, ast.Call):
            return kept
        called = call.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name not in SYNCS and ast.unparse(called) != "call.settle":
            return kept
        number = self._new(node.value, "durability", before, "pass")
        return ast.If(ast.UnaryOp(ast.Not(), self._here(number)), [kept], [])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        original = copy.deepcopy(node)
        before = ast.unparse(node)
        kept = ast.Compare(
            self.visit(node.left), node.ops, [self.visit(each) for each in node.comparators]
        )
        result: ast.expr = kept
        for place, op in enumerate(node.ops):
            sign = OPERATORS.get(type(op))
            if sign is None:
                continue
            changed = CLASSES[CHANGES[sign]]()
            ops: list[ast.cmpop] = [*node.ops]
            ops[place] = changed  # type: ignore[call-overload]
            after = ast.unparse(ast.Compare(original.left, ops, original.comparators))
            number = self._new(node, "edges", before, after)
            if len(node.ops) == 1:
                sides = [number, kept.left, kept.comparators[0]]
                return ast.Call(_function(FUNCTIONS[sign]), sides, [])
            mutated = ast.Compare(kept.left, ops, kept.comparators)
            result = ast.IfExp(self._here(number), copy.deepcopy(mutated), result)
        return result

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        original = copy.deepcopy(node)
        before = ast.unparse(node)
        sign = OPERATORS[type(node.op)]
        values = [self.visit(each) for each in node.values]
        result: ast.expr = ast.BoolOp(node.op, values)
        for place in range(1, len(values)):
            after = ast.unparse(_joined(original.values, place, sign))
            number = self._new(node, "edges", before, after)
            mutated = copy.deepcopy(_joined(values, place, sign))
            result = ast.IfExp(self._here(number), mutated, result)
        return result


def _function(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("mutant_notes", ast.Load()), name, ast.Load())


def _joined(values: list[ast.expr], place: int, sign: str) -> ast.expr:
    """All joined by `sign` but the one at `place`, whose operator is the other one; as it would be
    read: `and` binds first."""
    outer, inner = ast.Or(), ast.And()
    sides = [*values[: place - 1], ast.BoolOp(inner, values[place - 1 : place + 1])]
    if sign == "or":
        return _join(outer, [*sides, *values[place + 1 :]])
    return _join(outer, [_join(inner, values[:place]), _join(inner, values[place:])])


def _join(op: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(op, values)


def rewritten(path: str, text: str, number: Callable[[], int]) -> tuple[str, list[Mutant]]:
    """A module that holds its mutants, and these in the order of their numbers."""
    rewriter = Rewriter(path, number)
    module = ast.fix_missing_locations(rewriter.visit(ast.parse(text)))
    first = 0
    for place, node in enumerate(module.body[:3]):
        documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if documents or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            first = place + 1
    module.body[first:first] = ast.parse(PRELUDE).body
    return ast.unparse(module) + "\n", told_apart(rewriter.found)
