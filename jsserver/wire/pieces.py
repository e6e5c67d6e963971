"""JSON of answers that may be large, made in pieces.

A call that writes many megabytes at once would keep Python's lock for as long as that takes, and
everybody else waiting. Where a list of a page ends and its elements stand is told by a page that
has a mark in place of them.
"""

import os
from collections.abc import Iterable, Iterator

import msgspec

from jsserver.text.goformat import escape_json

TOGETHER = 16
"""Elements without lists of their own that one piece has."""
BLOCK = 256 * 1024
"""Bytes from which on a piece is handed on by itself."""
_MARK = os.urandom(16).hex()
_STANDS = b'"%b"' % _MARK.encode()

Part = list[msgspec.Struct] | msgspec.Struct
"""What has pieces of its own: a list, or what holds one."""


def pieces(page: msgspec.Struct, *, pretty: bool = False) -> Iterator[bytes]:
    """The text of a page as Go writes it, in order; `pretty`: in lines, indented by two."""
    block = bytearray()
    for piece in _pieces(page, 0 if pretty else None):
        block += piece
        if len(block) >= BLOCK:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _parts(page: msgspec.Struct) -> dict[str, Part]:
    """What of a page has pieces of its own, by field."""
    found: dict[str, Part] = {}
    for name in page.__struct_fields__:
        value = getattr(page, name)
        if isinstance(value, list):
            if value and isinstance(value[0], msgspec.Struct):
                found[name] = value
        elif isinstance(value, msgspec.Struct) and _parts(value):
            found[name] = value
    return found


def _pieces(page: msgspec.Struct, indent: int | None) -> Iterator[bytes]:
    """`indent`: of its first line, which is not written; None: it has no lines."""
    parts = _parts(page)
    marks = {name: [_MARK] if isinstance(part, list) else _MARK for name, part in parts.items()}
    frame = msgspec.structs.replace(page, **marks) if marks else page
    around = iter(_text(frame, indent).split(_STANDS))
    yield next(around)
    for part, after in zip(parts.values(), around, strict=True):
        if isinstance(part, list):
            yield from _elements(part, None if indent is None else indent + 4)
        else:
            yield from _pieces(part, None if indent is None else indent + 2)
        yield after


def _elements(items: list[msgspec.Struct], indent: int | None) -> Iterator[bytes]:
    between = b"," if indent is None else b",\n" + b" " * indent
    first = True
    for some in _groups(items):
        if not first:
            yield between
        first = False
        if isinstance(some, msgspec.Struct):
            yield from _pieces(some, indent)
        elif indent is None:
            yield _text(some, None)[1:-1]
        else:
            yield _text(some, indent - 2)[len(b"[\n") + indent : -len(b"\n]") - indent + 2]


def _groups(items: Iterable[msgspec.Struct]) -> Iterator[Part]:
    """One by one those that have pieces of their own, and others together."""
    group: list[msgspec.Struct] = []
    for item in items:
        if _parts(item):
            if group:
                yield group
            yield item
            group = []
            continue
        group.append(item)
        if len(group) == TOGETHER:
            yield group
            group = []
    if group:
        yield group


def _text(value: object, indent: int | None) -> bytes:
    raw = escape_json(msgspec.json.encode(value))
    if indent is None:
        return raw
    lines = msgspec.json.format(raw, indent=2)
    return lines.replace(b"\n", b"\n" + b" " * indent) if indent else lines
