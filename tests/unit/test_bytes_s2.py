"""S2: every kind of tag, the stream around blocks, bad input, and what the encoder makes."""

import contextlib
import random

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver.cext.bytes import S2Stream, crc32c_of, s2_decode, s2_encode, s2_encode_block, snappy
from jsserver.text.s2 import decompress

START = b"\xff\x06\x00\x00S2sTwO"
SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"


def uvarint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes([*out, n])


def literal(data: bytes) -> bytes:
    n = len(data) - 1
    if n < 60:
        return bytes([n << 2]) + data
    size = (n.bit_length() + 7) // 8
    return bytes([(59 + size) << 2]) + n.to_bytes(size, "little") + data


def copy(offset: int, length: int) -> bytes:
    """The shortest tag; a length that no tag can have is the caller's mistake."""
    if 4 <= length <= 11 and offset < 2048:
        return bytes([1 | (length - 4) << 2 | offset >> 8 << 5, offset & 0xFF])
    assert 1 <= length <= 64
    if offset < 65536:
        return bytes([2 | (length - 1) << 2]) + offset.to_bytes(2, "little")
    return bytes([3 | (length - 1) << 2]) + offset.to_bytes(4, "little")


def repeat(length: int) -> bytes:
    if length <= 8:
        return bytes([1 | (length - 4) << 2, 0])
    for code, base, size in ((5, 8, 1), (6, 260, 2), (7, 65540, 3)):
        if length - base < 1 << 8 * size:
            return bytes([1 | code << 2, 0]) + (length - base).to_bytes(size, "little")
    raise AssertionError(length)


def block(plain: bytes, tags: bytes) -> bytes:
    return uvarint(len(plain)) + tags


def chunk(kind: int, plain: bytes, body: bytes) -> bytes:
    crc = crc32c_of(plain)[0]
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    body = masked.to_bytes(4, "little") + body
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def stored(plain: bytes) -> bytes:
    return chunk(1, plain, plain)


def packed(plain: bytes) -> bytes:
    return chunk(0, plain, pa.compress(plain, "snappy", asbytes=True))


Op = tuple[str, int, int, bytes]

OPS = st.lists(
    st.tuples(
        st.sampled_from(["literal", "copy", "repeat"]),
        st.integers(0, 1 << 20),
        st.one_of(st.integers(1, 64), st.integers(200, 300), st.sampled_from([4, 65539, 65600])),
        st.binary(min_size=1, max_size=90),
    ),
    max_size=30,
)


def encoded(ops: list[Op]) -> tuple[bytes, bytes]:
    """A block of those tags, and what it stands for."""
    plain = bytearray()
    tags = b""
    offset = 0
    for kind, where, length, data in ops:
        if kind == "literal" or not plain or (kind == "repeat" and not offset):
            tags += literal(data)
            plain += data
            continue
        if kind == "copy":
            offset = where % len(plain) + 1
            length = min(length, 64)
            tags += copy(offset, length)
        else:
            length = max(length, 4)
            tags += repeat(length)
        for _ in range(length):
            plain.append(plain[-offset])
    return block(bytes(plain), tags), bytes(plain)


@given(OPS)
@settings(max_examples=150)
def test_all_tags(ops: list[Op]) -> None:
    code, plain = encoded(ops)
    assert s2_decode(code) == plain


