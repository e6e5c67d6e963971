"""Small documents over HTTP, fetched by the event loop (RFC 9112).

Redirects are not followed and no proxy is asked: whoever is asked is who was named.
"""

from __future__ import annotations

import asyncio
import io
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from jsserver.text.goformat import quote

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}
_HEAD_MAX = 64 << 10


class _Received:
    """What came, as HTTPResponse reads a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        assert mode == "rb", "it is read only"
        return io.BytesIO(self._data)


async def fetch(
    url: str, seconds: float, most: int, *, body: bytes | None = None, kind: str = ""
) -> tuple[int, bytes]:
    """Status and body of GET, or of POST with a `body` of this media type. OSError where nobody
    answers within the seconds, ValueError where that is no answer or has more than `most` bytes."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{quote(url)} is no URL of http or https")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    lines = [
        f"{'GET' if body is None else 'POST'} {target} HTTP/1.1",
        f"Host: {host}",
        "User-Agent: jsserver",
        "Connection: close",
    ]
    if body is not None:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    request = "\r\n".join([*lines, "", ""])
    if not request.isascii() or len(lines) != len(request.splitlines()) - 1 or " " in target + host:
        raise ValueError(f"{quote(url)} is no URL of http or https")
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port or _PORTS[parts.scheme], ssl=_security(parts.scheme)
            )
            try:
                writer.write(request.encode() + (body or b""))
                received = await _all_of(reader, most + _HEAD_MAX)
            finally:
                writer.close()
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    return _read(received, most)


def _security(scheme: str) -> ssl.SSLContext | None:
    if scheme == "http":
        return None
    import ssl  # only where somebody is asked over https

    return ssl.create_default_context()


async def _all_of(reader: asyncio.StreamReader, most: int) -> bytes:
    """All that comes; whoever says how much that is need not end the connection."""
    received = b""
    while chunk := await reader.read(64 << 10):
        received += chunk
        if len(received) > most:
            raise ValueError("the answer is too large")
        head, end, rest = received.partition(b"\r\n\r\n")
        if end:
            lengths = [
                value.strip()
                for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
                if name.lower() == b"content-length"
            ]
            sized = bool(lengths) and lengths[0].isdigit() and len(lengths[0]) < 10
            if sized and len(rest) >= int(lengths[0]):
                break
    return received


def _read(received: bytes, most: int) -> tuple[int, bytes]:
    try:
        response = HTTPResponse(_Received(received))  # type: ignore[arg-type]
        response.begin()
        body = response.read()
    except HTTPException as error:
        raise ValueError(f"malformed HTTP response: {error!r}") from None
    if len(body) > most:
        raise ValueError("the answer is too large")
    return response.status, body
