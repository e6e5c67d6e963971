"""Parameters of a page's query string, decoded as Go does, with its texts for what is wrong."""

import re
from typing import TypeVar
from urllib.parse import unquote_to_bytes

from jsserver.text.goformat import quote

T = TypeVar("T")

DEFAULT_LIMIT = 1024
"""Rows of a page."""

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadParameter(Exception):
    """A parameter that cannot be used; the text goes to the client."""


def clean(text: str) -> str:
    """Text that can stand in JSON: bytes that are no UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Query:
    """The parameters of one request. The first of several with one name counts; unreadable pairs
    (a semicolon, a broken escape) are left out; an empty value is as good as none."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for pair in text.split("&"):
            if not pair or ";" in pair or _BROKEN_ESCAPE.search(pair):
                continue
            key, _, value = pair.partition("=")
            self._values.setdefault(_unescape(key), _unescape(value))

    def text(self, name: str) -> str:
        """The value as it is, "" when absent; bytes that are no UTF-8 as lone surrogates."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean, False when absent."""
        value = self.text(name)
        if not value or value in _FALSE:
            return False
        if value in _TRUE:
            return True
        raise BadParameter(
            f"Error decoding boolean for '{name}': strconv.ParseBool: parsing {quote(value)}: "
            "invalid syntax"
        )

    def flag_or_detail(self, name: str) -> tuple[bool, bool]:
        """A boolean that may also be `detail`: (wanted, wanted in detail)."""
        if self.text(name).lower() == "detail":
            return True, True
        return self.flag(name), False

    def integer(self, name: str) -> int:
        """A signed 64-bit number, 0 when absent."""
        return self._number(name, "int", "Atoi", r"[+-]?[0-9]+", -(1 << 63), (1 << 63) - 1)

    def unsigned(self, name: str) -> int:
        """An unsigned 64-bit number, 0 when absent."""
        return self._number(name, "uint64", "ParseUint", r"[0-9]+", 0, (1 << 64) - 1)

    def _number(self, name: str, kind: str, call: str, shape: str, low: int, high: int) -> int:
        value = self.text(name)
        if not value:
            return 0
        problem = "invalid syntax"
        if re.fullmatch(shape, value):
            # More digits than any 64-bit number has are not even converted.
            if len(value.lstrip("+-0")) <= 20 and low <= int(value) <= high:
                return int(value)
            problem = "value out of range"
        raise BadParameter(
            f"Error decoding {kind} for '{name}': strconv.{call}: parsing {quote(value)}: {problem}"
        )

    def choice(self, name: str, choices: dict[str, T], default: T) -> T:
        """One of several words, in any case."""
        value = self.text(name)
        if not value:
            return default
        if value.lower() not in choices:
            raise BadParameter(f"Error decoding {name} for {value}")
        return choices[value.lower()]


def _unescape(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")


class Paging:
    """`offset` and `limit` of a page: negative offsets are 0, a limit below 1 is the default."""

    def __init__(self, offset: int = 0, limit: int = 0) -> None:
        self.offset = max(offset, 0)
        self.limit = limit if limit > 0 else DEFAULT_LIMIT

    @classmethod
    def read(cls, query: Query) -> "Paging":
        """As a query string has it."""
        return cls(query.integer("offset"), query.integer("limit"))

    def cut(self, rows: list[T]) -> list[T]:
        """The rows on this page."""
        return rows[self.offset : self.offset + self.limit]
