"""A small HTTP/1.1 server for pages that are made in one piece: keep-alive, limits, timeouts.

Sockets live in the event loop. Pages are made in one thread of their own, so that a page of many
connections does not hold up the loop; what is urgent is made in another, so that no page holds it
up. Requests of one connection are answered in order.
"""

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

import msgspec

from jsserver.text.http import MAX_BODY_BYTES, BadRequest, body_bytes, http_date, phrase, read_head

if TYPE_CHECKING:
    from jsserver.cext.tls import SecurityContext
    from jsserver.monitor.secure import SecureStream

    Reader = asyncio.StreamReader | SecureStream
    Writer = asyncio.StreamWriter | SecureStream

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers together; a request with more gets 431."""
MAX_CONNECTIONS = 256
"""Open connections. One more ends the one that has been waiting for its client longest, and gets
503 only if pages are being made for all of them."""
BACKLOG = 1024
"""Connections that wait to be accepted."""
HEAD_SECONDS = 10.0
"""From a request's first byte to the end of its headers, and for its body."""
IDLE_SECONDS = 180.0
"""Between requests of one connection."""
WRITE_SECONDS = 30.0
"""For a client to take an answer."""
LINGER_SECONDS = 1.0
"""After an answer that ends the connection, for input still on its way: closing over unread input
would reset the connection, and the answer would be lost."""

TEXT = "text/plain; charset=utf-8"

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


class Request(msgspec.Struct, kw_only=True):
    """A request without its body."""

    method: str
    path: str
    """Decoded; bytes that are no UTF-8 as lone surrogates."""
    query: str
    """As it came, without the question mark."""
    keep_alive: bool
    http10: bool
    body_bytes: int
    """Bytes of the body that follow; -1: the connection cannot be used any further."""


class Response(msgspec.Struct, kw_only=True):
    """A whole answer."""

    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    more: list[bytes] = []
    """The rest of a large body, in pieces that are sent one after another."""


Handler = Callable[[Request], Response]


def parse_head(head: bytes) -> Request:
    """A request from its line and headers, without the empty line; BadRequest if it is none."""
    read = read_head(head)
    if not read.path.startswith(b"/") and read.path != b"*":
        raise BadRequest(400, "malformed request target")
    return Request(
        method=read.method,
        path=unquote_to_bytes(read.path).decode("utf-8", "surrogateescape"),
        query=read.query.decode("utf-8", "surrogateescape"),
        keep_alive=read.keep_alive,
        http10=read.http10,
        body_bytes=body_bytes(read),
    )


