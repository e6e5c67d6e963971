"""The data of a server's leaf nodes: hubs to dial, links, and their permissions."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from . import compression
from .leafwords import LeafConnect, LeafInfo
from .reports import Reports
from .words import SubjectPermission

CLUSTER_NAME_MAX = 255
LOOP_DELAY = 30.0
VIOLATION_DELAY = 30.0
CLUSTER_DELAY = 30.0
VERSION_DELAY = 5.0
"""Extra seconds before dialling again after errors that an immediate attempt would repeat."""
MIN_VERSION = "connection rejected since minimum version required is"
TOO_MANY = "maximum account active connections exceeded"
SAME_CLUSTER = "remote leafnode has same cluster name"
PUT_OFF = (
    (SAME_CLUSTER, CLUSTER_DELAY, "Leafnode connection dropped with same cluster name error"),
    (
        MIN_VERSION,
        VERSION_DELAY,
        "Leafnode connection dropped due to minimum version requirement",
    ),
)
"""Errors with which a hub refuses a leaf node, the extra delay, and the text for the log."""


class LeafReason(Enum):
    """Why a link is closed, in the data plane's words."""

    PROTOCOL = "Protocol Violation"
    LOGIN = "Authentication Failure"
    PORT = "Incorrect Port"
    GATEWAY = "Wrong Gateway"
    CLUSTER = "Cluster Names Identical"
    VERSION = "Minimum Version Required"
    DUPLICATE = "Duplicate Remote LeafNode Connection"
    CHANGED = "Client Closed"
    STALE = "Stale Connection"
    ACCOUNT = "Missing Account"
    LIMIT = "Maximum Account Connections Exceeded"
    TLS = "TLS Handshake Failure"
    READ = "Read Error"


class Address(msgspec.Struct, frozen=True):
    """A hub's address and the login for it; a user without password (None) is a token."""

    host: str
    port: int
    user: str = ""
    password: str | None = None
    secured: bool = False
    """Whether the URL asks for TLS."""
    websocket: bool = False
    """Whether the connection speaks in frames of WebSocket."""
    path: str = ""
    """Where WebSocket is asked for, above `/leafnode`."""

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port


class HttpProxy(msgspec.Struct, kw_only=True, frozen=True):
    """A proxy that is asked for a tunnel to a hub; a login only if there is a `username`."""

    host: str
    port: int
    username: str
    password: str
    timeout: float
    """Seconds to connect to the proxy, and again for its answer."""


class Remote(msgspec.Struct, kw_only=True, eq=False):
    """A hub to which an account is connected. Times in seconds."""

    addresses: list[Address]
    account: str
    credentials: str = ""
    nkey: str = ""
    hub: bool = False
    """Whether this side acts as the hub, though it dials."""
    deny_imports: list[str] = []
    deny_exports: list[str] = []
    isolate: bool = False
    request_isolation: bool = False
    no_randomize: bool = False
    ignore_discovered: bool = False
    disabled: bool = False
    compression: str = compression.AUTO
    rtt_thresholds: list[int] = []
    """Round trips in ns for the mode s2_auto."""
    first_info: float = 1.0
    dial_timeout: float = 1.0
    deflate: bool = False
    """Whether messages of WebSocket are compressed, if the hub agrees."""
    no_masking: bool = False
    """Whether frames of WebSocket are not masked, if the hub agrees."""
    migrate: float | None = None
    """Seconds from the first failed attempt after which this server leads none of the account's
    streams any more; None: it goes on leading them."""
    yields_at: float | None = None
    """When that will be; None: the hub is there, or that has been."""
    yields: bool = False
    """Whether the server leads none of them now."""
    proxy: HttpProxy | None = None
    """Through which the hub is dialled; None: directly."""
    label: str = ""
    """A name for the hub's place in the configuration."""
    identity: tuple[object, ...] = ()
    """The settings that make it a different hub when they change."""
    tls: bool = False
    """Whether the link needs TLS, by the configuration or by the hub's INFO."""
    first: bool = False
    """Whether TLS begins before the hub's INFO."""
    found: list[Address] = []
    """Addresses of other servers of the hub's cluster, as the hub announces them."""
    address: Address | None = None
    """The last dialled address; None: there is none yet."""
    attempts: int = 0
    """Failed attempts since the last connection."""
    was_there: bool = False
    """Whether there has been a connection to the hub."""
    at: float | None = None
    """When to dial next; None: not scheduled."""
    delay: float = 0.0
    """Extra delay of the next attempt, after certain errors."""

    def next_address(self) -> Address:
        """The address to dial next, in turns. What the hub's cluster announces comes and goes
        between two turns."""
        all_of_them = [*self.found, *self.addresses]
        last = all_of_them.index(self.address) if self.address in all_of_them else -1
        self.address = all_of_them[(last + 1) % len(all_of_them)]
        return self.address


class LeafSettings(msgspec.Struct, kw_only=True):
    """This server as leaf nodes and hubs see it, and its settings for them."""

    server_id: str
    server_name: str
    version: str
    go: str = ""
    cluster: str = ""
    """The server's cluster; "": none."""
    host: str
    port: int
    urls: list[str] = []
    """The URLs at which leaf nodes reach this server and its cluster."""
    ws_urls: list[str] = []
    """Likewise over WebSocket."""
    max_payload: int = 1 << 20
    headers: bool = True
    jetstream: bool = False
    domain: str = ""
    reports: Callable[[], Reports] = Reports
    """Which failed attempts are logged, by the present options."""
    min_version: tuple[int, int, int] | None = None
    min_version_text: str = ""
    isolate: bool = False
    reconnect: float = 1.0
    api_level: int = 0
    system: str = ""
    """The name of the system account."""
    compression: str = compression.AUTO
    tls: bool = False
    """Whether leaf nodes that connect to this server need TLS."""
    tls_verify: bool = False
    """Whether they need a certificate, too."""
    undenied: frozenset[str] = frozenset()
    """Accounts that use JetStream without a domain, as in old setups."""


