"""A connection whose bytes are compressed, over a transport in memory: from where on, how it is cut
into chunks, and how it ends when the other side's stream is damaged."""

import itertools
import random

import pytest

from jsserver.cext.bytes import S2Stream, s2_encode
from jsserver.cext.engine import CLOSE_REASONS, INBOX_CLOSED, INBOX_ERROR
from tests.cext.net import PyReactor

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
CHUNK_MAX = 4 << 20
LEVELS = (1, 2, 3, 4)
START = 10
"""Bytes of a stream's beginning."""


def plain(r: PyReactor, cid: int, stream: S2Stream) -> bytes:
    """What has come out since the last time."""
    parts = [stream.feed(r.received(cid))]
    while parts[-1]:
        parts.append(stream.feed(b""))
    return b"".join(parts)


def opened(r: PyReactor, level: int = 2) -> int:
    """A client's connection that is compressed once its INFO is out."""
    cid = r.open("client")
    r.turn()
    r.received(cid)
    r.compress(cid, level)
    r.turn()
    return cid


def told(r: PyReactor) -> tuple[list[str], list[str]]:
    """Why connections have ended, and what the log says."""
    items = r.items()
    ends = [CLOSE_REASONS[item[2][0]] for item in items if item[0] == INBOX_CLOSED]
    return ends, [item[3][2].decode() for item in items if item[0] == INBOX_ERROR]


@pytest.mark.parametrize("room", [0, 5, 1 << 20])
def test_what_was_written_before_goes_as_it_is(room: int) -> None:
    r = PyReactor()
    cid = r.open("client")
    r.writable(cid, room)
    r.turn()
    r.compress(cid, 2, first=b"+OK\r\n")
    r.turn()
    while r.pending(cid):
        r.writable(cid)
        r.turn()
    start = s2_encode(b"")
    before, _, rest = r.received(cid).partition(start)
    assert b"client_ip" in before
    assert S2Stream().feed(start + rest) == b"+OK\r\n"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("piece", [1, 17, 1000, 1 << 30])
def test_all_comes_out_however_little_is_taken_at_a_time(level: int, piece: int) -> None:
    rand = random.Random(piece)
    r = PyReactor()
    cid, stream = opened(r, level), S2Stream()
    r.pieces(cid, piece)
    count, size = (40, 300) if piece == 1 else (300, 9000)
    bodies = [
        rand.randbytes(rand.randrange(size)) + b"x" * rand.randrange(size) for _ in range(count)
    ]
    r.send(cid, s2_encode(QUIET + b"SUB a 1\r\n"))
    expected = found = b""
    for body in bodies:
        expected += b"MSG a 1 %d\r\n%s\r\n" % (len(body), body)
    while r.unread(cid):
        r.send(cid, b"")
        r.turn()
    for body in bodies:
        assert r.publish(b"a", body) == 1
        r.turn()
    while r.pending(cid):
        r.writable(cid)
        r.turn()
        found += plain(r, cid, stream)
    assert found + plain(r, cid, stream) == expected
    assert r.under_lock(cid) == 0


@pytest.mark.parametrize("level", LEVELS)
def test_what_comes_may_be_cut_anywhere(level: int) -> None:
    rand = random.Random(level)
    bodies = [rand.randbytes(rand.choice((0, 9, 3000, 200_000))) for _ in range(12)]
    said = b"".join(b"PUB a %d\r\n%s\r\n" % (len(body), body) for body in bodies)
    stream = s2_encode(QUIET, level) + s2_encode(said[:5000], level) + s2_encode(said[5000:], level)
    edges = sorted(rand.randrange(len(stream)) for _ in range(40))
    r = PyReactor()
    receiver = r.open("client")
    r.send(receiver, QUIET + b"SUB a 1\r\n")
    r.turn()
    r.received(receiver)
    cid = opened(r)
    for start, end in itertools.pairwise([0, *edges, len(stream)]):
        r.send(cid, stream[start:end])
        r.turn()
    while r.unread(cid):
        r.send(cid, b"")
        r.turn()
    found = r.received(receiver)
    assert found == b"".join(b"MSG a 1 %d\r\n%s\r\n" % (len(body), body) for body in bodies)


