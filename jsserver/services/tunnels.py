"""Tunnels through HTTP proxies to hubs of leaf nodes."""

from __future__ import annotations

import asyncio
import base64
import socket
from typing import TYPE_CHECKING

from jsserver.process.sockets import host_port
from jsserver.text.http import BadRequest, read_answer

if TYPE_CHECKING:
    from jsserver.links.leafmodel import HttpProxy

HEAD_MAX = 16 << 10
"""Bytes at most of a proxy's answer."""


async def dial_through(proxy: HttpProxy, host: str, port: int) -> int:
    """Has a proxy connect to a host, whose name the proxy looks up. Returns the descriptor of the
    connection, in which nothing of the other side has been read; OSError says what went wrong."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(proxy.timeout):
            sock = await _connected(proxy)
    except (OSError, TimeoutError) as error:
        raise OSError(f"failed to connect to proxy: {_text(error)}") from None
    try:
        async with asyncio.timeout(proxy.timeout):
            await loop.sock_sendall(sock, _request(proxy, host_port(host, port)))
            await _answer(sock)
    except TimeoutError as error:
        sock.close()
        raise OSError(f"failed to read proxy response: {_text(error)}") from None
    except BaseException:
        sock.close()
        raise
    return sock.detach()


def _text(error: Exception) -> str:
    return "i/o timeout" if isinstance(error, TimeoutError) else str(error)


async def _connected(proxy: HttpProxy) -> socket.socket:
    loop = asyncio.get_running_loop()
    # As bytes: a text that cannot be an international name is no OSError.
    found = await loop.getaddrinfo(proxy.host.encode(), proxy.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _request(proxy: HttpProxy, where: str) -> bytes:
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}", "User-Agent: jsserver"]
    if proxy.username:
        login = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    return "\r\n".join([*lines, "", ""]).encode()


async def _answer(sock: socket.socket) -> None:
    """Reads the head of the answer and nothing behind it, which is the hub's; OSError: the proxy
    refuses."""
    loop = asyncio.get_running_loop()
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        byte = await loop.sock_recv(sock, 1)
        if not byte:
            raise OSError("failed to read proxy response: unexpected EOF")
        head += byte
        if len(head) > HEAD_MAX:
            raise OSError("failed to read proxy response: it is too long")
    try:
        status, _ = read_answer(bytes(head).rstrip(b"\r\n"))
    except BadRequest as error:
        raise OSError(f"failed to read proxy response: {error}") from None
    if status != 200:
        said = bytes(head).partition(b"\r\n")[0].decode("latin-1").partition(" ")[2]
        raise OSError(f"proxy CONNECT failed: {said}")
