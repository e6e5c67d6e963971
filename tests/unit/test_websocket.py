"""WebSocket frames of connections in memory: every way to cut them, what is wrong, the end."""

import base64
import itertools
import json
import os
import random
import zlib
from typing import Any

import pytest

from jsserver.cext.engine import CLOSE_REASONS, INBOX_CLOSED, INBOX_ERROR, INBOX_UPGRADE, Item
from tests.cext.net import PyReactor
from tests.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FINAL,
    PING,
    PONG,
    RSV1,
    RSV2,
    RSV3,
    TEXT,
    Frames,
    compressed,
    deflated,
    frame,
    request,
)

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
REPLY = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


class Peer:
    """A client of a connection in memory."""

    def __init__(self, r: PyReactor, **terms: Any) -> None:
        self.r, self.terms = r, terms
        self.cid = r.approach(request())
        r.turn()
        assert r.answer(self.cid, "open", REPLY, **terms)
        self.frames = Frames(terms.get("masks", False))
        r.turn()
        _, raw = r.received(self.cid).split(REPLY)
        self.frames.feed(raw)
        assert b"client_ip" in self.frames.taken()
        self.say(QUIET)

    def send(self, raw: bytes) -> None:
        self.r.send(self.cid, raw)
        self.r.turn()

    def say(self, text: bytes) -> None:
        self.send(frame(text, masked=bool(self.terms.get("masked", True))))

    def receive(self) -> list[Any]:
        return self.frames.feed(self.r.received(self.cid))

    def heard(self) -> bytes:
        self.receive()
        return self.frames.taken()

    @property
    def gone(self) -> bool:
        return self.r.pending(self.cid) is None


def pair(r: PyReactor, **terms: Any) -> tuple[Peer, Peer]:
    """One that publishes and one that is subscribed to everything."""
    one, other = Peer(r, **terms), Peer(r, **terms)
    other.say(b"SUB > 1\r\n")
    return one, other


def reactor() -> PyReactor:
    r = PyReactor()
    for number, text in CLOSE_REASONS.items():
        r.name_reason(number, text.encode())
    return r


def told(r: PyReactor, kind: int) -> list[Item]:
    return [item for item in r.items() if item[0] == kind]


def until(done, sender: Peer, receiver: Peer) -> None:
    """Both go on: no socket tells a connection in memory of what it has left."""
    r = sender.r
    for _ in range(3000):
        if done():
            return
        r.send(sender.cid, b"")
        r.writable(receiver.cid)
        r.turn()
        r.poll(1)
    raise AssertionError("it never happened")


def ends(r: PyReactor, peer: Peer) -> str:
    """Why it was cut."""
    r.turn()
    (reason,) = [i.numbers[0] for i in told(r, INBOX_CLOSED) if i.cid == peer.cid]
    return CLOSE_REASONS[reason]


# ---- the request


def test_a_request_goes_to_the_control_plane_whole_and_nothing_else_happens() -> None:
    r = reactor()
    asked = request("/x")
    cid = r.approach()
    for byte in asked[:-1]:
        r.send(cid, bytes([byte]))
        r.turn()
    assert not r.items() and r.received(cid) == b""
    r.send(cid, asked[-1:] + b"more")
    r.turn()
    ((kind, of, (port, behind), (address, head)),) = r.items()
    assert (kind, of, port, behind, address, head) == (INBOX_UPGRADE, cid, 0, 4, b"", asked)
    assert r.wants(cid)[:2] == (False, False)


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n", b"\n\r\n", b"\r\n\n"])
@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_where_a_request_ends(end: bytes, piece: int) -> None:
    r = reactor()
    asked = b"GET / HTTP/1.1\r\nA: b\nC: \r d" + end
    cid = r.approach()
    for at in range(0, len(asked), piece):
        assert not r.items()
        r.send(cid, asked[at : at + piece])
        r.turn()
    ((_, _, _, (_, head)),) = r.items()
    assert head == asked


