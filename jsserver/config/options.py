"""The options of one server, typed, with nats-server's defaults.

Durations are nanoseconds, sizes bytes. `load.py` fills them from a file and from flags. They are
the first thing that a start needs, so they do without msgspec, which is a tenth of it.
"""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.config.block import Block, each
from jsserver.config.clusters import Cluster
from jsserver.config.gateways import Gateway
from jsserver.config.jetstreams import JetStream
from jsserver.config.leafs import Leafnodes
from jsserver.text.goformat import MINUTE, SECOND

if TYPE_CHECKING:
    from typing import Any

DEFAULT_PORT = 4222
DEFAULT_MAX_CONNECTIONS = 65536
DEFAULT_MAX_CONTROL_LINE = 4096
DEFAULT_MAX_PAYLOAD = 1 << 20
DEFAULT_MAX_PENDING = 64 << 20
DEFAULT_REACTORS = 1
MAX_REACTORS = 64
DEFAULT_MAX_CLOSED_CLIENTS = 10_000
DEFAULT_PING_INTERVAL = 2 * MINUTE
DEFAULT_PING_MAX = 2
DEFAULT_WRITE_DEADLINE = 10 * SECOND
DEFAULT_AUTH_TIMEOUT = 2.0
DEFAULT_TLS_TIMEOUT = 2.0
TLS_12 = 0x303
TLS_13 = 0x304
DEFAULT_RESPONSE_TTL = 2 * MINUTE
DEFAULT_RESPONSE_THRESHOLD = 2 * MINUTE
GLOBAL_ACCOUNT = "$G"
"""Whose account is not configured is in this one."""
SYSTEM_ACCOUNT = "$SYS"
"""The system account that there is unless the configuration names another, or wants none."""


class SubjectPermission(Block):
    """What may be published or subscribed to.

    A rule is a subject, for subscriptions also "subject queue". `allow` of None allows everything
    that `deny` does not forbid; an empty list allows nothing.
    """

    allow: list[str] | None = None
    deny: list[str] | None = None


class ResponsePermission(Block):
    """Leave to publish to the reply subjects of delivered messages: how many times, how long."""

    max: int = 1
    ttl: int = DEFAULT_RESPONSE_TTL


class Permissions(Block):
    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    responses: ResponsePermission | None = None


class User(Block):
    """A user: a name and a password, which may be a bcrypt hash, or a public nkey. Connection types
    of None are all types."""

    name: str = ""
    password: str = ""
    nkey: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    connection_types: list[str] | None = None
    proxy_required: bool = False


class AuthCallout(Block):
    """The service that decides which clients may connect: clients of `account` that log in as one
    of `auth_users`, and answer with tokens of `issuer`. With an `xkey` questions are sealed for its
    holder. It is asked about users of `accounts`; of all where that is empty."""

    issuer: str = ""
    account: str = GLOBAL_ACCOUNT
    auth_users: list[str] = each(list)
    xkey: str = ""
    accounts: list[str] = each(list)


class Authorization(Block):
    """Who may connect: everybody if there is neither a name, a token nor a user. A timeout of 0
    is the default. `proxy_required`: who has the single name or token comes by a trusted proxy."""

    username: str = ""
    password: str = ""
    token: str = ""
    timeout: float = 0.0
    users: list[User] = each(list)
    callout: AuthCallout | None = None
    proxy_required: bool = False

    @property
    def required(self) -> bool:
        """Whether anybody must prove anything."""
        return bool(self.users or self.token or self.username)


class OcspPeer(Block):
    """Whether OCSP responders are asked about clients' certificates, and what follows. Times are in
    seconds: `ca_timeout` for a responder, `cache_ttl_when_next_update_unset` that an answer holds
    which has no end. With `warn_only` a client with a revoked certificate is let in; the other two
    let in clients whose certificate no responder knows, or whose responder cannot be asked."""

    verify: bool = False
    ca_timeout: float = 2.0
    allowed_clockskew: float = 30.0
    cache_ttl_when_next_update_unset: float = 3600.0
    warn_only: bool = False
    unknown_is_good: bool = False
    allow_when_ca_unreachable: bool = False


class OcspCache(Block):
    """Where answers about clients' certificates are kept: `kind` is local or none; the file in the
    folder `local_store` is written every `save_interval` seconds. With `preserve_revoked` those
    that say so stay beyond their end."""

    kind: str = "local"
    local_store: str = "_rc_"
    preserve_revoked: bool = False
    save_interval: float = 300.0


