"""`/accountz` and `/accstatz`: accounts and what their connections moved."""

from typing import TYPE_CHECKING, Any

import msgspec

from jsserver.cext.engine import ConnNumbers
from jsserver.monitor.closed import ClosedConnections
from jsserver.monitor.query import BadParameter
from jsserver.monitor.shared import (
    DestinationInfo,
    ExportInfo,
    ImportInfo,
    exports_of,
    imports_of,
    mappings_of,
)
from jsserver.monitor.sources import Server
from jsserver.monitor.subsz import SublistStats, sublist_stats
from jsserver.text.goformat import SECOND, rfc3339_nano
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.links.leafmodel import LeafLink


class IssueInfo(Wire):
    """Something that is wrong with an account's token."""

    description: str
    blocking: bool
    time_check: bool


class AccountInfo(Wire):
    """An account."""

    account_name: str
    update_time: str
    is_system: bool = False
    expired: bool = always(False)
    complete: bool = always(True)
    jetstream_enabled: bool = always(False)
    leafnode_connections: int = always(0)
    client_connections: int = always(0)
    subscriptions: int = always(0)
    mappings: dict[str, list[DestinationInfo]] = msgspec.field(default_factory=dict)
    exports: list[ExportInfo] = msgspec.field(default_factory=list)
    imports: list[ImportInfo] = msgspec.field(default_factory=list)
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    decoded_jwt: dict[str, Any] = msgspec.field(default_factory=dict)
    validation_result_jwt: list[IssueInfo] = msgspec.field(default_factory=list)
    revoked_user: dict[str, str] = msgspec.field(default_factory=dict)
    sublist_stats: SublistStats | None = None


class Accountz(Wire):
    """The page `/accountz`."""

    server_id: str
    now: str
    system_account: str = ""
    accounts: list[str] = msgspec.field(default_factory=list)
    account_detail: AccountInfo | None = None


class Moved(Wire):
    """Messages and bytes."""

    msgs: int = always(0)
    bytes: int = always(0)


class Data(Moved):
    """Messages and bytes of clients, and by kind of the other peers, of which there are none."""

    gateways: Moved = always(Moved())
    routes: Moved = always(Moved())
    leafs: Moved = always(Moved())


class AccountStat(Wire):
    """An account's connections; `sent` is what the server sent to them."""

    acc: str
    name: str
    conns: int = always(0)
    leafnodes: int = always(0)
    total_conns: int = always(0)
    num_subscriptions: int = always(0)
    sent: Data = always(Data())
    received: Data = always(Data())
    slow_consumers: int = always(0)


class Accstatz(Wire):
    """The page `/accstatz`."""

    server_id: str
    now: str
    account_statz: list[AccountStat] = always([])


def accountz(server: Server, wanted: str, now: int) -> Accountz:
    """The names of all accounts, or with one `wanted` that account; BadParameter."""
    page = Accountz(
        server_id=server.id, now=rfc3339_nano(now), system_account=server.system_account
    )
    if not wanted:
        page.accounts = list(server.accounts)
        return page
    if wanted not in server.accounts:
        raise BadParameter(f"Account {wanted} does not exist")
    handle = server.accounts[wanted]
    stats = sublist_stats([handle])
    jetstream = server.jetstream
    page.account_detail = AccountInfo(
        account_name=wanted,
        update_time=rfc3339_nano(server.config_loaded),
        is_system=wanted == server.system_account,
        jetstream_enabled=jetstream is not None and wanted in jetstream.dispatcher.accounts,
        leafnode_connections=len(leafs_of(server, wanted)),
        client_connections=len(server.plane.connections(handle)),
        subscriptions=stats.num_subscriptions,
        name_tag=server.accounts.tag_of(wanted),
        sublist_stats=stats,
    )
    _add_shared(server, wanted, page.account_detail)
    _add_claims(server, wanted, page.account_detail, now)
    return page


def leafs_of(server: Server, account: str) -> "list[LeafLink]":
    """The account's open connections to leaf nodes and hubs."""
    return [link for link in server.leafs() if link.account == account]


def _add_shared(server: Server, account: str, info: AccountInfo) -> None:
    """What it has to do with others, and maps."""
    sharing, mappings = server.shared(account)
    info.mappings = mappings_of(mappings)
    if sharing is not None:
        info.exports, info.imports = exports_of(sharing, account), imports_of(sharing, account)


def _add_claims(server: Server, account: str, info: AccountInfo, now: int) -> None:
    """What its token says, if it has one, and what is wrong with that."""
    found = server.claims(account)
    if found is None:
        return
    from jsserver.jwt.shown import shown  # who has no tokens goes without
    from jsserver.jwt.validation import issues_of

    claims, info.jwt = found
    seconds = now // SECOND
    info.issuer_key, info.tags = claims.iss, claims.nats.tags
    info.expired = 0 < claims.exp <= seconds
    info.decoded_jwt = shown(claims)
    info.validation_result_jwt = [
        IssueInfo(description=issue.text, blocking=issue.blocking, time_check=issue.of_time)
        for issue in issues_of(claims, seconds)
    ]
    info.revoked_user = _moments(claims.nats.revocations)
    exports: dict[tuple[str, str], dict[str, int]] = {
        (export.type, export.subject): export.revocations for export in claims.nats.exports
    }
    for export in info.exports:
        export.revoked_activations = _moments(exports.get((export.type, export.subject), {}))


def _moments(revocations: dict[str, int]) -> dict[str, str]:
    """Seconds since the epoch as texts."""
    return {key: rfc3339_nano(at * SECOND) for key, at in revocations.items()}


def accstatz(server: Server, closed: ClosedConnections, unused: bool, now: int) -> Accstatz:
    """What the connections of each account moved; with `unused` of accounts without any too."""
    stats = {}
    joined = {server.accounts[link.account].id for link in server.leafs()}
    for name, handle in server.accounts.items():
        ended = closed.totals(handle.id)
        sent = Data(msgs=ended.out_msgs, bytes=ended.out_bytes)
        received = Data(msgs=ended.in_msgs, bytes=ended.in_bytes)
        stats[handle.id] = AccountStat(
            acc=name,
            name=server.accounts.tag_of(name),
            num_subscriptions=int(handle.sublist()["subs"]),
            sent=sent,
            received=received,
            slow_consumers=ended.slow_consumers,
        )
    for item in server.plane.connections():
        c = ConnNumbers(*item.numbers)
        stat = stats.get(c.account)
        if stat is None:  # made meanwhile
            continue
        stat.conns += 1
        stat.total_conns += 1
        stat.sent.msgs += c.out_msgs
        stat.sent.bytes += c.out_bytes
        stat.received.msgs += c.in_msgs
        stat.received.bytes += c.in_bytes
    for item in server.plane.leafs():
        c = ConnNumbers(*item.numbers)
        if (stat := stats.get(c.account)) is not None and c.account in joined:
            stat.leafnodes += 1
            stat.total_conns += 1
            _add_leaf(stat.sent, c.out_msgs, c.out_bytes)
            _add_leaf(stat.received, c.in_msgs, c.in_bytes)
    shown = [s for s in stats.values() if s.total_conns or unused]
    return Accstatz(server_id=server.id, now=rfc3339_nano(now), account_statz=shown)


def _add_leaf(data: Data, msgs: int, size: int) -> None:
    data.msgs += msgs
    data.bytes += size
    data.leafs = Moved(msgs=data.leafs.msgs + msgs, bytes=data.leafs.bytes + size)
