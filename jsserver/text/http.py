"""HTTP/1 requests as far as their head goes, and what answers to them are made of (RFC 9112)."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from http import HTTPStatus

MAX_BODY_BYTES = 256 * 1024
"""A body up to this size is read and dropped; a larger one ends the connection."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_VERSION = re.compile(rb"HTTP/(\d)\.(\d)")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(rb"[!$%&'()*+,\-.:;=\[\]_~0-9A-Za-z]*")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class BadRequest(Exception):
    """A request that cannot be served; ends its connection."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Head:
    """A request's line and headers; names of headers in small letters."""

    __slots__ = ("headers", "host", "http10", "keep_alive", "method", "path", "query")

    def __init__(self, method: str, target: bytes, http10: bool) -> None:
        self.method = method
        self.http10 = http10
        self.host, self.path, self.query = _target(target)
        self.headers: dict[bytes, list[bytes]] = {}
        self.keep_alive = False

    def get(self, name: bytes) -> bytes:
        """A header's first value, b"" without one."""
        return self.headers.get(name, [b""])[0]

    def has_word(self, name: bytes, word: bytes) -> bool:
        """Whether the word is in a header's lists, in any letter case."""
        return word in words(self.headers.get(name, []))


def words(values: list[bytes]) -> set[bytes]:
    """The words of comma-separated lists, in small letters."""
    return {word.strip(b" \t").lower() for value in values for word in value.split(b",")}


def http_date(seconds: float) -> str:
    """A time as HTTP headers have it (RFC 9110, 5.6.7), in English whatever the locale is."""
    t = time.gmtime(seconds)
    day, month = _DAYS[t.tm_wday], _MONTHS[t.tm_mon - 1]
    clock = f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
    return f"{day}, {t.tm_mday:02} {month} {t.tm_year:04} {clock} GMT"


def phrase(status: int) -> str:
    """The standard words for a status."""
    return HTTPStatus(status).phrase


def read_head(head: bytes) -> Head:
    """A request from its line and headers, without the empty line; BadRequest if it is none."""
    line, *lines = head.replace(b"\r\n", b"\n").split(b"\n")
    parts = line.split(b" ")
    version = _VERSION.fullmatch(parts[-1])
    if len(parts) != 3 or version is None or not _TOKEN.fullmatch(parts[0]):
        raise BadRequest(400, "malformed request line")
    if version[1] != b"1":
        raise BadRequest(505, "unsupported protocol version")
    read = Head(parts[0].decode("ascii"), parts[1], version[2] == b"0")
    headers = read.headers = _headers(lines)
    hosts = headers.get(b"host", [])
    if not hosts and not read.http10:
        raise BadRequest(400, "missing required Host header")
    if len(hosts) > 1:
        raise BadRequest(400, "too many Host headers")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise BadRequest(400, "malformed Host header")
    read.host = read.host or read.get(b"host")
    connection = words(headers.get(b"connection", []))
    read.keep_alive = b"keep-alive" in connection if read.http10 else b"close" not in connection
    return read


def read_answer(head: bytes) -> tuple[int, dict[bytes, list[bytes]]]:
    """Status and headers of an answer, their names in small letters; BadRequest if it is none."""
    line, *lines = head.replace(b"\r\n", b"\n").split(b"\n")
    status = _STATUS.fullmatch(line)
    if status is None:
        raise BadRequest(400, "malformed status line")
    return int(status[1]), _headers(lines)


def websocket_accept(key: bytes) -> bytes:
    """What answers a key of a request for WebSocket (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def _headers(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise BadRequest(400, "malformed header line")
        if not _TOKEN.fullmatch(name):
            raise BadRequest(400, "invalid header name")
        if _CONTROL.search(value):
            raise BadRequest(400, "invalid header value")
        headers.setdefault(name.lower(), []).append(value.strip(b" \t"))
    return headers


def _target(raw: bytes) -> tuple[bytes, bytes, bytes]:
    """Host, path and query of a request target: `/path?query` or `http://host/path?query`."""
    host = b""
    if any(c <= 0x20 or c == 0x7F for c in raw):
        raise BadRequest(400, "malformed request target")
    if raw[:7].lower() == b"http://":
        host, _, rest = raw[7:].partition(b"/")
        raw = b"/" + rest
    path, _, query = raw.partition(b"?")
    if _BROKEN_ESCAPE.search(path):
        raise BadRequest(400, "broken escape in the path")
    return host, path, query


def body_bytes(head: Head) -> int:
    """Bytes of the body that follow; -1: the connection cannot be used any further. BadRequest
    where nobody can know."""
    headers = head.headers
    expected = headers.get(b"expect", [])
    if any(e.lower() != b"100-continue" for e in expected):
        raise BadRequest(417, "unknown expectation")
    codings = headers.get(b"transfer-encoding", [])
    if any(c.lower() != b"chunked" for c in codings):
        raise BadRequest(501, "unsupported transfer encoding")
    lengths = set(headers.get(b"content-length", []))
    if len(lengths) > 1 or any(not n.isdigit() for n in lengths):
        raise BadRequest(400, "bad Content-Length")
    # No page reads a body, so none is asked for and chunks are not decoded.
    if codings or expected:
        return -1
    digits = lengths.pop().lstrip(b"0") if lengths else b""
    if len(digits) > 9 or int(digits or b"0") > MAX_BODY_BYTES:
        return -1
    return int(digits or b"0")