def test_a_request_without_end_is_shown_to_the_control_plane_as_far_as_it_goes() -> None:
    r = reactor()
    r.approach(b"GET /" + b"x" * 300_000)
    r.turn()
    ((_, _, _, (_, head)),) = r.items()
    assert 65536 <= len(head) <= 65536 + 4096 and not head.endswith(b"\n")


def test_whoever_is_refused_may_ask_again_or_is_closed() -> None:
    r = reactor()
    cid = r.approach(request("/a") + request("/b"))
    r.turn()
    ((_, _, _, (_, head)),) = r.items()
    assert head == request("/a")
    assert r.answer(cid, "again", b"no")
    assert not r.answer(cid, "again", b"twice")
    r.turn()
    assert r.received(cid) == b"no"
    ((_, _, _, (_, head)),) = r.items()
    assert head == request("/b")
    assert r.answer(cid, "refused", b"never")
    r.turn()
    r.turn()
    assert r.received(cid) == b"never" and r.wants(cid)[2]
    assert r.items() == [] and r.pending(cid) is None


def test_whoever_leaves_before_the_answer_was_never_there() -> None:
    r = reactor()
    cid = r.approach(request()[:30])
    r.turn()
    r.end(cid)
    r.turn()
    r.turn()
    assert r.items() == [] and r.pending(cid) is None


# ---- frames


def cuts(raw: bytes, seed: int) -> list[bytes]:
    rnd = random.Random(seed)
    pieces, at = [], 0
    while at < len(raw):
        n = rnd.choice([1, 1, 2, 3, 7, 50, 1000, 70_000])
        pieces.append(raw[at : at + n])
        at += n
    return pieces


