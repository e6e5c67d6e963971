"""The data of a mesh: servers to dial, links, and the servers behind them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from . import compression
from .reports import Reports
from .words import Info, RouteConnect, SubjectPermission


class Gossip(Enum):
    """`gossip_mode` in an INFO: whether the receiver tells others about the newcomer."""

    DEFAULT = 0
    DISABLED = 1
    OVERRIDE = 2


class Reason(Enum):
    """Why a link is closed, in the data plane's words."""

    PROTOCOL = "Protocol Violation"
    LOGIN = "Authentication Failure"
    PORT = "Incorrect Port"
    GATEWAY = "Wrong Gateway"
    NAME = "Duplicate Server Name"
    CLUSTER = "Cluster Name Conflict"
    DUPLICATE = "Duplicate Route"
    REMOVED = "Client Closed"


class Target(msgspec.Struct, kw_only=True, eq=False):
    """A server to dial."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    explicit: bool = True
    """Whether the configuration names the server: it is then dialled without end."""
    gossip: int = 0
    """The `Gossip` of the INFO that announced the server."""
    attempts: int = 0
    was_there: bool = False
    """Whether there has been a connection to the server."""
    peer: str = ""
    """The server's id, "" while unknown."""
    dialling: set[str] = msgspec.field(default_factory=set)
    """Connections to the server that are being made: by account, "" for the pool."""
    at: float | None = None
    """When to dial next; None: not scheduled."""

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def named(self) -> tuple[str, int, str, str]:
        """The server as the configuration has it: host, port, user, password."""
        return self.host, self.port, self.user, self.password


class Settings(msgspec.Struct, kw_only=True):
    """This server as the others see it, and its settings for routes."""

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
    """The login's password, or its hash."""
    fits: Callable[[str, str], bool] = operator.eq
    """Whether the second one, a password, is the first one, as `password` has it."""
    password_sent: str = ""
    """The password for servers whose URL has no login."""
    pool_size: int = 3
    accounts: list[str] = []
    """Accounts with connections of their own, the system account among them."""
    jetstream: bool = False
    max_payload: int = 1 << 20
    headers: bool = True
    connect_retries: int = 0
    connect_backoff: bool = False
    reports: Callable[[], Reports] = Reports
    """Which failed attempts are logged, by the present options."""
    connect_urls: list[str] = []
    """The URLs at which clients reach this server."""
    ws_connect_urls: list[str] = []
    tls: bool = False
    """Whether routes use TLS."""
    imports: SubjectPermission | None = None
    """The own interest that is announced to others; None: all."""
    exports: SubjectPermission | None = None
    """The others' interest that is accepted; None: all."""
    leafnode_urls: list[str] = []
    """The URLs at which leaf nodes reach this server."""
    gateway_url: str = ""
    """The URL at which gateways reach this server."""
    compression: str = compression.ACCEPT


class Transport(Protocol):
    """What the mesh needs from its driver."""

    def dial(self, target: Target, account: str) -> None:
        """Begins to connect; `dialled` follows with the link's number, or `unreachable`."""

    def write(self, link: int, data: bytes) -> None:
        """Sends bytes on a link."""

    def resume(self, link: int) -> None:
        """Lets the link read on."""

    def compress(self, link: int, mode: str, first: bytes) -> None:
        """As `resume`; from here on both directions are compressed, beginning with `first`."""

    def relevel(self, link: int, mode: str) -> None:
        """Changes the mode in which the link sends."""

    def open_link(self, link: int, *, pooled: bool, place: int, account: str) -> None:
        """Opens the link for interest and messages."""

    def tell_again(self, link: int) -> None:
        """Announces all interest to the other server again."""

    def cut(self, link: int, reason: Reason, error: str = "") -> None:
        """Closes a link; sends `error` first as -ERR, if it is not empty."""

    def has_account(self, name: str) -> bool:
        """Whether there is an account of this name."""

    def renamed(self, cluster: str) -> None:
        """The cluster's name has changed."""

    def clients_change(self) -> None:
        """The other servers' URLs have changed, for clients, leaf nodes or gateways:
        `Mesh.elsewhere`, `Mesh.leaf_urls`, `Mesh.gateway_urls`."""

    def gateway(self, said: Info, peer: str) -> None:
        """A server tells about a remote cluster; `peer`: that server's id."""

    def joined(self, link: int) -> None:
        """The first link of a new server is open."""

    def log(self, level: str, text: str) -> None:
        """Logs a line."""


class Link(msgspec.Struct, kw_only=True, eq=False):
    """A connection to another server."""

    number: int
    address: str
    target: Target | None = None
    """The server that was dialled; None: the link was accepted."""
    account: str = ""
    connect: RouteConnect | None = None
    info: Info | None = None
    peer: Peer | None = None
    place: int = 0
    compression: str = ""
    """The negotiated mode; "" before the negotiation."""
    switching: bool = False
    """Whether compression begins right after the INFO that is being handled."""
    named: Target | None = None
    """The target whose server this accepted link is from, if this server dialled it too."""
    greeting: Info | None = None
    """The first INFO sent on an accepted link."""

    @property
    def dialled(self) -> bool:
        return self.target is not None


class Peer(msgspec.Struct, kw_only=True, eq=False):
    """Another server, and the links to it."""

    info: Info
    pool: list[Link | None]
    """Links by their place in the pool; a single link where one side has no pool."""
    pooled: bool
    accounts: dict[str, Link] = {}
    leaves: bool = False
    """Whether the server has asked to send clients elsewhere."""

    def links(self) -> list[Link]:
        return [link for link in self.pool if link is not None] + list(self.accounts.values())


class Refused(Exception):
    """A link is refused; the reason, and the text for the other side."""

    def __init__(self, reason: Reason, error: str = "") -> None:
        super().__init__(error or reason.value)
        self.reason, self.error = reason, error
