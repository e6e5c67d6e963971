"""Request bodies to typed values: keys in any case, unknown ones refused, errors that say where.

The decoder of a type is derived from its declaration, once. `null` leaves a field at its default,
as the clients written in Go expect. A key that an object names twice is read as Go reads it: the
members one after another, so that objects merge and of other values the last one counts.
"""

import re
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from jsserver.text import goformat

from . import errcodes

T = TypeVar("T")
Reader = Callable[[Any, str, bool], Any]
"""Takes a parsed JSON value, where it stands, and whether unknown keys are errors."""


class Unreadable(Exception):
    """A body that cannot be decoded; the text says why."""


def decode(body: bytes, kind: type[T], strict: bool) -> T:
    """The request in `body`; ApiError 10025 if it is none. An empty body is an empty request."""
    try:
        return parse(body, kind, strict)
    except Unreadable as error:
        raise errcodes.INVALID_JSON(err=error) from None


def parse(body: bytes, kind: type[T], strict: bool) -> T:
    """As `decode`, with Unreadable as the error."""
    if not body or body.isspace():
        return kind()
    value = _parse_json(body)
    if value is None:
        return kind()
    return cast(T, _reader(cast(Any, kind))(value, "", strict))


def has_object(body: bytes) -> bool:
    """Whether an optional body is there: everything but an object or array counts as none."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def is_empty(body: bytes) -> bool:
    """Whether the body is empty or an empty JSON object."""
    return not body or _EMPTY.fullmatch(body) is not None


_EMPTY = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
_COLON = re.compile(rb"(?i)\\u003a")
_ESCAPE = re.compile(
    rb"(?i)\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(ud[89a-f][0-9a-f]{2})|.)", re.DOTALL
)
"""An escape of a JSON text; the group is half of a surrogate pair that stands alone."""


def _without_halves(body: bytes) -> bytes:
    """The text with U+FFFD for every half of a surrogate pair that stands alone, as Go reads it."""
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)


class _Members(dict[str, Any]):
    """An object that may name a key twice: its items are the members in their order, where two
    objects of one name are one with the members of both."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self._pairs: list[tuple[str, Any]] = []
        self._places: dict[str, int] = {}
        for key, value in pairs:
            self._take(key, value)

    def items(self) -> Any:
        return self._pairs

    def _take(self, key: str, value: Any) -> None:
        place = self._places.get(key.lower())
        if place is not None and isinstance(value, _Members):
            named, before = self._pairs[place]
            if isinstance(before, _Members):
                for inner in value._pairs:
                    before._take(*inner)
                self._pairs[place] = (key, before)
                del self[named]
                self[key] = before
                return
        self._places[key.lower()] = len(self._pairs)
        self._pairs.append((key, value))
        self[key] = value


class _MinusZero(int):
    """A number that Go reads where a sign may stand, and nowhere else."""

    def __format__(self, _: str) -> str:
        return "-0"


def _number(text: str) -> int:
    return _MinusZero() if text == "-0" else int(text)


def _parse_json(body: bytes) -> Any:
    try:
        value = msgspec.json.decode(body)
        # Rarely unequal but where a key was named twice, of which a dict keeps only the last value.
        same = body.count(b":") == msgspec.json.encode(value).count(b":")
        if same and b"-0" not in body and not _COLON.search(body):
            return value
        import json  # costs a start some milliseconds, and few need it

        return json.loads(body, object_pairs_hook=_Members, parse_int=_number)
    except UnicodeDecodeError:
        return _parse_json(body.decode("utf-8", "replace").encode())
    except msgspec.DecodeError as error:
        whole = _without_halves(body)
        if whole != body:
            return _parse_json(whole)
        text = str(error)
        if "truncated" in text:
            raise Unreadable("unexpected EOF") from None
        raise Unreadable(text.removeprefix("JSON is malformed: ")) from None
    except RecursionError:
        raise Unreadable("exceeded max depth") from None