def publish(size: int) -> bytes:
    return b"PUB a %d\r\n%s\r\n" % (size, os.urandom(size // 2) + b"x" * (size - size // 2))


def framed(text: bytes, rnd: random.Random, deflate: bool, masked: bool) -> bytes:
    """The text in messages of frames, with control frames between them."""
    raw, at = [], 0
    while at < len(text):
        n = rnd.choice([0, 1, 5, 125, 126, 127, 4000, 65535, 65536, 200_000])
        part = text[at : at + n]
        at += n
        if deflate and rnd.random() < 0.5:
            raw.append(compressed(part, rnd.choice([1, 2, 5]), masked=masked))
            continue
        pieces = rnd.choice([1, 1, 3])
        size = -(-len(part) // pieces) or 1
        parts = [part[i : i + size] for i in range(0, len(part), size)] or [b""]
        for i, piece in enumerate(parts):
            final = FINAL if i == len(parts) - 1 else 0
            opcode = CONTINUATION if i else rnd.choice([TEXT, BINARY])
            raw.append(frame(piece, opcode, first=final, masked=masked))
            if rnd.random() < 0.3:
                raw.append(frame(b"?" * rnd.randrange(126), PONG, masked=masked))
    return b"".join(raw)


@pytest.mark.parametrize(
    ("seed", "deflate", "masked"),
    [(s, *kind) for s, kind in enumerate(itertools.product([False, True], [False, True]))] * 2,
)
def test_messages_arrive_whatever_frames_they_come_in(
    seed: int, deflate: bool, masked: bool
) -> None:
    rnd = random.Random(seed)
    r = reactor()
    one, other = pair(r, deflate=deflate, masked=masked, frame_max=rnd.choice([0, 4096]))
    sizes = [rnd.choice([0, 1, 30, 100, 5000, 70_000, 200_000]) for _ in range(30)]
    sent = [publish(n) for n in sizes]
    r.pieces(other.cid, 10_000)
    for piece in cuts(framed(b"".join(sent), rnd, deflate, masked), seed):
        one.send(piece)
    r.pieces(other.cid, 1 << 40)
    until(lambda: r.pending(other.cid) == 0 and not r.unread(one.cid), one, other)
    expected = b"".join(
        b"MSG a 1 %d\r\n%s\r\n" % (n, text.partition(b"\r\n")[2][:n])
        for n, text in zip(sizes, sent, strict=True)
    )
    assert other.heard() == expected
    assert r.under_lock(one.cid) == r.under_lock(other.cid) == 0


def test_what_waits_goes_out_as_one_frame_and_to_browsers_in_pages() -> None:
    r = reactor()
    plain, browser = Peer(r), Peer(r, frame_max=4096)
    for peer in plain, browser:
        peer.say(b"SUB a 1\r\nPUB a 10000\r\n" + b"x" * 10_000 + b"\r\n")
    r.publish(b"a", b"y" * 10_000)
    r.turn()
    assert {len(s.payload) for s in browser.receive()} >= {4096}
    assert max(len(s.payload) for s in browser.frames.seen) == 4096
    assert max(len(s.payload) for s in plain.receive()) > 10_000
    assert browser.frames.taken().count(b"MSG a 1 10000\r\n") == 2


def test_only_what_is_longer_than_64_bytes_is_compressed() -> None:
    r = reactor()
    _, other = pair(r, deflate=True)
    for size, bit in ((64 - 14, 0), (65 - 14, RSV1)):
        r.publish(b"a", b"x" * size)
        r.turn()
        (seen,) = other.receive()
        assert seen.first == FINAL | BINARY | bit
        assert other.frames.taken() == b"MSG a 1 %d\r\n%s\r\n" % (size, b"x" * size)


@pytest.mark.parametrize("size", [100, 300, 1000, 5000, 100_000])
def test_what_is_packed_already_is_not_compressed(size: int) -> None:
    r = reactor()
    _, other = pair(r, deflate=True)
    kinds = {
        "noise": os.urandom(size),
        "base64": base64.b64encode(os.urandom(size)),
        "hex": os.urandom(size).hex().encode(),
        "text": b"the quick brown fox " * (size // 20),
        "numbers": b"".join(i.to_bytes(4, "big") for i in range(size // 4)),
    }
    for kind, payload in kinds.items():
        r.publish(b"a", payload)
        r.turn()
        seen = other.receive()
        plain = kind == "noise" or (kind == "base64" and size >= 300)
        assert seen[0].first == FINAL | BINARY | (0 if plain else RSV1), kind
        assert other.frames.taken() == b"MSG a 1 %d\r\n%s\r\n" % (len(payload), payload)


@pytest.mark.parametrize("size", [300, 1500])
def test_what_is_packed_is_compressed_where_it_comes_again(size: int) -> None:
    r = reactor()
    _, other = pair(r, deflate=True)
    payload = os.urandom(size)
    for _ in range(20):
        r.publish(b"a", payload)
    r.turn()
    (seen,) = other.receive()
    assert seen.first == FINAL | BINARY | RSV1
    assert len(seen.payload) < 3 * size
    assert other.frames.taken() == b"MSG a 1 %d\r\n%s\r\n" % (size, payload) * 20


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_compressed_messages_are_no_larger_than_zlib_makes_them(count: int) -> None:
    r = reactor()
    _, other = pair(r, deflate=True)
    rnd = random.Random(count)
    said = b""
    for i in range(count):
        text = json.dumps({
            "id": i, "sensor": f"sensor-{rnd.randrange(500)}", "tags": ["hot", "wet"],
            "temperature": round(rnd.uniform(0, 40), 1), "status": rnd.choice(["ok", "failed"]),
        }).encode()  # fmt: skip
        r.publish(b"a", text)
        said += b"MSG a 1 %d\r\n%s\r\n" % (len(text), text)
    r.turn()
    seen = other.receive()
    assert other.frames.taken() == said
    z = zlib.compressobj(zlib.Z_BEST_SPEED, wbits=-15)
    usual = len(z.compress(said) + z.flush(zlib.Z_SYNC_FLUSH))
    assert sum(len(s.payload) for s in seen) <= 1.15 * usual


def test_compressed_messages_of_all_kinds_and_sizes_come_whole() -> None:
    """Parts of all lengths, from chunks and from payloads that several share."""
    r = reactor()
    _, other = pair(r, deflate=True)
    rnd = random.Random(5)
    words = b"the order of a customer was sent to its warehouse and failed".split()
    for _ in range(300):
        said = b""
        for _ in range(rnd.choice([1, 1, 3, 40])):
            size = rnd.choice([0, 1, 49, 50, 51, 250, 288, 4096, 20_000, 70_000])
            payload = rnd.choice([
                lambda n: rnd.randbytes(n),
                lambda n: bytes([rnd.randrange(256)]) * n,
                lambda n: rnd.randbytes(n // 2).hex().encode(),
                lambda n: b" ".join(rnd.choices(words, k=n // 5)),
            ])(size)  # fmt: skip
            r.publish(b"a", payload)
            said += b"MSG a 1 %d\r\n%s\r\n" % (len(payload), payload)
        r.turn()
        heard = b""
        for _ in range(100):
            # A loaded machine takes the two seconds after which the server asks.
            heard += other.heard().replace(b"PING\r\n", b"")
            if len(heard) < len(said):
                r.writable(other.cid)
                r.turn()
        assert heard == said


def test_compressed_messages_to_browsers_are_cut_unless_they_cannot_read_that() -> None:
    r = reactor()
    one = Peer(r, deflate=True, frame_max=4096)
    safari = Peer(r, deflate=True, frame_max=4096, whole=True)
    noise = os.urandom(20_000).hex().encode()
    for peer in one, safari:
        peer.say(b"SUB a 1\r\n")
    r.publish(b"a", noise)
    r.turn()
    seen = one.receive()
    assert [s.first for s in seen[:2]] == [BINARY | RSV1, 0] and seen[-1].first == FINAL
    assert all(len(s.payload) <= 4096 for s in seen)
    assert len(safari.receive()) == 1
    assert noise in one.frames.taken() and noise in safari.frames.taken()


def test_a_frame_that_was_begun_is_ended_before_a_pong() -> None:
    r = reactor()
    _, other = pair(r)
    r.writable(other.cid, 1000)
    r.publish(b"a", b"x" * 5000)
    r.turn()
    other.send(frame(b"are you there", PING))
    r.publish(b"a", b"y")
    r.turn()
    r.writable(other.cid)
    r.turn()
    seen = other.receive()
    assert [s.opcode for s in seen] == [BINARY, PONG, BINARY]
    assert seen[1].payload == b"are you there"


def test_pings_are_answered_between_fragments_and_before_connect() -> None:
    r = reactor()
    peer = Peer(r)
    peer.send(
        frame(b"PI", first=0) + frame(b"1", PING) + frame(b"NG\r", CONTINUATION, first=0)
        + frame(b"", PING) + frame(b"\n", CONTINUATION)
    )  # fmt: skip
    seen = peer.receive()
    assert [(s.opcode, s.payload) for s in seen[:2]] == [(PONG, b"1"), (PONG, b"")]
    assert peer.heard().startswith(b"PONG\r\n")


def test_answers_to_pings_that_nobody_reads_are_bounded() -> None:
    r = reactor()
    peer = Peer(r)
    r.hold(peer.cid)
    for _ in range(100):
        peer.send(frame(b"x" * 125, PING) * 100)
    r.writable(peer.cid)
    r.turn()
    assert 500 <= len(peer.receive()) <= 1500


WRONG = {
    "RSV2 and RSV3 must be clear": frame(b"x", first=FINAL | RSV2),
    "RSV2 and RSV3 must be clear ": frame(b"x", first=FINAL | RSV3 | RSV1),
    "compressed frame received without negotiated permessage-deflate": frame(
        b"x", first=FINAL | RSV1
    ),
    "mask bit missing": frame(b"PING\r\n", masked=False),
    "control frame length bigger than maximum allowed of 125 bytes": frame(b"x" * 126, PING),
    "control frame does not have final bit set": frame(b"x", PING, first=0),
    "new message started before final frame for previous message was received": frame(first=0)
    + frame(b"x"),
    "invalid continuation frame": frame(b"x", CONTINUATION),
    "unknown opcode 3": frame(b"x", 3),
    "unknown opcode 15": frame(b"x", 15),
    "invalid 64-bit payload length": frame(b"", length=1 << 63),
    "close frame payload cannot be 1 byte": frame(b"x", CLOSE),
    "invalid close status code 999": frame(b"\x03\xe7", CLOSE),
    "invalid close status code 1005": frame(b"\x03\xed", CLOSE),
    "invalid close status code 2000": frame(b"\x07\xd0why", CLOSE),
}


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("piece", [1, 1000])
def test_what_is_wrong_is_said_and_ends_it(text: str, piece: int) -> None:
    r = reactor()
    one, other = pair(r)
    raw = frame(b"PUB a 2\r\nhi\r\n") + WRONG[text] + frame(b"PUB a 2\r\nno\r\n")
    for at in range(0, len(raw), piece):
        if not one.gone:
            one.send(raw[at : at + piece])
    seen = one.receive()
    assert seen[-1].opcode == CLOSE
    assert seen[-1].payload == b"\x03\xea" + text.strip().encode()
    r.turn()
    items = r.items()
    assert [i[3][2] for i in items if i[0] == INBOX_ERROR] == [
        f"read error: {text.strip()}".encode()
    ]
    (end,) = [i for i in items if i[0] == INBOX_CLOSED]
    assert CLOSE_REASONS[end[2][0]] == "Read Error"
    assert other.heard() == b"MSG a 1 2\r\nhi\r\n"


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"", b""),
        (b"\x03\xe8", b"\x03\xe8"),
        (b"\x03\xe9going", b"\x03\xe9going"),
        (b"\x0f\xa0own \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", None),
        (b"\x03\xe8\xff", b"\x03\xefinvalid utf8 body in close frame"),
        (b"\x03\xe8\xed\xa0\x80", b"\x03\xefinvalid utf8 body in close frame"),
        (b"\x03\xe8\xc0\x80", b"\x03\xefinvalid utf8 body in close frame"),
    ],
)
def test_a_close_is_answered_alike(payload: bytes, answer: bytes | None) -> None:
    r = reactor()
    peer = Peer(r)
    peer.send(frame(b"PING\r\n") + frame(payload, CLOSE) + frame(b"PING\r\n"))
    seen = peer.receive()
    assert seen[-1].opcode == CLOSE
    assert seen[-1].payload == (payload if answer is None else answer)
    assert peer.frames.taken().count(b"PONG") == 1
    assert ends(r, peer) == "Client Closed"


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("Client Closed", 1000),
        ("Authentication Timeout", 1008),
        ("Protocol Violation", 1002),
        ("Maximum Message Payload Exceeded", 1009),
        ("Server Shutdown", 1001),
        ("Kicked", 1011),
    ],
)
def test_the_server_says_why_it_closes(reason: str, status: int) -> None:
    r = reactor()
    peer = Peer(r)
    r.kill(peer.cid, {text: n for n, text in CLOSE_REASONS.items()}[reason])
    r.turn()
    (seen,) = peer.receive()
    assert (seen.first, seen.payload) == (
        FINAL | CLOSE,
        status.to_bytes(2, "big") + reason.encode(),
    )


@pytest.mark.parametrize("reason", ["Slow Consumer (Pending Bytes)", "Write Error", "Read Error"])
def test_some_ends_are_silent(reason: str) -> None:
    r = reactor()
    peer = Peer(r)
    r.kill(peer.cid, {text: n for n, text in CLOSE_REASONS.items()}[reason])
    r.turn()
    assert peer.receive() == []


# ---- compressed messages


def test_a_message_that_inflates_beyond_the_limit_ends_it() -> None:
    r = reactor()
    one, other = pair(r, deflate=True)
    bomb = b"PUB a 2\r\nhi\r\n" + b"PUB a 1048576\r\n" + b"\0" * 50_000_000
    raw = compressed(bomb)
    assert len(raw) < 60_000
    one.send(raw)
    r.turn()
    (error,) = told(r, INBOX_ERROR)
    assert error[3][2] == b"read error: maximum payload exceeded"
    # A PING is due after two seconds, which inflating may take.
    assert b"MSG a 1 2\r\nhi\r\n" in other.heard()
    assert {seen.payload for seen in one.receive()} <= {b"PING\r\n"}


def test_a_compressed_message_may_hold_what_the_limit_allows() -> None:
    r = reactor()
    one, other = pair(r, deflate=True)
    body = b" 1000000\r\n" + b"\0" * 1_000_000 + b"\r\n"
    for _ in range(3):
        one.send(compressed(b"PUB a" + body, 3))
    assert other.heard() == (b"MSG a 1" + body) * 3


def test_a_message_that_has_much_to_give_goes_on_behind_a_rest() -> None:
    """A sender to a slow receiver rests, in the middle of a message too."""
    r = PyReactor(max_pending=300_000)
    one, other = Peer(r, deflate=True), Peer(r)
    other.say(b"SUB > 1\r\n")
    r.hold(other.cid)
    one.send(compressed(b"PUB a 1000\r\n%s\r\n" % (b"z" * 1000) * 280))
    assert not r.wants(one.cid)[0]
    until(lambda: r.wants(one.cid)[0] and r.pending(other.cid) == 0, one, other)
    assert other.heard().count(b"MSG a 1 1000") == 280


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (b"\xff\xff\xff", b"read error: flate: corrupt input"),
        (deflated(b"PUB a 5000\r\n" + os.urandom(5000))[:-3], None),
        (b"", None),
    ],
)
def test_broken_compressed_data_ends_it(data: bytes, trouble: bytes | None) -> None:
    r = reactor()
    peer = Peer(r, deflate=True)
    peer.send(frame(data, first=FINAL | RSV1))
    r.turn()
    texts = [i[3][2] for i in told(r, INBOX_ERROR)]
    assert len(texts) == 1 and texts[0].startswith(trouble or b"read error: ")


def test_what_follows_the_end_of_compressed_data_means_nothing() -> None:
    r = reactor()
    peer = Peer(r, deflate=True)
    z = zlib.compressobj(wbits=-15)
    whole = z.compress(b"PING\r\n") + z.flush() + b"rubbish"
    peer.send(frame(whole, first=FINAL | RSV1) + compressed(b"PING\r\n"))
    assert peer.heard().count(b"PONG\r\n") == 2


def test_control_frames_may_stand_between_frames_of_a_compressed_message() -> None:
    r = reactor()
    peer = Peer(r, deflate=True)
    whole = deflated(b"PING\r\n" * 3)
    peer.send(
        frame(whole[:3], first=RSV1) + frame(b"1", PING) + frame(whole[3:], CONTINUATION)
    )  # fmt: skip
    seen = peer.receive()
    assert (seen[0].opcode, seen[0].payload) == (PONG, b"1")
    assert peer.frames.taken().count(b"PONG\r\n") == 3


@pytest.mark.parametrize("deflate", [False, True])
def test_a_slow_reader_gets_what_waits_and_is_cut_beyond_the_limit(deflate: bool) -> None:
    r = PyReactor(max_pending=100_000)
    _, other = pair(r, deflate=deflate)
    r.hold(other.cid)
    for i in range(50):
        r.publish(b"a", os.urandom(1000) + b"%d" % i)
        r.turn()
    assert not other.gone
    r.pieces(other.cid, 77)
    for _ in range(3000):
        r.writable(other.cid)
        r.turn()
    assert other.heard().count(b"MSG a 1 ") == 50
    r.hold(other.cid)
    for _ in range(400):
        r.publish(b"a", os.urandom(1000))
        r.turn()
    assert other.gone
