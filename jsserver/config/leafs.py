"""Options of the `leafnodes` block."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.config.block import Block, each
from jsserver.text.goformat import SECOND

if TYPE_CHECKING:
    from jsserver.config.options import Tls, User


class LeafUrl(Block):
    """Where a hub is, and the login there. A user without a password (None) is a token, too.
    `secured`: the URL says that it has TLS; `websocket`: and that frames of WebSocket are spoken,
    which are asked for at `path`."""

    host: str = ""
    port: int = 0
    user: str = ""
    password: str | None = None
    secured: bool = False
    websocket: bool = False
    path: str = ""

    @property
    def shown(self) -> str:
        """The URL without what is secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        who = "" if not self.user else "xxxxx@"
        if self.password is not None:
            who = f"{self.user}:xxxxx@"
        scheme = ("ws", "wss") if self.websocket else ("nats", "tls")
        return f"{scheme[self.secured]}://{who}{host}:{self.port}{self.path}"


class LeafProxy(Block):
    """An HTTP proxy that a hub is dialled through, and the login there, if it wants one. A timeout
    of 0 ns is the one for dialling the hub."""

    host: str = ""
    port: int = 0
    username: str = ""
    password: str = ""
    timeout: int = 0


class LeafRemote(Block):
    """A hub that an account is joined to; "": the global one. Times in ns. `deny_imports` are
    subjects that are not heard from there, `deny_exports` those that are not told there. The two
    of WebSocket: it compresses messages, and does not mask frames, if the hub agrees. With
    `migrate`, this server leads none of the account's streams while the hub has been away for
    longer than `migrate_delay`."""

    urls: list[LeafUrl] = each(list)
    account: str = ""
    credentials: str = ""
    nkey: str = ""
    hub: bool = False
    deny_imports: list[str] = each(list)
    deny_exports: list[str] = each(list)
    isolate: bool = False
    request_isolation: bool = False
    no_randomize: bool = False
    ignore_discovered_servers: bool = False
    disabled: bool = False
    compression: str = "s2_auto"
    rtt_thresholds: list[int] = each(list)
    first_info_timeout: int = SECOND
    dial_timeout: int = 0
    tls: Tls | None = None
    ws_compression: bool = False
    ws_no_masking: bool = False
    proxy: LeafProxy | None = None
    migrate: bool = False
    migrate_delay: int = 0

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes it another remote in a reload, where it is another one."""
        urls = (tuple(vars(url).values()) for url in self.urls)
        return (tuple(urls), self.shown_account, self.credentials, self.nkey)

    @property
    def shown_account(self) -> str:
        """The account that is joined here."""
        return self.account or "$G"

    @property
    def shown_urls(self) -> list[str]:
        """Its URLs without secrets."""
        return [url.shown for url in self.urls]

    @property
    def label(self) -> str:
        """What makes it differ from others, without secrets: two alike are one too many."""
        urls = ",".join(sorted(f"{url.host}:{url.port}" for url in self.urls))
        return f"[{urls}], account={self.shown_account}, {self.credentials or self.nkey[-4:]}"


class Leafnodes(Block):
    """The `leafnodes` block. Port 0: no leaf node is let in. `account` is that of those who log in
    as `username`, by `nkey`, or not at all. Without any of these and without `users`, each user
    that may be a client may be a leaf node. `proxy_required`: all of them come by a trusted
    proxy."""

    host: str = "0.0.0.0"
    port: int = 0
    username: str = ""
    password: str = ""
    nkey: str = ""
    account: str = ""
    auth_timeout: float = 2.0
    proxy_required: bool = False
    users: list[User] = each(list)
    remotes: list[LeafRemote] = each(list)
    reconnect: int = SECOND
    dial_timeout: int = SECOND
    advertise: str = ""
    no_advertise: bool = False
    min_version: str = ""
    isolate: bool = False
    compression: str = "s2_auto"
    rtt_thresholds: list[int] = each(list)
    ping_interval: int = 0
    """ns; 0, of `ping_max` too: as for all connections."""
    ping_max: int = 0
    write_deadline: int = 0
    write_timeout: str = ""
    tls: Tls | None = None

    @property
    def enabled(self) -> bool:
        """Whether there are leaf nodes or hubs."""
        return bool(self.port or self.remotes)

    @property
    def has_own_users(self) -> bool:
        """Whether leaf nodes log in otherwise than clients."""
        return bool(self.username or self.nkey or self.users)
