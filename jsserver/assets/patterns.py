"""An index of patterns that finds those that overlap with another: some subject matches both."""

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


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
