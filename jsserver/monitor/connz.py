"""`/connz`: connections, open and closed."""

from collections.abc import Callable
from enum import Enum
from itertools import chain

import msgspec

from jsserver.access.certificates import read_secured, subject_text
from jsserver.access.clients import Connection, read_connection
from jsserver.cext.engine import Item, SubNumbers
from jsserver.config.options import GLOBAL_ACCOUNT
from jsserver.monitor.closed import ClosedConnections
from jsserver.monitor.query import DEFAULT_LIMIT, BadParameter, Paging, Query, clean
from jsserver.monitor.sources import Accounts, Server
from jsserver.text.goformat import MICROSECOND, MILLISECOND, duration, rfc3339_nano, uptime
from jsserver.wire.types import Wire, always


class SubDetail(Wire, gc=False):
    """A subscription in detail. A page may have so many that the search for garbage among them
    would take long."""

    account: str = ""
    account_tag: str = ""
    subject: str = always("")
    qgroup: str = ""
    sid: str = always("")
    msgs: int = always(0)
    max: int = 0
    cid: int = always(0)


class PeerCert(Wire):
    """A certificate of a client; digests in hex."""

    subject: str = ""
    spki_sha256: str = ""
    cert_sha256: str = ""


class ProxyInfo(Wire):
    """The trusted proxy that a connection came by."""

    key: str


class ConnInfo(Wire):
    """A connection."""

    cid: int = always(0)
    kind: str = always("Client")
    type: str = ""
    ip: str = always("")
    port: int = always(0)
    start: str = always("")
    last_activity: str = always("")
    stop: str = ""
    reason: str = ""
    rtt: str = ""
    uptime: str = always("")
    idle: str = always("")
    pending_bytes: int = always(0)
    in_msgs: int = always(0)
    out_msgs: int = always(0)
    in_bytes: int = always(0)
    out_bytes: int = always(0)
    stalls: int = 0
    subscriptions: int = always(0)
    name: str = ""
    lang: str = ""
    version: str = ""
    tls_version: str = ""
    tls_cipher_suite: str = ""
    tls_peer_certs: list[PeerCert] = msgspec.field(default_factory=list)
    tls_first: bool = False
    authorized_user: str = ""
    account: str = ""
    subscriptions_list: list[str] = msgspec.field(default_factory=list)
    subscriptions_list_detail: list[SubDetail] = msgspec.field(default_factory=list)
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    proxy: ProxyInfo | None = None


class Connz(Wire):
    """The page."""

    server_id: str
    now: str
    num_connections: int = always(0)
    total: int = always(0)
    offset: int = always(0)
    limit: int = always(0)
    connections: list[ConnInfo] | None = always(None)


class State(Enum):
    """Which connections are asked for."""

    OPEN = "open"
    CLOSED = "closed"
    ANY = "any"


STATES = {"open": State.OPEN, "closed": State.CLOSED, "any": State.ANY, "all": State.ANY}


class Row:
    """A connection on its way to the page; `stop` is 0 while it is open."""

    __slots__ = ("c", "end", "stop")

    def __init__(self, c: Connection, stop: int) -> None:
        self.c = c
        self.stop = stop
        self.end = stop or c.now


SORTS: dict[str, tuple[Callable[[Row], int | str], bool]] = {
    "cid": (lambda r: r.c.cid, False),
    "start": (lambda r: r.c.start, False),
    "subs": (lambda r: r.c.subscriptions, True),
    "pending": (lambda r: r.c.pending, True),
    "msgs_to": (lambda r: r.c.out_msgs, True),
    "msgs_from": (lambda r: r.c.in_msgs, True),
    "bytes_to": (lambda r: r.c.out_bytes, True),
    "bytes_from": (lambda r: r.c.in_bytes, True),
    "last": (lambda r: r.c.last_activity, True),
    "idle": (lambda r: r.end - r.c.last_activity, True),
    "uptime": (lambda r: r.end - r.c.start, False),
    "stop": (lambda r: r.stop, True),
    "reason": (lambda r: r.c.shown_reason, False),
    "rtt": (lambda r: r.c.rtt, True),
}
"""By name: the key, and whether the greatest comes first."""
CLOSED_SORTS = ("stop", "reason")


