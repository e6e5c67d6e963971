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
        names = [name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())]
        if unknown := given.keys() - set(names):
            raise TypeError(f"{kind.__name__} has no such option: {', '.join(sorted(unknown))}")
        for name in names:
            default = getattr(kind, name)
            given.setdefault(name, default.make() if isinstance(default, _Each) else default)
        super().__init__(**given)
