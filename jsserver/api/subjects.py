"""Rules about subjects and patterns, and an index that finds which patterns meet another.

A subject is tokens joined by dots; in a pattern `*` stands for one token and a last `>` for one or
more. Two patterns overlap if some literal subject matches both.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

_BLANKS = frozenset(" \t\r\n\f")


def is_valid(subject: str) -> bool:
    """Whether a pattern is well formed: no empty token, no blank, `>` only at the end."""
    if not subject or not _BLANKS.isdisjoint(subject):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def is_literal(subject: str) -> bool:
    """Whether no token is a wildcard."""
    return all(token not in ("*", ">") for token in subject.split("."))


def covers(outer: str, inner: str) -> bool:
    """Whether every literal that `inner` matches is matched by `outer`."""
    theirs = inner.split(".")
    mine = outer.split(".")
    for at, token in enumerate(mine):
        if token == ">":
            return len(theirs) > at
        if at >= len(theirs):
            return False
        other = theirs[at]
        if other == ">" or (token != "*" and token != other):
            return False
    return len(mine) == len(theirs)


def overlap(a: str, b: str) -> bool:
    """Whether some literal is matched by both patterns."""
    left, right = a.split("."), b.split(".")
    for x, y in zip(left, right, strict=False):
        if x == ">" or y == ">":
            return True
        if x != y and x != "*" and y != "*":
            return False
    return len(left) == len(right)


class _Node(Generic[V]):
    __slots__ = ("children", "owners")

    def __init__(self) -> None:
        self.children: dict[str, _Node[V]] = {}
        self.owners: list[V] = []


class PatternIndex(Generic[V]):
    """Patterns with their owners, in a trie of tokens.

    Adding and removing cost O(tokens). A search follows only the branches that can meet the given
    pattern, so that a literal one costs O(tokens) where the index holds literals.
    """

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()

    def add(self, pattern: str, owner: V) -> None:
        """Adds a pattern; the same one may be added for several owners."""
        node = self._root
        for token in pattern.split("."):
            node = node.children.setdefault(token, _Node())
        node.owners.append(owner)

    def remove(self, pattern: str, owner: V) -> None:
        """Takes back an `add`; KeyError or ValueError if there was none."""
        path = [self._root]
        tokens = pattern.split(".")
        for token in tokens:
            path.append(path[-1].children[token])
        path[-1].owners.remove(owner)
        for node, token in zip(reversed(path[:-1]), reversed(tokens), strict=True):
            child = node.children[token]
            if child.children or child.owners:
                return
            del node.children[token]

    def overlapping(self, pattern: str) -> Iterator[V]:
        """Owners of the patterns that overlap with `pattern`, one for each such pattern."""
        tokens = pattern.split(".")
        todo = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            if at == len(tokens):
                yield from node.owners
                continue
            token = tokens[at]
            if token == ">":
                yield from self._below(node)
                continue
            tail = node.children.get(">")
            if tail is not None:
                yield from tail.owners
            if token == "*":
                todo.extend((n, at + 1) for t, n in node.children.items() if t != ">")
                continue
            for next_token in (token, "*"):
                child = node.children.get(next_token)
                if child is not None:
                    todo.append((child, at + 1))

    def _below(self, node: _Node[V]) -> Iterator[V]:
        todo = list(node.children.values())
        while todo:
            node = todo.pop()
            yield from node.owners
            todo.extend(node.children.values())
