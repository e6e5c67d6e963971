"""WebSocket over a transport in memory: whatever comes, however it is cut, the same happens.

Inputs are frames of all kinds, broken in every way, and requests for WebSocket likewise;
`$FUZZ_SECONDS` is how long it goes on.
"""

import random
import time

import pytest

from jsserver.access.websocket import Websockets
from jsserver.cext.engine import CLOSE_REASONS, INBOX_UPGRADE, Item
from jsserver.config.options import Options, Websocket
from tests.fuzz.transport import (
    CONNECT,
    FUZZ_SECONDS,
    SAID,
    SEED,
    broken,
    cuts,
    deliver,
    ends_and_errors,
    rounds,
)
from tests.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FINAL,
    PING,
    PONG,
    RSV1,
    RSV2,
    TEXT,
    Frames,
    deflated,
    frame,
    request,
)

net = pytest.importorskip("tests.cext.net", reason="the data plane is not built here")

pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)


def stream(rnd: random.Random) -> bytes:
    """Frames as a client might send them, and as none should."""
    raw = [frame(CONNECT)]
    for _ in range(rnd.randrange(1, 12)):
        said = b"".join(rnd.choices(SAID, k=rnd.randrange(1, 5)))
        match rnd.randrange(8):
            case 0:
                raw.append(frame(rnd.randbytes(rnd.randrange(130)), rnd.choice([PING, PONG])))
            case 1:
                status = rnd.choice([b"", b"\x03\xe8", b"\x03\xe8bye", b"\x03\xe8\xff", b"\x00"])
                raw.append(frame(status, CLOSE))
            case 2:
                whole = deflated(said)
                cut = rnd.randrange(len(whole) + 1)
                raw.append(frame(whole[:cut], first=RSV1))
                raw.append(frame(b"between", PING))
                raw.append(frame(broken(whole[cut:], rnd), CONTINUATION))
            case 3:
                raw.append(frame(broken(deflated(said), rnd), first=FINAL | RSV1))
            case 4:
                first = rnd.choice([0, FINAL, RSV1, RSV2, FINAL | RSV1])
                raw.append(frame(said, rnd.randrange(16), first=first))
            case 5:
                raw.append(frame(said[:20], length=rnd.choice([0, 126, 65536, 1 << 40, 1 << 63])))
            case _:
                raw.append(frame(said, rnd.choice([TEXT, BINARY])))
    return broken(b"".join(raw), rnd) if rnd.random() < 0.3 else b"".join(raw)


def outcome(pieces: list[bytes], deflate: bool, piece: int) -> tuple[object, ...]:
    """What a client that sends these hears, and how it ends."""
    r = net.PyReactor()
    for number, text in CLOSE_REASONS.items():
        r.name_reason(number, text.encode())
    cid = r.approach(request())
    r.turn()
    (asked,) = r.items()
    assert asked[0] == INBOX_UPGRADE
    assert r.answer(cid, "open", deflate=deflate)
    r.turn()
    r.pieces(cid, piece)
    deliver(r, cid, pieces)
    frames = Frames()
    frames.feed(r.received(cid))
    ends, errors = ends_and_errors(r, cid)
    control = [(s.first, s.payload) for s in frames.seen if s.opcode >= CLOSE]
    data = frames.taken()
    return data, control, ends, errors


def test_what_comes_of_frames_does_not_depend_on_how_they_are_cut() -> None:
    for one, which in rounds():
        raw = stream(one)
        deflate = one.random() < 0.5
        whole = outcome([raw], deflate, 1 << 30)
        piece = one.choice([1 << 30, 1000, 7777])
        other = outcome(cuts(raw, one), deflate, piece)
        if whole[3]:
            # What is wrong in more ways than one ends by the first that is met.
            whole, other = (bool(whole[2]),), (bool(other[2]),)
        elif whole[2] and piece < 1 << 30:
            whole, other = whole[2:], other[2:]  # last words are lost where they find no room
        assert whole == other, which


class Recorder:
    """A data plane and a log that only remember."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def open_websocket(self, cid: int, reply: bytes, **terms: object) -> bool:
        self.said.append(("open", reply, terms))
        return True

    def refuse_websocket(self, cid: int, reply: bytes, again: bool) -> bool:
        self.said.append(("refuse", reply, again))
        return True

    def error(self, line: str) -> None:
        assert "\n" not in line


def test_every_request_is_answered_once() -> None:
    rnd = random.Random(SEED)
    seeds = [
        request(),
        request("/a/../b?x=y", connection="close, Upgrade"),
        request(origin="http://[::1]:80", host="[::1]:80", cookie='a=b; u="x"; p=y'),
        request(sec_websocket_extensions="permessage-deflate; a=b, c", user_agent="Mozilla/5.0"),
        request(x_forwarded_for="::1", nats_no_masking="true", content_length="5"),
    ]
    block = Websocket(
        port=1, no_tls=True, same_origin=True, compression=True, user_cookie="u", pass_cookie="p",
        allowed_origins=["http://localhost", "https://[::1]:8443"],
    )  # fmt: skip
    plane = Recorder()
    websockets = Websockets(plane, plane, Options(websocket=block))  # type: ignore[arg-type]
    end = time.monotonic() + FUZZ_SECONDS / 2
    cid = opened = 0
    while time.monotonic() < end:
        cid += 1
        raw = broken(rnd.choice(seeds), rnd)
        item = (INBOX_UPGRADE, cid, (1, rnd.randrange(2)), (b"127.0.0.1", raw))
        websockets.asked(Item(*item))
        (said,) = plane.said
        plane.said.clear()
        opened += said[0] == "open"
        assert (cid in websockets) == (said[0] == "open"), raw
        websockets.forget(cid)
    assert opened
