"""Hashes: vectors of the on-disk format, pieces, the hash of tables, random numbers."""

import hashlib
import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.cext.bytes as tb
from jsserver.cext import bytes as jb
from jsserver.text.nuid import ALPHABET

KEY = bytes(range(32))


@pytest.fixture(params=["vector", "portable"], autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with both forms of HighwayHash."""
    if jb.highway_simd(request.param == "vector") != (request.param == "vector"):
        pytest.skip("the processor has no AVX2")
    yield
    jb.highway_simd(True)


S1_BLOCK_1 = hashlib.sha256(b"S1-1").digest()


def hh(key: bytes, data: bytes) -> str:
    return struct.pack("<Q", jb.hh64(key, data)).hex()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", "536ec222de567a90"),
        (b"abc", "2e68e4dfce90df7f"),
        (bytes(range(32)), "fc80d5ecd964c9a0"),
        (bytes(range(33)), "fc8131a03cf7902c"),
    ],
)
def test_highwayhash_vectors(data: bytes, want: str) -> None:
    assert hh(KEY, data) == want


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        # message, message with headers (hdr_len at 26..30 is not hashed), tombstone, skip
        (
            "27000000010000000000000000002a36fe9c9717040073312e6168656c6c6f98a64c71c674b6e6",
            [(22, 31)],
        ),
        (
            "3d000080020000000000000001002a36fe9c971704"
            "0073312e61120000004e4154532f312e300d0a413a20620d0a0d0a68656c6c6f510ec0b65d9163fc",
            [(22, 26), (30, 53)],
        ),
        ("1e000000010000000000004000002a36fe9c97170000f62badd92e603ddb", []),
        ("1e000000030000000000008002002a36fe9c971700007a1c7858dc775326", []),
    ],
)
def test_record_checksums(record: str, fields: list[tuple[int, int]]) -> None:
    raw = bytes.fromhex(record)
    hashed = raw[4:20] + b"".join(raw[a:b] for a, b in fields)
    assert hh(S1_BLOCK_1, hashed) == raw[-8:].hex()


def test_meta_checksums() -> None:
    assert hh(jb.sha256(b"S1"), b"{}") == "6a5ac2723aa60665"
    assert hh(jb.sha256(b"S1/C1"), b"{}") == "baca9464cbfd78b9"


@given(st.binary(max_size=300), st.lists(st.integers(0, 80), max_size=12))
def test_highwayhash_in_pieces_equals_one_call(data: bytes, cuts: list[int]) -> None:
    h = tb.PyHighwayHash(KEY)
    at = 0
    for n in cuts:
        h.update(data[at : at + n])
        at += n
    h.update(data[at:])
    assert h.final() == jb.hh64(KEY, data)


def test_highwayhash_forms_agree() -> None:
    rng = random.Random(7)
    for n in [*range(140), 1000, 65537]:
        key, data = rng.randbytes(32), rng.randbytes(n)
        assert jb.highway_simd(False) is False
        portable = jb.hh64(key, data)
        jb.highway_simd(True)
        assert jb.hh64(key, data) == portable, n


def test_highwayhash_key_length_is_checked() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        jb.hh64(bytes(31), b"")
    with pytest.raises(ValueError, match="32 bytes, not 33"):
        tb.PyHighwayHash(bytes(33))
    with pytest.raises(TypeError):
        jb.hh64(None, b"")  # type: ignore[arg-type]


def test_sha256_equals_hashlib_at_every_length_around_the_blocks() -> None:
    rng = random.Random(1)
    for n in [*range(200), 1000, 65536, 65537]:
        data = rng.randbytes(n)
        assert jb.sha256(data) == hashlib.sha256(data).digest(), n


def test_table_hash_spreads_and_repeats() -> None:
    keys = [b"", *(b"\0" * n for n in range(1, 70)), *(b"orders.%d" % i for i in range(20000))]
    hashes = {tb.table_hash(k) for k in keys}
    assert len(hashes) == len(keys)
    # The low bits choose the slot: 2^15 slots for 20,000 keys leave about 54 % of them empty.
    slots = {tb.table_hash(b"orders.%d" % i) & 0x7FFF for i in range(20000)}
    assert 14000 < len(slots) < 16000
    assert all(tb.table_hash(k) == tb.table_hash(bytes(bytearray(k))) for k in keys[:100])


def test_random_follows_splitmix64() -> None:
    r = tb.PyRandom(1234567)
    want = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [r.next() for _ in want] == want


def test_secrets_are_the_systems_random_bytes_and_asked_for_in_pieces() -> None:
    raw = b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(64))
    r = tb.PyRandom(1, raw)
    secrets = [r.secret() for _ in range(128)]
    assert r.asked == 2  # for 1,024 bytes
    whole = [int.from_bytes(raw[at : at + 8], "little") for at in range(0, 1024, 8)]
    assert sorted(secrets) == sorted(whole)
    assert len(set(secrets)) == 128
    drawn = sorted(byte % 62 for byte in raw[1024:1536] if byte < 248)
    token = r.token(len(drawn))
    assert sorted(ALPHABET.index(chr(ch)) for ch in token) == drawn
    assert r.asked == 3