class Rules(msgspec.Struct, kw_only=True):
    """A leaf node's permissions; None: all is allowed."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None


class LeafTerms(msgspec.Struct, kw_only=True):
    """How to open a link."""

    account: str
    to_hub: bool
    cluster: str
    isolated: bool
    headers: bool
    sends: SubjectPermission | None
    """Messages that may be sent to the other side."""
    tells: SubjectPermission | None
    """Interest that is announced to the other side."""
    accepts: SubjectPermission | None
    """Messages that are accepted from the other side."""


class LeafTransport(Protocol):
    """What the leaf nodes need from their driver."""

    def dial(self, remote: Remote, address: Address) -> None:
        """Begins to connect; `dialled` follows with the link's number, or `unreachable`."""

    def write(self, link: int, data: bytes) -> None:
        """Sends bytes on a link."""

    def resume(self, link: int) -> None:
        """Lets the link read on."""

    def compress(self, link: int, mode: str, first: bytes) -> None:
        """As `resume`; from here on both directions are compressed, beginning with `first`."""

    def relevel(self, link: int, mode: str) -> None:
        """Changes the mode in which the link sends."""

    def secure(self, link: int, remote: Remote) -> None:
        """As `resume`, and begins TLS with a hub; `secured` or `closed` follows."""

    def login(self, link: int, text: bytes, nonce: str) -> None:
        """Decides about a leaf node's login; `admitted` or `closed` follows."""

    def sign(self, remote: Remote, nonce: str) -> dict[str, str]:
        """The keys of CONNECT that identify this server to a hub; ValueError."""

    def open_link(self, link: int, terms: LeafTerms) -> None:
        """Opens the link for interest and messages."""

    def cut(self, link: int, reason: LeafReason, error: str = "") -> None:
        """Closes a link; sends `error` first as -ERR, if it is not empty."""

    def has_jetstream(self, account: str) -> bool:
        """Whether the account has JetStream."""

    def most_leafs(self, account: str) -> int:
        """The most leaf nodes and hubs of an account; -1: no limit."""

    def may_lead(self, account: str, *, may: bool) -> None:
        """Sets whether this server may lead streams and consumers of an account."""

    def log(self, level: str, text: str, link: int = 0) -> None:
        """Logs a line; `link`: the link it is about, 0 for none."""


class LeafLink(msgspec.Struct, kw_only=True, eq=False):
    """A connection to a leaf node or a hub."""

    number: int
    address: str
    websocket: bool = False
    remote: Remote | None = None
    """The hub that this server dialled; None: the link was accepted."""
    nonce: str = ""
    connect: LeafConnect | None = None
    info: LeafInfo | None = None
    until: float | None = None
    """The deadline for the other side's next line."""
    account: str = ""
    """The account on this side."""
    remote_account: str = ""
    """The account on the other side."""
    open: bool = False
    isolated: bool = False
    spoke: bool = False
    """Whether the other side is the hub."""
    compression: str = ""
    """The negotiated mode; "" before the negotiation."""
    switching: bool = False
    """Whether compression or TLS begins right after the INFO that is being handled."""
    first_info: LeafInfo | None = None
    """The hub's INFO before TLS."""
    secured: bool = False
    """Whether TLS with the hub is established."""
    rules: Rules = msgspec.field(default_factory=Rules)

    @property
    def name(self) -> str:
        """The other server's name, "" while unknown."""
        if self.remote is not None:
            return "" if self.info is None else self.info.server_name or self.info.server_id
        return "" if self.connect is None else self.connect.name

    @property
    def cluster(self) -> str:
        """The other server's cluster, "" for none."""
        said = self.info if self.remote is not None else self.connect
        return "" if said is None else said.cluster

    @property
    def domain(self) -> str:
        """The other server's JetStream domain, "" for none."""
        said = self.info if self.remote is not None else self.connect
        return "" if said is None else said.domain


class LeafRefused(Exception):
    """A link is refused; the reason, and the text for the other side."""

    def __init__(self, reason: LeafReason, error: str = "") -> None:
        super().__init__(error or reason.value)
        self.reason, self.error = reason, error


def check_cluster(name: str) -> None:
    """Refuses a name that no cluster has; LeafRefused. Each name is kept for good."""
    if " " in name:
        raise LeafRefused(LeafReason.PROTOCOL, "cluster name cannot contain spaces")
    if len(name.encode()) > CLUSTER_NAME_MAX:
        text = f"cluster name is longer than {CLUSTER_NAME_MAX} bytes"
        raise LeafRefused(LeafReason.PROTOCOL, text)


def merged(rules: SubjectPermission | None, deny: list[str]) -> SubjectPermission | None:
    """The permissions with more subjects denied."""
    if not deny:
        return rules
    before = rules or SubjectPermission()
    return SubjectPermission(
        allow=before.allow, deny=list(dict.fromkeys([*(before.deny or []), *deny]))
    )


def version(text: str) -> tuple[int, int, int]:
    """A version's three numbers; (0, 0, 0) where the text is no version."""
    parts = text.lstrip("v").partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        return (0, 0, 0)
    return int(parts[0]), int(parts[1]), int(parts[2])
