"""What is a valid subject transform: the grammar and the error texts of nats-server 2.14."""

import re

from jsserver.cext.bytes import subject_is_valid

_FUNCTIONS = (
    "wildcard",
    "partition",
    "splitFromLeft",
    "splitFromRight",
    "sliceFromLeft",
    "sliceFromRight",
    "left",
    "right",
    "split",
    "random",
)
_NOT_OF_STREAMS = ("left", "right")
_SPACE = r"[\t\n\f\r ]*"
_COMMA = re.compile("," + _SPACE)
_NUMBER = re.compile(r"[+-]?[0-9]+")
_NO_SPACE = frozenset("\t\n\f\r ")
_INT32 = range(-(1 << 31), 1 << 31)
_UPTO_INT32 = range(-(1 << 63), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)

INVALID_SUBJECT = "invalid subject"
_DESTINATION = "invalid mapping destination: "
_UNKNOWN = "unknown function"
_TOO_FEW = "not enough arguments passed to the function"
_TOO_MANY = "too many arguments passed to the function"
_BAD_ARGUMENT = "function argument is invalid or in the wrong format"
_OUT_OF_RANGE = "wildcard index out of range"


class TransformError(Exception):
    """A transform that is none; the text says why."""


def _pattern(function: str) -> re.Pattern[str]:
    """How a function is called: the first letter of each word of its name in either case."""
    name = re.sub(
        "^[a-z]|[A-Z]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", function
    )
    return re.compile(rf"\{{\{{{_SPACE}{name}{_SPACE}\((.*)\){_SPACE}\}}\}}")


_PATTERNS = {function: _pattern(function) for function in _FUNCTIONS}


def _call_of(token: str) -> tuple[str, list[str]] | None:
    """The function that a token calls, and its arguments."""
    for function, pattern in _PATTERNS.items():
        if found := pattern.search(token):
            return function, _COMMA.split(found[1])
    return None


def _is_call(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def _wrong(what: str, token: str) -> TransformError:
    return TransformError(f"{_DESTINATION}{what} in {token}")


def _number(text: str, token: str, within: range = _INT64) -> int:
    text = text.strip(" ")
    if not _NUMBER.fullmatch(text) or len(text) > 20 or int(text) not in within:
        raise _wrong(_BAD_ARGUMENT, token)
    return int(text)


def _indexes(token: str) -> tuple[str, list[int]] | None:
    """The function of a token of the destination, and which wildcards of the source it uses."""
    if len(token) > 1 and token[0] == "$":
        digits = token[1:]
        if not _NUMBER.fullmatch(digits) or len(digits) > 20 or int(digits) not in _INT64:
            return None
        return "wildcard", [int(digits)]
    if not _is_call(token):
        return None
    call = _call_of(token)
    if call is None:
        raise _wrong(_UNKNOWN, token)
    function, arguments = call
    if function == "wildcard":
        if arguments == [""]:
            raise _wrong(_TOO_FEW, token)
        if len(arguments) > 1:
            raise _wrong(_TOO_MANY, token)
        return function, [_number(arguments[0], token)]
    if function == "partition":
        _number(arguments[0], token, _UPTO_INT32)
        return function, [_number(argument, token) for argument in arguments[1:]]
    if function == "random":
        if len(arguments) != 1:
            raise _wrong(_TOO_FEW, token)
        _number(arguments[0], token, _UPTO_INT32)
        return function, []
    if len(arguments) < 2:
        raise _wrong(_TOO_FEW, token)
    if len(arguments) > 2:
        raise _wrong(_TOO_MANY, token)
    index = _number(arguments[0], token)
    if function == "split":
        if " " in arguments[1] or "." in arguments[1]:
            raise _wrong(_BAD_ARGUMENT, token)
    else:
        _number(arguments[1], token, _INT32)
    return function, [index]


def _tokens(subject: str) -> list[str]:
    tokens = subject.split(".")
    if "" in tokens or ">" in tokens[:-1]:
        raise TransformError(INVALID_SUBJECT)
    return tokens


def check(source: str, destination: str) -> None:
    """TransformError where messages of `source` cannot be told to go to `destination`.

    An empty source is `>`, an empty destination changes nothing."""
    if not destination:
        return
    sources, destinations = _tokens(source or ">"), _tokens(destination)
    wildcards = sources.count("*")
    rest = sources[-1] == ">"
    if "*" in destinations or rest != (destinations[-1] == ">"):
        raise TransformError(INVALID_SUBJECT)
    for token in destinations:
        used = _indexes(token)
        if used is None:
            continue
        function, indexes = used
        if not wildcards and not rest:
            if function not in ("partition", "random"):
                raise _wrong(_OUT_OF_RANGE, token)
            continue
        for index in indexes:
            if index > wildcards:
                raise TransformError(f"{_DESTINATION}{_OUT_OF_RANGE} in {token}: [{index}]")


def check_of_stream(source: str, destination: str) -> None:
    """As `check`, by the stricter rules for what streams, mirrors and sources do."""
    for at, token in enumerate(tokens := destination.split(".") if destination else []):
        if ">" in tokens[:at]:
            raise _wrong("invalid transform", token)
        if _is_call(token):
            call = _call_of(token)
            if call is None or call[0] in _NOT_OF_STREAMS:
                raise _wrong(_UNKNOWN, token)
        elif not token or not _NO_SPACE.isdisjoint(token):
            raise TransformError(_DESTINATION + "invalid transform")
    check(source, destination)


def check_source(source: str) -> None:
    """TransformError where the subjects that a stream transforms are none."""
    if source and not subject_is_valid(source):
        raise TransformError(f"invalid subject {source}")
