"""`/routez`: connections to other servers of the cluster."""

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from jsserver.cext.engine import COMPRESSION_LEVELS, ConnNumbers, Item, SubNumbers
from jsserver.links.words import SubjectPermission
from jsserver.monitor.connz import SubDetail, rtt_text, sub_detail
from jsserver.monitor.linked import with_items
from jsserver.monitor.query import Query
from jsserver.monitor.sources import Server
from jsserver.text.goformat import rfc3339_nano, uptime
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.links.model import Link


class RouteInfo(Wire, kw_only=True):
    """A route; sizes in bytes."""

    rid: int
    remote_id: str
    remote_name: str
    did_solicit: bool = always(False)
    is_configured: bool = always(False)
    ip: str
    port: int
    start: str
    last_activity: str
    rtt: str
    uptime: str
    idle: str
    import_: SubjectPermission | None = msgspec.field(default=None, name="import")
    export: SubjectPermission | None = None
    pending_size: int = always(0)
    in_msgs: int = always(0)
    out_msgs: int = always(0)
    in_bytes: int = always(0)
    out_bytes: int = always(0)
    subscriptions: int = always(0)
    subscriptions_list: list[str] = msgspec.field(default_factory=list)
    subscriptions_list_detail: list[SubDetail] = msgspec.field(default_factory=list)
    account: str = ""
    compression: str = ""


class Routez(Wire, kw_only=True):
    """The page `/routez`."""

    server_id: str
    server_name: str
    now: str
    import_: SubjectPermission | None = msgspec.field(default=None, name="import")
    export: SubjectPermission | None = None
    num_routes: int = always(0)
    routes: list[RouteInfo] = always([])


class Wanted(msgspec.Struct):
    """What a request asks for: subscriptions, and those in detail."""

    subs: bool = False
    detail: bool = False

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """As a query string has it."""
        return cls(*query.flag_or_detail("subs"))


def open_routes(server: Server) -> "list[tuple[Link, Item]]":
    """The routes, in the order in which they came, each with what the data plane says of it."""
    return with_items(server.routes(), server.plane.routes())


def routez(server: Server, wanted: Wanted, now: int) -> Routez:
    """The page of one request; `now` in ns since the epoch."""
    routes = [_info(link, item, now) for link, item in open_routes(server)]
    if wanted.subs:
        _add_subscriptions(server, wanted, routes)
    imports, exports = server.interest
    return Routez(
        server_id=server.id,
        server_name=server.name,
        now=rfc3339_nano(now),
        import_=imports,
        export=exports,
        num_routes=len(routes),
        routes=routes,
    )


def _info(link: "Link", item: Item, now: int) -> RouteInfo:
    num = ConnNumbers(*item.numbers)
    assert link.info is not None, "who is let in has said INFO"
    target = link.target or link.named
    return RouteInfo(
        rid=link.number,
        remote_id=link.info.server_id,
        remote_name=link.info.server_name,
        did_solicit=target is not None,
        is_configured=target is not None and target.explicit,
        ip=link.address.rpartition(":")[0].strip("[]"),
        port=int(link.address.rpartition(":")[2]),
        start=rfc3339_nano(num.start),
        last_activity=rfc3339_nano(num.last_activity),
        rtt=rtt_text(num.rtt),
        uptime=uptime(max(now - num.start, 0)),
        idle=uptime(max(now - num.last_activity, 0)),
        import_=link.info.import_,
        export=link.info.export,
        pending_size=num.pending,
        in_msgs=num.in_msgs,
        out_msgs=num.out_msgs,
        in_bytes=num.in_bytes,
        out_bytes=num.out_bytes,
        subscriptions=num.subscriptions,
        account=link.account,
        compression=COMPRESSION_LEVELS[num.compression] or link.compression,
    )


def _add_subscriptions(server: Server, wanted: Wanted, routes: list[RouteInfo]) -> None:
    shown = {route.rid: route for route in routes}
    for _, cid, numbers, (subject, queue, sid) in chain.from_iterable(
        server.plane.subscriptions(cids=shown)
    ):
        route = shown[cid]
        if wanted.detail:
            found = sub_detail(cid, SubNumbers(*numbers), subject, queue, _shown(sid))
            route.subscriptions_list_detail.append(found)
        else:
            route.subscriptions_list.append(subject.decode("utf-8", "replace"))


def _shown(sid: bytes) -> bytes:
    """What the data plane knows a route's subscription by (account, subject, queue, origin), as
    nats-server shows that: with a letter for where it comes from, a server or a leafnode."""
    return (b"L " if sid.count(b" ") > 2 else b"R ") + sid
