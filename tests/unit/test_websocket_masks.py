"""WebSocket frames to a hub, which this server masks as the side that has dialled."""

import random

import pytest

from tests.unit.test_websocket import pair, reactor
from tests.websocket import PING, PONG, frame


@pytest.mark.parametrize("deflate", [False, True])
def test_frames_are_masked_however_little_is_taken_at_a_time(deflate: bool) -> None:
    """As to a hub; each frame has another key."""
    r = reactor()
    _, other = pair(r, masks=True, deflate=deflate)
    rnd = random.Random(7)
    other.send(frame(b"p", opcode=PING))
    assert [s.payload for s in other.receive() if s.opcode == PONG] == [b"p"]
    for _ in range(40):
        said = b""
        for size in rnd.choices([0, 1, 50, 125, 126, 300, 5000, 70_000], k=rnd.choice([1, 3])):
            payload = rnd.choice([rnd.randbytes(size), b"word " * (size // 5)])
            r.publish(b"a", payload)
            said += b"MSG a 1 %d\r\n%s\r\n" % (len(payload), payload)
        heard = b""
        while len(heard) < len(said):
            r.writable(other.cid, rnd.choice([1, 3, 100, 5000, 100_000]))
            r.turn()
            heard += other.heard().replace(b"PING\r\n", b"")
        assert heard == said
    assert len(other.frames.keys) > 40