@pytest.mark.parametrize("length", [4, 5, 8, 9, 263, 264, 515, 65539, 65540, 65800, 131075, 131080])
def test_every_repeat_code(length: int) -> None:
    tags = literal(b"abcdefghij") + copy(10, 4) + repeat(length)
    plain = (b"abcdefghij" * (length // 10 + 3))[: 14 + length]
    assert s2_decode(block(plain, tags)) == plain


@given(OPS, st.data())
@settings(max_examples=150)
def test_nothing_damaged_harms(ops: list[Op], data: st.DataObject) -> None:
    code, _ = encoded(ops)
    changed = bytearray(code[: data.draw(st.integers(0, len(code)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            at = data.draw(st.integers(0, len(changed) - 1))
            changed[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(ValueError):
        s2_decode(bytes(changed))


@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_anything_is_refused_or_decoded(code: bytes) -> None:
    for decode in (s2_decode, lambda b: S2Stream().feed(b), lambda b: S2Stream().feed(START + b)):
        with contextlib.suppress(ValueError):
            decode(code)


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"\x05",
        block(b"abcd", bytes([1, 0])),  # repeats without a copy before
        block(b"aaaaaaaa", literal(b"aaaa") + bytes([1, 5])),  # reaches before the start
        block(b"aaaa", literal(b"aaaa") + copy(1, 4)),  # more than promised
        block(b"aaaaa", literal(b"aaaa")),  # less than promised
        block(b"aaaa", literal(b"aaaa")[:-1]),
        block(b"aaaaa", literal(b"a") + bytes([2 | 3 << 2, 0, 0])),  # offset 0
        b"\xff\xff\xff\xff\x7f",
    ],
)
def test_bad_blocks(code: bytes) -> None:
    with pytest.raises(ValueError, match="corrupt"):
        s2_decode(code)


@given(st.binary(max_size=5000))
@settings(max_examples=50)
def test_snappy_blocks(plain: bytes) -> None:
    for data in (plain, plain[:50] * 40):
        assert s2_decode(pa.compress(data, "snappy", asbytes=True)) == data


def test_checksums_agree_and_are_castagnoli() -> None:
    assert crc32c_of(b"123456789") == (0xE3069283, 0xE3069283)
    for n in range(40):
        fast, portable = crc32c_of(bytes(range(n)))
        assert fast == portable


@pytest.mark.parametrize("start", [START, SNAPPY_START])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_stream_in_pieces(start: bytes, step: int) -> None:
    plain = b"stream of messages " * 300
    other = b"\xfe\x03\x00\x00abc" + b"\x99\x02\x00\x00xy"  # padding, an index
    code = start + packed(plain[:2000]) + other + stored(plain[2000:]) + start
    stream = S2Stream()
    got = b"".join(stream.feed(code[at : at + step]) for at in range(0, len(code), step))
    stream.finish()
    assert got == plain


def test_a_stream_comes_in_bounded_steps() -> None:
    megabyte = bytes(1 << 20)
    stream = S2Stream()
    sizes = [len(stream.feed(START + packed(megabyte) * 20))]
    while piece := stream.feed(b""):
        sizes.append(len(piece))
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= 12 << 20


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (packed(b"x"), "no S2"),
        (b"\xff\x06\x00\x00S2sTwX", "no S2"),
        (START + b"\x02\x04\x00\x00abcd", "unknown kind"),
        (START + b"\x00\x03\x00\x00abc", "unknown kind"),
        (START + packed(b"x" * 100)[:-1] + b"\x01", "checksum|corrupt"),
        (START + stored(b"x" * 100)[:-1] + b"\x00", "checksum"),
    ],
)
def test_bad_streams(code: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        S2Stream().feed(code)


def test_a_stream_that_is_cut() -> None:
    stream = S2Stream()
    stream.feed(START + packed(b"x" * 100)[:-1])
    with pytest.raises(ValueError, match="ends early"):
        stream.finish()
    with pytest.raises(ValueError, match="no S2"):
        S2Stream().finish()


# ---- the encoder -------------------------------------------------------------------------------


PARTS = st.lists(
    st.tuples(
        st.one_of(st.binary(max_size=40), st.sampled_from([b"\0", b"abc", b'{"order":'])),
        st.integers(1, 60),
    ),
    max_size=25,
)


LEVELS = st.sampled_from([2, 3, 4])
"""Fast, better and best."""


@given(PARTS, LEVELS)
@settings(max_examples=600, deadline=None)
def test_what_is_encoded_comes_out_again(parts: list[tuple[bytes, int]], level: int) -> None:
    plain = b"".join(part * times for part, times in parts)
    code = s2_encode(plain, level)
    assert code.startswith(START)
    assert decompress(code, len(plain)) == plain
    assert len(code) <= len(plain) + 18


@pytest.mark.parametrize(
    "size", [0, 1, 15, 16, 17, 18, 31, 32, 33, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20]
)
@pytest.mark.parametrize("kind", ["zeros", "noise", "cycle"])
@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_size_of_chunk(size: int, kind: str, level: int) -> None:
    noise = random.Random(size).randbytes(70001)
    plain = {
        "zeros": b"\0" * size,
        "noise": noise * (size // 70001 + 1),
        "cycle": b"0123456789" * (size // 10 + 1),
    }
    data = plain[kind][:size]
    code = s2_encode(data, level)
    assert decompress(code, len(data)) == data
    if level == 2 and size >= 1 << 20:
        assert len(code) < {"zeros": 200, "cycle": 300, "noise": size}[kind]


@pytest.mark.parametrize("back", [1, 7, 2047, 2048, 65535, 65536, 200_000])
@pytest.mark.parametrize(
    "length", [4, 11, 12, 64, 65, 68, 69, 75, 76, 323, 324, 400, 65855, 65856, 70000]
)
def test_copies_of_every_distance_and_length(back: int, length: int) -> None:
    # Then a copy of the same distance again, a little further on.
    rng = random.Random(back * 100_003 + length)
    plain = bytearray(rng.randbytes(back + 40))
    for some in (length, 9):
        for _ in range(some):
            plain.append(plain[-back])
        plain += rng.randbytes(5)
    plain += rng.randbytes(40)
    for level in (2, 3, 4):
        assert decompress(s2_encode(plain, level), len(plain)) == plain


def test_higher_levels_need_fewer_bytes() -> None:
    rng = random.Random(3)
    order = '{"order":%d,"customer":"c%d","amount":%.2f,"items":["%x"]}\n'
    numbers = ((i, rng.randrange(1000), rng.random() * 100, rng.randrange(99)) for i in range(1200))
    plain = "".join(order % each for each in numbers).encode()[: 1 << 16]
    sizes = [len(s2_encode(plain, level)) for level in (1, 2, 3, 4)]
    assert sizes[3] < sizes[2] < sizes[1] < len(plain) < sizes[0]


@pytest.mark.parametrize("size", [0, 1, 17, 5000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_500_000])
def test_one_block_of_any_length(size: int) -> None:
    """It is encoded a piece at a time, and is one block all the same."""
    rng = random.Random(size)
    plain = b"".join(b"%d is %d, " % (i, rng.getrandbits(20)) for i in range(size // 12 + 1))[:size]
    for data in (plain, rng.randbytes(size), bytes(size)):
        assert s2_decode(s2_encode_block(data)) == data


def test_framed_snappy_of_another() -> None:
    plain = b"".join(b"order %d of customer %d, " % (i, i % 17) for i in range(9000))
    assert decompress(bytes(cramjam.snappy.compress(plain)), len(plain)) == plain
    assert bytes(cramjam.snappy.decompress(snappy(plain))) == plain
    for some in (plain[:100], b"", b"a" * 70000):
        assert s2_decode(bytes(cramjam.snappy.compress_raw(some))) == some


def test_what_comes_again_far_away_takes_no_room() -> None:
    rng = random.Random(3)
    once = b"".join(b'{"order":%d,"customer":"%s"}' % (i, rng.randbytes(12)) for i in range(3000))
    assert len(s2_encode(once * 5)) < 0.5 * len(snappy(once * 5))
