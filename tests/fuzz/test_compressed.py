"""Compressed bytes of another server over a transport in memory: whatever comes, however it is cut,
the same happens.

Inputs are streams of S2, whole and broken in every way; `$FUZZ_SECONDS` is how long it goes on.
"""

import os
import random
import time

import pytest

from jsserver.cext.bytes import S2Stream, s2_encode
from jsserver.cext.engine import CLOSE_REASONS, INBOX_CLOSED, INBOX_ERROR
from tests.fuzz.test_websocket import CONNECT, SAID, broken, cuts

net = pytest.importorskip("tests.cext.net", reason="the data plane is not built here")

FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "5"))
pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)
SEED = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns()
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
    end = time.monotonic() + 60
    for data in pieces:
        if r.pending(cid) is None:
            break
        r.send(cid, data)
        r.turn()
        while r.pending(cid) is not None and r.unread(cid):
            assert time.monotonic() < end, "it is never read to its end"
            r.writable(cid)
            r.send(cid, b"")
            r.turn()
    while r.pending(cid):
        assert time.monotonic() < end, "it is never written to its end"
        r.writable(cid)
        r.turn()
    r.turn()
    assert r.under_lock(cid) == 0
    answers, decoder = b"", S2Stream()
    said = decoder.feed(r.received(cid))
    while said:
        answers += said
        said = decoder.feed(b"")
    items = r.items()
    ends = [CLOSE_REASONS[i[2][0]] for i in items if i[0] == INBOX_CLOSED]
    errors = [i[3][2] for i in items if i[0] == INBOX_ERROR]
    return answers, ends, errors


def test_what_comes_of_chunks_does_not_depend_on_how_they_are_cut() -> None:
    rnd = random.Random(SEED)
    end = time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < end:
        seed = rnd.randrange(1 << 62)
        one = random.Random(seed)
        raw = stream(one)
        whole = outcome([raw], 1 << 30)
        piece = one.choice([1 << 30, 1000, 7777])
        other = outcome(cuts(raw, one), piece)
        if whole[1] and piece < 1 << 30:
            whole, other = whole[1:], other[1:]  # last words are lost where they find no room
        assert whole == other, f"FUZZ_SEED={SEED}, {seed}"
