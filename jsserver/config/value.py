"""One value of a configuration, with the place where it was set."""

from __future__ import annotations

from jsserver import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class Value:
    """One value and where it was set.

    `data` is a dict[str, Value], a list[Value], str, bool, int, float or datetime. `used` says that
    the value was taken through a `$name`, so that its key need not be an option's name.
    """

    __slots__ = ("column", "data", "file", "line", "used")

    def __init__(self, data: Any, line: int = 0, column: int = 0, file: str = "") -> None:
        self.data = data
        self.line = line
        self.column = column
        self.file = file
        self.used = False

    @property
    def place(self) -> str:
        """`file:line:column`."""
        return f"{self.file}:{self.line}:{self.column}"

    def plain(self) -> Any:
        """The data as ordinary dicts and lists without places."""
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data
