"""The data of a server's gateways: remote clusters, and links to their servers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from .gatewaywords import GatewayInfo
from .reports import Reports
from .words import RouteConnect


class GatewayReason(Enum):
    """Why a link is closed, in the data plane's words."""

    PROTOCOL = "Protocol Violation"
    LOGIN = "Authentication Failure"
    PORT = "Incorrect Port"
    GATEWAY = "Wrong Gateway"
    NAME = "Duplicate Server Name"
    VERSION = "Minimum Version Required"


class Place(msgspec.Struct, frozen=True):
    """The address of a server in a remote cluster; `login`: user and password, None without."""

    host: str
    port: int
    login: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Remote(msgspec.Struct, kw_only=True, eq=False):
    """A remote cluster."""

    name: str
    configured: list[Place] = []
    """Addresses in the configuration."""
    places: list[Place] = []
    """`configured`, and the addresses that the cluster's servers announce."""
    tls: bool = False
    """Whether the cluster has a `tls` block in the configuration."""
    explicit: bool = True
    """Whether the configuration names the cluster: it is then dialled without end."""
    trying: list[Place] = []
    """The addresses left to try in this attempt."""
    attempts: int = 0
    was_there: bool = False
    """Whether there has been a connection to the cluster."""
    at: float | None = None
    """When to dial next; None: not scheduled."""
    busy: bool = False
    """Whether a connection is open or being made."""

    @property
    def kind(self) -> str:
        return "explicit" if self.explicit else "implicit"

    @property
    def urls(self) -> list[str]:
        return [place.address for place in self.places]


class GatewaySettings(msgspec.Struct, kw_only=True):
    """This server as remote clusters see it, and its settings for gateways."""

    server_id: str
    server_name: str
    version: str
    name: str
    """The name of this server's cluster."""
    host: str
    port: int = 0
    url: str = ""
    """This server's URL for gateways."""
    urls: list[str] = []
    """The URLs for gateways of all servers of this cluster."""
    user: str = ""
    password: str = ""
    """The login's password, or its hash."""
    fits: Callable[[str, str], bool] = operator.eq
    """Whether the second one, a password, is the first one, as `password` has it."""
    password_sent: str = ""
    """The password for servers whose URL has no login."""
    headers: bool = True
    max_payload: int = 1 << 20
    reject_unknown: bool = False
    connect_retries: int = 0
    connect_backoff: bool = False
    reports: Callable[[], Reports] = Reports
    """Which failed attempts are logged, by the present options."""
    tls: bool = False
    """Whether gateways that connect to this server need TLS."""


class GatewayLink(msgspec.Struct, kw_only=True, eq=False):
    """A connection to a server of a remote cluster."""

    number: int
    address: str
    remote: Remote | None = None
    """The cluster that this server dialled: messages go out on the link. None: the link was
    accepted, and messages come in."""
    place: Place | None = None
    connect: RouteConnect | None = None
    info: GatewayInfo | None = None
    open: bool = False
    modes: dict[str, bool] = {}
    """For each account whose interest the other side announces: whether it has announced all."""

    @property
    def name(self) -> str:
        """The remote cluster's name, "" while unknown."""
        if self.remote is not None:
            return self.remote.name
        return "" if self.info is None else self.info.gateway


class GatewayTransport(Protocol):
    """What the gateways need from their driver."""

    def dial(self, remote: Remote, place: Place) -> None:
        """Begins to connect; `dialled` follows with the link's number, or `unreachable`."""

    def write(self, link: int, data: bytes) -> None:
        """Sends bytes on a link."""

    def resume(self, link: int) -> None:
        """Lets the link read on."""

    def open_link(self, link: int, *, inbound: bool, cluster: str, headers: bool) -> None:
        """Opens the link for interest and messages."""

    def cut(self, link: int, reason: GatewayReason, error: str = "") -> None:
        """Closes a link; sends `error` first as -ERR, if it is not empty."""

    def is_member(self, name: str) -> bool:
        """Whether this cluster has a server of this name."""

    def tell_cluster(self, line: bytes) -> None:
        """Sends a line to each other server of this cluster."""

    def log(self, level: str, text: str, link: int = 0) -> None:
        """Logs a line; `link`: the link it is about, 0 for none."""


class GatewayRefused(Exception):
    """A link is refused; the reason, and the text for the other side."""

    def __init__(self, reason: GatewayReason, error: str = "") -> None:
        super().__init__(error or reason.value)
        self.reason, self.error = reason, error
