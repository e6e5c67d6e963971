"""What the leaf nodes of a server consist of: hubs that are dialled, links, and what they may."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from . import compression
from .leafwords import LeafConnect, LeafInfo
from .reports import Reports
from .words import SubjectPermission


class LeafReason(Enum):
    """Why a link is cut, in the data plane's words."""

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
    """Where a hub is, and the login there; a user without a password (None) is a token, too."""

    host: str
    port: int
    user: str = ""
    password: str | None = None
    secured: bool = False
    """It makes a handshake, as the URL says."""

    @property
    def place(self) -> tuple[str, int]:
        return self.host, self.port


class Remote(msgspec.Struct, kw_only=True, eq=False):
    """A hub that an account is joined to. Times in seconds."""

    addresses: list[Address]
    account: str
    credentials: str = ""
    nkey: str = ""
    hub: bool = False
    """This side is the hub."""
    deny_imports: list[str] = []
    deny_exports: list[str] = []
    isolate: bool = False
    request_isolation: bool = False
    no_randomize: bool = False
    ignore_discovered: bool = False
    disabled: bool = False
    compression: str = compression.AUTO
    rtt_thresholds: list[int] = []
    """Round trips by which the mode s2_auto goes, in ns."""
    first_info: float = 1.0
    dial_timeout: float = 1.0
    label: str = ""
    """Of the configuration's remote."""
    identity: tuple[object, ...] = ()
    """What makes it another one in another configuration."""
    tls: bool = False
    """It makes a handshake, as the configuration says, or it has said."""
    first: bool = False
    """The handshake comes before its INFO."""
    found: list[Address] = []
    """Other servers of its cluster, as the hub has told."""
    current: int = -1
    """Which of all addresses was dialled last."""
    attempts: int = 0
    """In vain, since it was last there."""
    was_there: bool = False
    """A connection to it has stood."""
    at: float | None = None
    """When it is dialled next; None: it is not waited for."""
    delay: float = 0.0
    """How much later than usual, for what happened."""

    def next_address(self) -> Address:
        """Whom to dial: one after the other."""
        all_of_them = [*self.found, *self.addresses]
        self.current = (self.current + 1) % len(all_of_them)
        return all_of_them[self.current]


class LeafSettings(msgspec.Struct, kw_only=True):
    """What a server is to its leaf nodes and hubs."""

    server_id: str
    server_name: str
    version: str
    go: str = ""
    cluster: str = ""
    """That it is in; "": none."""
    host: str
    port: int
    urls: list[str] = []
    """Where leaf nodes reach it."""
    max_payload: int = 1 << 20
    headers: bool = True
    jetstream: bool = False
    domain: str = ""
    reports: Callable[[], Reports] = Reports
    """What holds now."""
    min_version: tuple[int, int, int] | None = None
    min_version_text: str = ""
    isolate: bool = False
    reconnect: float = 1.0
    api_level: int = 0
    system: str = ""
    """The system account."""
    compression: str = compression.AUTO
    tls: bool = False
    """Who connects to it makes a handshake."""
    tls_verify: bool = False
    """And shows a certificate."""
    undenied: frozenset[str] = frozenset()
    """Accounts whose JetStream is that of the domain without a name, as in old setups."""


class Rules(msgspec.Struct, kw_only=True):
    """What passes on a link: None where all does."""

    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None


class LeafTerms(msgspec.Struct, kw_only=True):
    """What a link is opened with."""

    account: str
    to_hub: bool
    cluster: str
    isolated: bool
    headers: bool
    sends: SubjectPermission | None
    """Messages that go there."""
    tells: SubjectPermission | None
    """Interest that is told there."""
    accepts: SubjectPermission | None
    """Messages that are taken from there."""


class LeafTransport(Protocol):
    """What the leaf nodes ask for."""

    def dial(self, remote: Remote, address: Address) -> None:
        """Begins a connection; `dialled` tells its number, or `unreachable` why there is none."""

    def write(self, link: int, data: bytes) -> None:
        """Sends."""

    def resume(self, link: int) -> None:
        """Has the link read on."""

    def compress(self, link: int, mode: str, first: bytes) -> None:
        """As `resume`, and all that follows is compressed, both ways; `first` is sent so."""

    def relevel(self, link: int, mode: str) -> None:
        """What goes out is compressed so from now on."""

    def secure(self, link: int, remote: Remote) -> None:
        """As `resume`, and a handshake is made with a hub: `secured` tells of it, or the link's
        end."""

    def login(self, link: int, text: bytes, nonce: str) -> None:
        """Decides who it is; `admitted` or the link's end tells."""

    def sign(self, remote: Remote, nonce: str) -> dict[str, str]:
        """What CONNECT says of who this is; ValueError."""

    def open_link(self, link: int, terms: LeafTerms) -> None:
        """Interest and messages flow."""

    def cut(self, link: int, reason: LeafReason, error: str = "") -> None:
        """Cuts a link, with an -ERR before if there is a text."""

    def has_jetstream(self, account: str) -> bool:
        """Whether the account has it."""

    def most_leafs(self, account: str) -> int:
        """How many leaf nodes and hubs the account may have; -1: no limit."""

    def log(self, level: str, text: str, link: int = 0) -> None:
        """A line of the log, of a link if one is given."""


class LeafLink(msgspec.Struct, kw_only=True, eq=False):
    """One connection to a leaf node or a hub."""

    number: int
    address: str
    remote: Remote | None = None
    """Whom it dials; None: it was accepted."""
    nonce: str = ""
    connect: LeafConnect | None = None
    info: LeafInfo | None = None
    until: float | None = None
    """When the other side must have said the next word."""
    account: str = ""
    """Here."""
    remote_account: str = ""
    """There."""
    open: bool = False
    isolated: bool = False
    spoke: bool = False
    """The other side is the hub."""
    compression: str = ""
    """The mode that was agreed on, once it was."""
    switching: bool = False
    """Compression, or a handshake, begins behind the INFO that is looked at."""
    first_info: LeafInfo | None = None
    """What a hub has said before the handshake."""
    secured: bool = False
    """The handshake with a hub is made."""
    rules: Rules = msgspec.field(default_factory=Rules)

    @property
    def name(self) -> str:
        """Of the server at the other end."""
        if self.remote is not None:
            return "" if self.info is None else self.info.server_name or self.info.server_id
        return "" if self.connect is None else self.connect.name

    @property
    def cluster(self) -> str:
        """That it is in."""
        said = self.info if self.remote is not None else self.connect
        return "" if said is None else said.cluster

    @property
    def domain(self) -> str:
        """Of its JetStream."""
        said = self.info if self.remote is not None else self.connect
        return "" if said is None else said.domain


class LeafRefused(Exception):
    """A link that may not be: the reason, and what the other side is told."""

    def __init__(self, reason: LeafReason, error: str = "") -> None:
        super().__init__(error or reason.value)
        self.reason, self.error = reason, error
