"""A place in a configuration text: moving on, emitting items, errors with their line.

What every state of the lexer works with, whatever part of the language it reads.
"""

import re
from bisect import bisect_left
from collections.abc import Callable

from jsserver.config import ConfigError
from jsserver.config.items import Item, Kind

MAX_NESTING = 100
"""Maps and arrays inside each other; more is an error."""

EOF = "\0"
NEWLINES = "\r\n"
_LINE = re.compile(f"[^{NEWLINES}]*")

State = Callable[[], "State | None"]


class Cursor:
    """The text, the place in it, where the present item starts, and the states to come back to.

    The text holds bytes that are no UTF-8 as lone surrogates ("surrogateescape").
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.start = 0
        self._ascii = text.isascii()
        self._newlines = [m.start() for m in re.finditer("\n", text)]
        self._stack: list[State] = []
        self._parts: list[str] = []
        self._first = -1
        self._width = 0
        self._items: list[Item] = []

    # Moving about. `next` reads NUL at the end, again and again; `_back` undoes a real step only.

    def _next(self) -> str:
        if self.pos >= len(self.text):
            self._width = 0
            return EOF
        self._width = 1
        self.pos += 1
        return self.text[self.pos - 1]

    def _back(self) -> None:
        self.pos -= self._width

    def _peek(self) -> str:
        return self.text[self.pos] if self.pos < len(self.text) else EOF

    def _scan(self, run: re.Pattern[str]) -> None:
        """Goes to the end of the run of characters that `run` describes."""
        match = run.match(self.text, self.pos)
        if match:
            self.pos = match.end()

    def _skip(self, run: re.Pattern[str]) -> None:
        self._scan(run)
        self.start = self.pos

    def _line(self) -> int:
        return bisect_left(self._newlines, self.pos) + 1

    def _emit(self, kind: Kind, text: str | None = None) -> None:
        if text is None:
            text = self.text[self.start : self.pos]
        start = self.start if self._first < 0 else self._first
        before = bisect_left(self._newlines, start)
        line_start = self._newlines[before - 1] if before else 0
        column = start - line_start
        if not self._ascii:
            column = len(self.text[line_start:start].encode("utf-8", "surrogateescape"))
        self._items.append(Item(kind, text, self._line(), column))
        self._first = -1
        self.start = self.pos

    def _push(self, state: State) -> None:
        if len(self._stack) >= MAX_NESTING:
            raise self._error(f"maps and arrays are nested deeper than {MAX_NESTING}")
        self._stack.append(state)

    def _pop(self) -> State:
        return self._stack.pop()

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"Parse error on line {self._line()}: '{message}'")

    def _end(self) -> State | None:
        """The end of the text; an error where something was begun."""
        if self.pos > self.start:
            raise self._error("Unexpected EOF.")
        self._emit(Kind.EOF)
        return None

    def _lead(self, blank: re.Pattern[str]) -> str:
        """Takes the next character that is neither blank nor in a comment."""
        while True:
            self._skip(blank)
            char = self._next()
            if char != "#" and (char != "/" or self._peek() != "/"):
                return char
            self._scan(_LINE)


def shown(char: str) -> str:
    """A character as an error shows it."""
    if char == "\n":
        return "\\n"
    return "\ufffd" if "\ud800" <= char <= "\udfff" else char