def _name_of(value: Any) -> str:
    """What JSON calls the value."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return f"number {value}"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def _mismatch(value: Any, where: str, wanted: str) -> Unreadable:
    place = f"field {where}" if where else "request"
    return Unreadable(f"json: cannot unmarshal {_name_of(value)} into {place} of type {wanted}")


@cache
def _reader(kind: Any) -> Reader:
    """The reader of a declared type."""
    origin = get_origin(kind)
    if origin is Annotated:
        base, *rest = get_args(kind)
        meta = next((one for one in rest if isinstance(one, msgspec.Meta)), None)
        if meta is None:
            return _reader(base)
        if base is int:
            return _integer_reader(meta)
        if base is str:
            return _read_time
        return _choice_reader(base, meta.extra)
    if origin is Literal:
        return _choice_reader(kind, {})
    if origin is UnionType:
        (inner,) = (arg for arg in get_args(kind) if arg is not NoneType)
        return _reader(inner)
    if origin is list:
        return _list_reader(get_args(kind)[0])
    if origin is dict:
        return _read_map
    if kind is str:
        return _read_text
    if kind is bool:
        return _read_bool
    return _struct_reader(kind)


def _read_text(value: Any, where: str, strict: bool) -> Any:
    if type(value) is not str:
        raise _mismatch(value, where, "string")
    return value


def _read_bool(value: Any, where: str, strict: bool) -> Any:
    if type(value) is not bool:
        raise _mismatch(value, where, "bool")
    return value


def _read_time(value: Any, where: str, strict: bool) -> Any:
    """A time keeps its zone; only needless zeros of the fraction go."""
    if type(value) is not str:
        raise Unreadable(f"field {where}: a time must be a JSON string")
    try:
        goformat.parse_rfc3339(value)
    except ValueError as error:
        raise Unreadable(f"field {where}: {error}") from None
    clock, zone = value[:19], value[19:]
    if zone[0] in ".,":
        digits = zone[1:].rstrip("Z") if zone[-1] == "Z" else zone[1:-6]
        zone = zone[1 + len(digits) :]
        digits = digits[:9].rstrip("0")
        clock += f".{digits}" if digits else ""
    return clock + ("Z" if zone in ("+00:00", "-00:00") else zone)


def _read_map(value: Any, where: str, strict: bool) -> Any:
    if not isinstance(value, dict):
        raise _mismatch(value, where, "map[string]string")
    return {key: "" if v is None else _read_text(v, where, strict) for key, v in value.items()}


def _integer_reader(meta: msgspec.Meta) -> Reader:
    assert meta.extra is not None and meta.title is not None
    low, high, name = meta.extra["low"], meta.extra["high"], meta.title

    def read(value: Any, where: str, strict: bool) -> Any:
        if type(value) is _MinusZero and low < 0:
            return 0
        if type(value) is not int or not low <= value <= high:
            raise _mismatch(value, where, name)
        return value

    return read


def _choice_reader(kind: Any, extra: dict[str, Any] | None) -> Reader:
    choices = frozenset(get_args(kind))
    extra = extra or {}
    fold = "fold" in extra

    def read(value: Any, where: str, strict: bool) -> Any:
        if fold and type(value) is str:
            value = value.lower()
        if type(value) is str and value in choices:
            return value
        raw = msgspec.json.encode(value).decode()
        if "error" in extra:
            raise Unreadable(extra["error"].format(value=raw))
        raise Unreadable(f"can not unmarshal {goformat.quote(raw)}")

    return read


def _list_reader(item: Any) -> Reader:
    read_item = _reader(item)
    zero = "" if item is str else None

    def read(value: Any, where: str, strict: bool) -> Any:
        if type(value) is not list:
            raise _mismatch(value, where, "array")
        out = []
        for entry in value:
            if entry is None:
                entry = zero if zero is not None else 0 if get_origin(item) is Annotated else {}
            out.append(read_item(entry, where, strict))
        return out

    return read


def _is_emptied(hint: Any) -> bool:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(bare) in (list, dict, UnionType)


def _struct_reader(kind: type[msgspec.Struct]) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    exact = {key: (name, _reader(hints[name])) for key, name in names}
    folded = {name.lower(): field for name, field in exact.items()} | exact
    # What null makes empty again, when the same key came before; it leaves other values alone.
    emptied = {name for name, _ in exact.values() if _is_emptied(hints[name])}

    def read(value: Any, where: str, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, where, "object")
        out: dict[str, Any] = {}
        for key, entry in value.items():
            field = folded.get(key) or folded.get(key.lower())
            if field is None:
                if strict:
                    raise Unreadable(f"json: unknown field {goformat.quote(key)}")
                continue
            name, read_field = field
            if entry is None:
                if name in emptied:
                    out.pop(name, None)
                continue
            out[name] = read_field(entry, f"{where}.{name}" if where else name, strict)
        return kind(**out)

    return read
