"""A small synchronous client on a bare socket, for tests that look at every byte."""

import contextlib
import json
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any, Self

EOF = "EOF"
READ_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Frame:
    """One thing the server said; `line` is its control line without CRLF, as it came."""

    verb: str
    line: bytes = b""
    subject: str = ""
    sid: str = ""
    reply: str = ""
    header: bytes = b""
    payload: bytes = b""
    json: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The status of a header block, such as `404 No Messages`, empty without one."""
        first = self.header.partition(b"\r\n")[0].decode()
        return first.removeprefix("NATS/1.0").strip()

    @property
    def headers(self) -> dict[str, str]:
        """The header lines; of a repeated one the last."""
        lines = self.header.decode("utf-8", "replace").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return {name: value.strip() for name, _, value in pairs}

    def shown(self) -> tuple[str, bytes, bytes, bytes]:
        """What a comparison looks at: the exact bytes, for INFO the fields."""
        return (self.verb, self.line, self.header, self.payload)


#: The server has closed the connection.
GONE = (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)


class TimedOut(Exception):
    """The server did not say in time what a test waits for."""


class RawClient:
    """A connection whose sending and reading a test controls byte by byte. Times in seconds."""

    def __init__(self, port: int, *, timeout: float = 30.0, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout = timeout
        self.buffer = bytearray()
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()
        self.closed = True

    def send(self, data: bytes) -> None:
        """Sends all of it; a connection that the server has closed shows when it is read."""
        with contextlib.suppress(*GONE):
            self.socket.sendall(data)

    def _more(self, end: float) -> bool:
        """Reads once; False at the end of the stream."""
        left = end - time.monotonic()
        if left <= 0:
            raise TimedOut(f"nothing more within the time; unread: {bytes(self.buffer[:200])!r}")
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(READ_BYTES)
        except TimeoutError:
            raise TimedOut(
                f"nothing more within the time; unread: {bytes(self.buffer[:200])!r}"
            ) from None
        except GONE:
            data = b""
        self.buffer += data
        return bool(data)

    def frame(self, timeout: float | None = None) -> Frame:
        """The next frame; `EOF` at the end of the stream, with what was left unread in `line`."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            frame = self._take()
            if frame is not None:
                return frame
            if self.closed or not self._more(end):
                self.closed = True
                rest = bytes(self.buffer)
                self.buffer.clear()
                return Frame(EOF, rest)

    def _take(self) -> Frame | None:
        stop = self.buffer.find(b"\r\n")
        if stop < 0:
            return None
        line = bytes(self.buffer[:stop])
        verb = line.split(b" ", 1)[0].decode("latin-1")
        if verb not in ("MSG", "HMSG"):
            del self.buffer[: stop + 2]
            body = json.loads(line[5:]) if verb == "INFO" else {}
            return Frame(verb, line, json=body)
        words = [w for w in line.decode("utf-8", "surrogateescape").split(" ") if w]
        total = int(words[-1])
        if len(self.buffer) < stop + 2 + total + 2:
            return None
        data = bytes(self.buffer[stop + 2 : stop + 2 + total])
        after = bytes(self.buffer[stop + 2 + total : stop + 4 + total])
        assert after == b"\r\n", f"a payload ends with {after!r}"
        del self.buffer[: stop + 4 + total]
        head = int(words[-2]) if verb == "HMSG" else 0
        given = len(words) - (5 if verb == "HMSG" else 4)
        reply = words[3] if given else ""
        return Frame(verb, line, words[1], words[2], reply, data[:head], data[head:])

    def until(self, verb: str, timeout: float | None = None) -> list[Frame]:
        """The frames up to and with the next one of this verb, or up to the end of the stream."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        frames: list[Frame] = []
        while not frames or frames[-1].verb not in (verb, EOF):
            frames.append(self.frame(end - time.monotonic()))
        return frames

    def message(self, timeout: float | None = None) -> Frame:
        """The next MSG or HMSG; what comes before it is left out."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            frame = self.frame(end - time.monotonic())
            if frame.verb in ("MSG", "HMSG"):
                return frame
            assert frame.verb in ("PING", "PONG", "+OK", "INFO"), frame
            self.answer([frame])

    def messages(self, count: int, timeout: float | None = None) -> list[Frame]:
        """The next `count` messages."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        return [self.message(end - time.monotonic()) for _ in range(count)]

    def sync(self, timeout: float | None = None) -> list[Frame]:
        """Sends a PING and returns what came before its PONG, but PINGs: a server sends its first
        one by a timer, about two seconds after the login."""
        self.send(b"PING\r\n")
        frames = self.until("PONG", timeout)
        assert frames[-1].verb == "PONG", f"the connection ended: {frames}"
        self.answer(frames)
        return [frame for frame in frames[:-1] if frame.verb != "PING"]

    def answer(self, frames: list[Frame]) -> None:
        """A PONG for each PING of the server among them, so that long tests stay connected."""
        for frame in frames:
            if frame.verb == "PING":
                self.send(b"PONG\r\n")

    def quiet(self, seconds: float) -> list[Frame]:
        """The frames that come within a time."""
        frames: list[Frame] = []
        end = time.monotonic() + seconds
        try:
            while not frames or frames[-1].verb != EOF:
                frames.append(self.frame(end - time.monotonic()))
        except TimedOut:
            pass
        return frames


class RawApp(RawClient):
    """A connected client with headers and no-responders, with requests and subscriptions."""

    OPTIONS = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}'

    def __init__(self, port: int, *, options: bytes = OPTIONS, timeout: float = 30.0) -> None:
        super().__init__(port, timeout=timeout)
        self.info = self.frame().json
        self.send(b"CONNECT " + options + b"\r\n")
        self.sync()
        self.last_sid = 0
        self.last_inbox = 0

    def subscribe(self, subject: str, queue: str = "") -> str:
        self.last_sid += 1
        sid = str(self.last_sid)
        self.send(" ".join(["SUB", subject, *([queue] if queue else []), sid, "\r\n"]).encode())
        return sid

    def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", header: bytes = b""
    ) -> None:
        words = [subject, reply] if reply else [subject]
        if header:
            words = ["HPUB", *words, str(len(header)), str(len(header) + len(payload))]
        else:
            words = ["PUB", *words, str(len(payload))]
        self.send(" ".join(words).encode() + b"\r\n" + header + payload + b"\r\n")

    def inbox(self) -> str:
        """A new inbox of this connection's own, subscribed to."""
        self.last_inbox += 1
        subject = f"_INBOX.raw{self.info['client_id']}.{self.last_inbox}"
        self.subscribe(subject)
        return subject

    def request(
        self, subject: str, payload: bytes = b"", *, header: bytes = b"", timeout: float = 30.0
    ) -> Frame:
        """Publishes with a reply and returns the first answer; other messages are left out."""
        inbox = self.inbox()
        sid = str(self.last_sid)
        self.publish(subject, payload, reply=inbox, header=header)
        end = time.monotonic() + timeout
        while True:
            frame = self.message(end - time.monotonic())
            if frame.sid == sid:
                self.send(f"UNSUB {sid}\r\n".encode())
                return frame

    def api(self, subject: str, body: object = None) -> dict[str, Any]:
        """A request to `$JS.API.<subject>`, answer decoded."""
        data = b"" if body is None else json.dumps(body).encode()
        answer = json.loads(self.request(f"$JS.API.{subject}", data).payload)
        assert isinstance(answer, dict)
        return answer


def header_block(*lines: str, status: str = "") -> bytes:
    """A header block of these `Name: value` lines."""
    first = "NATS/1.0" + (f" {status}" if status else "")
    return "".join(f"{line}\r\n" for line in (first, *lines, "")).encode()
