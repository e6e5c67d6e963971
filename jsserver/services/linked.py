"""What routes, leaf nodes and gateways have in common: dialling, the clock of a state machine, and
lines for the log."""

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
from jsserver.process.tasks import Tasks
from jsserver.text.goformat import duration, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from jsserver.access.clients import Connection
    from jsserver.cext.engine import Item, LinkHandle
    from jsserver.config.options import Options
    from jsserver.links.gatewaywords import GatewayInfo

NONCE_BYTES = 11
MAX_PORT = 65535


class OtherClusters(Protocol):
    """The gateways, as the routes use them."""

    def members_at(self, urls: list[str]) -> None:
        """Takes the URLs at which other clusters reach the servers of this cluster."""

    def heard(self, said: GatewayInfo) -> None:
        """Takes what another server of this cluster knows of a remote cluster."""

    def greet(self) -> list[bytes]:
        """The lines about remote clusters for a server that is new in this cluster."""


def new_nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)


def reports_of(options: Options) -> Callable[[], Reports]:
    """Reads from the present options which failed attempts are logged."""
    return lambda: Reports(options.connect_error_reports, options.reconnect_error_reports)


async def begin_to_dial(host: str, port: int) -> tuple[int, str]:
    """Begins to connect. Returns the descriptor, whose failure the data plane reports, and the
    address, also where others have announced one that is none."""
    loop = asyncio.get_running_loop()
    if not 0 < port <= MAX_PORT:
        raise OSError(f"no port: {port}")
    try:
        # As bytes: a text that cannot be an international name is no OSError.
        found = await loop.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
    except ValueError as error:
        raise OSError(f"no address: {error}") from None
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
    """The name that the certificate of a dialled server must have. A server configured by an
    address has the name of the first of `others` that is a name."""
    return next((name for name in (host, *others) if not _is_address(name)), host).encode()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def compress(handle: LinkHandle, link: int, mode: str, thresholds: list[int], first: bytes) -> None:
    """Compresses a link; `thresholds`: round trips in ns at which s2_auto changes its level, [] for
    nats-server's."""
    if mode == AUTO:
        handle.compress(link, 0, tuple(thresholds) or THRESHOLDS, first)
    else:
        handle.compress(link, COMPRESSION_LEVELS.index(mode), (), first)


def relevel(handle: LinkHandle, link: int, mode: str, thresholds: list[int]) -> None:
    """Changes the compression of what a compressed link sends; `thresholds`: as for compress()."""
    if mode == AUTO:
        handle.relevel(link, 0, tuple(thresholds) or THRESHOLDS)
    else:
        handle.relevel(link, COMPRESSION_LEVELS.index(mode), ())


class Pace:
    """Calls a state machine when its time has come, and dials for it; in one event loop."""

    def __init__(self, tick: Callable[[float], float | None]) -> None:
        """`tick` does what is due at a time and returns the next time; None: nothing is due."""
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None
        self._dialling = Tasks()

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def go_on(self) -> None:
        """Runs the state machine now: an event may have changed what is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._tick(self.now())
        if at is not None:
            self._timer = asyncio.get_running_loop().call_at(at, self.go_on)

    def begin(self, dialling: Coroutine[None, None, None]) -> None:
        self._dialling.begin(dialling)

    def close(self) -> None:
        """Stops the clock and the dialling."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._dialling.cancel()


def address_of(item: Item) -> str:
    """The remote address of an accepted connection."""
    port = ConnNumbers(*item.numbers).port if item.kind == INBOX_CLOSED else item.numbers[0]
    return host_port(item.texts[0].decode(), port)


def error_line(item: Item) -> str:
    """The text of an INBOX_ERROR."""
    _, _, text, *quoted = item.texts
    line = text.decode("utf-8", "replace")
    if quoted:
        line += quote(quoted[0]) + quoted[1].decode("utf-8", "replace")
    return line


def slow_line(connection: Connection, options: Options, write_deadline: int) -> str:
    """The log's text for a connection that was too slow, "" if that was not why it ended;
    `write_deadline`: in ns."""
    if connection.reason == "Slow Consumer (Pending Bytes)":
        return f"Slow Consumer Detected: MaxPending of {options.max_pending} Exceeded"
    if connection.reason == "Slow Consumer (Write Deadline)":
        deadline = duration(write_deadline)
        total = f"{connection.chunks} chunks of {connection.pending} total bytes."
        return f"Slow Consumer Detected: WriteDeadline of {deadline} exceeded with {total}"
    return ""