class Tls(Block):
    """What connections of a listener are secured by, or those to other servers.

    `certificates` are files: a chain and its key. `timeout` is seconds for a handshake,
    `rate_limit` handshakes a second (0: no limit). `first`: it comes before INFO; with a
    `fallback`, INFO is sent after that many ns without one. `pinned_certs` are digests of others'
    keys (None: any). `insecure`: a server that is dialled may show any certificate."""

    certificates: list[tuple[str, str]] = each(list)
    ca_file: str = ""
    verify: bool = False
    map: bool = False
    timeout: float = DEFAULT_TLS_TIMEOUT
    min_version: int = TLS_12
    cipher_suites: list[str] = each(list)
    curves: list[str] = each(list)
    pinned_certs: list[str] | None = None
    ocsp_peer: OcspPeer | None = None
    rate_limit: int = 0
    first: bool = False
    fallback: int = 0
    insecure: bool = False

    @property
    def inquires(self) -> bool:
        """Whether somebody is asked about clients' certificates."""
        return self.ocsp_peer is not None and self.ocsp_peer.verify

    @property
    def first_only(self) -> bool:
        """Whether nobody is served who does not begin with a handshake."""
        return bool(self.first) and not self.fallback


class TlsFlags(Block):
    """What the command line says of it; `enabled` is None where it says nothing."""

    enabled: bool | None = None
    verify: bool = False
    cert: str = ""
    key: str = ""
    ca: str = ""


class Ocsp(Block):
    """The `ocsp` option: which of the server's certificates are shown with OCSP responses. `mode`:
    auto (those that have to be), always (all, and the server ends where one is not good), must (as
    auto, and it ends likewise) or never. `urls` stand for those that certificates name."""

    mode: str = "auto"
    urls: list[str] = each(list)

    @property
    def ends_server(self) -> bool:
        """Whether a certificate that is not good ends the server."""
        return self.mode in ("always", "must")


class AssetLimits(Block):
    """What the streams of one account may hold and be; -1 is no limit."""

    max_memory: int = -1
    max_store: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    store_max_stream_bytes: int = -1
    max_bytes_required: bool = False


class Destination(Block):
    """Where a mapping sends messages to, and how many of a hundred."""

    subject: str = ""
    weight: int = 100
    cluster: str = ""


class Mapping(Block):
    """Another subject for what is published to those that `source` matches. `made`: no option."""

    __slots__ = ("made",)

    source: str = ""
    destinations: list[Destination] = each(list)


class Latency(Block):
    """Where reports of a service's latency go, for how many of a hundred requests; `sampling` of 0:
    for those whose headers ask for it."""

    subject: str = ""
    sampling: int = 100


class Export(Block):
    """Subjects that other accounts may import: all, those of a list, those whose name stands at a
    token of the subject (counted from 1; 0: none does), or, with `needs_token`, those that were
    given a token."""

    subject: str = ""
    accounts: list[str] | None = None
    token_position: int = 0
    needs_token: bool = False


class StreamExport(Export):
    """Messages that other accounts may hear."""


class ServiceExport(Export):
    """Requests that other accounts may make. `once`: there is one reply to each. A reply may take
    `threshold` ns, each of several anew."""

    once: bool = True
    threshold: int = DEFAULT_RESPONSE_THRESHOLD
    latency: Latency | None = None


class Import(Block):
    """Subjects of another account. `activated`: a token was given for it, and has been checked.
    `to`: what they are called here; "": the same."""

    account: str = ""
    subject: str = ""
    to: str = ""
    activated: bool = False


class StreamImport(Import):
    """Messages of another account that are heard; a `prefix` goes before their subjects."""

    prefix: str = ""


class ServiceImport(Import):
    """Requests to another account, which is told in detail who makes them where they `share`."""

    share: bool = False


class Account(Block):
    """An account; limits of -1 are none. `jetstream` is None where it has no JetStream, and
    `permissions` are those of users that have none of their own."""

    name: str = ""
    nkey: str = ""
    users: list[User] = each(list)
    permissions: Permissions | None = None
    jetstream: AssetLimits | None = None
    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
    max_leafnodes: int = -1
    mappings: list[Mapping] = each(list)
    stream_exports: list[StreamExport] = each(list)
    service_exports: list[ServiceExport] = each(list)
    stream_imports: list[StreamImport] = each(list)
    service_imports: list[ServiceImport] = each(list)

    @property
    def imports(self) -> list[Import]:
        return [*self.stream_imports, *self.service_imports]

    @property
    def exports(self) -> list[Export]:
        return [*self.stream_exports, *self.service_exports]


