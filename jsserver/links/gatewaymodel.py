"""What the gateways of a server consist of: clusters that are dialled, and links to them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from .gatewaywords import GatewayInfo
from .reports import Reports
from .words import RouteConnect


class GatewayReason(Enum):
    """Why a link is cut, in the data plane's words."""

    PROTOCOL = "Protocol Violation"
    LOGIN = "Authentication Failure"
    PORT = "Incorrect Port"
    GATEWAY = "Wrong Gateway"
    NAME = "Duplicate Server Name"
    VERSION = "Minimum Version Required"


class Place(msgspec.Struct, frozen=True):
    """Where a server of another cluster is reached; a login of its own, or None."""

    host: str
    port: int
    login: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Remote(msgspec.Struct, kw_only=True, eq=False):
    """Another cluster."""

    name: str
    configured: list[Place] = []
    """By the configuration."""
    places: list[Place] = []
    """These, and those that were heard of."""
    tls: bool = False
    """It has a `tls` block of its own."""
    explicit: bool = True
    """Named in the configuration: it is dialled for ever."""
    trying: list[Place] = []
    """What is left of the places in this attempt."""
    attempts: int = 0
    was_there: bool = False
    """A connection to it has stood."""
    at: float | None = None
    """When it is dialled next; None: it is not waited for."""
    busy: bool = False
    """A connection to it is there, or under way."""

    @property
    def kind(self) -> str:
        return "explicit" if self.explicit else "implicit"

    @property
    def urls(self) -> list[str]:
        return [place.address for place in self.places]


class GatewaySettings(msgspec.Struct, kw_only=True):
    """What a server is to other clusters."""

    server_id: str
    server_name: str
    version: str
    name: str
    """Of its cluster."""
    host: str
    port: int = 0
    url: str = ""
    """Where others reach it."""
    urls: list[str] = []
    """Where others reach the servers of its cluster, this one among them."""
    user: str = ""
    password: str = ""
    headers: bool = True
    max_payload: int = 1 << 20
    reject_unknown: bool = False
    connect_retries: int = 0
    connect_backoff: bool = False
    reports: Callable[[], Reports] = Reports
    """What holds now."""
    tls: bool = False
    """Who connects to it makes a handshake."""


class GatewayLink(msgspec.Struct, kw_only=True, eq=False):
    """One connection to a server of another cluster."""

    number: int
    address: str
    remote: Remote | None = None
    """Whom it dials: messages go there. None: it was accepted, and messages come from there."""
    place: Place | None = None
    connect: RouteConnect | None = None
    info: GatewayInfo | None = None
    open: bool = False
    modes: dict[str, bool] = {}
    """Accounts whose interest the other side tells: whether all of it is told."""

    @property
    def name(self) -> str:
        """Of the other cluster."""
        if self.remote is not None:
            return self.remote.name
        return "" if self.info is None else self.info.gateway


class GatewayTransport(Protocol):
    """What the gateways ask for."""

    def dial(self, remote: Remote, place: Place) -> None:
        """Begins a connection; `dialled` tells its number, or `unreachable` why there is none."""

    def write(self, link: int, data: bytes) -> None:
        """Sends."""

    def resume(self, link: int) -> None:
        """Has the link read on."""

    def open_link(self, link: int, *, inbound: bool, cluster: str, headers: bool) -> None:
        """Interest and messages flow."""

    def cut(self, link: int, reason: GatewayReason, error: str = "") -> None:
        """Cuts a link, with an -ERR before if there is a text."""

    def is_member(self, name: str) -> bool:
        """Whether a server of this cluster is called so."""

    def tell_cluster(self, line: bytes) -> None:
        """Says something to each other server of this cluster."""

    def log(self, level: str, text: str, link: int = 0) -> None:
        """A line of the log, of a link if one is given."""


class GatewayRefused(Exception):
    """A link that may not be: the reason, and what the other side is told."""

    def __init__(self, reason: GatewayReason, error: str = "") -> None:
        super().__init__(error or reason.value)
        self.reason, self.error = reason, error
