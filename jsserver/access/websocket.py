"""Requests for WebSocket: who may have it, what is agreed on, and what is known of clients behind.

The data plane reads the requests and speaks in frames; each request is decided here, once.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from jsserver.access.auth import Authenticator
from jsserver.access.clients import Connect
from jsserver.cext.engine import DataPlane, Item
from jsserver.config.options import Options, Websocket
from jsserver.config.websocket import allowed_origin
from jsserver.process.logs import Logger
from jsserver.process.sockets import host_port
from jsserver.text.http import (
    BadRequest,
    Head,
    body_bytes,
    http_date,
    phrase,
    read_head,
    websocket_accept,
)
from jsserver.text.urls import host_and_port, parse_url

CLIENT_OVER_WEBSOCKET = "WEBSOCKET"
"""The type of these connections, which users may be limited to."""
BROWSER_FRAME_BYTES = 4096
"""Browsers get no longer frames, as nats-server found that they take these better."""

_MAX_HEAD = 64 * 1024
_EXTENSION = b"permessage-deflate"
_SHOWN = frozenset(
    {
        "missing required Host header",
        "malformed Host header",
        "invalid header name",
        "unsupported protocol version",
    }
)
"""Reasons that an answer tells; the others only have a status."""
_COOKIE_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_COOKIE_VALUE = re.compile(rb"[ !#-:<-\[\]-~]*")
_DOTS = re.compile(rb"(?:^|/)\.{0,2}(?:/|$)")


class Refusal(Exception):
    """A request that is not granted; the text is for the log."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Client(NamedTuple):
    """What the request of a client told of it: credentials, for where its CONNECT has none, and
    whose the request was, if somebody else forwarded it."""

    jwt: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    forwarded: str = ""

    def complete(self, options: Connect) -> None:
        """Fills in what CONNECT has left out."""
        options.jwt = options.jwt or self.jwt
        options.user = options.user or self.user
        options.password = options.password or self.password
        options.auth_token = options.auth_token or self.token


