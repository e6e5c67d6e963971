"""The figures of the server that it tells the system account, `STATSZ`."""

import os
from typing import TYPE_CHECKING

import msgspec

from jsserver.cext.engine import ConnNumbers, Item
from jsserver.monitor.accountz import Moved
from jsserver.monitor.gatewayz import open_gateways
from jsserver.monitor.jsz import JetStreamVarz, jetstream_varz, meta_of
from jsserver.monitor.process import ProcessUsage
from jsserver.monitor.routez import open_routes
from jsserver.monitor.sources import Server
from jsserver.monitor.subsz import whole
from jsserver.monitor.varz import PeerCounts, slow_peers, stale_peers
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.links.model import Link


NONE = PeerCounts()


class RouteStats(Wire, kw_only=True):
    """A route; `sent` is what the server sent. Sizes in bytes."""

    rid: int
    name: str = ""
    sent: Moved
    received: Moved
    pending: int = always(0)


class GatewayStats(Wire, kw_only=True):
    """Another cluster: the connection to it, and all from there. Sizes in bytes."""

    gwid: int
    name: str
    sent: Moved
    received: Moved
    inbound_connections: int = always(0)


class Statsz(Wire, kw_only=True):
    """The figures; `sent` is what the server sent. Sizes in bytes."""

    start: str
    mem: int
    cores: int
    cpu: float
    connections: int
    total_connections: int
    active_accounts: int
    subscriptions: int
    sent: Moved
    sent_to_clients: Moved
    received: Moved
    received_from_clients: Moved
    slow_consumers: int
    slow_consumer_stats: PeerCounts | None = None
    stale_connections: int = 0
    stale_connection_stats: PeerCounts | None = None
    stalled_clients: int = 0
    routes: list[RouteStats] = msgspec.field(default_factory=list)
    gateways: list[GatewayStats] = msgspec.field(default_factory=list)
    active_servers: int = always(1)
    jetstream: JetStreamVarz | None = None
    gomaxprocs: int


def statsz(server: Server, usage: ProcessUsage) -> Statsz:
    """The figures as of now."""
    stats = server.plane.stats()
    cores = os.cpu_count() or 1
    sent = Moved(msgs=stats["out_msgs"], bytes=stats["out_bytes"])
    received = Moved(msgs=stats["in_msgs"], bytes=stats["in_bytes"])
    slow, stale = slow_peers(stats), stale_peers(stats)
    routes = open_routes(server)
    return Statsz(
        start=rfc3339_nano(server.started),
        mem=usage.memory(),
        cores=cores,
        cpu=whole(usage.cpu_percent()),
        connections=stats["connections"],
        total_connections=stats["total_connections"],
        active_accounts=stats["active_accounts"],
        subscriptions=stats["subscriptions"],
        sent=sent,
        sent_to_clients=Moved(
            msgs=sent.msgs - stats["link_out_msgs"], bytes=sent.bytes - stats["link_out_bytes"]
        ),
        received=received,
        received_from_clients=Moved(
            msgs=received.msgs - stats["link_in_msgs"],
            bytes=received.bytes - stats["link_in_bytes"],
        ),
        slow_consumers=stats["slow_consumers"],
        slow_consumer_stats=slow if slow != NONE else None,
        stale_connections=stale.clients + stale.routes + stale.gateways,
        stale_connection_stats=stale if stale != NONE else None,
        stalled_clients=stats["stalls"],
        routes=[_route(link, item) for link, item in routes],
        gateways=_gateways(server),
        active_servers=1
        + len({link.info.server_id for link, _ in routes if link.info is not None}),
        jetstream=_jetstream(server),
        gomaxprocs=cores,
    )


def _route(link: "Link", item: Item) -> RouteStats:
    num = ConnNumbers(*item.numbers)
    return RouteStats(
        rid=link.number,
        name=link.info.server_name if link.info is not None else "",
        sent=Moved(msgs=num.out_msgs, bytes=num.out_bytes),
        received=Moved(msgs=num.in_msgs, bytes=num.in_bytes),
        pending=num.pending,
    )


def _gateways(server: Server) -> list[GatewayStats]:
    found: dict[str, GatewayStats] = {}
    links = open_gateways(server)
    for link, item in links:
        if link.remote is not None:
            num = ConnNumbers(*item.numbers)
            found[link.name] = GatewayStats(
                gwid=link.number,
                name=link.name,
                sent=Moved(msgs=num.out_msgs, bytes=num.out_bytes),
                received=Moved(),
            )
    for link, item in links:
        if link.remote is None and (stats := found.get(link.name)) is not None:
            num = ConnNumbers(*item.numbers)
            stats.inbound_connections += 1
            stats.received.msgs += num.in_msgs
            stats.received.bytes += num.in_bytes
    return list(found.values())


def _jetstream(server: Server) -> JetStreamVarz | None:
    """Where its files are is nobody's but the operator's of the machine."""
    if server.jetstream is None:
        return None
    found = jetstream_varz(server)
    assert found.config is not None
    return msgspec.structs.replace(
        found,
        config=msgspec.structs.replace(found.config, store_dir=""),
        meta=meta_of(server, "_meta_"),
    )
