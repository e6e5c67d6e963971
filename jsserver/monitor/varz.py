"""`/varz`: the server as a whole."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from jsserver import NATS_VERSION, __version__, commit
from jsserver.access.info import GO
from jsserver.config.options import DEFAULT_TLS_TIMEOUT, GLOBAL_ACCOUNT
from jsserver.monitor.jsz import JetStreamVarz, jetstream_varz
from jsserver.monitor.process import ProcessUsage
from jsserver.monitor.sources import Server
from jsserver.monitor.subsz import whole
from jsserver.process.sockets import host_port
from jsserver.text.goformat import rfc3339_nano, uptime
from jsserver.wire.types import FeatureFlags, Wire, always


class Nothing(Wire):
    """A part of the server that it does not have."""


class ClusterVarz(Wire):
    """The cluster, as it is configured; timeouts in seconds."""

    name: str = ""
    addr: str = ""
    cluster_port: int = 0
    auth_timeout: float = 0
    urls: list[str] = msgspec.field(default_factory=list)
    tls_timeout: float = 0
    tls_required: bool = False
    tls_verify: bool = False
    pool_size: int = 0
    write_deadline: int = 0
    write_timeout: str = ""


class DenyRules(Wire):
    """Subjects that do not pass."""

    exports: list[str] = msgspec.field(default_factory=list)
    imports: list[str] = msgspec.field(default_factory=list)


class RemoteVarz(Wire):
    """A hub, as it is configured; timeouts in seconds."""

    local_account: str = ""
    tls_timeout: float = 0
    urls: list[str] = msgspec.field(default_factory=list)
    deny: DenyRules | None = None


class LeafVarz(Wire):
    """The leaf nodes, as they are configured; timeouts in seconds."""

    host: str = ""
    port: int = 0
    auth_timeout: float = 0
    tls_timeout: float = 0
    tls_required: bool = False
    tls_verify: bool = False
    remotes: list[RemoteVarz] = msgspec.field(default_factory=list)
    write_deadline: int = 0
    write_timeout: str = ""


class RemoteGatewayVarz(Wire):
    """Another cluster of the configuration, and where its servers are."""

    name: str
    urls: list[str] = msgspec.field(default_factory=list)


class GatewayVarz(Wire):
    """The gateways, as they are configured; timeouts in seconds."""

    name: str = ""
    host: str = ""
    port: int = 0
    auth_timeout: float = 0
    tls_timeout: float = 0
    tls_required: bool = False
    tls_verify: bool = False
    advertise: str = ""
    connect_retries: int = 0
    gateways: list[RemoteGatewayVarz] = msgspec.field(default_factory=list)
    reject_unknown: bool = False
    write_deadline: int = 0
    write_timeout: str = ""


class WebsocketVarz(Wire):
    """The listener for WebSocket, as it is configured."""

    host: str = ""
    port: int = 0
    advertise: str = ""
    no_auth_user: str = ""
    jwt_cookie: str = ""
    handshake_timeout: int = 0
    auth_timeout: float = 0
    no_tls: bool = False
    tls_map: bool = False
    tls_pinned_certs: list[str] = msgspec.field(default_factory=list)
    same_origin: bool = False
    allowed_origins: list[str] = msgspec.field(default_factory=list)
    compression: bool = False
    tls_ocsp_peer_verify: bool = False
    tls_cert_not_after: str = ""


class PeerAnswers(Wire):
    """What is kept of OCSP responders' answers about clients."""

    cache_type: str = ""
    cache_hits: int = 0
    cache_misses: int = 0
    cached_responses: int = 0
    cached_revoked_responses: int = 0
    cached_good_responses: int = 0
    cached_unknown_responses: int = 0


class PeerCounts(Wire):
    """A count for each kind of peer."""

    clients: int = always(0)
    routes: int = always(0)
    gateways: int = always(0)
    leafs: int = always(0)


class ProxyVarz(Wire):
    """A proxy, by its public key."""

    key: str


class ProxiesVarz(Wire):
    """Proxies that may sign for those whom they pass on."""

    trusted: list[ProxyVarz] = msgspec.field(default_factory=list)


class DiskWaits(Wire):
    """Waits for a free disk slot, of which this server has as many as it wants."""

    waiters: int = always(0)
    waits: int = always(0)
    wait_time: int = always(0)
    max_wait_time: int = always(0)


