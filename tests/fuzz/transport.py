"""Connections over a transport in memory: what is sent over them, broken and cut at random, and how
they end.

`$FUZZ_SECONDS` is how long a test sends, `$FUZZ_SEED` repeats one.
"""

import itertools
import os
import random
import time
from collections.abc import Iterator
from typing import Any

from jsserver.cext.engine import CLOSE_REASONS, INBOX_CLOSED, INBOX_ERROR

FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "5"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or time.time_ns()
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
SAID = [
    b"PING\r\n", b"SUB a 1\r\n", b"SUB > 2\r\n", b"UNSUB 1\r\n", b"PUB a 5\r\nhello\r\n",
    b"PUB a 300\r\n%s\r\n" % (b"x" * 300), b"PUB a 100000\r\n%s\r\n" % (b"y" * 100_000),
    b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", b"PONG\r\n", b"P", b"", b"UB a 1\r\nx\r\n",
]  # fmt: skip


def broken(raw: bytes, rnd: random.Random) -> bytes:
    """With a few bytes changed, left out, or put in."""
    b = bytearray(raw)
    for _ in range(rnd.choice([0, 0, 0, 1, 2, 5])):
        at = rnd.randrange(len(b) + 1)
        match rnd.randrange(3):
            case 0 if at < len(b):
                b[at] = rnd.choice([0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)])
            case 1:
                del b[at : at + rnd.choice([1, 1, 4, 100])]
            case _:
                b[at:at] = rnd.randbytes(rnd.choice([1, 1, 4, 10]))
    return bytes(b)


def cuts(raw: bytes, rnd: random.Random) -> list[bytes]:
    """Pieces that are the bytes when they are put together."""
    if rnd.random() < 0.2:
        return [raw[i : i + 1] for i in range(min(len(raw), 3000))] + [raw[3000:]]
    edges = sorted(rnd.randrange(len(raw) + 1) for _ in range(rnd.randrange(8)))
    return [raw[a:b] for a, b in itertools.pairwise([0, *edges, len(raw)])]


def rounds() -> Iterator[tuple[random.Random, str]]:
    """Until the time is over: a generator for one input, and the words that find it again."""
    rnd = random.Random(SEED)
    end = time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < end:
        seed = rnd.randrange(1 << 62)
        yield random.Random(seed), f"FUZZ_SEED={SEED}, {seed}"


def deliver(r: Any, cid: int, pieces: list[bytes]) -> None:
    """Sends the pieces over a connection of a PyReactor until all is read and written, or it is
    closed."""
    # A client that receives much of its own rests for milliseconds: turns are no measure of time.
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


def ends_and_errors(r: Any, cid: int) -> tuple[list[str], list[bytes]]:
    """The reasons for which the connection was closed, one or none, and the errors that it had."""
    r.turn()
    assert r.under_lock(cid) == 0, "its transport was called while the engine lock was held"
    items = r.items()
    ends = [CLOSE_REASONS[i[2][0]] for i in items if i[0] == INBOX_CLOSED]
    errors = [i[3][2] for i in items if i[0] == INBOX_ERROR]
    return ends, errors
