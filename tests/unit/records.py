"""Writes records, blocks and caches of a store as servers do, and finds records in a block."""

import hashlib
import struct

from jsserver.cext.bytes import hh64

STREAM = "S"
TOMB, ERASED = 1 << 62, 1 << 63
HEADED = 1 << 31
MARKER_MAGIC = 0x314B524D534A534A


def record(
    seq: int,
    subject: bytes = b"k",
    data: bytes = b"",
    *,
    ts: int = 0,
    header: bytes = b"",
    block: int = 1,
) -> bytes:
    size = 30 + len(subject) + len(data) + (4 + len(header) if header else 0)
    ts = ts or 1_000_000 * (seq & (TOMB - 1))
    body = subject + (struct.pack("<I", len(header)) + header if header else b"") + data
    stamp = struct.pack("<Qq", seq, ts)
    total = hh64(key(block), stamp + subject + header + data)
    head = struct.pack("<I", size | (HEADED if header else 0)) + stamp
    return head + struct.pack("<H", len(subject)) + body + struct.pack("<Q", total)


def tombstone(seq: int, *, block: int = 1) -> bytes:
    return record(seq | TOMB, b"", block=block)


def erased(seq: int, size: int, *, block: int = 1) -> bytes:
    return record(seq | ERASED, b"", bytes(size - 30), block=block)


def marker(first: int = 0, last: int = 0, *, durable: int = 0, block: int = 1) -> bytes:
    body = struct.pack("<5QIIQQqH", MARKER_MAGIC, 1, 0, durable, 0, 1, 0, first, last, 0, 0)
    return record(TOMB, b"", body, block=block)


def short_marker(*, block: int = 1) -> bytes:
    """As they once were."""
    body = struct.pack("<5QIIH", MARKER_MAGIC, 1, 0, 0, 0, 1, 0, 0)
    return record(TOMB, b"", body, block=block)


def records(data: bytes | bytearray) -> list[tuple[int, int, int, bytes]]:
    """(offset, raw sequence, length, record) of each record in a block; zeros may follow."""
    out, at = [], 0
    data = bytes(data)
    end = len(data.rstrip(b"\0"))
    while at < end:
        size = struct.unpack_from("<I", data, at)[0] & 0x7FFFFFFF
        assert size >= 30, f"no record at {at}"
        out.append((at, struct.unpack_from("<Q", data, at + 4)[0], size, data[at : at + size]))
        at += size
    return out


def written(data: bytes) -> bytes:
    """A block without the zeros behind its records, whose last byte may be one."""
    at, _, size, _ = records(data)[-1]
    return data[: at + size]


def key(block: int = 1) -> bytes:
    """Of the checksums of a block."""
    return hashlib.sha256(f"{STREAM}-{block}".encode()).digest()


def runs(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *pair) for pair in pairs)


def pairs(data: bytes) -> list[tuple[int, int]]:
    return [struct.unpack_from("<QQ", data, at) for at in range(0, len(data), 16)]


def uvarint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def svarint(n: int) -> bytes:
    return uvarint(n << 1 if n >= 0 else (-n << 1) - 1)
