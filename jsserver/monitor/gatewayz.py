"""`/gatewayz`: connections to other clusters."""

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from jsserver.cext.engine import ConnNumbers, Item, SubNumbers
from jsserver.monitor.connz import ConnInfo, SubDetail, rtt_text, sub_detail
from jsserver.monitor.linked import with_items
from jsserver.monitor.query import Query
from jsserver.monitor.sources import Server
from jsserver.text.goformat import rfc3339_nano, uptime
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.links.gatewaymodel import GatewayLink

THRESHOLD = 1000
"""Subjects without interest that the other side is told one by one, where it sends whatever comes;
none of ours does."""
TELLS_ALL, BEGINS = "Interest-Only", "Transitioning"


class AccountGatewayz(Wire, kw_only=True):
    """What is known of interest in an account."""

    name: str
    interest_mode: str = always(TELLS_ALL)
    interest_only_threshold: int = always(THRESHOLD)
    num_subs: int = 0
    num_queue_subs: int = 0
    subscriptions_list: list[str] = msgspec.field(default_factory=list)
    subscriptions_list_detail: list[SubDetail] = msgspec.field(default_factory=list)


class RemoteGatewayz(Wire, kw_only=True):
    """A connection to another cluster."""

    configured: bool = always(False)
    connection: ConnInfo
    accounts: list[AccountGatewayz] = msgspec.field(default_factory=list)


class Gatewayz(Wire, kw_only=True):
    """The page `/gatewayz`."""

    server_id: str
    now: str
    name: str = ""
    host: str = ""
    port: int = 0
    outbound_gateways: dict[str, RemoteGatewayz] | None = always({})
    inbound_gateways: dict[str, list[RemoteGatewayz]] = always({})


class Wanted(msgspec.Struct):
    """What a request asks for: one cluster alone, accounts, one alone, and their subscriptions."""

    name: str = ""
    accounts: bool = False
    account: str = ""
    subs: bool = False
    detail: bool = False

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """As a query string has it."""
        subs, detail = query.flag_or_detail("subs")
        accounts = query.flag("accs")
        name, account = query.text("gw_name"), query.text("acc_name")
        return cls(name, accounts or bool(account), account, subs, detail)


def open_gateways(server: Server) -> "list[tuple[GatewayLink, Item]]":
    """The connections, in the order in which they came, each with what the data plane says of
    it."""
    return with_items(server.gateway_links(), server.plane.gateways())


def gatewayz(server: Server, wanted: Wanted, now: int) -> Gatewayz:
    """The page of one request; `now` in ns since the epoch."""
    page = Gatewayz(server_id=server.id, now=rfc3339_nano(now))
    if server.gateways is None:
        return page
    settings = server.gateways.settings
    page.name, page.host, page.port = settings.name, settings.host, settings.port
    outbound: dict[str, RemoteGatewayz] = {}
    inbound: dict[str, list[RemoteGatewayz]] = {}
    for link, item in open_gateways(server):
        if wanted.name not in ("", link.name):
            continue
        shown = RemoteGatewayz(connection=_connection(link, item, now))
        if link.remote is not None:
            shown.configured = link.remote.explicit
            outbound[link.name] = shown
            if wanted.accounts:
                shown.accounts = _told(server, link, wanted)
        else:
            inbound.setdefault(link.name, []).append(shown)
            if wanted.accounts:
                names = sorted(server.accounts)
                shown.accounts = [AccountGatewayz(name=n) for n in names if _wants(wanted, n)]
    page.outbound_gateways = outbound if outbound or not wanted.name else None
    page.inbound_gateways = inbound
    return page


def _wants(wanted: Wanted, account: str) -> bool:
    return wanted.account in ("", account)


def _connection(link: "GatewayLink", item: Item, now: int) -> ConnInfo:
    num = ConnNumbers(*item.numbers)
    assert link.info is not None, "who is let in has said INFO"
    return ConnInfo(
        cid=link.number,
        kind="Gateway",
        ip=link.address.rpartition(":")[0].strip("[]"),
        port=int(link.address.rpartition(":")[2]),
        start=rfc3339_nano(num.start),
        last_activity=rfc3339_nano(num.last_activity),
        rtt=rtt_text(num.rtt),
        uptime=uptime(max(now - num.start, 0)),
        idle=uptime(max(now - num.last_activity, 0)),
        pending_bytes=num.pending,
        in_msgs=num.in_msgs,
        out_msgs=num.out_msgs,
        in_bytes=num.in_bytes,
        out_bytes=num.out_bytes,
        subscriptions=num.subscriptions,
        name=link.info.server_id,
    )


def _told(server: Server, link: "GatewayLink", wanted: Wanted) -> list[AccountGatewayz]:
    """What the other cluster has told of its interest."""
    found = {
        name: AccountGatewayz(name=name, interest_mode=TELLS_ALL if whole else BEGINS)
        for name, whole in sorted(link.modes.items())
        if _wants(wanted, name)
    }
    subscriptions = server.plane.subscriptions(cids=[link.number])
    for _, cid, numbers, (subject, queue, sid) in chain.from_iterable(subscriptions):
        account = found.get(sid.partition(b" ")[0].decode("utf-8", "replace"))
        if account is None:
            continue
        account.num_subs += 1
        account.num_queue_subs += bool(queue)
        if wanted.subs and not wanted.detail:
            account.subscriptions_list.append(subject.decode("utf-8", "replace"))
        elif wanted.detail:
            shown = sub_detail(cid, SubNumbers(*numbers), subject, queue, b"")
            account.subscriptions_list_detail.append(shown)
    return list(found.values())