class Websockets:
    """Decides requests for WebSocket and keeps what they told, as long as their clients stay."""

    def __init__(self, plane: DataPlane, log: Logger, options: Options) -> None:
        self._plane = plane
        self._log = log
        self._options = options.websocket
        self._origins = {allowed_origin(origin) for origin in self._options.allowed_origins}
        self._clients: dict[int, Client] = {}
        self.on_leaf: Callable[[int], None] | None = None
        """Hears of each connection that asks to be a leaf node; None: no leaf nodes may come."""
        view, certified = options.through_websocket, options.certified_users
        self.authenticator = Authenticator(view, CLIENT_OVER_WEBSOCKET, certified)

    def take(self, options: Websocket, authenticator: Authenticator) -> None:
        """Who comes from now on is held to this."""
        self._options = options
        self.authenticator = authenticator

    def __contains__(self, cid: int) -> bool:
        return cid in self._clients

    def complete(self, cid: int, options: Connect) -> None:
        """Fills in what a client's CONNECT has left out and its request told."""
        self._clients[cid].complete(options)
        options.connection_type = CLIENT_OVER_WEBSOCKET

    def named(self, cid: int, address: str) -> str:
        """How the log calls a client."""
        forwarded = self._clients[cid].forwarded
        return f"{forwarded}/{address} - wid:{cid}" if forwarded else f"{address} - wid:{cid}"

    def forget(self, cid: int) -> None:
        """It has ended."""
        self._clients.pop(cid, None)

    # ---- requests

    def asked(self, item: Item) -> None:
        """A request of the data plane's inbox."""
        cid, (port, behind), (address, raw) = item.cid, item.numbers, item.texts
        where = host_port(address.decode(), port)
        try:
            if not raw.endswith(b"\n"):
                raise BadRequest(431, f"more than {_MAX_HEAD} bytes of headers")
            head = read_head(raw.rstrip(b"\r\n"))
            if not head.path.startswith(b"/"):
                raise BadRequest(400, "malformed request target")
            again = head.keep_alive and body_bytes(head) == 0
        except BadRequest as error:
            self._plane.refuse_websocket(cid, _malformed(error), False)
            return
        clean = _clean(head.path)
        if clean != head.path:
            self._plane.refuse_websocket(cid, _moved(head, clean, again), again)
            return
        try:
            self._check(head)
        except Refusal as error:
            self._log.error(f"{where} - websocket handshake error: {error}")
            self._plane.refuse_websocket(cid, _refused(head, error.status, again), again)
            return
        if behind:
            self._log.error(
                f"{where} - websocket handshake error: client sent data before handshake is "
                "complete"
            )
            self._plane.refuse_websocket(cid, b"", False)
        elif not head.path.endswith(b"/leafnode"):
            self._clients[cid] = _client(self._options, head)
            if not self._open(cid, head):
                self.forget(cid)
        elif self.on_leaf is None:
            self._log.error("Not configured to accept leaf node connections")
            self._plane.refuse_websocket(cid, self._reply(head), False)
        elif self._open(cid, head, leaf=True):
            self.on_leaf(cid)

    def _check(self, head: Head) -> None:
        """Refusal where it is no request for WebSocket, or not one to be granted."""
        if head.path.endswith(b"/mqtt"):
            raise Refusal(404, "mqtt websocket endpoint not enabled")
        if head.method != "GET":
            raise Refusal(405, "request method must be GET")
        if not head.host:
            raise Refusal(400, "'Host' missing in request")
        if not head.has_word(b"upgrade", b"websocket"):
            raise Refusal(400, "invalid value for header 'Upgrade'")
        if not head.has_word(b"connection", b"upgrade"):
            raise Refusal(400, "invalid value for header 'Connection'")
        key = head.get(b"sec-websocket-key")
        if not key:
            raise Refusal(400, "key missing")
        if not _is_key(key):
            raise Refusal(400, "invalid websocket key")
        if not head.has_word(b"sec-websocket-version", b"13"):
            raise Refusal(400, "invalid version")
        try:
            self._check_origin(head)
        except ValueError as error:
            raise Refusal(403, f"origin not allowed: {error}") from None

    def _check_origin(self, head: Head) -> None:
        """ValueError where a web page's origin may not have it; programs do not say any."""
        if not self._options.same_origin and not self._origins:
            return
        text = head.get(b"origin") or head.get(b"sec-websocket-origin")
        if not text:
            return
        url = parse_url(text.decode("utf-8", "surrogateescape"))
        host, port = host_and_port(url.host, url.scheme == "https")
        if self._options.same_origin:
            own = host_and_port(head.host.decode("ascii", "surrogateescape"), False)
            if (host, port) != own or url.scheme != "http":
                raise ValueError("not same origin")
        if self._origins and (url.scheme, host, port) not in self._origins:
            raise ValueError("not in the allowed list")

    def _deflates(self, head: Head) -> bool:
        if not self._options.compression:
            return False
        offers = b",".join(head.headers.get(b"sec-websocket-extensions", []))
        return any(word.strip(b" \t").lower() == _EXTENSION for word in re.split(rb"[,;]", offers))

    def _reply(self, head: Head) -> bytes:
        key = head.get(b"sec-websocket-key")
        lines = [
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Accept: " + websocket_accept(key),
        ]
        if self._deflates(head):
            lines.append(
                b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
                b"client_no_context_takeover"
            )
        if _wants_no_masking(head):
            lines.append(b"Nats-No-Masking: true")
        lines += [f"{name}: {text}".encode() for name, text in self._options.headers.items()]
        return b"\r\n".join([*lines, b"", b""])

    def _open(self, cid: int, head: Head, *, leaf: bool = False) -> bool:
        agent = head.get(b"user-agent")
        browser = agent.startswith(b"Mozilla/")
        safari = b"Version/" in agent and b"Safari/" in agent
        return self._plane.open_websocket(
            cid,
            self._reply(head),
            masked=not _wants_no_masking(head),
            deflate=self._deflates(head),
            frame_max=BROWSER_FRAME_BYTES if browser else 0,
            whole=safari,
            leaf=leaf,
        )


