"""Small streams of S2 (https://github.com/klauspost/compress/tree/master/s2): reads them, and
writes them without compressing, as everything that reads S2 may be given."""

from __future__ import annotations

_MAGIC = b"\xff\x06\x00\x00S2sTwO"
_SNAPPY = b"\xff\x06\x00\x00sNaPpY"
_PACKED, _PLAIN = 0, 1
_CHUNK_MAX = 1 << 16
_POLYNOMIAL = 0x82F63B78


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as streams have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def compress(data: bytes) -> bytes:
    """A stream that holds the data."""
    out = [_MAGIC]
    for at in range(0, len(data), _CHUNK_MAX):
        chunk = data[at : at + _CHUNK_MAX]
        out += [bytes([_PLAIN]), (len(chunk) + 4).to_bytes(3, "little"), _checksum(chunk), chunk]
    return b"".join(out)


def decompress(data: bytes, most: int) -> bytes:
    """What a stream holds; ValueError where it is none, or holds more than `most` bytes."""
    if data[: len(_MAGIC)] not in (_MAGIC, _SNAPPY):
        raise ValueError("no S2 stream")
    at, out = len(_MAGIC), b""
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        chunk = data[at + 4 : at + 4 + size]
        if len(chunk) < size or at + 4 > len(data):
            raise ValueError("the stream ends early")
        at += 4 + size
        if kind >= 0x80:
            continue  # padding, an index, another identifier
        if kind not in (_PACKED, _PLAIN) or size < 4:
            raise ValueError("a chunk of an unknown kind")
        plain = _block(chunk[4:], most - len(out)) if kind == _PACKED else chunk[4:]
        if len(out) + len(plain) > most:
            raise ValueError("the stream holds too much")
        if _checksum(plain) != chunk[:4]:
            raise ValueError("a chunk's checksum does not fit")
        out += plain
    return out


def _block(data: bytes, most: int) -> bytes:
    """The bytes of a block: a length, then literals and copies of what came before."""
    try:
        size, at = _uvarint(data)
        if size > most:
            raise ValueError("the stream holds too much")
        out, offset = bytearray(), 0
        while at < len(data):
            tag = data[at]
            at += 1
            kind = tag & 3
            if kind == 0:
                n = tag >> 2
                if n >= 60:
                    extra = n - 59
                    n = int.from_bytes(data[at : at + extra], "little")
                    at += extra
                n += 1
                if n > len(data) - at:
                    raise ValueError("a block is cut off")
                out += data[at : at + n]
                at += n
            else:
                if kind == 1:
                    n, again = tag >> 2 & 7, (tag & 0xE0) << 3 | data[at]
                    at += 1
                    if again:
                        offset = again
                    elif n >= 5:  # a longer copy from where the one before came
                        extra = n - 4
                        n = int.from_bytes(data[at : at + extra], "little")
                        n += (0, 4, 1 << 8, 1 << 16)[extra]
                        at += extra
                    n += 4
                else:
                    width = 2 if kind == 2 else 4
                    n = (tag >> 2) + 1
                    offset = int.from_bytes(data[at : at + width], "little")
                    at += width
                if not 0 < offset <= len(out) or n > size - len(out):
                    raise ValueError("a copy of what is not there")
                for _ in range(n):
                    out.append(out[-offset])
            if len(out) > size:
                raise ValueError("a block has more than it says")
    except IndexError:
        raise ValueError("a block is cut off") from None
    if len(out) != size:
        raise ValueError("a block has less than it says")
    return bytes(out)


def _uvarint(data: bytes) -> tuple[int, int]:
    """A number, and how many bytes it takes."""
    value = 0
    for at in range(5):
        value |= (data[at] & 0x7F) << 7 * at
        if data[at] < 0x80:
            return value, at + 1
    raise ValueError("a length is too large")
