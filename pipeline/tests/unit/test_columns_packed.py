"""Compressed blocks are made plain; and bytes that somebody looks at stay where they are."""

import pytest

from jsserver_spark.cext.columns import Plain
from pipeline.tests.unit.blocks import plain
from tests.unit.test_bytes_s2 import START, packed, uvarint


def unpacked(code: bytes) -> bytes:
    into = Plain()
    into.unpack(plain(code))
    return bytes(into)


@pytest.mark.parametrize("told", [0, 608, 1 << 40])
def test_compressed_block(told: int) -> None:
    """The length in its head is only a hint."""
    code = b"cmp\x01" + uvarint(told) + START + packed(b"r" * 600) + b"12345678"
    assert plain(code).packed
    assert unpacked(code) == b"r" * 600 + b"12345678"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (b"plain", "no compressed block"),
        (b"cmp\x02" + bytes(20), "algorithm 2"),
        (b"cmp\x01\x05" + START + packed(b"r" * 600)[:-3] + b"12345678", "ends early"),
        (b"cmp\x01\x05" + b"1234567", "cut short"),
    ],
)
def test_bad_compressed_blocks(code: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        unpacked(code)


def test_bytes_that_are_looked_at_stay() -> None:
    block = plain(b"abc")
    with memoryview(block) as view, pytest.raises(BufferError):
        block.clear()
    del view
    block.clear()
    assert len(block) == 0