class Varz(Wire, kw_only=True):
    """The page; durations in ns, sizes in bytes."""

    server_id: str
    server_name: str
    version: str = always(NATS_VERSION)
    proto: int = always(1)
    git_commit: str = ""
    jsserver: str = always(__version__)
    """The version of this program; `version` is that of the nats-server in whose place it runs."""
    go: str = always(GO)
    host: str
    port: int
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_ocsp_peer_verify: bool = False
    connect_urls: list[str] = msgspec.field(default_factory=list)
    ws_connect_urls: list[str] = msgspec.field(default_factory=list)
    max_connections: int
    max_subscriptions: int = 0
    ping_interval: int
    ping_max: int
    http_host: str
    http_port: int
    http_base_path: str
    https_port: int
    auth_timeout: float
    max_control_line: int
    max_payload: int
    max_pending: int
    cluster: ClusterVarz
    gateway: GatewayVarz
    leaf: LeafVarz
    mqtt: Nothing = always(Nothing())
    websocket: WebsocketVarz
    jetstream: JetStreamVarz
    tls_timeout: float
    write_deadline: int
    write_timeout: str = ""
    start: str
    now: str
    uptime: str
    mem: int
    cores: int
    gomaxprocs: int
    cpu: float
    connections: int
    total_connections: int
    routes: int = always(0)
    remotes: int = always(0)
    leafnodes: int = always(0)
    in_msgs: int
    in_bytes: int
    in_client_msgs: int
    in_client_bytes: int
    out_msgs: int
    out_bytes: int
    out_client_msgs: int
    out_client_bytes: int
    slow_consumers: int
    stale_connections: int
    stalled_clients: int
    subscriptions: int
    http_req_stats: dict[str, int]
    config_load_time: str
    config_digest: str
    tags: list[str] = msgspec.field(default_factory=list)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    feature_flags: FeatureFlags = always(FeatureFlags())
    trusted_operators_jwt: list[str] = msgspec.field(default_factory=list)
    trusted_operators_claim: list[dict[str, Any]] = msgspec.field(default_factory=list)
    system_account: str = ""
    pinned_account_fails: int = 0
    ocsp_peer_cache: PeerAnswers | None = None
    slow_consumer_stats: PeerCounts
    stale_connection_stats: PeerCounts
    disk_io_wait_stats: DiskWaits = always(DiskWaits())
    proxies: ProxiesVarz | None = None
    tls_cert_not_after: str = ""
    # This server's own, where there are any.
    dropped_nested: int = 0
    dropped_requests: int = 0


def varz(server: Server, usage: ProcessUsage, requests: dict[str, int], now: int) -> Varz:
    """The page; `requests` counts the monitoring requests by path, `now` in ns since the epoch."""
    o = server.options
    stats = server.plane.stats()
    routes = server.routes()
    cores = os.cpu_count() or 1
    return Varz(
        server_id=server.id,
        server_name=server.name,
        git_commit=commit(),
        host=o.host,
        port=server.port,
        auth_required=server.auth_required,
        tls_required=o.tls is not None and not o.allow_non_tls,
        tls_verify=o.tls is not None and o.tls.verify,
        tls_ocsp_peer_verify=o.tls is not None and o.tls.inquires and not o.allow_non_tls,
        ocsp_peer_cache=_peer_answers(server),
        tls_timeout=whole(DEFAULT_TLS_TIMEOUT if o.tls is None else o.tls.timeout),
        tls_cert_not_after=server.certificate_ends,
        connect_urls=server.connect_urls.plain,
        ws_connect_urls=server.connect_urls.websocket,
        max_connections=o.max_connections,
        max_subscriptions=o.max_subscriptions,
        ping_interval=o.ping_interval,
        ping_max=o.ping_max,
        http_host=o.http_host or o.host,
        http_port=o.http_port,
        http_base_path=o.http_base_path,
        https_port=o.https_port,
        auth_timeout=whole(o.auth_timeout),
        max_control_line=o.max_control_line,
        max_payload=o.max_payload,
        max_pending=o.max_pending,
        cluster=_cluster(server),
        gateway=_gateway(server),
        leaf=_leafs(server),
        websocket=_websocket(server),
        jetstream=jetstream_varz(server),
        write_deadline=o.write_deadline,
        write_timeout=o.write_timeout,
        start=rfc3339_nano(server.started),
        now=rfc3339_nano(now),
        uptime=uptime(max(now - server.started, 0)),
        mem=usage.memory(),
        cores=cores,
        gomaxprocs=cores,
        cpu=whole(usage.cpu_percent()),
        connections=stats["connections"],
        total_connections=stats["total_connections"],
        routes=len(routes),
        remotes=len({link.info.server_id for link in routes if link.info is not None}),
        leafnodes=len(server.leafs()),
        in_msgs=stats["in_msgs"],
        in_bytes=stats["in_bytes"],
        in_client_msgs=stats["in_msgs"] - stats["link_in_msgs"],
        in_client_bytes=stats["in_bytes"] - stats["link_in_bytes"],
        out_msgs=stats["out_msgs"],
        out_bytes=stats["out_bytes"],
        out_client_msgs=stats["out_msgs"] - stats["link_out_msgs"],
        out_client_bytes=stats["out_bytes"] - stats["link_out_bytes"],
        slow_consumers=stats["slow_consumers"],
        stale_connections=_all_stale(stats),
        stalled_clients=stats["stalls"],
        subscriptions=stats["subscriptions"],
        http_req_stats=dict(sorted(requests.items())),
        config_load_time=rfc3339_nano(server.config_loaded),
        config_digest=o.config_digest,
        tags=o.server_tags,
        metadata=dict(sorted(o.server_metadata.items())),
        trusted_operators_jwt=o.operators.tokens,
        trusted_operators_claim=_shown(o.operators.claims),
        system_account=server.system_account,
        pinned_account_fails=server.pinned_account_fails,
        proxies=_proxies(o.trusted_proxies),
        slow_consumer_stats=slow_peers(stats),
        stale_connection_stats=stale_peers(stats),
        dropped_nested=stats["too_deep"],
        dropped_requests=stats["forgotten"],
    )