# ---- answers


def _malformed(error: BadRequest) -> bytes:
    status = f"{error.status} {phrase(error.status)}"
    if str(error) in _SHOWN:
        status += f": {error}"
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        f"{status}"
    ).encode()


def _answer(head: Head, status: int, headers: list[str], body: bytes, again: bool) -> bytes:
    lines = [
        f"HTTP/1.{0 if head.http10 else 1} {status} {phrase(status)}",
        *headers,
        f"Date: {http_date(time.time())}",
        f"Content-Length: {len(body)}",
    ]
    if not again and not head.http10:
        lines.append("Connection: close")
    elif again and head.http10:
        lines.append("Connection: keep-alive")
    text = "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")
    return text if head.method == "HEAD" else text + body


def _refused(head: Head, status: int, again: bool) -> bytes:
    headers = [
        "Content-Type: text/plain; charset=utf-8",
        "Sec-Websocket-Version: 13",
        "X-Content-Type-Options: nosniff",
    ]
    return _answer(head, status, headers, f"{phrase(status)}\n".encode(), again)


def _moved(head: Head, path: bytes, again: bool) -> bytes:
    """The path has an own form, which it should be asked for."""
    target = path + (b"?" + head.query if head.query else b"")
    where = target.decode("utf-8", "surrogateescape")
    shown = where.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = shown.replace('"', "&#34;").replace("'", "&#39;")
    headers, body = [f"Location: {where}"], b""
    if head.method in ("GET", "HEAD"):
        headers.insert(0, "Content-Type: text/html; charset=utf-8")
        body = f'<a href="{shown}">{phrase(307)}</a>.\n\n'.encode("utf-8", "surrogateescape")
    return _answer(head, 307, headers, body, again)


# ---- what requests say


def _clean(path: bytes) -> bytes:
    """A path without `.`, `..` and empty parts."""
    if not _DOTS.search(path.rstrip(b"/") if path != b"/" else b""):
        return path if not path.endswith(b"//") else path.rstrip(b"/") + b"/"
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del parts[-1:]
        elif part not in (b"", b"."):
            parts.append(part)
    clean = b"/" + b"/".join(parts)
    return clean + b"/" if path.endswith(b"/") and parts else clean


def _is_key(key: bytes) -> bool:
    """16 bytes in base64, padded."""
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except binascii.Error:
        return False


def _wants_no_masking(head: Head) -> bool:
    return head.get(b"nats-no-masking") == b"true"


def _client(options: Websocket, head: Head) -> Client:
    found = {}
    fields = {
        options.token_cookie: "token",
        options.pass_cookie: "password",
        options.user_cookie: "user",
        options.jwt_cookie: "jwt",
    }
    for name, value in _cookies(head):
        if name in fields and name:
            found[fields[name]] = value
    return Client(forwarded=_forwarded(head), **found)


def _cookies(head: Head) -> list[tuple[str, str]]:
    """Names and values as RFC 6265 has them; what is not of its form is left out."""
    found = []
    for line in head.headers.get(b"cookie", []):
        for part in line.split(b";"):
            name, _, value = part.strip(b" \t").partition(b"=")
            if len(value) > 1 and value.startswith(b'"') and value.endswith(b'"'):
                value = value[1:-1]
            name = name.strip(b" \t")
            if _COOKIE_NAME.fullmatch(name) and _COOKIE_VALUE.fullmatch(value):
                found.append((name.decode(), value.decode()))
    return found


def _forwarded(head: Head) -> str:
    """The address for which somebody else has sent the request, if it is one and alone."""
    text = head.get(b"x-forwarded-for").decode("latin-1")
    if "%" in text:
        return ""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return ""
    return f"[{text}]" if ":" in text else text

