"""WebSocket frames as a client makes and reads them (RFC 6455, RFC 7692), for tests."""

import base64
import hashlib
import os
import struct
import zlib
from dataclasses import dataclass

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL, RSV1, RSV2, RSV3 = 0x80, 0x40, 0x20, 0x10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
SYNC = b"\0\0\xff\xff"


def accept_of(key: bytes = KEY) -> bytes:
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def request(path: str = "/", *, drop: str = "", **headers: str) -> bytes:
    """A request for WebSocket; headers replace those of the same name, with `_` for `-`."""
    lines = {
        "host": "Host: localhost",
        "upgrade": "Upgrade: websocket",
        "connection": "Connection: Upgrade",
        "sec-websocket-key": f"Sec-WebSocket-Key: {KEY.decode()}",
        "sec-websocket-version": "Sec-WebSocket-Version: 13",
    }
    for name, value in headers.items():
        name = name.replace("_", "-")
        lines[name.lower()] = f"{name}: {value}"
    lines.pop(drop.lower(), None)
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines.values(), "", ""]).encode()


def mask(data: bytes, key: bytes) -> bytes:
    n = len(data)
    pad = (key * (n // 4 + 1))[:n]
    return (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(n, "big")


def frame(
    payload: bytes = b"",
    opcode: int = BINARY,
    *,
    first: int = FINAL,
    masked: bool = True,
    length: int | None = None,
) -> bytes:
    """A frame; `first` are the bits beside its opcode, `length` one that it has not."""
    n = len(payload) if length is None else length
    bit = 0x80 if masked else 0
    if n < 126:
        head = struct.pack("!BB", first | opcode, bit | n)
    elif n < 65536:
        head = struct.pack("!BBH", first | opcode, bit | 126, n)
    else:
        head = struct.pack("!BBQ", first | opcode, bit | 127, n)
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + mask(payload, key)


def deflated(data: bytes) -> bytes:
    """The data of a compressed message."""
    z = zlib.compressobj(wbits=-15)
    return (z.compress(data) + z.flush(zlib.Z_SYNC_FLUSH)).removesuffix(SYNC)


def compressed(data: bytes, pieces: int = 1, **kind: bool) -> bytes:
    """A compressed message, in so many frames."""
    whole = deflated(data)
    size = -(-len(whole) // pieces)
    frames = []
    for at in range(0, len(whole), size):
        first = (0 if at else RSV1) | (FINAL if at + size >= len(whole) else 0)
        opcode = CONTINUATION if at else BINARY
        frames.append(frame(whole[at : at + size], opcode, first=first, **kind))
    return b"".join(frames)


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame that came."""

    first: int
    payload: bytes

    @property
    def opcode(self) -> int:
        return self.first & 15


class Frames:
    """Takes what a server sends apart; `data` is what its messages hold so far."""

    def __init__(self, masked: bool = False) -> None:
        self.masked = masked
        self.keys: set[bytes] = set()
        """Those of the frames so far, where they are masked."""
        self.buffer = bytearray()
        self.data = bytearray()
        self.seen: list[Seen] = []
        self._message = bytearray()
        self._compressed = False

    def feed(self, data: bytes) -> list[Seen]:
        """The frames that are whole now."""
        self.buffer += data
        new = []
        while (taken := self._take()) is not None:
            new.append(taken)
        self.seen += new
        return new

    def _take(self) -> Seen | None:
        b = self.buffer
        if len(b) < 2:
            return None
        assert bool(b[1] & 0x80) == self.masked, "only the side that dials masks"
        n, at = b[1] & 127, 2
        if n == 126:
            at = 4
        elif n == 127:
            at = 10
        if len(b) < at:
            return None
        if at > 2:
            n = int.from_bytes(b[2:at], "big")
        key = bytes(b[at : at + 4]) if self.masked else b""
        at += len(key)
        if len(b) < at + n:
            return None
        payload = bytes(b[at : at + n])
        if key:
            self.keys.add(key)
            repeated = (key * (n // 4 + 1))[:n]
            payload = bytes(x ^ y for x, y in zip(payload, repeated, strict=True))
        seen = Seen(b[0], payload)
        del b[: at + n]
        self._join(seen)
        return seen

    def _join(self, seen: Seen) -> None:
        if seen.opcode >= CLOSE:
            return
        if seen.opcode != CONTINUATION:
            assert not self._message, "a message begins in another one"
            self._compressed = bool(seen.first & RSV1)
        self._message += seen.payload
        if seen.first & FINAL:
            whole = bytes(self._message)
            self._message.clear()
            if self._compressed:
                whole = zlib.decompressobj(-15).decompress(whole + SYNC)
            self.data += whole

    def taken(self) -> bytes:
        """What messages held since the last time."""
        data = bytes(self.data)
        self.data.clear()
        return data
