"""Snappy: whatever is compressed comes out again, by another's decoder and by our own."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver.cext.bytes import crc32c_of, snappy
from jsserver.text.s2 import decompress

START = b"\xff\x06\x00\x00sNaPpY"


def by_another(data: bytes) -> bytes:
    """What the stream's chunks hold, as Arrow's Snappy reads their blocks."""
    assert data.startswith(START)
    at, plain = len(START), b""
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        checksum, body = data[at + 4 : at + 8], data[at + 8 : at + 4 + size]
        if kind == 0:
            length = shift = index = 0
            while True:
                byte = body[index]
                length |= (byte & 0x7F) << shift
                shift, index = shift + 7, index + 1
                if byte < 0x80:
                    break
            some = bytes(pa.decompress(body, length, "snappy", asbytes=True))
        else:
            assert kind == 1
            some = body
        crc = crc32c_of(some)[0]
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        assert checksum == masked.to_bytes(4, "little")
        plain += some
        at += 4 + size
    return plain


def check(data: bytes) -> bytes:
    made = snappy(data)
    assert by_another(made) == decompress(made, len(data)) == data
    return made


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 30)), max_size=20))
def test_anything(parts: list[tuple[bytes, int]]) -> None:
    check(b"".join(piece * times for piece, times in parts))


SIZES = (0, 1, 3, 4, 5, 59, 60, 61, 62, 255, 256, 257, 65535, 65536, 65537, 200_000)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: int) -> None:
    assert len(check(b"a" * size)) < 64 + size // 15
    noise = random.Random(size).randbytes(size)
    assert len(check(noise)) <= len(START) + size + 8 * (size // 65536 + 1)
    check(noise[: size // 2] + b"x" * 70 + noise[: size // 2])


def test_pages_become_much_smaller() -> None:
    page = b"".join(b'{"cid":%d,"kind":"Client","ip":"127.0.0.1"},' % n for n in range(2000))
    assert len(check(page)) < len(page) / 3
