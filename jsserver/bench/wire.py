"""A blocking client connection that sends prepared buffers and counts replies by scanning."""

import json
import re
import secrets
import socket
import time
from typing import Any
from urllib.parse import urlsplit

RECEIVE_BYTES = 1 << 20
TIMEOUT_S = 60.0
PORT_DEFAULT = 4222

STATUS = b"NATS/1.0 "  # a header block that reports, instead of one that belongs to a message
CONTROL_LINE = re.compile(rb"(H?)MSG (\S+) (\S+) (?:(\S+) )?(?:(\d+) )?(\d+)\r\n")


class BenchError(Exception):
    """The server refused, went away or did not answer in time; the text is for the user."""


class Connection:
    """One client connection; every wait is bounded by `TIMEOUT_S`."""

    def __init__(self, url: str, name: str = "bench") -> None:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if parts.scheme != "nats" or not parts.hostname:
            raise BenchError(f"not a nats:// URL: {url}")
        address = (parts.hostname, parts.port or PORT_DEFAULT)
        try:
            self.socket = socket.create_connection(address, TIMEOUT_S)
        except OSError as error:
            raise BenchError(f"cannot connect to {url}: {error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending = b""
        self.memory = memoryview(bytearray(RECEIVE_BYTES))
        self.next_sid = 1
        greeting = self.read_line()
        if not greeting.startswith(b"INFO "):
            raise BenchError(f"{url} is no NATS server, it said: {greeting[:80]!r}")
        self.info: dict[str, Any] = json.loads(greeting[5:])
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "protocol": 1,
            "name": name,
            "headers": True,
            "no_responders": True,
        }
        if parts.password is not None:
            options["user"], options["pass"] = parts.username, parts.password
        elif parts.username:
            options["auth_token"] = parts.username
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.flush()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes | memoryview) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise BenchError(f"sending: {error}{self._last_words()}") from None

    def _last_words(self) -> str:
        """The -ERR that the server sent before it closed, where there is one."""
        try:
            self.socket.settimeout(0.2)
            said = self.socket.recv(4096)
        except OSError:
            return ""
        return f" ({said.decode(errors='replace').strip()})" if said.startswith(b"-ERR") else ""

    def receive(self) -> bytes:
        """The bytes kept from before, or what comes next; pings in it are answered."""
        if self.pending:
            data, self.pending = self.pending, b""
            return data
        try:
            size = self.socket.recv_into(self.memory)
        except TimeoutError:
            raise BenchError(f"nothing came for {TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise BenchError(f"receiving: {error}") from None
        if size == 0:
            raise BenchError("the server closed the connection")
        data = bytes(self.memory[:size])
        if b"PING\r\n" in data:
            self.send(b"PONG\r\n")
        if b"-ERR" in data:
            self._raise_error(data)
        return data

    def _raise_error(self, data: bytes) -> None:
        found = re.search(rb"(?:^|\r\n)-ERR ([^\r]*)", data)
        if found:
            raise BenchError(f"the server said: {found[1].decode(errors='replace')}")

    def read_line(self) -> bytes:
        """The next line without its CRLF; what follows stays for later."""
        data = self.receive()
        while (end := data.find(b"\r\n")) < 0:
            data += self.receive()
        self.pending = data[end + 2 :]
        return data[:end]

    def flush(self) -> None:
        """Waits until the server has taken everything sent so far."""
        self.send(b"PING\r\n")
        data = self.receive()
        while (found := data.find(b"PONG\r\n")) < 0:
            data += self.receive()
        self.pending = data[found + 6 :]

    def subscribe(self, subject: str, queue: str = "") -> int:
        sid = self.next_sid
        self.next_sid += 1
        middle = f" {queue}" if queue else ""
        self.send(f"SUB {subject}{middle} {sid}\r\n".encode())
        return sid

    def count_until(self, mark: bytes, wanted: int) -> int:
        """Receives until `mark` was seen `wanted` times; returns how often it was.

        `mark` must occur once a message, and nowhere else in it.
        """
        seen = 0
        tail = b""
        overlap = len(mark) - 1
        while seen < wanted:
            data = tail + self.receive()
            seen += data.count(mark)
            # Short of one mark, so nothing is counted twice.
            tail = data[-overlap:] if overlap else b""
        return seen

    def request(self, subject: str, payload: bytes = b"") -> bytes:
        """One request on a subscription of its own; the reply's header and payload."""
        inbox = new_inbox()
        sid = self.subscribe(inbox)
        try:
            return self.ask(publish_frame(subject, payload, inbox))
        finally:
            self.send(f"UNSUB {sid}\r\n".encode())

    def ask(self, frame: bytes) -> bytes:
        """Sends a prepared request; the header and payload of the one message that answers."""
        self.send(frame)
        data = self.receive()
        while True:
            found = CONTROL_LINE.search(data)
            if found:
                end = found.end() + int(found[6])
                if len(data) >= end + 2:
                    self.pending = data[end + 2 :]
                    answer = data[found.end() : end]
                    if found[1] and answer.startswith(STATUS):
                        status = answer[len(STATUS) :].partition(b"\r\n")[0].decode()
                        raise BenchError(f"{frame.split()[1].decode()} was answered: {status}")
                    return answer
            data += self.receive()

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A JetStream API request; an error answer is raised."""
        answer: dict[str, Any] = json.loads(
            self.request(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"")
        )
        if "error" in answer:
            error = answer["error"]
            raise BenchError(f"{subject}: {error.get('description')} ({error.get('err_code')})")
        return answer


def new_inbox() -> str:
    return f"_INBOX.{secrets.token_hex(11)}"


def publish_frame(subject: str, payload: bytes, reply: str = "") -> bytes:
    middle = f" {reply}" if reply else ""
    return f"PUB {subject}{middle} {len(payload)}\r\n".encode() + payload + b"\r\n"


def payload_of(size: int) -> bytes:
    """A payload that holds no protocol text."""
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def wait_for_server(url: str, seconds: float) -> None:
    """Waits until a server answers at `url`."""
    end = time.monotonic() + seconds
    while True:
        try:
            Connection(url).close()
            return
        except BenchError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
