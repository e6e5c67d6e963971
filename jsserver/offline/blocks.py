"""A block's bytes as records: decompressed where they are compressed, with every damaged place."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from jsserver.cext.bytes import sha256
from jsserver.cext.store import block_rows
from jsserver.text import s2

from . import seals
from .places import WHOLE_MAX, Place, Unreadable, whole

TOMB, ERASED = 1 << 62, 1 << 63
SEQUENCE = TOMB - 1
HEAD, TAIL, SMALLEST = 22, 8, 30
ROW = struct.Struct("<QQqIIHBB4x")
PACKED = b"cmp"

_MARK = struct.Struct("<QQQQQIIQQq")
_CUT = struct.Struct("<QQQQQ")


class Kind(IntEnum):
    """What stands at a place of a block, as `block_rows` tells."""

    RECORD = 0
    MARK = 1
    MISFIT = 2
    CUT = 3
    BAD = 4
    ZEROS = 5


OPEN_HEADER = 1

Row = tuple[int, int, int, int, int, int, int, int]
"""Offset, sequence with its bits, time, size, header's size, subject's size, kind, flags."""


def key_of(text: str) -> bytes:
    """The key of the checksums of a block ("STREAM-N") or of a file of a stream ("STREAM")."""
    return sha256(text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Mark:
    """A marker: how its group leaves the stream."""

    group: int
    start: int
    durable: int
    flags: int
    first: int
    last: int
    last_time: int


@dataclass(frozen=True)
class Cut:
    """The beginning of a block that a truncation wrote: blocks from `number` on are void."""

    number: int
    behind: int
    end: int


@dataclass
class Block:
    """A block that was read. `rows` are empty, and `fault` says why, where nothing can be made of
    its bytes."""

    number: int
    size: int
    plain: bytes = b""
    packed: bool = False
    sealed: bool = False
    """Encrypted, and not opened: nothing in it can be looked at."""
    fault: str = ""
    _rows: bytes = field(default=b"", repr=False)

    @property
    def end(self) -> bytes:
        """The last 8 bytes of its plain content, by which caches know it."""
        return self.plain[-TAIL:]

    @property
    def plain_size(self) -> int:
        """By which caches know it as well."""
        return len(self.plain) if self.packed else self.size

    def rows(self) -> Iterator[Row]:
        """What stands in it, in the order of the file."""
        return ROW.iter_unpack(self._rows)

    def subject(self, row: Row) -> bytes:
        return self.plain[row[0] + HEAD : row[0] + HEAD + row[5]]

    def header(self, row: Row) -> bytes:
        at = row[0] + HEAD + row[5] + 4
        return self.plain[at : at + row[4]] if row[4] else b""

    def payload(self, row: Row) -> bytes:
        at = row[0] + HEAD + row[5]
        if self.plain[row[0] + 3] & 0x80:  # a header, perhaps an empty one
            at += 4 + row[4]
        return self.plain[at : row[0] + row[3] - TAIL]

    def mark(self, row: Row) -> Mark:
        """Of a row that is a marker; older ones lack the last three numbers."""
        body = self.plain[row[0] + HEAD : row[0] + row[3] - TAIL].ljust(_MARK.size, b"\0")
        _, group, start, durable, _, _, flags, first, last, time = _MARK.unpack_from(body)
        return Mark(group, start, durable, flags, first, last, time)

    def cut(self, row: Row) -> Cut:
        """Of a row that is a cut."""
        _, number, behind, end, _ = _CUT.unpack_from(self.plain, row[0] + HEAD)
        return Cut(number, behind, end)


def read(place: Place, number: int, encrypted: bool = False) -> Block:
    """A block of a stream that may be encrypted; FileNotFoundError, Unreadable."""
    folder, _ = place.messages()
    raw = whole(folder / f"{number}.blk")
    block = Block(number, len(raw), raw)
    if encrypted:
        try:
            block.plain = raw = seals.of_block(place, number).decrypt(raw)
        except seals.Locked as error:
            block.plain = b""
            block.sealed, block.fault = True, str(error)
            return block
    if raw[:3] == PACKED:
        block.packed = True
        block.plain = b""
        try:
            block.plain = unpack(raw)
        except ValueError as error:
            block.fault = str(error)
            return block
    block._rows = block_rows(key_of(f"{place.name}-{number}"), block.plain)
    return block


def of_bytes(data: bytes, number: int, stream: str) -> Block:
    """A block of these plain bytes."""
    rows = block_rows(key_of(f"{stream}-{number}"), data)
    return Block(number, len(data), data, _rows=rows)


def unpack(raw: bytes) -> bytes:
    """The plain bytes of a compressed block; ValueError."""
    if len(raw) < 5 + TAIL or raw[3] != 1:
        kind = raw[3] if len(raw) > 3 else 0
        raise ValueError(f"compressed by a method of number {kind}, which is not known")
    at = 4
    while at < len(raw) and raw[at] & 0x80:
        at += 1
    return s2.decompress(raw[at + 1 : -TAIL], WHOLE_MAX) + raw[-TAIL:]


def read_or_fault(place: Place, number: int, encrypted: bool = False) -> Block:
    """The same, but a file that cannot be read is a block with a fault."""
    try:
        return read(place, number, encrypted)
    except (FileNotFoundError, Unreadable) as error:
        return Block(number, 0, fault=str(error) or "missing")
