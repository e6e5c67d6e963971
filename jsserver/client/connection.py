"""A blocking client connection: requests one at a time, and bytes for those who parse them."""

import json
import re
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from .. import __version__
from .credentials import Credentials, Tls

RECEIVE_BYTES = 1 << 20
TIMEOUT_S = 60.0
PORT_DEFAULT = 4222

# nats-server leaves two spaces where what it tells its own clients has no reply.
_MSG = re.compile(rb"MSG (\S+) (\d+) +(?:(\S+) )?()(\d+)")
_HMSG = re.compile(rb"HMSG (\S+) (\d+) +(?:(\S+) )?(\d+) (\d+)")
_STATUS = re.compile(rb"NATS/\d\.\d +(\d{3}) *([^\r\n]*)")


class ConnectionFailed(Exception):
    """The server refused, went away or did not answer in time; the text is for the user."""


class TimedOut(ConnectionFailed):
    """Nothing came in time."""


class Refused(ConnectionFailed):
    """The server said -ERR: asking again will not help."""


class Message(NamedTuple):
    """What came on a subscription; `header` is the whole block, or empty."""

    subject: str
    sid: int
    reply: str
    header: bytes
    data: bytes

    @property
    def status(self) -> tuple[int, str]:
        """The code and the text of a header that reports; (0, "") of one that does not."""
        found = _STATUS.match(self.header)
        return (int(found[1]), found[2].decode(errors="replace").strip()) if found else (0, "")


