"""Typed reading of parsed values: what an option accepts, and the words of what it refuses.

An option's reader is called with the options to fill, the parsed value and the list of problems; it
raises OptionError for a value that cannot be used. Names of types in messages (`int64`,
`[]interface {}`) are nats-server's, which scripts and operators know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import SimpleNamespace

from jsserver import TYPE_CHECKING
from jsserver.cext.language import Value
from jsserver.text.goformat import (
    MAX_DURATION,
    SECOND,
    parse_duration,
    split_address,
    whole_number,
)

if TYPE_CHECKING:
    from typing import Any

MAX_INT64 = (1 << 63) - 1
_SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class OptionError(Exception):
    """A value that an option refuses."""

    def __init__(self, value: Value, message: str) -> None:
        super().__init__(message)
        self.value = value


class Problems:
    """What is wrong in a configuration, in the order it was found."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.without_effect: list[str] = []

    def error(self, value: Value, message: str) -> None:
        self.errors.append(f"{value.place}: {message}")

    def warn(self, value: Value, key: str, message: str) -> None:
        self.warnings.append(f'{value.place}: invalid use of field "{key}": {message}')


Reader = Callable[["Any", Value, Problems], None]


def type_name(value: Value) -> str:
    """The type of a value as messages call it."""
    names = {
        dict: "map[string]interface {}",
        list: "[]interface {}",
        bool: "bool",
        int: "int64",
        float: "float64",
        datetime: "time.Time",
    }
    return names.get(type(value.data), "string")


def shown(value: Value) -> str:
    """A value as messages show it."""
    data = value.data
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, dict):
        return "a map" if data else "map[]"
    if isinstance(data, list):
        return "an array" if data else "[]"
    return str(data)


_WANTED = {str: "a text", bool: "true or false", int: "a whole number", dict: "a block"}


def _expect(value: Value, kind: type, name: str) -> Any:
    if type(value.data) is not kind:
        raise OptionError(
            value,
            f"interface conversion: interface {{}} is {type_name(value)}, not {name}"
            f" ({_WANTED[kind]} is wanted here)",
        )
    return value.data


def as_text(value: Value) -> str:
    text: str = _expect(value, str, "string")
    return text


def as_bool(value: Value) -> bool:
    flag: bool = _expect(value, bool, "bool")
    return flag


def as_int(value: Value) -> int:
    number: int = _expect(value, int, "int64")
    return number


def as_map(value: Value) -> dict[str, Value]:
    entries: dict[str, Value] = _expect(value, dict, "map[string]interface {}")
    return entries


def as_duration(value: Value, key: str, problems: Problems) -> int:
    """Nanoseconds of a duration string; an integer counts seconds and is warned about."""
    if isinstance(value.data, str):
        try:
            return parse_duration(value.data)
        except ValueError as error:
            raise OptionError(value, f"error parsing {key}: {error}") from None
    problems.warn(value, key, f"{key} should be converted to a duration")
    ns = as_int(value) * SECOND
    if abs(ns) > MAX_DURATION:
        raise OptionError(value, f"{key} value is too big")
    return ns


def as_size(value: Value, key: str) -> int:
    """Bytes: an integer, or a string of digits that ends in K, M, G or T (powers of 1024)."""
    data = value.data
    if type(data) is int:
        return data
    if not isinstance(data, str):
        raise OptionError(value, f"{key} must be int64 or string")
    if not data:
        return 0
    digits, suffix = data[:-1], data[-1]
    number = digits[1:] if digits[:1] in ("+", "-") and digits else digits
    if not (number.isascii() and number.isdigit()):
        raise OptionError(value, f'{key} strconv.ParseInt: parsing "{digits}": invalid syntax')
    if suffix not in _SIZE_UNITS:
        raise OptionError(value, f"{key} sizes defined as strings must end in K, M, G, T")
    size = whole_number(digits) * _SIZE_UNITS[suffix]
    if abs(size) > MAX_INT64:
        raise OptionError(value, f'{key} strconv.ParseInt: parsing "{digits}": value out of range')
    return size


