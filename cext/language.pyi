"""The configuration language: a text in, a tree of values with their places out."""

from collections.abc import Callable
from typing import Any

MAX_NESTING: int
"""Maps and arrays inside each other; more is an error."""

class Value:
    """One value and where it was set.

    `data` is a dict[str, Value], a list[Value], str, bool, int, float or datetime. `line` counts
    from 1, `column` bytes, from 0 on the first line and from 1 on the others. `used` says that the
    value was taken through a `$name`, so that its key need not be an option's name.
    """

    data: Any
    file: str
    line: int
    column: int
    used: bool

    def __init__(self, data: Any, line: int = 0, column: int = 0, file: str = "") -> None: ...
    @property
    def place(self) -> str:
        """`file:line:column`."""

    def plain(self) -> Any:
        """The data as ordinary dicts and lists without places."""

class Malformed(ValueError):
    """The text is no configuration; the message says why and where."""

class Tree:
    """Makes a tree of one text, which is UTF-8: other bytes become lone surrogates."""

    file: str
    root: dict[str, Value]
    """What the text says, once it has ended."""
    contexts: list[dict[str, Value] | list[Value]]
    """The maps and lists that are open, from the outermost."""
    line: int
    column: int
    """Where the last item stands."""

    def __init__(self, text: bytes, file: str) -> None: ...
    def advance(self) -> tuple[str, str] | None:
        """Goes on to the next item that has to be decided about: "integer", "float", "datetime",
        "variable" or "include", and its words. None: the text has ended. Malformed."""

    def set(self, data: Any) -> None:
        """The value of the last item. Malformed: there is no key for it."""

def plain_subjects(values: list[Value]) -> list[str] | None:
    """The texts, where each is a valid subject of printable ASCII without blanks; None: some is
    not, and has to be looked at."""

def digest_of(root: Value, form: Callable[[Any], str]) -> bytes:
    """SHA-256 of a tree's compact JSON with sorted keys and a newline. `form` gives the JSON of
    numbers and times, and of text with lone surrogates. RecursionError: it is nested deeper
    than Python's functions may be."""
