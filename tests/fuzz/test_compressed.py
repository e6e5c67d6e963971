"""Compressed bytes of another server over a transport in memory: whatever comes, however it is cut,
the same happens.

Inputs are streams of S2, whole and broken in every way; `$FUZZ_SECONDS` is how long it goes on.
"""

import random

import pytest

from jsserver.cext.bytes import S2Stream, s2_encode
from tests.fuzz.transport import (
    CONNECT,
    FUZZ_SECONDS,
    SAID,
    broken,
    cuts,
    deliver,
    ends_and_errors,
    rounds,
)

net = pytest.importorskip("tests.cext.net", reason="the data plane is not built here")

pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)
START = 10
"""Bytes of a stream's beginning."""


def stream(rnd: random.Random) -> bytes:
    """Chunks as a server sends them, and as none should."""
    raw = [s2_encode(CONNECT)]
    for _ in range(rnd.randrange(1, 12)):
        said = b"".join(rnd.choices(SAID, k=rnd.randrange(1, 9)))
        whole = s2_encode(said, rnd.randrange(1, 5))
        match rnd.randrange(8):
            case 0:
                raw.append(bytes([rnd.randrange(256), rnd.randrange(256), 0, 0]))
            case 1:
                raw.append(rnd.choice([b"\x80", b"\xfe"]) + b"\x03\0\0pad")
            case 2:
                raw.append(broken(whole, rnd))
            case 3:
                raw.append(broken(whole[START:], rnd))
            case 4:
                raw.append(whole[: rnd.randrange(len(whole))])
            case 5:
                raw.append(whole[START:])
            case _:
                raw.append(whole)
    return b"".join(raw)


def outcome(pieces: list[bytes], piece: int) -> tuple[object, ...]:
    """What a connection that gets these answers, and how it ends."""
    r = net.PyReactor()
    cid = r.open("client")
    r.turn()
    r.received(cid)
    r.compress(cid, 2)
    r.turn()
    r.pieces(cid, piece)
    deliver(r, cid, pieces)
    ends, errors = ends_and_errors(r, cid)
    answers, decoder = b"", S2Stream()
    said = decoder.feed(r.received(cid))
    while said:
        answers += said
        said = decoder.feed(b"")
    return answers, ends, errors


def test_what_comes_of_chunks_does_not_depend_on_how_they_are_cut() -> None:
    for one, which in rounds():
        raw = stream(one)
        whole = outcome([raw], 1 << 30)
        piece = one.choice([1 << 30, 1000, 7777])
        other = outcome(cuts(raw, one), piece)
        if whole[1] and piece < 1 << 30:
            whole, other = whole[1:], other[1:]  # last words are lost where they find no room
        assert whole == other, which