def slow_peers(stats: Mapping[str, int]) -> PeerCounts:
    """How many of each kind of peer were cut as they took too little."""
    return PeerCounts(
        clients=stats["slow_clients"],
        routes=stats["slow_routes"],
        gateways=stats["slow_gateways"],
        leafs=stats["slow_leafs"],
    )


def _all_stale(stats: Mapping[str, int]) -> int:
    return sum(stats[f"stale_{kind}"] for kind in ("clients", "routes", "gateways", "leafs"))


def stale_peers(stats: Mapping[str, int]) -> PeerCounts:
    """How many of each kind of peer were cut as they answered no PING."""
    return PeerCounts(
        clients=stats["stale_clients"],
        routes=stats["stale_routes"],
        gateways=stats["stale_gateways"],
        leafs=stats["stale_leafs"],
    )


def _cluster(server: Server) -> ClusterVarz:
    block = server.options.cluster
    if not block.port:
        return ClusterVarz()
    return ClusterVarz(
        name=server.cluster,
        addr=block.host,
        cluster_port=server.route_port,
        auth_timeout=whole(block.auth_timeout),
        urls=[host_port(url.host, url.port) for url in block.routes],
        tls_timeout=whole(DEFAULT_TLS_TIMEOUT if block.tls is None else block.tls.timeout),
        tls_required=block.tls is not None,
        tls_verify=block.tls is not None,
        pool_size=block.pool_size or 3,
        write_deadline=block.write_deadline,
        write_timeout=block.write_timeout,
    )


def _gateway(server: Server) -> GatewayVarz:
    block = server.options.gateway
    if server.gateways is None:
        return GatewayVarz()
    remotes = server.gateways.remotes
    return GatewayVarz(
        name=block.name,
        host=block.host,
        port=server.gateway_port,
        auth_timeout=whole(block.auth_timeout),
        tls_timeout=whole(DEFAULT_TLS_TIMEOUT if block.tls is None else block.tls.timeout),
        tls_required=block.tls is not None,
        tls_verify=block.tls is not None,
        advertise=block.advertise,
        connect_retries=block.connect_retries,
        gateways=[
            RemoteGatewayVarz(
                name=remote.name,
                urls=remotes[remote.name].urls
                if remote.name in remotes
                else [host_port(url.host, url.port) for url in remote.urls],
            )
            for remote in block.gateways
        ],
        reject_unknown=block.reject_unknown,
        write_deadline=block.write_deadline,
        write_timeout=block.write_timeout,
    )


def _leafs(server: Server) -> LeafVarz:
    block = server.options.leafnodes
    if not block.enabled:
        return LeafVarz()
    remotes = [
        RemoteVarz(
            local_account=remote.account or GLOBAL_ACCOUNT,
            urls=[f"{url.host}:{url.port}" for url in remote.urls],
            deny=DenyRules(remote.deny_exports, remote.deny_imports)
            if remote.deny_exports or remote.deny_imports
            else None,
        )
        for remote in block.remotes
    ]
    return LeafVarz(
        host=block.host if block.port else "",
        port=server.leaf_port,
        auth_timeout=whole(block.auth_timeout) if block.port else 0,
        tls_required=block.tls is not None,
        tls_verify=block.tls is not None and block.tls.verify,
        remotes=remotes,
        write_deadline=block.write_deadline,
        write_timeout=block.write_timeout,
    )


def _peer_answers(server: Server) -> PeerAnswers | None:
    figures = server.peer_answers
    return None if figures is None else PeerAnswers("local", *figures)


def _proxies(keys: list[str]) -> ProxiesVarz | None:
    return ProxiesVarz(trusted=[ProxyVarz(key=key) for key in keys]) if keys else None


def _shown(claims: list[Any]) -> list[dict[str, Any]]:
    if not claims:
        return []
    from jsserver.jwt.shown import shown  # who has no tokens goes without

    return [shown(one) for one in claims]


def _websocket(server: Server) -> WebsocketVarz:
    block = server.options.websocket
    return WebsocketVarz(
        host=block.host if block.port else "",
        port=server.websocket_port,
        advertise=block.advertise,
        no_auth_user=block.no_auth_user,
        jwt_cookie=block.jwt_cookie,
        handshake_timeout=block.handshake_timeout,
        auth_timeout=whole(block.authorization.timeout),
        no_tls=block.no_tls,
        tls_map=block.tls is not None and block.tls.map,
        tls_pinned_certs=(block.tls and block.tls.pinned_certs) or [],
        tls_ocsp_peer_verify=block.tls is not None and block.tls.inquires,
        tls_cert_not_after=server.websocket_certificate_ends,
        same_origin=block.same_origin,
        allowed_origins=block.allowed_origins,
        compression=block.compression,
    )
