"""What a mesh consists of: servers that are dialled, links, and the servers behind them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from . import compression
from .reports import Reports
from .words import Info, RouteConnect, SubjectPermission


class Gossip(Enum):
    """`gossip_mode` of an INFO: whether the receiver tells others of the newcomer."""

    DEFAULT = 0
    DISABLED = 1
    OVERRIDE = 2


class Reason(Enum):
    """Why a link is cut, in the data plane's words."""

    PROTOCOL = "Protocol Violation"
    LOGIN = "Authentication Failure"
    PORT = "Incorrect Port"
    GATEWAY = "Wrong Gateway"
    NAME = "Duplicate Server Name"
    CLUSTER = "Cluster Name Conflict"
    DUPLICATE = "Duplicate Route"
    REMOVED = "Client Closed"


class Target(msgspec.Struct, kw_only=True, eq=False):
    """A server that is dialled."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    explicit: bool = True
    """Named in the configuration: it is dialled for ever."""
    gossip: int = 0
    """What may be told of it once it is there, by the server that told of it: a `Gossip`."""
    attempts: int = 0
    was_there: bool = False
    """A connection to it has stood."""
    peer: str = ""
    """Its id, once it is known."""
    dialling: set[str] = msgspec.field(default_factory=set)
    """What connections to it are under way: accounts, "" for the pool."""
    at: float | None = None
    """When it is dialled next; None: it is not waited for."""

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def named(self) -> tuple[str, int, str, str]:
        """What the configuration says of it."""
        return self.host, self.port, self.user, self.password


class Settings(msgspec.Struct, kw_only=True):
    """What a server is among others."""

    server_id: str
    server_name: str
    version: str
    go: str = ""
    cluster: str
    cluster_dynamic: bool = False
    host: str
    port: int
    advertise: str = ""
    user: str = ""
    password: str = ""
    pool_size: int = 3
    accounts: list[str] = []
    """With connections of their own, the system account's among them."""
    jetstream: bool = False
    max_payload: int = 1 << 20
    headers: bool = True
    connect_retries: int = 0
    connect_backoff: bool = False
    reports: Callable[[], Reports] = Reports
    """What holds now."""
    connect_urls: list[str] = []
    """Where clients reach it."""
    ws_connect_urls: list[str] = []
    tls: bool = False
    """Its connections to others are secured."""
    imports: SubjectPermission | None = None
    """What interest of its own others are told of; None: all."""
    exports: SubjectPermission | None = None
    """What interest of others counts."""
    leafnode_urls: list[str] = []
    """Where leaf nodes reach it."""
    gateway_url: str = ""
    """Where servers of other clusters do."""
    compression: str = compression.ACCEPT


class Transport(Protocol):
    """What the mesh asks for."""

    def dial(self, target: Target, account: str) -> None:
        """Begins a connection; `dialled` tells its number, or `unreachable` why there is none."""

    def write(self, link: int, data: bytes) -> None:
        """Sends."""

    def resume(self, link: int) -> None:
        """Has the link read on."""

    def compress(self, link: int, mode: str, first: bytes) -> None:
        """As `resume`, and all that follows is compressed, both ways; `first` is sent so."""

    def open_link(self, link: int, *, pooled: bool, place: int, account: str) -> None:
        """Interest and messages flow."""

    def tell_again(self, link: int) -> None:
        """The other server is told of all interest once more."""

    def cut(self, link: int, reason: Reason, error: str = "") -> None:
        """Cuts a link, with an -ERR before if there is a text."""

    def has_account(self, name: str) -> bool:
        """Whether there is such an account."""

    def renamed(self, cluster: str) -> None:
        """The cluster is called so from now on."""

    def clients_change(self) -> None:
        """Clients and leaf nodes may connect to other servers than before: `Mesh.elsewhere`, and
        `Mesh.leaf_urls`, and servers of other clusters: `Mesh.gateway_urls`."""

    def gateway(self, said: Info, peer: str) -> None:
        """A server, by its id, tells of another cluster."""

    def joined(self, link: int) -> None:
        """A server is new here: its first link."""

    def log(self, level: str, text: str) -> None:
        """A line of the log."""


class Link(msgspec.Struct, kw_only=True, eq=False):
    """One connection to another server."""

    number: int
    address: str
    target: Target | None = None
    """Whom it dials; None: it was accepted."""
    account: str = ""
    connect: RouteConnect | None = None
    info: Info | None = None
    peer: Peer | None = None
    place: int = 0
    compression: str = ""
    """The mode that was agreed on, once it was."""
    switching: bool = False
    """Compression begins behind the INFO that is looked at."""
    named: Target | None = None
    """The target that its server is, where this one dialled it too."""
    greeting: Info | None = None
    """What it was told first, where it was accepted."""

    @property
    def dialled(self) -> bool:
        return self.target is not None


class Peer(msgspec.Struct, kw_only=True, eq=False):
    """Another server, and the links to it."""

    info: Info
    pool: list[Link | None]
    """By their places; one alone, where either side has no pool."""
    pooled: bool
    accounts: dict[str, Link] = {}
    leaves: bool = False
    """It has said that its clients had better connect elsewhere."""

    def links(self) -> list[Link]:
        return [link for link in self.pool if link is not None] + list(self.accounts.values())


class Refused(Exception):
    """A link that may not be: the reason, and what the other side is told."""

    def __init__(self, reason: Reason, error: str = "") -> None:
        super().__init__(error or reason.value)
        self.reason, self.error = reason, error
