"""Whatever comes as S2 is decoded or refused, and what the encoder makes comes out again."""

import contextlib
import os
import random
import time

import pytest

bytes_ = pytest.importorskip("jsserver.cext.bytes", reason="the data plane is not built here")

FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))
pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)


def some_plain(rng: random.Random) -> bytes:
    parts = [rng.randbytes(rng.randrange(1, 40)) for _ in range(rng.randrange(1, 8))]
    size = rng.choice([0, 1, 17, 300, 5000, 70_000, 1_100_000])
    plain = bytearray()
    while len(plain) < size:
        plain += rng.choice(parts) * rng.choice([1, 1, 2, 30])
        if rng.random() < 0.2:
            plain += rng.randbytes(rng.randrange(200))
    return bytes(plain[:size])


def by_stream(code: bytes, step: int) -> bytes:
    stream = bytes_.S2Stream()
    plain = bytearray()
    for at in range(0, len(code), step):
        plain += stream.feed(code[at : at + step])
    while more := stream.feed(b""):
        plain += more
    stream.finish()
    return bytes(plain)


def spoilt(code: bytes, rng: random.Random) -> bytes:
    broken = bytearray(code)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(broken))
        match rng.randrange(4):
            case 0:
                broken[at] ^= 1 << rng.randrange(8)
            case 1:
                broken[at] = rng.randrange(256)
            case 2:
                del broken[at : at + rng.randrange(1, 9)]
            case _:
                broken[at:at] = rng.randbytes(rng.randrange(1, 9))
        broken = broken or bytearray(1)
    return bytes(broken)


def test_whatever_comes() -> None:
    rng = random.Random(os.environ.get("FUZZ_SEED", "1"))
    end = time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < end:
        plain = some_plain(rng)
        code = bytes_.s2_encode(plain)
        assert by_stream(code, rng.choice([997, 1 << 16, 1 << 22])) == plain
        for _ in range(40):
            broken = spoilt(code, rng)
            # A checksum lets no other bytes through; what is left has fewer chunks.
            with contextlib.suppress(ValueError):
                assert by_stream(broken, 1 << 16) in (
                    plain,
                    b"",
                    plain[: 1 << 20],
                    plain[1 << 20 :],
                )
            with contextlib.suppress(ValueError):
                bytes_.s2_decode(broken[18 : 18 + rng.randrange(1, 4000)])
