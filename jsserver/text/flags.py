"""Command-line flags in Go's syntax: `-x v`, `--x=v`, switches without a value of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jsserver import TYPE_CHECKING
from jsserver.text.goformat import quote

if TYPE_CHECKING:
    from typing import Any

    Parser = Callable[[str], Any]

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_BASES = {"0x": 16, "0o": 8, "0b": 2}


class FlagError(Exception):
    """A command line that cannot be read; the text is what to tell the user."""


class UnknownFlag(FlagError):
    """A flag that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"flag provided but not defined: -{name}")
        self.name = name


def parse_bool(text: str) -> bool:
    """One of Go's words for a boolean; ValueError otherwise."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("parse error")


def parse_int(text: str) -> int:
    """A whole number, also as 0x1F, 0o17, 017, 0b11 or 1_000; ValueError otherwise."""
    sign = -1 if text.startswith("-") else 1
    digits = text[1:] if text[:1] in ("+", "-") and text else text
    base = _BASES.get(digits[:2].lower(), 8 if len(digits) > 1 and digits[0] == "0" else 10)
    if digits[:2].lower() in _BASES:
        digits = digits[2:]
    if not digits.isascii() or not digits.replace("_", "").isalnum():
        raise ValueError("parse error")
    try:
        number = sign * int(digits.removeprefix("_"), base)
    except ValueError:
        raise ValueError("parse error") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("value out of range")
    return number


def parse(
    arguments: Sequence[str], parsers: Mapping[str, Parser]
) -> tuple[list[tuple[str, Any]], list[str]]:
    """The flags in their order, each with its value, and what follows the last flag.

    `parsers` has a function for every flag; `parse_bool` marks a switch, whose value may only be
    given after `=`. Raises FlagError.
    """
    flags: list[tuple[str, Any]] = []
    rest = list(arguments)
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        argument = rest.pop(0)
        if argument == "--":
            break
        body = argument[2:] if argument.startswith("--") else argument[1:]
        if body[:1] in ("-", "="):
            raise FlagError(f"bad flag syntax: {argument}")
        name, equals, text = body.partition("=")
        parser = parsers.get(name)
        if parser is None:
            raise UnknownFlag(name)
        if parser is parse_bool and not equals:
            text = "true"
        elif not equals:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            text = rest.pop(0)
        try:
            flags.append((name, parser(text)))
        except ValueError as error:
            what = "boolean value" if parser is parse_bool else "value"
            preposition = "for" if parser is parse_bool else "for flag"
            raise FlagError(
                f"invalid {what} {quote(text)} {preposition} -{name}: {error}"
            ) from None
    return flags, rest
