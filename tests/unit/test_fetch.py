"""Small documents over HTTP: whatever a server answers, it is bounded in time and size."""

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jsserver.access.fetch import fetch
from tests.certificates import Authority

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def served(
    answer: bytes | Answer,
    path: str = "/a/b?c=d",
    seconds: float = 5,
    most: int = 100,
    **more: object,
) -> tuple[tuple[int, bytes], bytes]:
    """What is fetched of a server that answers so, and what it was asked."""
    asked = b""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        if isinstance(answer, bytes):
            writer.write(answer)
            writer.write_eof()
            await writer.drain()
        else:
            await answer(reader, writer)
        writer.close()

    async def run() -> tuple[int, bytes]:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await fetch(f"http://127.0.0.1:{port}{path}", seconds, most, **more)  # type: ignore[arg-type]
        finally:
            server.close()

    return asyncio.run(run()), asked


def test_get_and_post() -> None:
    found, asked = served(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    assert found == (200, b"hi")
    assert asked.startswith(b"GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:")
    _, asked = served(b"HTTP/1.1 204 -\r\n\r\n", body=b"xyz", kind="a/b")
    assert asked.startswith(b"POST /a/b?c=d HTTP/1.1\r\n")
    assert b"\r\nContent-Type: a/b\r\nContent-Length: 3\r\n" in asked


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", (200, b"until the end")),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", (404, b"")),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", (302, b"")),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n",
            (200, b"hi!"),
        ),
    ],
)
def test_what_is_an_answer(answer: bytes, found: tuple[int, bytes]) -> None:
    assert served(answer)[0] == found


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + bytes(101),
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(101),
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1 << 20),
    ],
)
def test_what_is_none(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        served(answer)


def test_who_says_how_much_it_is_need_not_end() -> None:
    async def stays(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await asyncio.sleep(30)  # and does not end

    begun = time.monotonic()
    assert served(stays)[0] == (200, b"hi")
    assert time.monotonic() - begun < 4


def test_who_is_slow() -> None:
    async def drips(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"H")
            await asyncio.sleep(0.02)

    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within"):
        served(drips, seconds=0.3)
    assert time.monotonic() - begun < 4


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "ftp://127.0.0.1/", "file:///etc/passwd", "http://", "http://127.0.0.1:x/"),
        *("http://127.0.0.1:1/a b", "http://127.0.0.1:99999/", "http://127.0.0.1/\u00e9"),
        "http://127.0.0.1/ HTTP/1.1",
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        asyncio.run(fetch(url, 5, 100))


@pytest.mark.parametrize("end", ["\r\nX:y", "\n", "\r"])
def test_no_line_is_slipped_in(end: str) -> None:
    _, asked = served(b"HTTP/1.1 200 OK\r\n\r\n", path=f"/a{end}")
    assert len(asked.splitlines()) == 5


def test_redirects_are_followed_as_often_as_said() -> None:
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b" ")[1])
        if head.startswith(b"GET /3 "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        else:
            place = b"/%d" % (int(asked[-1][1:]) + 1)
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % place)
        writer.close()

    async def run() -> list[tuple[int, bytes]]:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = [await fetch(f"http://127.0.0.1:{port}/0", 5, 100, redirects=n) for n in (3, 2)]
        server.close()
        return found

    assert asyncio.run(run()) == [(200, b"hi"), (302, b"")]
    assert asked == [b"/0", b"/1", b"/2", b"/3", b"/0", b"/1", b"/2"]


def test_a_redirect_to_a_file_is_none() -> None:
    with pytest.raises(ValueError, match="no URL of http"):
        served(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", redirects=3)


def test_a_name_and_a_password_are_said() -> None:
    asked = b""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await fetch(f"http://me:s%3A@127.0.0.1:{port}/", 5, 100)
        server.close()

    asyncio.run(run())
    assert b"\r\nAuthorization: Basic bWU6czo=\r\n" in asked
    assert b"\r\nHost: 127.0.0.1:" in asked


def test_https_in_a_process_whose_start_kept_ssl_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue(dns=("localhost",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    code = """
import sys
sys.modules["ssl"] = None
import asyncio
from jsserver.access.fetch import fetch
print(asyncio.run(fetch(sys.argv[1], 5, 100)))
"""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    async def run() -> bytes:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, url,
            env={**os.environ, "SSL_CERT_FILE": str(authority.cert)},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await child.communicate()
        server.close()
        return said

    assert asyncio.run(run()) == b"(200, b'hi')\n"


def test_nobody_there() -> None:
    with pytest.raises(OSError, match=r"."):
        asyncio.run(fetch("http://127.0.0.1:1/", 5, 100))