class Resolver(Block):
    """Where tokens of accounts are found: `kind` is memory, url, full or cache. Durations in ns, 0
    is the default; `limit` is the most tokens that a directory keeps."""

    kind: str = ""
    url: str = ""
    directory: str = ""
    allow_delete: bool = False
    hard_delete: bool = False
    limit: int = 0
    ttl: int = 0
    interval: int = 0
    timeout: int = 0


class OutgoingTls(Block):
    """How a connection that the server makes is secured: the authorities that the other side is
    checked against ("": the machine's), a certificate of one's own, and whether nothing is checked
    (`insecure`)."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False


class Operators(Block):
    """Operator mode. `claims` are those of `tokens`; `pinned` of None are all accounts."""

    tokens: list[str] = each(list)
    claims: list[Any] = each(list)
    trusted_keys: list[str] = each(list)
    resolver: Resolver | None = None
    resolver_tls: OutgoingTls = each(OutgoingTls)
    preload: dict[str, str] = each(dict)
    pinned: list[str] | None = None
    default_sentinel: str = ""

    @property
    def enabled(self) -> bool:
        """Whether users are those of tokens."""
        return bool(self.claims or self.trusted_keys)

    @property
    def keys(self) -> list[str]:
        """Those that may have signed the token of an account."""
        keys = list(self.trusted_keys)
        for claims in self.claims:
            own = [] if claims.nats.strict_signing_key_usage else [claims.sub]
            keys += [*own, *claims.nats.signing_keys]
        return keys

    @property
    def strict_keys(self) -> list[str]:
        """Those whose accounts sign users with signing keys alone."""
        strict = (claims.nats for claims in self.claims if claims.nats.strict_signing_key_usage)
        return [key for body in strict for key in body.signing_keys]


class Websocket(Block):
    """The `websocket` block; port 0 is no listener, a timeout of 0 the default, a ping interval of
    0 that of all connections."""

    host: str = "0.0.0.0"
    port: int = 0
    advertise: str = ""
    no_tls: bool = False
    tls: Tls | None = None
    same_origin: bool = False
    allowed_origins: list[str] = each(list)
    compression: bool = False
    handshake_timeout: int = 0
    headers: dict[str, str] = each(dict)
    authorization: Authorization = each(lambda: Authorization(timeout=0.0))
    no_auth_user: str = ""
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    ping_interval: int = 0

    @property
    def has_own_authorization(self) -> bool:
        """Whether it says itself who may connect; users are those of all listeners."""
        return bool(self.authorization.username or self.authorization.token or self.no_auth_user)


class Options(Block):
    """Everything a server is started with."""

    host: str = "0.0.0.0"
    port: int = DEFAULT_PORT
    client_advertise: str = ""
    server_name: str = ""
    server_tags: list[str] = each(list)
    server_metadata: dict[str, str] = each(dict)

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0
    log_max_num: int = 0
    max_traced_msg_len: int = 0
    pid_file: str = ""
    ports_file_dir: str = ""

    http_host: str = ""
    http_port: int = 0
    https_port: int = 0
    http_base_path: str = ""

    max_connections: int = DEFAULT_MAX_CONNECTIONS
    max_subscriptions: int = 0
    max_sub_tokens: int = 0
    max_control_line: int = DEFAULT_MAX_CONTROL_LINE
    max_payload: int = DEFAULT_MAX_PAYLOAD
    max_pending: int = DEFAULT_MAX_PENDING
    max_closed_clients: int = DEFAULT_MAX_CLOSED_CLIENTS
    ping_interval: int = DEFAULT_PING_INTERVAL
    ping_max: int = DEFAULT_PING_MAX
    write_deadline: int = DEFAULT_WRITE_DEADLINE
    write_timeout: str = ""
    """What becomes of a client that takes some bytes within `write_deadline`, but not all: "close",
    or it stays."""
    no_fast_producer_stall: bool = False
    lame_duck_duration: int = 2 * MINUTE
    lame_duck_grace_period: int = 10 * SECOND
    connect_error_reports: int = 3600
    reconnect_error_reports: int = 1
    no_header_support: bool = False
    reactors: int = DEFAULT_REACTORS
    disable_sublist_cache: bool = False

    authorization: Authorization = each(Authorization)
    accounts: list[Account] = each(list)
    mappings: list[Mapping] = each(list)
    """Those of the global account."""
    default_domains: dict[str, str] = each(dict)
    """`default_js_domain`: the domains that requests of accounts without JetStream go to."""
    no_auth_user: str = ""
    system_account: str = ""
    no_system_account: bool = False
    operators: Operators = each(Operators)

    tls: Tls | None = None
    tls_flags: TlsFlags = each(TlsFlags)
    allow_non_tls: bool = False
    ocsp: Ocsp = each(Ocsp)
    ocsp_cache: OcspCache = each(OcspCache)
    proxy_protocol: bool = False
    trusted_proxies: list[str] = each(list)
    """The public keys of proxies that may sign for those whom they pass on."""
    websocket: Websocket = each(Websocket)
    cluster: Cluster = each(Cluster)
    leafnodes: Leafnodes = each(Leafnodes)
    gateway: Gateway = each(Gateway)
    store_dir: str = ""
    jetstream: JetStream = each(JetStream)

    flags: dict[str, Any] = each(dict)
    """What the command line set, by the names that `load.load` takes."""
    config_file: str = ""
    config_digest: str = ""

    @property
    def through_websocket(self) -> Options:
        """The options that hold for clients that come through WebSocket."""
        own = self.websocket
        timeout = own.authorization.timeout or self.auth_timeout
        single = own.authorization if own.has_own_authorization else self.authorization
        common = {name: getattr(self.authorization, name) for name in ("users", "proxy_required")}
        given = {**vars(single), "timeout": timeout, **common}
        guest = own.no_auth_user if own.has_own_authorization else self.no_auth_user
        changed = {"authorization": Authorization(**given), "no_auth_user": guest, "tls": own.tls}
        return Options(**{**vars(self), **changed})

    @property
    def users(self) -> list[User]:
        """Those of all accounts."""
        return [user for some in self._user_lists for user in some]

    @property
    def _user_lists(self) -> list[list[User]]:
        return [self.authorization.users, *(account.users for account in self.accounts)]

    @property
    def auth_required(self) -> bool:
        """Whether anybody must prove anything."""
        by_users = any(account.users for account in self.accounts)
        return self.operators.enabled or self.authorization.required or by_users

    @property
    def certified_users(self) -> frozenset[str]:
        """Users without a password whom certificates stand for, on any listener."""
        websocket = self.websocket.tls if self.websocket.port else None
        listeners = (("STANDARD", self.tls), ("WEBSOCKET", websocket))
        types = {name for name, tls in listeners if tls is not None and tls.map}
        bare = (user for user in self.users if user.name and not user.password)
        return frozenset(u.name for u in bare if types & set(u.connection_types or types))

    @property
    def asks_everybody(self) -> bool:
        """Whether it is looked at who connects, if only at the proxy that signed for them."""
        return self.auth_required or bool(self.trusted_proxies)

    @property
    def signs_nonces(self) -> bool:
        """Whether anybody is to sign something: users with keys, or trusted proxies."""
        by_key = self.operators.enabled or any(u.nkey for some in self._user_lists for u in some)
        return by_key or bool(self.trusted_proxies)

    @property
    def by_token(self) -> bool:
        """Whether anybody is let in by a token: of an operator's account, or an auth callout's."""
        return self.operators.enabled or self.authorization.callout is not None

    @property
    def auth_timeout(self) -> float:
        """Seconds that a client has to prove who it is."""
        default = DEFAULT_AUTH_TIMEOUT if self.tls is None else self.tls.timeout + 1.0
        return self.authorization.timeout or default

    @property
    def tls_required(self) -> bool:
        """Whether nobody is served without TLS."""
        return self.tls is not None and (not self.allow_non_tls or self.tls.first_only)

    @property
    def only_system_users(self) -> bool:
        """Whether all users are the system account's: everybody else goes on as without any."""
        lists = self._user_lists
        return any(lists) and all(u.account == self.system for some in lists for u in some)

    @property
    def system(self) -> str:
        """The name of the system account; "" where there is none. JetStream has always one."""
        if self.no_system_account and not self.jetstream.enabled:
            return self.system_account
        return self.system_account or SYSTEM_ACCOUNT

    @property
    def jetstream_accounts(self) -> dict[str, AssetLimits]:
        """Those with JetStream: as configured; the global one, if there is only the system's."""
        if self.operators.enabled:
            return {}  # it is said by their tokens
        if all(account.name == self.system for account in self.accounts):
            return {GLOBAL_ACCOUNT: AssetLimits()}
        return {a.name: a.jetstream for a in self.accounts if a.jetstream is not None}
