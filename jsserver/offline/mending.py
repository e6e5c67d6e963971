"""Finds the one changed bit of damaged bytes by their checksum, and makes blocks without holes."""

from __future__ import annotations

import struct

from jsserver.cext.bytes import hh64
from jsserver.cext.store import block_rows, record_mark

from .bits import changed_back
from .blocks import ERASED, HEAD, ROW, SMALLEST, TAIL, TOMB, Block, Kind, Row, key_of
from .check import lengths_explained

PLACES = 200
"""Damaged places of a block that are searched."""
_MARK = struct.Struct("<QQQQQIIQQqH")
_MAGIC = 0x314B524D534A534A
_WHOLE, _SUM = 2, 4
_U64 = struct.Struct("<Q")


def record(key: bytes, seq: int, time: int, body: bytes = b"") -> bytes:
    """A record without a subject: a tombstone, where its bit is set in the sequence."""
    stamp = struct.pack("<Qq", seq, time)
    total = _U64.pack(hh64(key, stamp + body))
    return struct.pack("<I", SMALLEST + len(body)) + stamp + b"\0\0" + body + total


def _is_good(key: bytes, data: bytes | bytearray, at: int) -> int:
    """The size of the whole record that stands there, 0: there is none."""
    if at + SMALLEST > len(data):
        return 0
    head = int.from_bytes(data[at : at + 4], "little")
    size, subject = head & 0x7FFFFFFF, int.from_bytes(data[at + 20 : at + 22], "little")
    skip = 4 if head >> 31 else 0
    if size > len(data) - at or size < SMALLEST + subject + skip:
        return 0
    text = data[at + HEAD : at + HEAD + subject]
    rest = data[at + HEAD + subject + skip : at + size - TAIL]
    hashed = bytes(data[at + 4 : at + 20]) + bytes(text) + bytes(rest)
    good = hh64(key, hashed) == _U64.unpack(data[at + size - TAIL : at + size])[0]
    return size if good else 0


def bit_of(key: bytes, data: bytearray, at: int, size: int) -> bool:
    """Whether one changed bit explains why no record stands there: it is changed back then."""
    return changed_back(data, at, size, lambda: _is_good(key, data, at) > 0) is not None


def mended(block: Block, stream: str) -> bytes | None:
    """The block's bytes with every single changed bit changed back; None: none was found."""
    key, data = key_of(f"{stream}-{block.number}"), bytearray(block.plain)
    any_mended = False
    for row in block.rows():
        if row[1] & (TOMB | ERASED) and row[5]:
            data[row[0] + 20 : row[0] + 22] = b"\0\0"
            any_mended = True
        elif row[6] == Kind.MISFIT:
            found = lengths_explained(block, row)
            if len(found) == 1:
                _lengths(data, *found[0])
                any_mended = True
    at = 0
    for _ in range(PLACES):
        place = _first_bad(key, data, at)
        if place is None:
            break
        at, size = place
        if at + size == len(data) and int.from_bytes(data[at:], "little").bit_count() == 1:
            data[at:] = bytes(size)  # among the zeros that are written ahead
            any_mended = True
        elif bit_of(key, data, at, size):
            any_mended = True
        else:
            at += size
    return bytes(data) if any_mended else None


def _first_bad(key: bytes, data: bytearray, start: int) -> tuple[int, int] | None:
    for row in ROW.iter_unpack(block_rows(key, data)):
        if row[6] == Kind.BAD and row[0] >= start:
            return row[0], row[3]
    return None


def _lengths(data: bytearray, row: Row, lengths: tuple[int, int, int]) -> None:
    """Gives a record the lengths that its group's digest speaks of."""
    at, (size, subject, header) = row[0], lengths
    data[at : at + 4] = size.to_bytes(4, "little")
    data[at + 20 : at + 22] = subject.to_bytes(2, "little")
    if size >> 31:
        data[at + HEAD + subject : at + HEAD + subject + 4] = header.to_bytes(4, "little")


def without_holes(block: Block, stream: str, more: list[tuple[int, int]]) -> bytes:
    """The good records of a block, tombstones of further sequences (with times) behind them, and
    where our server wrote the block a marker over all of it, as a compaction leaves it."""
    key, out = key_of(f"{stream}-{block.number}"), bytearray()
    digest, count, own = 0, 0, False
    first = last = last_time = 0
    for row in block.rows():
        at, raw, _, size, header, subject, kind, _ = row
        if kind in (Kind.MARK, Kind.MISFIT):
            mark, own = block.mark(row), True
            first = max(first, mark.first)
            if mark.last >= last:
                last, last_time = mark.last, mark.last_time
        if kind != Kind.RECORD:
            continue
        bytes_of = block.plain[at : at + size]
        digest += _digest(bytes_of, raw, header, subject, len(out))
        count += 1
        out += bytes_of
    for seq, time in more:
        made = record(key, seq | TOMB, time)
        digest += _digest(made, seq | TOMB, 0, 0, len(out))
        count += 1
        out += made
        if seq > last:
            last, last_time = seq, time
    if own:
        sums = (digest & 0xFFFFFFFFFFFFFFFF, count, _WHOLE | _SUM, first, last, last_time, 0)
        out += record(key, TOMB, 0, _MARK.pack(_MAGIC, 0, 0, len(out), *sums))
    return bytes(out)


def _digest(made: bytes, raw: int, header: int, subject: int, at: int) -> int:
    if raw & ERASED and len(made) >= SMALLEST + 8 and not raw & TOMB:
        return int(_U64.unpack(made[HEAD : HEAD + 8])[0])
    total, head = _U64.unpack(made[-TAIL:])[0], int.from_bytes(made[:4], "little")
    return record_mark(total, head, subject, header, at)
