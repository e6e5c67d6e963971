"""Who refers to what in the sources, and so what is reached from where they are entered."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

Ref = tuple[str, str]
"""A module and a name that it defines; of a method "" and its name, whatever class has it."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PLAIN = {"property", "cached_property", "staticmethod", "classmethod", "override"}
"""Decorators that call nothing by themselves."""


class Graph:
    """Definitions, and the references in each."""

    def __init__(self) -> None:
        self.defined: set[Ref] = set()
        self.refs: defaultdict[Ref, set[Ref]] = defaultdict(set)

    def unreached(self, entries: Iterable[Ref]) -> set[Ref]:
        """The definitions to which nothing leads from the entries."""
        reached: set[Ref] = set()
        left = list(entries)
        while left:
            ref = left.pop()
            if ref not in reached:
                reached.add(ref)
                left += self.refs.get(ref, ())
        return self.defined - reached


# ---- Python --------------------------------------------------------------------------------------


class Modules(Graph):
    """Of Python modules, by their names. `entered` is what their statements refer to when they are
    imported."""

    def __init__(self, trees: dict[str, ast.Module], packages: set[str]) -> None:
        super().__init__()
        self.entered: set[Ref] = set()
        self.owners: defaultdict[Ref, set[str]] = defaultdict(set)  # modules
        self._packages = packages
        self._names = {name: set(_assigned(tree)) for name, tree in trees.items()}
        self._imports = {name: dict(self._imported(name, tree)) for name, tree in trees.items()}
        for module, tree in trees.items():
            for owner, nodes in _parts(module, tree):
                found = {ref for node in nodes for ref in self._in(module, node)}
                if owner is None:
                    self.entered |= found
                else:
                    self.defined.add(owner)
                    self.owners[owner].add(module)
                    self.refs[owner] |= found

    def _imported(self, module: str, tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
        """Each name that an import gives, and the module and the name in it, "" for all of it."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                above = module.split(".")[: -node.level + (module in self._packages) or None]
                base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
                for alias in node.names:
                    yield alias.asname or alias.name, (base, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.asname or alias.name.partition(".")[0]
                    yield first, (alias.name if alias.asname else first, "")

    def _resolved(self, module: str, name: str) -> Iterator[Ref]:
        """The definition that a name stands for in a module."""
        if name in self._names.get(module, ()):
            yield module, name
        elif name in self._imports.get(module, {}):
            base, inner = self._imports[module][name]
            if (base, inner) != (module, name):
                yield from self._resolved(base, inner)

    def _in(self, module: str, node: ast.AST) -> Iterator[Ref]:
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                yield from self._resolved(module, one.id)
            elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load):
                yield "", one.attr
                if isinstance(one.value, ast.Name) and one.value.id in self._imports[module]:
                    base, inner = self._imports[module][one.value.id]
                    yield f"{base}.{inner}" if inner else base, one.attr
            elif isinstance(one, ast.Constant) and isinstance(one.value, str):
                if one.value.isidentifier():  # getattr
                    yield "", one.value
                if re.fullmatch(r"[\w\[\], |.]+", one.value):  # a type that comes later
                    for word in re.findall(r"\w+", one.value):
                        yield from self._resolved(module, word)


def _assigned(node: ast.AST) -> Iterator[str]:
    """Names that a module defines itself; what is inside functions and classes is their own."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, (*FUNCTIONS, ast.ClassDef)):
            yield one.name
        else:
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                yield one.id
            yield from _assigned(one)


def _parts(module: str, tree: ast.Module) -> Iterator[tuple[Ref | None, list[ast.AST]]]:
    """What defines each name; None for what runs at the import."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, FUNCTIONS) and _is_plain(one)]
            rest = [one for one in node.body if one not in methods]
            outside = [*node.bases, *node.keywords, *node.decorator_list]
            yield (module, node.name), [*rest, *outside]
            for method in methods:
                yield ("", method.name), [method]
        elif isinstance(node, FUNCTIONS):
            yield (module, node.name), [node]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield (module, node.targets[0].id), [node.value]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield (module, node.target.id), [node]
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            yield None, [node]


def _is_plain(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a method runs only where somebody names it."""
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in method.decorator_list}
    return names <= PLAIN and not method.name.startswith("__")


# ---- Cython --------------------------------------------------------------------------------------

HEAD = re.compile(r"([ \t]*)(cdef|cpdef|def)\s+(?!(?:class|struct|enum|union|extern|packed)\b)")
NAME = re.compile(r"[\s*](\w+)\(")
BARE = re.compile(r"(?<![.\w])(?<!->)(\w+)")
FIELD = re.compile(r"(?:\.|->)\s*(\w+)")


class Cdefs(Graph):
    """Of functions and methods in C, `("", name)` and `(".", name)`; what Python calls, and what
    stands outside functions, is entered."""

    def __init__(self, sources: dict[Path, str]) -> None:
        super().__init__()
        bodies = [part for path, text in sources.items() for part in _c_parts(path, text)]
        self.defined = {owner for owner, _ in bodies if owner}
        self.entered: set[Ref] = set()
        for owner, body in bodies:
            found = {("", name) for name in BARE.findall(body)}
            found |= {(".", name) for name in FIELD.findall(body)}
            if owner:
                self.refs[owner] |= found & self.defined
            else:
                self.entered |= found & self.defined


def _c_parts(path: Path, text: str) -> Iterator[tuple[Ref | None, str]]:
    """Each function with its parameters and body; None for what Python enters, and for the rest.
    Declarations in headers are left out."""
    lines = [] if path.suffix == ".h" else text.split("\n")
    if not lines:
        yield None, text
    at = 0
    while at < len(lines):
        start, head = at, HEAD.match(lines[at])
        at += 1
        if not head:
            yield None, lines[start]
            continue
        while "\n".join(lines[start:at]).count("(") > "\n".join(lines[start:at]).count(")"):
            at += 1
        signature = "\n".join(lines[start:at])
        name = NAME.search(signature.partition("(")[0] + "(")
        if not name or "=" in signature.partition("(")[0]:
            yield None, signature  # a variable
            continue
        inside = head[1] + " "
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith(inside)):
            at += 1
        if at > start + signature.count("\n") + 1 or signature.rstrip().endswith(":"):
            body = signature.partition("(")[2] + "\n".join(lines[start:at])[len(signature) :]
            called = head[2] != "cdef"
            yield (None if called else ("." if head[1] else "", name[1])), body