def test_a_bomb_holds_one_chunk() -> None:
    r = PyReactor()
    receiver = r.open("client")
    r.send(receiver, QUIET + b"SUB a 1\r\n")
    r.turn()
    r.hold(receiver)
    cid = opened(r)
    line = b"PUB a 4\r\nboom\r\n"
    chunk = s2_encode(line * ((1 << 20) // len(line)))[START:]
    stream = s2_encode(QUIET) + chunk * 200
    assert len(stream) < CHUNK_MAX // 4
    r.send(cid, stream)
    most = 0
    for _ in range(50):
        r.turn()
        r.send(cid, b"")
        waiting, held = r.compressed(cid)
        assert waiting <= len(stream)
        most = max(most, held)
    assert 0 < most <= CHUNK_MAX


DAMAGED = {
    "no stream": (b"PUB a 0\r\n\r\n", "no S2 or Snappy stream"),
    "another stream": (b"\xff\x06\x00\x00sNaPpX", "no S2 or Snappy stream"),
    "checksum": (s2_encode(QUIET)[:-1] + b"?", "a chunk's checksum does not fit"),
    "tags": (
        s2_encode(b"")[:START] + b"\0\x09\0\0crc!\x04\xfe---",
        "a compressed chunk is corrupt",
    ),
    "a size": (s2_encode(b"") + b"\0\xff\xff\xff", "a chunk of an unknown kind or impossible size"),
    "a kind": (s2_encode(b"") + b"\x02\x04\0\0", "a chunk of an unknown kind or impossible size"),
    "too much": (
        s2_encode(b"") + b"\0\x0a\0\0crc!\xff\xff\xff\x7f\0\0",
        "a compressed chunk is corrupt",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_a_damaged_stream_ends_it(case: str, piece: int) -> None:
    data, why = DAMAGED[case]
    r = PyReactor()
    cid = opened(r)
    r.pieces(cid, piece)
    r.send(cid, data)
    for _ in range(len(data)):
        r.turn()
        r.send(cid, b"")
    assert told(r) == (["Read Error"], [f"read error: {why}"])


@pytest.mark.parametrize("cut", [1, 9, 20, -1])
def test_an_end_inside_a_chunk_is_told(cut: int) -> None:
    r = PyReactor()
    cid = opened(r)
    r.send(cid, s2_encode(QUIET)[:cut])
    r.end(cid)
    for _ in range(3):
        r.turn()
        r.send(cid, b"")
    assert told(r) == (["Read Error"], ["read error: the compressed stream ends early"])


def test_an_end_between_chunks_is_none_of_a_fault() -> None:
    r = PyReactor()
    cid = opened(r)
    r.send(cid, s2_encode(QUIET))
    r.end(cid)
    r.turn()
    r.send(cid, b"")
    r.turn()
    assert told(r) == (["Client Closed"], [])


@pytest.mark.parametrize(
    ("thresholds", "rtt", "level"),
    [
        ((10, 50, 100), 10, 1),
        ((10, 50, 100), 11, 2),
        ((10, 50, 100), 100, 3),
        ((10, 50, 100), 101, 4),
        ((0, 0, 20, 30), 1, 3),
        ((0, 0, 20, 30), 1000, 4),
        ((10,), 1000, 1),
        ((10, 20), 1000, 2),
        ((0, 20), 1, 2),
    ],
)
def test_the_level_goes_by_the_round_trip(
    thresholds: tuple[int, ...], rtt: int, level: int
) -> None:
    r = PyReactor()
    cid = r.open("client")
    r.compress(cid, 0, thresholds)
    assert r.level(cid, rtt) == level