class Wanted(msgspec.Struct, kw_only=True):
    """What a request asks for; BadParameter where that cannot be."""

    auth: bool = False
    subs: bool = False
    detail: bool = False
    """Of subscriptions, where these are wanted."""
    paging: Paging = msgspec.field(default_factory=Paging)
    cid: int = 0
    state: State = State.OPEN
    user: str = ""
    account: str = ""
    mqtt_client: str = ""
    sort: str = ""
    filter_subject: str = ""
    """Only those that subscribe to something that overlaps with it; it takes an account."""

    @classmethod
    def read(cls, query: Query) -> "Wanted":
        """As a query string has it."""
        auth = query.flag("auth")
        subs, detail = query.flag_or_detail("subs")
        return cls(
            auth=auth,
            subs=subs,
            detail=detail,
            paging=Paging.read(query),
            cid=query.unsigned("cid"),
            state=query.choice("state", STATES, State.OPEN),
            user=query.text("user"),
            account=query.text("acc"),
            mqtt_client=query.text("mqtt_client"),
            sort=query.text("sort"),
        )

    def __post_init__(self) -> None:
        self.sort = self.sort or "cid"
        if self.sort not in SORTS:
            raise BadParameter(f"invalid sorting option: {self.sort}")
        if self.sort in CLOSED_SORTS and self.state is not State.CLOSED:
            raise BadParameter(f"sort by {self.sort} only valid on closed connections")
        if self.cid:
            self.paging.offset, self.paging.limit = 0, 1


def empty(server: Server, now: int) -> Connz:
    """The page without connections."""
    return Connz(server_id=server.id, now=rfc3339_nano(now), limit=DEFAULT_LIMIT, connections=[])


def connz(server: Server, closed: ClosedConnections, wanted: Wanted, now: int) -> Connz:
    """The page of one request; `now` in ns since the epoch."""
    page = Connz(
        server_id=server.id,
        now=rfc3339_nano(now),
        offset=wanted.paging.offset,
        limit=wanted.paging.limit,
    )
    if wanted.account and wanted.account not in server.accounts:
        return page
    page.total, rows = _rows(server, closed, wanted)
    if wanted.user:
        rows = [r for r in rows if r.c.user == wanted.user]
    if wanted.filter_subject:
        listening = _listening(server, wanted.account, wanted.filter_subject)
        rows = [r for r in rows if r.c.cid in listening and not r.stop]
    if wanted.mqtt_client:
        rows = []
    key, descending = SORTS[wanted.sort]
    rows.sort(key=lambda r: r.c.cid)
    rows.sort(key=key, reverse=descending)
    accounts = server.accounts
    shown = wanted.paging.cut(rows)
    page.connections = [_info(row, accounts, wanted.auth) for row in shown]
    page.num_connections = len(page.connections)
    if wanted.subs:
        _add_subscriptions(server, wanted, page.connections)
    return page


def _rows(server: Server, closed: ClosedConnections, wanted: Wanted) -> tuple[int, list[Row]]:
    """How many connections there are in the state and account, and those that may be shown."""
    rows: list[Row] = []
    total = 0
    handle = server.accounts[wanted.account] if wanted.account else None
    account = None if handle is None else handle.id
    if wanted.state is not State.CLOSED:
        if wanted.cid and account is None:
            total = server.plane.stats()["connections"]
            item = server.plane.connection(wanted.cid)
            items = [] if item is None else [item]
        else:
            items = list(server.plane.connections(handle))
            total = len(items)
        rows = [_open_row(server, i) for i in items]
    if wanted.state is not State.OPEN:
        ended = closed.kept()
        if account is not None:
            ended = [e for e in ended if e.connection.account == account]
        total += len(ended)
        rows += [Row(e.connection, e.stop) for e in ended]
    if wanted.cid:
        rows = [r for r in rows if r.c.cid == wanted.cid]
    return total, rows


