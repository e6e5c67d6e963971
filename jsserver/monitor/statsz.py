"""The figures of the server that it tells the system account, `STATSZ`."""

import os

import msgspec

from jsserver.monitor.accountz import Moved
from jsserver.monitor.jsz import JetStreamVarz, jetstream_varz
from jsserver.monitor.process import ProcessUsage
from jsserver.monitor.sources import Server
from jsserver.monitor.subsz import whole
from jsserver.monitor.varz import PeerCounts
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire.types import Wire, always


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
    active_servers: int = always(1)
    jetstream: JetStreamVarz | None = None
    gomaxprocs: int


def statsz(server: Server, usage: ProcessUsage) -> Statsz:
    """The figures as of now."""
    stats = server.plane.stats()
    cores = os.cpu_count() or 1
    sent = Moved(msgs=stats["out_msgs"], bytes=stats["out_bytes"])
    received = Moved(msgs=stats["in_msgs"], bytes=stats["in_bytes"])
    slow, stale = stats["slow_clients"], stats["stale"]
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
        sent_to_clients=sent,
        received=received,
        received_from_clients=received,
        slow_consumers=stats["slow_consumers"],
        slow_consumer_stats=PeerCounts(clients=slow) if slow else None,
        stale_connections=stale,
        stale_connection_stats=PeerCounts(clients=stale) if stale else None,
        stalled_clients=stats["stalls"],
        jetstream=_jetstream(server),
        gomaxprocs=cores,
    )


def _jetstream(server: Server) -> JetStreamVarz | None:
    """Where its files are is nobody's but the operator's of the machine."""
    if server.jetstream is None:
        return None
    found = jetstream_varz(server)
    assert found.config is not None
    return msgspec.structs.replace(
        found, config=msgspec.structs.replace(found.config, store_dir="")
    )
