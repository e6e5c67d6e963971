"""What servers of a cluster say of themselves, and of the streams and consumers that they hold."""

from collections.abc import Iterable
from typing import Any

from jsserver.admin.plan import Cluster, Consumer, Server, Stream
from jsserver.admin.session import CommandFailed
from jsserver.admin.system import System
from jsserver.cluster.placement import Room, Rules

Said = dict[str, Any]
ACCOUNTS_MOST = 1 << 20
JSZ = {
    "accounts": True,
    "streams": True,
    "consumer": True,
    "config": True,
    "limit": ACCOUNTS_MOST,
}


class View:
    """What a server says of the streams that it holds, by account and name."""

    def __init__(self, server: str, id: str, jsz: Said) -> None:
        self.server = server
        self.id = id
        self.meta: Said = jsz.get("meta_cluster") or {}
        self.streams: dict[tuple[str, str], Said] = {
            (account["id"], stream["name"]): stream
            for account in jsz.get("account_details") or ()
            for stream in account.get("stream_detail") or ()
        }


def views(system: System, told: Iterable[Said]) -> list[View]:
    """Of the servers with JetStream of those that have told how they are."""
    return [
        View(one["server"]["name"], one["server"]["id"], asked["data"])
        for one in told
        if one["statsz"].get("jetstream")
        for asked in [system.server(one["server"]["id"], "JSZ", JSZ)]
    ]


def survey(system: System) -> Cluster:
    """All servers and streams of the cluster; CommandFailed where there is none."""
    told = system.statistics()
    seen = views(system, told)
    metas = [view.meta for view in seen if view.meta.get("leader")]
    if not metas:
        raise CommandFailed("JetStream has no cluster here, or nobody leads its meta group")
    meta = max(metas, key=lambda one: len(one.get("replicas") or ()))  # its leader names them all
    leader = str(meta["leader"])
    servers = {server.name: server for server in map(_server, told) if server.room is not None}
    cluster = servers[leader].cluster if leader in servers else ""
    for one in meta.get("replicas") or ():
        servers.setdefault(one["name"], Server(one["name"], cluster, reachable=False))
    keys = sorted({key for view in seen for key in view.streams})
    streams = [_stream(key, seen) for key in keys]
    return Cluster(servers, streams, leader, _rules(told, leader))


def _server(told: Said) -> Server:
    server = told["server"]
    return Server(
        server["name"],
        server.get("cluster", ""),
        [tag.lower() for tag in server.get("tags") or ()],
        room=_room(told["statsz"].get("jetstream") or {}),
    )


def _room(jetstream: Said) -> Room | None:
    config, stats = jetstream.get("config"), jetstream.get("stats")
    if config is None or stats is None:
        return None

    def free(what: str) -> int:
        taken = max(stats.get(what, 0), stats.get(f"reserved_{what}", 0))
        return int(config.get(f"max_{what}", 0)) - int(taken)

    return Room(free("memory"), free("storage"), stats.get("ha_assets", 0))


def _rules(told: Iterable[Said], leader: str) -> Rules:
    for one in told:
        if one["server"]["name"] == leader:
            jetstream = one["statsz"].get("jetstream") or {}
            tag = (jetstream.get("config") or {}).get("unique_tag", "")
            most = (jetstream.get("limits") or {}).get("max_ha_assets", 0)
            return Rules(tag.lower(), most)
    return Rules()


def _stream(key: tuple[str, str], seen: Iterable[View]) -> Stream:
    said = [(view.server, view.streams[key]) for view in seen if key in view.streams]
    leader, holders, stream = _led(said)
    consumers: dict[str, list[tuple[str, Said]]] = {}
    for server, one in said:
        for detail in one.get("consumer_detail") or ():
            consumers.setdefault(detail["name"], []).append((server, detail))
    config = stream.get("config") or {}
    placement = config.get("placement") or {}
    return Stream(
        *key,
        (stream.get("cluster") or {}).get("name", ""),
        config.get("num_replicas") or 1,
        holders,
        leader,
        size=int(stream["state"]["bytes"]),
        in_memory=config.get("storage") == "memory",
        max_bytes=max(config.get("max_bytes", 0), 0),
        tags=tuple(placement.get("tags") or ()),
        consumers=tuple(
            Consumer(name, *reversed(_led(consumers[name])[:2])) for name in sorted(consumers)
        ),
    )


def _led(said: list[tuple[str, Said]]) -> tuple[str, tuple[str, ...], Said]:
    """Who leads an asset, who holds it, and what its leader says of it, or anybody where nobody
    leads."""
    for server, one in said:
        if (one.get("cluster") or {}).get("leader") == server:
            return server, members(one["cluster"]), one
    server, one = said[0]
    known = members(one.get("cluster") or {})
    return "", tuple(dict.fromkeys((server, *known))), one


def members(cluster: Said) -> tuple[str, ...]:
    """The names of the servers that hold an asset, its leader's first. `cluster`: what the leader
    says of the group."""
    first = [cluster["leader"]] if cluster.get("leader") else []
    others = (one["name"] for one in cluster.get("replicas") or ())
    return tuple(dict.fromkeys((*first, *others)))  # a leader that moves may name itself twice
