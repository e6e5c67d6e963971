"""The HTTP server of the monitoring pages, talked to through sockets."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jsserver.monitor.http import MAX_HEAD_BYTES, HttpServer, Request, Response
from jsserver.process.sockets import bound_port, open_listener
from jsserver.text.http import MAX_BODY_BYTES
from tests.waiting import wait_until

END = b"\r\nHost: x\r\n\r\n"


go_on = threading.Event()
"""Lets a slow page finish."""


def echo(request: Request) -> Response:
    """Says what was asked for; some paths misbehave."""
    if request.path == "/broken":
        raise RuntimeError("a page failed")
    if request.path == "/slow":
        assert go_on.wait(10)
    body = f"{request.method} {request.path}?{request.query}".encode("utf-8", "surrogateescape")
    return Response(headers=(("X-Extra", "1"),), body=body)


class Running:
    """A server in an event loop and thread of its own."""

    def __init__(self, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server = HttpServer(echo, **options)
        listener = open_listener("127.0.0.1", 0)
        self.port = bound_port(listener)
        self.run(self.server.start(listener))

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def stop(self) -> None:
        self.run(self.server.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def ask(self, data: bytes) -> bytes:
        """Everything that comes back until the server closes; our side stays open."""
        with self.connect() as sock:
            sock.sendall(data)
            return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    found = b""
    while data := sock.recv(65536):
        found += data
    return found


def read_answer(sock: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        assert more, data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += sock.recv(length - len(body))
    return head, body


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    running = Running()
    yield running
    running.stop()


def test_answer_has_its_headers(server: Running) -> None:
    with server.connect() as sock:
        sock.sendall(b"GET /a%20b?c=%41&d HTTP/1.1" + END)
        head, body = read_answer(sock)
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    assert b"X-Extra: 1" in lines
    assert b"Content-Type: text/plain; charset=utf-8" in lines
    assert any(line.startswith(b"Date: ") and line.endswith(b" GMT") for line in lines)
    assert body == b"GET /a b?c=%41&d"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS", "BREW"])
def test_any_method_is_served(server: Running, method: str) -> None:
    with server.connect() as sock:
        sock.sendall(method.encode() + b" /x HTTP/1.1" + END)
        assert read_answer(sock)[1] == method.encode() + b" /x?"


def test_head_has_no_body(server: Running) -> None:
    with server.connect() as sock:
        sock.sendall(
            b"HEAD /x HTTP/1.1" + END + b"GET /y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        first, _, rest = read_all(sock).partition(b"\r\n\r\n")
    assert b"Content-Length: 8" in first
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")


def test_connection_stays_open_and_bodies_are_skipped(server: Running) -> None:
    with server.connect() as sock:
        for i in range(3):
            body = b"z" * i * 1000
            sock.sendall(
                b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (i, len(body))
            )
            sock.sendall(body)
            assert read_answer(sock)[1] == b"POST /%d?" % i


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    last = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    data = server.ask(b"".join(b"GET /%d HTTP/1.1" % i + END for i in range(50)) + last)
    found = [data.index(b"GET /%d?" % i) for i in range(50)]
    assert found == sorted(found)
    assert data.endswith(b"GET /last?")


def test_split_anywhere(server: Running) -> None:
    text = b"GET /split HTTP/1.1" + END
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in text:
            sock.sendall(bytes([byte]))
            time.sleep(0.001)  # so that bytes come one by one
        assert read_answer(sock)[1] == b"GET /split?"


def test_old_and_plain_forms(server: Running) -> None:
    closed = server.ask(b"GET /x HTTP/1.0\r\n\r\n")
    assert closed.startswith(b"HTTP/1.0 200 OK\r\n") and closed.endswith(b"GET /x?")
    with server.connect() as sock:
        sock.sendall(b"GET /x HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        assert b"Connection: keep-alive" in read_answer(sock)[0]
        sock.sendall(b"GET /y HTTP/1.1\nHost: x\n\n")  # bare line feeds
        assert read_answer(sock)[1] == b"GET /y?"
        sock.sendall(b"GET http://host:1/z?q HTTP/1.1" + END)
        assert read_answer(sock)[1] == b"GET /z?q"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /x\r\n\r\n", 400),
        (b"garbage\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET  /x HTTP/1.1" + END, 400),
        (b"GET x HTTP/1.1" + END, 400),
        (b"GET /%zz HTTP/1.1" + END, 400),
        (b"GET /a\x00b HTTP/1.1" + END, 400),
        (b"G\xc3\xa9T / HTTP/1.1" + END, 400),
        (b"GET / HTTP/2.0" + END, 505),
        (b"GET / HTTP/1.x" + END, 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n: v\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA b: v\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: v\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: x\r\nExpect: more\r\n\r\n", 417),
        (b"GET /" + b"a" * (MAX_HEAD_BYTES + 1), 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n", 431),
    ],
)
def test_malformed_input_is_refused_with_a_reason(
    server: Running, request_bytes: bytes, status: int
) -> None:
    answer = server.ask(request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert body.startswith(b"%d " % status) and b": " in body


@pytest.mark.parametrize(
    "headers",
    [
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
    ],
)
def test_body_that_is_not_read_ends_the_connection(server: Running, headers: bytes) -> None:
    answer = server.ask(b"POST /x HTTP/1.1\r\nHost: x\r\n" + headers)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"POST /x?")
    assert b"Connection: close" in answer


def test_page_that_fails_is_told_without_its_traceback(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with server.connect() as sock:
        sock.sendall(b"GET /broken HTTP/1.1" + END)
        head, body = read_answer(sock)
        assert head.startswith(b"HTTP/1.1 500 Internal Server Error")
        assert b"Traceback" not in body and b"a page failed" not in body
        sock.sendall(b"GET /x HTTP/1.1" + END)
        assert read_answer(sock)[1] == b"GET /x?"
    assert "a page failed" in caplog.text


def test_slow_page_does_not_hold_up_the_event_loop(server: Running) -> None:
    with server.connect() as sock:
        sock.sendall(b"GET /slow HTTP/1.1" + END)

        async def turn() -> None:
            await asyncio.sleep(0)

        for _ in range(5):
            server.run(turn())
        go_on.set()
        assert read_answer(sock)[1] == b"GET /slow?"


def test_silent_and_slow_clients_are_cut() -> None:
    running = Running(head_seconds=0.2, idle_seconds=0.2)
    try:
        assert running.ask(b"") == b""
        assert running.ask(b"GET / HTT").startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        unfinished = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"
        assert running.ask(unfinished) == b""
    finally:
        running.stop()


def test_one_connection_too_many_ends_the_idlest() -> None:
    running = Running(max_connections=3)
    try:
        silent = running.connect()
        held = [running.connect() for _ in range(2)]
        half = held[1]
        half.sendall(b"GET /x HT")
        held[0].sendall(b"GET /x HTTP/1.1" + END)
        read_answer(held[0])
        last = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert running.ask(last).startswith(b"HTTP/1.1 200 ")
        assert silent.recv(1) == b""
        with running.connect(), running.connect():
            # Bytes that are no whole request do not make a connection less idle.
            assert half.recv(1) == b""
            held[0].sendall(b"GET /x HTTP/1.1" + END)
            read_answer(held[0])
    finally:
        running.stop()


def test_connections_that_are_served_stay() -> None:
    """While pages are made for all, one more is refused."""
    go_on.clear()
    running = Running(max_connections=2)
    try:
        held = [running.connect() for _ in range(2)]
        for sock in held:
            sock.sendall(b"GET /slow HTTP/1.1" + END)
        wait_until(lambda: running.server.served == 2, "both requests are read")
        assert running.ask(b"GET /x HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 503 ")
        go_on.set()
        for sock in held:
            assert read_answer(sock)[1] == b"GET /slow?"
    finally:
        go_on.set()
        running.stop()


def test_what_is_urgent_waits_for_no_page() -> None:
    go_on.clear()
    running = Running(urgent=lambda request: request.path == "/urgent")
    try:
        with running.connect() as slow:
            slow.sendall(b"GET /slow HTTP/1.1" + END)
            last = b"GET /urgent HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            assert running.ask(last).startswith(b"HTTP/1.1 200 ")
            go_on.set()
            read_answer(slow)
    finally:
        go_on.set()
        running.stop()


def test_close_cuts_open_connections() -> None:
    running = Running()
    with running.connect() as sock:
        sock.sendall(b"GET /x HTTP/1.1" + END)
        read_answer(sock)
        running.stop()
        assert sock.recv(1) == b""


@pytest.mark.parametrize("turns", range(8))
def test_close_while_connections_come(turns: int) -> None:
    """Whatever turn of the event loop a connection that was just accepted has reached."""
    unexpected: list[dict[str, Any]] = []

    async def one_server() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unexpected.append(context))
        server = HttpServer(echo)
        listener = open_listener("127.0.0.1", 0)
        address = ("127.0.0.1", bound_port(listener))
        await server.start(listener)
        clients = [socket.create_connection(address, timeout=10) for _ in range(20)]
        for client in clients:
            client.sendall(b"GET /x HTTP/1.1" + END)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.close()
        for client in clients:
            client.close()

    asyncio.run(one_server())
    assert unexpected == []


def test_random_bytes_never_break_it(server: Running) -> None:
    import random

    chosen = random.Random(7)
    alphabet = b"GET / HTTP/1.1\r\nHost: x\r\n:%?\x00\xff"
    for _ in range(200):
        data = bytes(chosen.choice(alphabet) for _ in range(chosen.randrange(1, 120)))
        with server.connect() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = read_all(sock)
        assert answer == b"" or answer.startswith(b"HTTP/1."), (data, answer)
    with server.connect() as sock:
        sock.sendall(b"GET /x HTTP/1.1" + END)
        assert read_answer(sock)[1] == b"GET /x?"
