"""What routes and leaf nodes have in common: how another server is dialled, when a state machine is
asked again, and what the log says of a connection.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import secrets
import socket
from typing import TYPE_CHECKING, Protocol

from jsserver.cext.engine import COMPRESSION_LEVELS, INBOX_CLOSED, ConnNumbers
from jsserver.links.compression import AUTO, THRESHOLDS
from jsserver.links.reports import Reports
from jsserver.process.sockets import host_port
from jsserver.text.goformat import duration, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from jsserver.access.clients import Connection
    from jsserver.cext.engine import Item, LinkHandle
    from jsserver.config.options import Options
    from jsserver.links.gatewaywords import GatewayInfo

NONCE_BYTES = 11


class OtherClusters(Protocol):
    """What routes tell the gateways of a server."""

    def members_at(self, urls: list[str]) -> None:
        """Where the other servers of this cluster are reached by other clusters."""

    def heard(self, said: GatewayInfo) -> None:
        """Another server of this cluster tells of another cluster."""

    def greet(self) -> list[bytes]:
        """What a server that is new in this cluster is told."""


def new_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def reports_of(options: Options) -> Callable[[], Reports]:
    """Which failed attempts the log tells of, as the options are now."""
    return lambda: Reports(options.connect_error_reports, options.reconnect_error_reports)


async def begin_to_dial(host: str, port: int) -> tuple[int, str]:
    """A descriptor of a connection that is being made, whose failure the data plane tells, and the
    address that it goes to; OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = random.choice(found)
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect_ex(address)
    except OSError:
        sock.close()
        raise
    return sock.detach(), host_port(*address[:2])


def certified_name(host: str, others: Iterable[str]) -> bytes:
    """Whose certificate a server must have that is dialled at a host. One that is known by its
    address alone has that of the first one of `others` with a name."""
    return next((name for name in (host, *others) if not _is_address(name)), host).encode()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def compress(handle: LinkHandle, link: int, mode: str, thresholds: list[int], first: bytes) -> None:
    """Has a link compressed; `thresholds`: round trips by which s2_auto goes, in ns; [] the usual
    ones."""
    if mode == AUTO:
        handle.compress(link, 0, tuple(thresholds) or THRESHOLDS, first)
    else:
        handle.compress(link, COMPRESSION_LEVELS.index(mode), (), first)


def relevel(handle: LinkHandle, link: int, mode: str, thresholds: list[int]) -> None:
    """What goes out on a link that is compressed is compressed another way; `thresholds`: as for
    compress()."""
    if mode == AUTO:
        handle.relevel(link, 0, tuple(thresholds) or THRESHOLDS)
    else:
        handle.relevel(link, COMPRESSION_LEVELS.index(mode), ())


class Pace:
    """The clock of a state machine, and the dialling that it has asked for; in one event loop."""

    def __init__(self, tick: Callable[[float], float | None]) -> None:
        """`tick` does what is due at a time, and says when to be called again."""
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None
        self._dialling: set[asyncio.Task[None]] = set()

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def go_on(self) -> None:
        """Something has happened: what is due may be something else."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._tick(self.now())
        if at is not None:
            self._timer = asyncio.get_running_loop().call_at(at, self.go_on)

    def begin(self, dialling: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(dialling)
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    def close(self) -> None:
        """Dials no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._dialling:
            task.cancel()


def address_of(item: Item) -> str:
    """Where an item's connection is from, if it was accepted."""
    port = ConnNumbers(*item.numbers).port if item.kind == INBOX_CLOSED else item.numbers[0]
    return host_port(item.texts[0].decode(), port)


def error_line(item: Item) -> str:
    """What an INBOX_ERROR says."""
    _, _, text, *quoted = item.texts
    line = text.decode("utf-8", "replace")
    if quoted:
        line += quote(quoted[0]) + quoted[1].decode("utf-8", "replace")
    return line


def slow_line(connection: Connection, options: Options, write_deadline: int) -> str:
    """Why a connection was too slow, that had so many ns to take bytes; "": it did not end by
    that."""
    if connection.reason == "Slow Consumer (Pending Bytes)":
        return f"Slow Consumer Detected: MaxPending of {options.max_pending} Exceeded"
    if connection.reason == "Slow Consumer (Write Deadline)":
        deadline = duration(write_deadline)
        total = f"{connection.chunks} chunks of {connection.pending} total bytes."
        return f"Slow Consumer Detected: WriteDeadline of {deadline} exceeded with {total}"
    return ""
