"""Small documents over HTTP, fetched by an event loop (RFC 9112).

No proxy is asked, and redirects are followed only where the caller says so: only the server that
was named is asked.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import io
import sys
import threading
from asyncio import base_events, selector_events, sslproto
from http.client import HTTPException, HTTPResponse
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from jsserver.text.goformat import quote

if TYPE_CHECKING:
    import ssl

_PORTS = {"http": 80, "https": 443}
_HEAD_MAX = 64 << 10
_REDIRECTS = {301, 302, 303, 307, 308}
_restoring = threading.Lock()


class _Received:
    """What came, as HTTPResponse reads a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        assert mode == "rb", "it is read only"
        return io.BytesIO(self._data)


async def fetch(
    url: str,
    seconds: float,
    most: int,
    *,
    body: bytes | None = None,
    kind: str = "",
    context: ssl.SSLContext | None = None,
    redirects: int = 0,
) -> tuple[int, bytes]:
    """Status and body of GET, or of POST with a `body` of this media type. OSError where nobody
    answers within the seconds, ValueError where that is no answer or has more than `most` bytes.
    https is secured by the `context`, or as the system does; so many `redirects` are followed."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                response, found = _read(await _exchange(url, most, body, kind, context), most)
                place = response.headers.get("Location", "")
                if not redirects or response.status not in _REDIRECTS or not place:
                    return response.status, found
                redirects -= 1
                url = urljoin(url, place)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None


async def _exchange(
    url: str, most: int, body: bytes | None, kind: str, context: ssl.SSLContext | None
) -> bytes:
    """What is answered to one request."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{quote(url)} is no URL of http or https")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    user, _, host = parts.netloc.rpartition("@")
    lines = [
        f"{'GET' if body is None else 'POST'} {target} HTTP/1.1",
        f"Host: {host}",
        "User-Agent: jsserver",
        "Connection: close",
    ]
    if user:
        name, _, password = user.partition(":")
        said = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
        lines.append(f"Authorization: Basic {base64.b64encode(said).decode()}")
    if body is not None:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    request = "\r\n".join([*lines, "", ""])
    if not request.isascii() or len(lines) != len(request.splitlines()) - 1 or " " in target + host:
        raise ValueError(f"{quote(url)} is no URL of http or https")
    if parts.scheme == "http":
        context = None
    elif context is None:
        context = ssl_module().create_default_context()
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or _PORTS[parts.scheme], ssl=context
    )
    try:
        writer.write(request.encode() + (body or b""))
        return await _all_of(reader, most + _HEAD_MAX)
    finally:
        writer.close()


def ssl_module() -> ModuleType:
    """The module ssl, which asyncio has too from then on: a start keeps it from being loaded, as
    most servers ask nobody over https."""
    with _restoring:
        if sys.modules.get("ssl", sys) is None:
            del sys.modules["ssl"]
            loaded = importlib.import_module("ssl")
            importlib.reload(sslproto)
            for module in (base_events, selector_events):
                module.ssl = loaded  # type: ignore[attr-defined]
        return importlib.import_module("ssl")


async def _all_of(reader: asyncio.StreamReader, most: int) -> bytes:
    """All that comes; a server that tells the length need not end the connection."""
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


def _read(received: bytes, most: int) -> tuple[HTTPResponse, bytes]:
    try:
        response = HTTPResponse(_Received(received))  # type: ignore[arg-type]
        response.begin()
        body = response.read()
    except HTTPException as error:
        raise ValueError(f"malformed HTTP response: {error!r}") from None
    if len(body) > most:
        raise ValueError("the answer is too large")
    return response, body
