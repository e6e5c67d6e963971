"""Blocks of options with defaults, without msgspec, whose import a start would wait for."""

from __future__ import annotations

from types import SimpleNamespace

from jsserver import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Each:
    """A default that every block has one of its own of."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make


def each(make: Callable[[], Any]) -> Any:
    """The default of an option that can be changed in place."""
    return _Each(make)


class Block(SimpleNamespace):
    """Options by name; those that are not given have the defaults that the class has."""

    def __init__(self, **given: Any) -> None:
        kind = type(self)
        plain, made = _DEFAULTS.get(kind) or _learn(kind)
        mine = self.__dict__
        mine.update(plain)
        if given:
            if not given.keys() <= plain.keys():
                unknown = ", ".join(sorted(given.keys() - plain.keys()))
                raise TypeError(f"{kind.__name__} has no such option: {unknown}")
            mine.update(given)
        for name, make in made:
            if name not in given:
                mine[name] = make()


_DEFAULTS: dict[type[Block], tuple[dict[str, Any], list[tuple[str, Callable[[], object]]]]] = {}
"""Of each kind of block that was made: the defaults, in the order of the options, and of which
every block has one of its own."""


def _learn(kind: type[Block]) -> tuple[dict[str, Any], list[tuple[str, Callable[[], object]]]]:
    names = [name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())]
    plain = {name: getattr(kind, name) for name in names}
    made = [(name, each.make) for name, each in plain.items() if isinstance(each, _Each)]
    _DEFAULTS[kind] = plain, made
    return plain, made
