"""`/leafz`: leaf nodes of the server, and hubs whose leaf node it is."""

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from jsserver.cext.engine import COMPRESSION_LEVELS, ConnNumbers, Item
from jsserver.monitor.connz import rtt_text
from jsserver.monitor.linked import with_items
from jsserver.monitor.query import Query
from jsserver.monitor.sources import Server
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.links.leafmodel import LeafLink


class LeafInfo(Wire, kw_only=True):
    """A leaf node, or a hub (`is_spoke`: this server is its leaf node)."""

    id: int
    name: str
    is_spoke: bool = always(False)
    is_isolated: bool = False
    account: str
    ip: str
    port: int
    rtt: str = ""
    in_msgs: int = always(0)
    out_msgs: int = always(0)
    in_bytes: int = always(0)
    out_bytes: int = always(0)
    subscriptions: int = always(0)
    subscriptions_list: list[str] = msgspec.field(default_factory=list)
    compression: str = ""


class Leafz(Wire, kw_only=True):
    """The page `/leafz`."""

    server_id: str
    now: str
    leafnodes: int = always(0)
    leafs: list[LeafInfo] = always([])


class Wanted(msgspec.Struct):
    """What a request asks for: subscriptions, and one account alone."""

    subs: bool = False
    account: str = ""

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """As a query string has it."""
        return cls(query.flag("subs"), query.text("acc"))


def open_leafs(server: Server) -> "list[tuple[LeafLink, Item]]":
    """Those that are open, in the order in which they came, each with what the data plane says of
    it."""
    return with_items(server.leafs(), server.plane.leafs())


def leafz(server: Server, wanted: Wanted, now: int) -> Leafz:
    """The page of one request; `now` in ns since the epoch."""
    leafs = [
        _info(link, item)
        for link, item in open_leafs(server)
        if wanted.account in ("", link.account)
    ]
    if wanted.subs:
        _add_subscriptions(server, leafs)
    return Leafz(server_id=server.id, now=rfc3339_nano(now), leafnodes=len(leafs), leafs=leafs)


def _info(link: "LeafLink", item: Item) -> LeafInfo:
    num = ConnNumbers(*item.numbers)
    return LeafInfo(
        id=link.number,
        name=link.name,
        is_spoke=link.spoke,
        is_isolated=link.isolated,
        account=link.account,
        ip=link.address.rpartition(":")[0].strip("[]"),
        port=int(link.address.rpartition(":")[2]),
        rtt=rtt_text(num.rtt),
        in_msgs=num.in_msgs,
        out_msgs=num.out_msgs,
        in_bytes=num.in_bytes,
        out_bytes=num.out_bytes,
        subscriptions=num.subscriptions,
        compression=COMPRESSION_LEVELS[num.compression] or link.compression,
    )


def _add_subscriptions(server: Server, leafs: list[LeafInfo]) -> None:
    shown = {leaf.id: leaf for leaf in leafs}
    for _, cid, _, (subject, *_) in chain.from_iterable(server.plane.subscriptions(cids=shown)):
        shown[cid].subscriptions_list.append(subject.decode("utf-8", "replace"))
