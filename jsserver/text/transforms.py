"""Subject transforms: the grammar and the error texts of nats-server 2.14, read into parts.

A transform says what becomes of a subject that its source matches. The parts of its destination are
what `jsserver.cext.bytes.SubjectTransform` is made of: (kind, number, text, indexes), where a kind
is a function, "text" or "rest", and indexes count the tokens of the subject from 0.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from jsserver.cext.bytes import SubjectTransform, subject_is_valid

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
_UNKNOWN_TO_MAPPINGS = ("left", "right")
_SPACE = r"[\t\n\f\r ]*"
_COMMA = re.compile("," + _SPACE)
_NUMBER = re.compile(r"[+-]?[0-9]+")
_NO_SPACE = frozenset("\t\n\f\r ")
_INT32 = range(-(1 << 31), 1 << 31)
_UPTO_INT32 = range(-(1 << 63), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)

MOST_PLACES = 256
"""Wildcards and functions of a destination at most: each costs time at each message."""
TOKENS_KEPT, TOKEN_KEPT = 256, 64
"""As many calls of functions are read once, of as many characters each: thousands of mappings have
the same."""
INVALID_SUBJECT = "invalid subject"
_DESTINATION = "invalid mapping destination: "
_UNKNOWN = "unknown function"
_TOO_FEW = "not enough arguments passed to the function"
_TOO_MANY = "too many arguments passed to the function"
_BAD_ARGUMENT = "function argument is invalid or in the wrong format"
_OUT_OF_RANGE = "wildcard index out of range"
_INVALID = "invalid transform"
_NOT_REVERSIBLE = "the only mapping function allowed for import transforms is {{Wildcard()}}"
_WILDCARDS_UNUSED = "not using all of the token wildcard(s)"

Part = tuple[str, int, bytes, tuple[int, ...]]


class TransformError(Exception):
    """A transform that is none; the text says why."""


class Transform:
    """A transform that is one: from subjects that `source` matches to those that `parts` make."""

    def __init__(self, source: str, destination: str, parts: list[Part]) -> None:
        self.source = source
        self.destination = destination
        self.parts = parts

    def compiled(self) -> SubjectTransform:
        """What applies it, in the data plane."""
        return SubjectTransform(_raw(self.source), self.parts)


# ---- functions


def _pattern(function: str) -> re.Pattern[str]:
    """How the call of a function begins: the first letter of each word in either case."""
    name = re.sub(
        "^[a-z]|[A-Z]", lambda letter: f"[{letter[0].lower()}{letter[0].upper()}]", function
    )
    return re.compile(rf"\{{\{{{_SPACE}{name}{_SPACE}\(")


_PATTERNS = {function: _pattern(function) for function in _FUNCTIONS}
_END = re.compile(rf"\){_SPACE}\}}\}}")


def _arguments(function: str, token: str) -> list[str] | None:
    """The arguments of a call in this token, from where it begins up to the last end on its line.

    In time of the token's length, whatever it repeats.
    """
    ends = [found.start() for found in _END.finditer(token)]
    if not ends:
        return None
    lines = [at for at, letter in enumerate(token) if letter == "\n"] + [len(token)]
    for found in _PATTERNS[function].finditer(token):
        line_end = lines[bisect_left(lines, found.end())]
        last = bisect_left(ends, line_end) - 1
        if last >= 0 and ends[last] >= found.end():
            return _COMMA.split(token[found.end() : ends[last]])
    return None


def _call_of(token: str) -> tuple[str, list[str]] | None:
    """The function that a token calls, and its arguments."""
    return (_kept_call if len(token) <= TOKEN_KEPT else _read_call)(token)


def _read_call(token: str) -> tuple[str, list[str]] | None:
    for function in _FUNCTIONS:
        if (arguments := _arguments(function, token)) is not None:
            return function, arguments
    return None


_kept_call = lru_cache(TOKENS_KEPT)(_read_call)


def _is_call(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


def _wrong(what: str, token: str) -> TransformError:
    return TransformError(f"{_DESTINATION}{what} in {token}")


def _number(text: str, token: str, within: range = _INT64) -> int:
    text = text.strip(" ")
    if not _NUMBER.fullmatch(text) or len(text) > 20 or int(text) not in within:
        raise _wrong(_BAD_ARGUMENT, token)
    return int(text)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _function(token: str) -> Part | None:
    """What a token of the destination stands for, with the numbers of wildcards that it uses; None
    where it stands for itself."""
    if token[:1] not in ("$", "{"):
        return None
    return (_kept_function if len(token) <= TOKEN_KEPT else _read_function)(token)


def _read_function(token: str) -> Part | None:
    if len(token) > 1 and token[0] == "$":
        digits = token[1:]
        if not _NUMBER.fullmatch(digits) or len(digits) > 20 or int(digits) not in _INT64:
            return None
        return "wildcard", 0, b"", (int(digits),)
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
        return function, 0, b"", (_number(arguments[0], token),)
    if function == "partition":
        number = _number(arguments[0], token, _UPTO_INT32)
        return function, number, b"", tuple(_number(text, token) for text in arguments[1:])
    if function == "random":
        if len(arguments) != 1:
            raise _wrong(_TOO_FEW, token)
        return function, _number(arguments[0], token, _UPTO_INT32), b"", ()
    if len(arguments) < 2:
        raise _wrong(_TOO_FEW, token)
    if len(arguments) > 2:
        raise _wrong(_TOO_MANY, token)
    index = _number(arguments[0], token)
    if function == "split":
        if " " in arguments[1] or "." in arguments[1]:
            raise _wrong(_BAD_ARGUMENT, token)
        return function, 0, _raw(arguments[1]), (index,)
    return function, _number(arguments[1], token, _INT32), b"", (index,)


_kept_function = lru_cache(TOKENS_KEPT)(_read_function)


# ---- transforms


def _tokens(subject: str) -> list[str]:
    tokens = subject.split(".")
    if "" in tokens or ">" in tokens[:-1]:
        raise TransformError(INVALID_SUBJECT)
    return tokens


def _places(part: Part, token: str, stars: list[int], is_literal: bool) -> tuple[int, ...]:
    """Where the wildcards that a function uses stand in the source; nats-server takes a number
    below 1 for the first token."""
    kind, _, _, numbers = part
    if is_literal:
        if kind not in ("partition", "random"):
            raise _wrong(_OUT_OF_RANGE, token)
        return ()
    most = len(stars)
    for number in numbers:
        if number > most:
            raise TransformError(f"{_DESTINATION}{_OUT_OF_RANGE} in {token}: [{number}]")
    return tuple([stars[number - 1] if number > 0 else 0 for number in numbers])


def _joined(parts: list[Part | str]) -> list[Part]:
    """The tokens of a destination as parts, with the dots between them."""
    whole: list[Part] = []
    literal = ""
    for at, part in enumerate(parts):
        if at:
            literal += "."
        if isinstance(part, str):
            literal += part
            continue
        if literal:
            whole.append(("text", 0, _raw(literal), ()))
            literal = ""
        whole.append(part)
    if literal:
        whole.append(("text", 0, _raw(literal), ()))
    return whole


def parse(source: str, destination: str, *, reversible: bool = False) -> Transform | None:
    """TransformError where messages of `source` cannot be told to go to `destination`.

    An empty source is `>`, an empty destination changes nothing: None. `reversible`: what imports
    need, which uses each wildcard of the source, and nothing else.
    """
    if not destination:
        return None
    sources, destinations = _tokens(source or ">"), _tokens(destination)
    stars = [at for at, token in enumerate(sources) if token == "*"] if "*" in sources else []
    rest = sources[-1] == ">"
    if "*" in destinations or rest != (destinations[-1] == ">"):
        raise TransformError(INVALID_SUBJECT)
    is_literal = not stars and not rest
    used = calls = 0
    parts: list[Part | str] = []
    for token in destinations:
        part = _function(token)
        if part is None:
            parts.append(("rest", 0, b"", (len(sources) - 1,)) if token == ">" else token)
            continue
        if reversible and not is_literal and part[0] != "wildcard":
            raise _wrong(_NOT_REVERSIBLE, token)
        places = _places(part, token, stars, is_literal)
        used += len(places)
        calls += 1
        if used > MOST_PLACES or calls > MOST_PLACES:
            raise TransformError(f"{_DESTINATION}more than {MOST_PLACES} wildcards and functions")
        parts.append((*part[:3], places))
    if reversible and used < len(stars):
        raise _wrong(_WILDCARDS_UNUSED, destination)
    return Transform(source or ">", destination, _joined(parts))


def _check_tokens(destination: str) -> None:
    ended = False
    for token in destination.split(".") if destination else ():
        if ended:
            raise _wrong(_INVALID, token)
        ended = token == ">"
        if _is_call(token):
            call = _call_of(token)
            if call is None or call[0] in _UNKNOWN_TO_MAPPINGS:
                raise _wrong(_UNKNOWN, token)
        elif not token or not _NO_SPACE.isdisjoint(token):
            raise TransformError(_DESTINATION + _INVALID)


def parse_mapping(source: str, destination: str) -> Transform | None:
    """As `parse`, by the stricter rules for mappings and for streams, mirrors and sources."""
    _check_tokens(destination)
    return parse(source, destination)


def check_source(source: str) -> None:
    """TransformError where the subjects that a stream transforms are none."""
    if source and not subject_is_valid(source):
        raise TransformError(f"invalid subject {source}")


# ---- destinations of imports, which name wildcards by their place


def with_places(subject: str) -> str:
    """`foo.*.*` as a destination: `foo.$1.$2`."""
    stars = 0
    tokens = subject.split(".")
    for at, token in enumerate(tokens):
        if token == "*":
            stars += 1
            tokens[at] = f"${stars}"
    return ".".join(tokens)


def _is_place(token: str) -> bool:
    if len(token) > 1 and token[0] == "$" and token[1] in "123456789":
        return True
    arguments = _arguments("wildcard", token)
    return arguments is not None and len(arguments) == 1 and arguments[0] != ""


def with_wildcards(destination: str) -> str:
    """The subjects that a destination makes: `foo.$2.$1` is `foo.*.*`."""
    return ".".join("*" if _is_place(token) else token for token in destination.split("."))


def reverse(transform: Transform) -> Transform | None:
    """What turns the subjects that a reversible transform makes into what they were."""
    places = iter([token for token in transform.destination.split(".") if _is_place(token)])
    back = [next(places, "") if t == "*" else t for t in transform.source.split(".")]
    return parse(with_wildcards(transform.destination), ".".join(back), reversible=True)