def read_block(
    target: Any, entries: Mapping[str, Value], readers: Mapping[str, Reader], problems: Problems
) -> None:
    """Reads the entries of a map by name, in any letter case; every problem is collected."""
    for key, value in entries.items():
        reader = readers.get(key) or readers.get(key.lower())
        if reader is None:
            if not value.used:
                problems.error(value, f'unknown field "{key}"')
            continue
        try:
            reader(target, value, problems)
        except OptionError as error:
            problems.error(error.value, str(error))


# Readers for the plain cases: each sets one attribute.


def text(attribute: str) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        setattr(target, attribute, as_text(value))

    return read


def flag(attribute: str) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        setattr(target, attribute, as_bool(value))

    return read


def integer(attribute: str, most: int = MAX_INT64) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        number = as_int(value)
        if number > most:
            raise OptionError(value, f"{attribute} value is too big")
        setattr(target, attribute, number)

    return read


def limit(attribute: str, default: int, most: int = MAX_INT64) -> Reader:
    """An integer of which 0 means the default."""

    def read(target: Any, value: Value, problems: Problems) -> None:
        integer(attribute, most)(target, value, problems)
        if getattr(target, attribute) == 0:
            setattr(target, attribute, default)

    return read


def positive_duration(attribute: str, default: int) -> Reader:
    """A duration in nanoseconds of which 0 means the default."""

    def read(target: Any, value: Value, problems: Problems) -> None:
        ns = as_duration(value, attribute, problems)
        if ns < 0:
            raise OptionError(value, f"invalid {attribute}, needs to be positive")
        setattr(target, attribute, ns or default)

    return read


def read_write_timeout(target: Any, value: Value, problems: Problems) -> None:
    """Sets `write_timeout`; "" is the default."""
    policy = as_text(value)
    if policy not in ("default", "close", "retry"):
        raise OptionError(value, "write_timeout must be 'default', 'close' or 'retry'")
    target.write_timeout = "" if policy == "default" else policy


def address(host: str, port: str) -> Reader:
    """A port, or host and port."""

    def read(target: Any, value: Value, problems: Problems) -> None:
        if type(value.data) is int:
            setattr(target, port, value.data)
            return
        if not isinstance(value.data, str):
            raise OptionError(value, f"expected port or host:port, got {type_name(value)}")
        try:
            parts = split_address(value.data)
        except ValueError as error:
            raise OptionError(value, str(error)) from None
        setattr(target, host, parts[0])
        setattr(target, port, parts[1])

    return read


def size(attribute: str, key: str) -> Reader:
    def read(target: Any, value: Value, problems: Problems) -> None:
        setattr(target, attribute, as_size(value, key))

    return read


def unavailable(feature: str) -> Reader:
    """An option of nats-server that stands for something not built yet."""

    def read(target: Any, value: Value, problems: Problems) -> None:
        raise OptionError(value, not_available(feature))

    return read


def only_off(feature: str) -> Reader:
    """A switch of nats-server that may only be off, because what it switches is not built yet."""

    def read(target: Any, value: Value, problems: Problems) -> None:
        if as_bool(value):
            raise OptionError(value, not_available(feature))

    return read


WITHOUT_EFFECT: dict[str, str] = {}
"""The options that are checked and have no effect, and why."""


def inert(attribute: str, reader: Reader, reason: str) -> Reader:
    """An option of `WITHOUT_EFFECT`: where it is set, the log says so."""
    WITHOUT_EFFECT[attribute] = reason

    def read(target: Any, value: Value, problems: Problems) -> None:
        before = getattr(target, attribute)
        reader(target, value, problems)
        if getattr(target, attribute) != before:
            problems.without_effect.append(f'{value.place}: "{attribute}" has no effect: {reason}')

    return read


def ignored(attribute: str, reader: Reader, default: Any, reason: str) -> Reader:
    """As `inert`, of an option that nobody asks for again: it is checked and not kept."""
    checked = inert(attribute, reader, reason)

    def read(target: Any, value: Value, problems: Problems) -> None:
        checked(SimpleNamespace(**{attribute: default}), value, problems)

    return read


def unavailable_block(feature: str) -> Reader:
    """A block of nats-server for something that is not built yet: one that is empty asks for
    nothing."""

    def read(target: Any, value: Value, problems: Problems) -> None:
        if value.data != {}:
            raise OptionError(value, not_available(feature))

    return read


def not_available(feature: str) -> str:
    """The words for something that nats-server has and this server has not yet."""
    return f"{feature} is not available in this version of jsserver"