class Connection:
    """One client connection to the first of `servers` that answers; every wait is bounded.

    Times are seconds. ConnectionFailed, or Refused, says what went wrong and where.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        name: str,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        connect_timeout: float = 5.0,
        timeout: float = TIMEOUT_S,
    ) -> None:
        urls = servers.split(",") if isinstance(servers, str) else list(servers)
        self.timeout = timeout
        self._name = name
        self._next_sid = 1
        self._inbox = new_inbox()
        self._inbox_sid = 0
        self._requests = 0
        self._buffer = bytearray()
        self._memory = memoryview(bytearray(RECEIVE_BYTES))
        failures = []
        for url in urls:
            try:
                self._open(url.strip(), credentials or Credentials(), tls or Tls(), connect_timeout)
                return
            except Refused:
                raise
            except ConnectionFailed as error:
                failures.append(str(error))
        raise ConnectionFailed("; ".join(failures) or "no server was named")

    def _open(self, url: str, credentials: Credentials, tls: Tls, connect_timeout: float) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"nats://{url}")
            host, port = parts.hostname, parts.port or PORT_DEFAULT
        except ValueError:  # its text may have a part of the password in it
            raise ConnectionFailed(
                "not a nats:// or tls:// URL: its host or port cannot be read"
            ) from None
        if parts.scheme not in ("nats", "tls") or not host:
            raise ConnectionFailed(f"not a nats:// or tls:// URL: {parts.scheme}://{host}")
        self.url = f"{parts.scheme}://{host}:{port}"
        try:
            self.socket = socket.create_connection((host, port), connect_timeout)
        except OSError as error:
            raise ConnectionFailed(f"cannot connect to {self.url}: {error}") from None
        self._buffer.clear()
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(parts.scheme, host, tls)
            self.socket.settimeout(self.timeout)
            self._log_in(_with_user_of(parts.username, parts.password, credentials))
        except BaseException:
            self.socket.close()
            raise

    def _greet(self, scheme: str, host: str, tls: Tls) -> None:
        greeting = self.read_line()
        if not greeting.startswith(b"INFO "):
            raise ConnectionFailed(f"{self.url} is no NATS server, it said: {greeting[:80]!r}")
        self.info: dict[str, Any] = json.loads(greeting[5:])
        if scheme == "tls" or tls.wanted or self.info.get("tls_required"):
            if not (self.info.get("tls_required") or self.info.get("tls_available")):
                raise ConnectionFailed(f"{self.url} does not offer TLS")
            try:
                self.socket = tls.context().wrap_socket(self.socket, server_hostname=host)
            except ImportError:
                raise ConnectionFailed(f"{self.url}: this executable has no TLS") from None
            except OSError as error:  # such as ssl.SSLError
                raise ConnectionFailed(f"{self.url}: TLS failed: {error}") from None

    def _log_in(self, credentials: Credentials) -> None:
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": __version__,
            "protocol": 1,
            "name": self._name,
            "headers": True,
            "no_responders": True,
        }
        options.update(credentials.connect_fields(self.info.get("nonce", "")))
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # ---- bytes ---------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            said = self._last_words()
            if said:
                raise Refused(f"{self.url} said: {said}") from None
            raise ConnectionFailed(f"sending to {self.url}: {error}") from None

    def _last_words(self) -> str:
        """The -ERR that the server sent before it closed, where there is one."""
        try:
            self.socket.settimeout(0.2)
            said = self.socket.recv(4096)
        except OSError:
            return ""
        return said[5:].decode(errors="replace").strip() if said.startswith(b"-ERR") else ""

    def receive_into(self, view: memoryview) -> int:
        """Some bytes of the server's, at least one; for those who parse them."""
        try:
            size = self.socket.recv_into(view)
        except TimeoutError:
            raise TimedOut(f"{self.url}: nothing came for {self.timeout:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"receiving from {self.url}: {error}") from None
        if size == 0:
            raise ConnectionFailed(f"{self.url} closed the connection")
        return size

    def taken_bytes(self) -> bytes:
        """What was received and not looked at yet; it is then the caller's."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def give_back(self, data: bytes) -> None:
        """Bytes that a parser has taken and left over: they are read again first."""
        self._buffer[:0] = data

    def fill(self) -> None:
        """Receives more, for those who look at it in whole operations."""
        self._buffer += self._memory[: self.receive_into(self._memory)]

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self.fill()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def read_line(self) -> bytes:
        """The next line without its CRLF."""
        searched = 0
        while (end := self._buffer.find(b"\r\n", searched)) < 0:
            searched = max(len(self._buffer) - 1, 0)
            self.fill()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    # ---- the protocol --------------------------------------------------------------------------

    def next_op(self) -> Message | bytes:
        """The next message, or another line of the server's; pings are answered, -ERR is raised."""
        while True:
            line = self.read_line()
            if line == b"PING":
                self.send(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise Refused(f"{self.url} said: {line[5:].decode(errors='replace')}")
            elif line.startswith(b"INFO "):
                self.info = json.loads(line[5:])
            elif found := _MSG.fullmatch(line) or _HMSG.fullmatch(line):
                total, head = int(found[5]), int(found[4] or 0)
                body = self._take(total + 2)
                return Message(
                    found[1].decode(errors="surrogateescape"),
                    int(found[2]),
                    (found[3] or b"").decode(errors="surrogateescape"),
                    body[:head],
                    body[head:total],
                )
            else:
                return line

    def flush(self) -> None:
        """Waits until the server has taken everything sent so far; drops messages that come."""
        self.send(b"PING\r\n")
        while self.next_op() != b"PONG":
            pass

    def subscribe(self, subject: str, queue: str = "") -> int:
        sid = self._next_sid
        self._next_sid += 1
        middle = f" {queue}" if queue else ""
        self.send(f"SUB {subject}{middle} {sid}\r\n".encode())
        return sid

    def unsubscribe(self, sid: int) -> None:
        self.send(f"UNSUB {sid}\r\n".encode())

    def request(self, subject: str, payload: bytes = b"", header: bytes = b"") -> Message:
        """One request and the first message that answers it; ConnectionFailed when none comes."""
        if not self._inbox_sid:
            self._inbox_sid = self.subscribe(f"{self._inbox}.*")
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}"
        self.send(publish_frame(subject, payload, reply, header))
        end = time.monotonic() + self.timeout
        while time.monotonic() < end:
            op = self.next_op()
            if isinstance(op, Message) and op.sid == self._inbox_sid:
                # A consumer's delivery bears the message's own subject.
                if op.subject.startswith(self._inbox) and op.subject != reply:
                    continue
                if op.status[0] == 503 and not op.data:
                    raise ConnectionFailed(f"{self.url}: nobody answers {subject}")
                return op
        raise ConnectionFailed(f"{self.url}: no answer to {subject} in {self.timeout:g} s")


def _with_user_of(user: str | None, password: str | None, given: Credentials) -> Credentials:
    """What the URL says, where nothing else was given."""
    if given != Credentials() or not user:
        return given
    if password is None:
        return Credentials(token=unquote(user))
    return Credentials(user=unquote(user), password=unquote(password))


def new_inbox() -> str:
    return f"_INBOX.{secrets.token_hex(11)}"


def publish_frame(subject: str, payload: bytes, reply: str = "", header: bytes = b"") -> bytes:
    middle = f" {reply}" if reply else ""
    if header:
        total = len(header) + len(payload)
        head = f"HPUB {subject}{middle} {len(header)} {total}\r\n"
    else:
        head = f"PUB {subject}{middle} {len(payload)}\r\n"
    return head.encode(errors="surrogateescape") + header + payload + b"\r\n"