class HttpServer:
    """Serves one listening socket; `handler` is called in a thread of the server's own, in another
    for requests that `urgent` says must not wait for others.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        urgent: Callable[[Request], bool] = lambda request: False,
        head_seconds: float = HEAD_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        max_connections: int = MAX_CONNECTIONS,
        security: Callable[[], "SecurityContext | None"] = lambda: None,
    ) -> None:
        """`security`: what a connection that comes now is secured by."""
        self._handler = handler
        self._security = security
        self._head_seconds = head_seconds
        self._idle_seconds = idle_seconds
        self._max_connections = max_connections
        self._urgent = urgent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="monitor")
        self._urgent_thread = ThreadPoolExecutor(1, thread_name_prefix="health")
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], None] = {}
        """Those that wait for their client, to ask or to take an answer; the idlest first."""
        self._closed = False

    @property
    def served(self) -> int:
        """Connections that pages are being made for."""
        return len(self._tasks) - len(self._waiting)

    async def start(self, listener: socket.socket) -> None:
        """Serves the socket from now on."""
        self._server = await asyncio.start_server(
            self._connected, sock=listener, limit=MAX_HEAD_BYTES, backlog=BACKLOG
        )

    async def close(self) -> None:
        """Stops listening and cuts all connections; a page in the making is waited for."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for thread in self._thread, self._urgent_thread:
            await asyncio.to_thread(thread.shutdown, cancel_futures=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # accepted before, but its task begins now
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        full = len(self._tasks) >= self._max_connections and not self._end_idlest()
        self._tasks.add(task)
        source, sink = self._secured(reader, writer)
        try:
            with contextlib.suppress(OSError, TimeoutError):
                if full:
                    await self._refuse(source, sink, BadRequest(503, "too many connections"))
                else:
                    self._waiting[task] = None
                    await self._serve(_Connection(source), sink, task)
            sink.close()
        except asyncio.CancelledError:
            writer.transport.abort()  # the server is closing, or needs the room
        finally:
            self._tasks.discard(task)
            self._waiting.pop(task, None)

    def _secured(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple["Reader", "Writer"]:
        context = self._security()
        if context is None:
            return reader, writer
        from jsserver.monitor.secure import SecureStream  # which loads OpenSSL

        stream = SecureStream(context, reader, writer)
        return stream, stream

    def _end_idlest(self) -> bool:
        """Makes room for one connection; False if all are being served."""
        for task in self._waiting:
            del self._waiting[task]
            self._tasks.discard(task)
            task.cancel()
            return True
        return False

    async def _serve(
        self,
        connection: "_Connection",
        writer: "Writer",
        task: asyncio.Task[None],
    ) -> None:
        while True:
            try:
                head = await connection.head(self._idle_seconds, self._head_seconds)
                if head is None:
                    return
                request = parse_head(head)
            except BadRequest as error:
                await self._refuse(connection.reader, writer, error)
                return
            keep = request.keep_alive and request.body_bytes >= 0
            if keep:
                await connection.skip(request.body_bytes, self._head_seconds)
            self._waiting.pop(task, None)
            loop = asyncio.get_running_loop()
            thread = self._urgent_thread if self._urgent(request) else self._thread
            response = await loop.run_in_executor(thread, self._answer, request)
            self._waiting[task] = None
            await self._write(writer, *_encoded(request, response, keep))
            if not keep:
                await _linger(connection.reader, writer)
                return

    def _answer(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except Exception:
            log.exception("Monitoring request for %r failed", request.path)
            text = "500 Internal Server Error: see the server's log"
            return Response(status=500, body=text.encode())

    async def _write(self, writer: "Writer", *pieces: bytes) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except TimeoutError:
            _abort(writer)
            raise

    async def _refuse(self, reader: "Reader", writer: "Writer", error: BadRequest) -> None:
        text = f"{error.status} {phrase(error.status)}: {error.reason}"
        head = (
            f"HTTP/1.1 {error.status} {phrase(error.status)}\r\nContent-Type: {TEXT}\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        await self._write(writer, (head + text).encode("ascii"))
        await _linger(reader, writer)


class _Connection:
    """The input of a connection: heads and bodies one after another."""

    def __init__(self, reader: "Reader") -> None:
        self.reader = reader
        self._buffer = bytearray()

    async def head(self, idle_seconds: float, head_seconds: float) -> bytes | None:
        """The next request's head; None if the client closed or stayed silent."""
        if not self._buffer:
            try:
                async with asyncio.timeout(idle_seconds):
                    if not await self._more():
                        return None
            except TimeoutError:
                return None
        searched = 0
        try:
            async with asyncio.timeout(head_seconds):
                while True:
                    found = _END_OF_HEAD.search(self._buffer, searched)
                    if found is not None:
                        break
                    if len(self._buffer) > MAX_HEAD_BYTES:
                        raise BadRequest(431, f"more than {MAX_HEAD_BYTES} bytes of headers")
                    searched = max(len(self._buffer) - 3, 0)
                    if not await self._more():
                        return None
        except TimeoutError:
            raise BadRequest(408, "the headers took too long") from None
        head = bytes(self._buffer[: found.start()])
        if len(head) > MAX_HEAD_BYTES:
            raise BadRequest(431, f"more than {MAX_HEAD_BYTES} bytes of headers")
        del self._buffer[: found.end()]
        return head

    async def skip(self, n: int, seconds: float) -> None:
        """Drops a body; TimeoutError if it does not come."""
        async with asyncio.timeout(seconds):
            while n > len(self._buffer):
                n -= len(self._buffer)
                self._buffer.clear()
                if not await self._more():
                    return
        del self._buffer[:n]

    async def _more(self) -> bool:
        data = await self.reader.read(16 * 1024)
        self._buffer += data
        return bool(data)


def _encoded(request: Request, response: Response, keep: bool) -> Iterator[bytes]:
    status = response.status
    lines = [f"HTTP/1.{0 if request.http10 else 1} {status} {phrase(status)}"]
    lines += [f"{name}: {value}" for name, value in response.headers]
    lines.append(f"Content-Type: {response.content_type}")
    lines.append(f"Date: {http_date(time.time())}")
    lines.append(f"Content-Length: {len(response.body) + sum(map(len, response.more))}")
    if not keep:
        lines.append("Connection: close")
    elif request.http10:
        lines.append("Connection: keep-alive")
    head = "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n"
    if request.method == "HEAD":
        yield head
        return
    yield head + response.body
    yield from response.more


def _abort(writer: "Writer") -> None:
    transport = writer.transport
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()


async def _linger(reader: "Reader", writer: "Writer") -> None:
    """Says that no more comes and waits a moment for the client to end."""
    if writer.can_write_eof():
        writer.write_eof()
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while dropped < MAX_BODY_BYTES:
                data = await reader.read(16 * 1024)
                if not data:
                    return
                dropped += len(data)
