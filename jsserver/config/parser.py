"""Parser of the configuration language: items in, a tree of values with their places out.

Values are maps, lists, strings, booleans, integers (64 bit), floats and datetimes. A value in a map
stands where its key stands, a value in an array where it stands itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Malformed, Tree, Value, digest_of
from jsserver.config import ConfigError
from jsserver.text.goformat import json_string, whole_number

if TYPE_CHECKING:
    from typing import Any

MAX_INCLUDE_DEPTH = 100
"""Files including each other; more is taken for a loop."""

_POWERS = "kmgtpe"
_INT64 = 1 << 63
_BROKEN_OFF = re.compile(r"on line (\d+): '(?:Expected an? (?:map|array|top-level) value )")
_NUMBER_AND_MORE = re.compile(rb"[\s:=,\[{][-+]?\d[^\s,;\]}'\"#]*[A-Za-z_$/]")


class _Parser:
    """Decides what the items of one text stand for that say more than themselves; `including` is
    how many files are being read around it."""

    def __init__(
        self,
        file: str,
        environment: Mapping[str, str],
        including: int,
        resolving: tuple[str, ...] = (),
    ) -> None:
        self.file = file
        self.environment = environment
        self.including = including
        self.resolving = resolving

    def parse(self, text: bytes) -> dict[str, Value]:
        tree = Tree(text, self.file)
        try:
            while (item := tree.advance()) is not None:
                self._take(tree, *item)
        except Malformed as error:
            raise ConfigError(str(error) + _hint(str(error), text)) from None
        return tree.root

    def _take(self, tree: Tree, kind: str, text: str) -> None:
        match kind:
            case "integer":
                tree.set(_integer(text))
            case "float":
                tree.set(float(text))
            case "datetime":
                tree.set(_datetime(text))
            case "variable":
                tree.set(self._variable(tree, text))
            case "include":
                self._include(tree, text)

    def _variable(self, tree: Tree, name: str) -> Any:
        for context in reversed(tree.contexts):
            if isinstance(context, dict) and name in context:
                found = context[name]
                found.used = True
                return found.data
        where = f"variable reference for '{name}' on line {tree.line}"
        if name in self.resolving:
            raise ConfigError(f"{where} could not be parsed: variable reference cycle for '{name}'")
        text = self.environment.get(name)
        if text is not None:
            inner = _Parser(self.file, self.environment, self.including, (*self.resolving, name))
            try:
                value = inner.parse(_encoded(f"{name}={text}")).get(name)
            except ConfigError as error:
                raise ConfigError(f"{where} could not be parsed: {error}") from None
            if value is not None:
                _place(value, tree)
                return value.data
        elif name.startswith("2a$"):
            return "$" + name
        raise ConfigError(f"{where} can not be found")

    def _include(self, tree: Tree, name: str) -> None:
        path = os.path.normpath(os.path.join(os.path.dirname(self.file), name.lstrip("/")))
        if self.including >= MAX_INCLUDE_DEPTH:
            raise ConfigError(
                f"error parsing include file '{name}', "
                f"files include each other more than {MAX_INCLUDE_DEPTH} deep"
            )
        try:
            values = _Parser(path, self.environment, self.including + 1).parse(_read(path))
        except ConfigError as error:
            raise ConfigError(f"error parsing include file '{name}', {error}") from None
        context = tree.contexts[-1]
        if isinstance(context, dict):
            context.update(values)


def _place(value: Value, tree: Tree) -> None:
    """Gives what came from the environment the place where it was asked for."""
    value.line, value.column, value.file = tree.line, tree.column, tree.file
    if isinstance(value.data, (dict, list)):
        for inner in value.data.values() if isinstance(value.data, dict) else value.data:
            _place(inner, tree)


def _integer(text: str) -> int:
    """The number of `12`, `-3k` (powers of 1000) or `64MiB` (powers of 1024)."""
    digits = text.rstrip("kKmMgGtTpPeEiIbB")
    suffix = text[len(digits) :].lower()
    number = whole_number(digits)
    if not -_INT64 <= number < _INT64:
        raise ConfigError(f"integer '{digits}' is out of the range")
    if suffix[1:] not in ("", "b", "i", "ib"):
        raise ConfigError(f"integer '{text}' has an unknown suffix")
    if suffix:
        number *= (1024 if len(suffix) > 1 else 1000) ** (_POWERS.index(suffix[0]) + 1)
    return (number + _INT64) % (2 * _INT64) - _INT64


def _datetime(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise ConfigError(f"expected Zulu formatted DateTime, but got '{text}'") from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except IsADirectoryError:
        raise ConfigError(f"read {path}: is a directory") from None
    except OSError as error:
        raise ConfigError(f"open {path}: {(error.strerror or str(error)).lower()}") from None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _hint(message: str, text: bytes) -> str:
    """What may be behind an error of the language: a text that was read as a number up to where
    that ends, as `4e2abc` is; "": something else."""
    place = _BROKEN_OFF.search(message)
    number = int(place[1]) if place else 0
    line = b"".join(text.split(b"\n")[number - 1 : number])
    if not number or not _NUMBER_AND_MORE.search(line):
        return ""
    return " (a value that begins like a number is read as one: put quotes around a text)"


def parse_file(path: str, environment: Mapping[str, str] | None = None) -> Value:
    """The map of a configuration file; ConfigError if it cannot be read or is not one."""
    return parse_bytes(_read(path), path, environment)


def parse_bytes(text: bytes, file: str, environment: Mapping[str, str] | None) -> Value:
    """The map of a configuration given as UTF-8; includes are looked for beside `file`."""
    parser = _Parser(file, os.environ if environment is None else environment, 0)
    return Value(parser.parse(text), file=file)


def _json(data: Any) -> str:
    """JSON of what is rare in a configuration, in the forms that Go gives numbers and times."""
    if isinstance(data, str):
        return _json_text(data)
    if isinstance(data, float):
        return _json_float(data)
    if isinstance(data, datetime):
        return data.strftime('"%Y-%m-%dT%H:%M:%SZ"')
    return str(data)


def _json_text(text: str) -> str:
    """A JSON string; what is no Unicode character is written as the escape \\ufffd."""
    parts = (json_string(part)[1:-1] for part in re.split("[\ud800-\udfff]", text))
    return '"' + "\\ufffd".join(parts) + '"'


def _json_float(value: float) -> str:
    from decimal import Decimal  # rarely needed

    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = f"{Decimal(repr(value)):f}"
        return text.removesuffix(".0")
    mantissa, exponent = repr(value).split("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}"


def digest(root: Value) -> str:
    """`sha256:<hex>` of a configuration: of its compact JSON with sorted keys and a newline.
    ConfigError where variables have put maps into maps without an end in sight."""
    try:
        return "sha256:" + digest_of(root, _json).hex()
    except RecursionError:
        raise ConfigError("variables nest maps and arrays too deeply") from None