def _listening(server: Server, account: str, subject: str) -> set[int]:
    """Connections of an account that subscribe to something that overlaps with the subject."""
    wanted = subject.encode("utf-8", "surrogateescape")
    found = server.plane.subscriptions(server.accounts[account], overlapping=wanted)
    return {item.cid for item in chain.from_iterable(found)}


def _open_row(server: Server, item: Item) -> Row:
    c = read_connection(item)
    server.complete(c)
    return Row(c, 0)


def rtt_text(ns: int) -> str:
    """A round trip; between a microsecond and a millisecond in whole microseconds."""
    if MICROSECOND < ns < MILLISECOND:
        ns -= ns % MICROSECOND
    return duration(ns)


def _info(row: Row, accounts: Accounts, auth: bool) -> ConnInfo:
    c = row.c
    account = accounts.name_of(c.account)
    info = ConnInfo(
        cid=c.cid,
        type=c.type,
        ip=c.ip,
        port=c.port,
        start=rfc3339_nano(c.start),
        last_activity=rfc3339_nano(c.last_activity),
        rtt=rtt_text(c.rtt),
        uptime=uptime(max(row.end - c.start, 0)),
        idle=uptime(max(row.end - c.last_activity, 0)),
        pending_bytes=c.pending,
        in_msgs=c.in_msgs,
        out_msgs=c.out_msgs,
        in_bytes=c.in_bytes,
        out_bytes=c.out_bytes,
        stalls=c.stalls,
        subscriptions=c.subscriptions,
        name=c.name,
        lang=c.lang,
        version=c.version,
    )
    if (secured := read_secured(c.secured)) is not None:
        info.tls_version = secured.version
        info.tls_cipher_suite = secured.cipher_suite
        info.tls_first = secured.first
        if auth:
            info.tls_peer_certs = [
                PeerCert(subject_text(cert.subject), cert.key_digest, cert.digest)
                for cert in secured.certificates
            ]
    if row.stop:
        info.stop = rfc3339_nano(row.stop)
        info.reason = c.shown_reason
    if auth:
        info.authorized_user = clean(c.user)
        info.account = "" if account == GLOBAL_ACCOUNT else account
        info.jwt, info.issuer_key, info.tags = c.jwt, c.issuer, list(c.tags)
        if info.account or not row.stop:
            info.name_tag = accounts.tag_of(account)
    if c.proxy:
        info.proxy = ProxyInfo(c.proxy)
    return info


def _add_subscriptions(server: Server, wanted: Wanted, shown: list[ConnInfo]) -> None:
    """Gives open connections their subscriptions; closed ones have none any more."""
    open_ones = {info.cid: info for info in shown if not info.stop}
    if not open_ones:
        return
    only = server.accounts[wanted.account] if wanted.account else None
    found = server.plane.subscriptions(only, cids=open_ones)
    for _, cid, numbers, (subject, queue, sid) in chain.from_iterable(found):
        info = open_ones[cid]
        if not wanted.detail:
            info.subscriptions_list.append(subject.decode("utf-8", "replace"))
            continue
        num = SubNumbers(*numbers)
        info.subscriptions_list_detail.append(sub_detail(cid, num, subject, queue, sid))


def sub_detail(cid: int, num: SubNumbers, subject: bytes, queue: bytes, sid: bytes) -> SubDetail:
    """A subscription of the data plane's snapshot, without its account."""
    return SubDetail(
        subject=subject.decode("utf-8", "replace"),
        qgroup=queue.decode("utf-8", "replace"),
        sid=sid.decode("utf-8", "replace"),
        msgs=num.delivered,
        max=num.max,
        cid=cid,
    )
