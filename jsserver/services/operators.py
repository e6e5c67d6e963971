"""Requests of the system account's users: monitoring pages of the server and of each account, and
actions on connections.

Loaded with the first such request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from jsserver.access.clients import CLOSE_CODES
from jsserver.config.values import not_available
from jsserver.instances.backend import StoreError
from jsserver.monitor import (
    accountz,
    connz,
    digests,
    gatewayz,
    healthz,
    insides,
    jsz,
    leafz,
    raftz,
    routez,
    statsz,
    subsz,
    varz,
)
from jsserver.monitor.process import ProcessUsage
from jsserver.monitor.query import BadParameter, Paging
from jsserver.services.answers import Answer, Failure, ServerFilter, ServerInfo
from jsserver.services.subjects import OF_A_SERVER, OF_AN_ACCOUNT
from jsserver.text.goformat import quote
from jsserver.wire.decode import Unreadable, parse
from jsserver.wire.types import Int64, Uint64, Wire, always

if TYPE_CHECKING:
    from jsserver.services.watched import Watched

Asked = TypeVar("Asked", bound=ServerFilter)
Made = msgspec.Struct | dict[str, insides.QueueInfo] | raftz.Raftz
"""What a request is answered with."""


class Connections(ServerFilter):
    """The parameters of CONNZ; `state`: 0 open, 1 closed, 2 all."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: Int64 = 0
    limit: Int64 = 0
    cid: Uint64 = 0
    mqtt_client: str = ""
    state: Int64 = 0
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


class Subscriptions(ServerFilter):
    """The parameters of SUBSZ."""

    offset: Int64 = 0
    limit: Int64 = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


class Routes(ServerFilter):
    """The parameters of ROUTEZ."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


class GatewayPage(ServerFilter):
    """The parameters of GATEWAYZ."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


class Leafs(ServerFilter):
    """The parameters of LEAFZ."""

    account: str = ""
    subscriptions: bool = False


class OfAccount(ServerFilter):
    """The parameters of pages that may be about one account."""

    account: str = ""


class Streams(ServerFilter):
    """The parameters of JSZ."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: Int64 = 0
    limit: Int64 = 0
    raft: bool = False
    stream_leader_only: bool = False


class Digest(ServerFilter):
    """The parameters of JSSERVER.DIGEST."""

    account: str = ""
    stream: str = ""
    first: Uint64 = 1
    last: Uint64 = 0
    chunk: Uint64 = digests.CHUNK


class Rebuild(ServerFilter):
    """The parameters of JSSERVER.REBUILD."""

    account: str = ""
    stream: str = ""


class RaftGroups(ServerFilter):
    """The parameters of RAFTZ."""

    account: str = ""
    group: str = ""


class Health(ServerFilter):
    """The parameters of HEALTHZ."""

    enabled: bool = msgspec.field(name="js-enabled", default=False)
    enabled_only: bool = msgspec.field(name="js-enabled-only", default=False)
    server_only: bool = msgspec.field(name="js-server-only", default=False)
    meta_only: bool = msgspec.field(name="js-meta-only", default=False)
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class Statistics(ServerFilter):
    """The parameters of STATZ."""

    accounts: list[str] = msgspec.field(default_factory=list)
    include_unused: bool = False


class Queues(ServerFilter):
    """The parameters of IPQUEUESZ."""

    all: bool = False
    filter: str = ""


class Profile(ServerFilter):
    """The parameters of PROFILEZ; the duration in ns."""

    name: str = ""
    debug: Int64 = 0
    duration: Int64 = 0


class ProfileOverWire(Wire):
    """The answer to PROFILEZ: always an error, because there are no profiles of Go's runtime."""

    profile: str | None = always(None)
    error: str = always("")


class OfConnection(msgspec.Struct):
    """The connection that an action is for."""

    cid: Uint64 = 0


class Stats(Wire):
    """The answer to STATSZ."""

    server: ServerInfo
    statsz: statsz.Statsz


class Name(Wire):
    """The answer to IDZ."""

    name: str
    host: str
    id: str


class HealthOverWire(Wire):
    """HEALTHZ, whose answer has no HTTP status beside it."""

    status: str
    status_code: int
    error: str = ""
    errors: list[healthz.HealthError] = msgspec.field(default_factory=list)


class Refused(Exception):
    """A request that cannot be answered or carried out; the text says why."""


def connections(server: Watched, asked: Connections) -> msgspec.Struct:
    """CONNZ."""
    if asked.filter_subject and not asked.acc:
        raise Refused("filter by subject only valid with account filtering")
    if not 0 <= asked.state <= 2:
        return connz.empty(server, time.time_ns())
    wanted = connz.Wanted(
        account=asked.acc,
        sort=asked.sort,
        auth=asked.auth,
        subs=asked.subscriptions or asked.subscriptions_detail,
        detail=asked.subscriptions_detail,
        paging=Paging(asked.offset, asked.limit),
        cid=asked.cid,
        mqtt_client=asked.mqtt_client,
        state=(connz.State.OPEN, connz.State.CLOSED, connz.State.ANY)[asked.state],
        user=asked.user,
        filter_subject=asked.filter_subject,
    )
    return connz.connz(server, server.closed, wanted, time.time_ns())


def _subscriptions(server: Watched, asked: Subscriptions) -> msgspec.Struct:
    wanted = subsz.Wanted(
        account=asked.account,
        subs=asked.subscriptions,
        paging=Paging(asked.offset, asked.limit),
        test=asked.test,
    )
    return subsz.subsz(server, wanted, time.time_ns())


def _routes(server: Watched, asked: Routes) -> msgspec.Struct:
    detail = asked.subscriptions_detail
    wanted = routez.Wanted(subs=asked.subscriptions or detail, detail=detail)
    return routez.routez(server, wanted, time.time_ns())


def _gateways(server: Watched, asked: GatewayPage) -> msgspec.Struct:
    wanted = gatewayz.Wanted(
        name=asked.name,
        accounts=asked.accounts or bool(asked.account_name),
        account=asked.account_name,
        subs=asked.subscriptions,
        detail=asked.subscriptions_detail,
    )
    return gatewayz.gatewayz(server, wanted, time.time_ns())


def _raft_groups(server: Watched, asked: RaftGroups) -> raftz.Raftz:
    return raftz.raftz(server, raftz.Wanted(asked.account, asked.group)) or {}


def _leafs(server: Watched, asked: Leafs) -> msgspec.Struct:
    wanted = leafz.Wanted(subs=asked.subscriptions, account=asked.account)
    return leafz.leafz(server, wanted, time.time_ns())


def _streams(server: Watched, asked: Streams) -> jsz.Jsz:
    wanted = jsz.Wanted(
        account=asked.account,
        accounts=asked.accounts,
        streams=asked.streams,
        consumers=asked.consumer,
        direct=asked.direct_consumer,
        config=asked.config,
        paging=Paging(asked.offset, asked.limit),
        raft=asked.raft,
        leader_only=asked.leader_only,
        led_only=asked.stream_leader_only,
    )
    return jsz.jsz(server, wanted, time.time_ns())


def _digest(server: Watched, asked: Digest) -> msgspec.Struct:
    jetstream = server.jetstream
    account = None if jetstream is None else jetstream.dispatcher.accounts.get(asked.account)
    stream = None if account is None else account.streams.get(asked.stream)
    if stream is None:
        raise Refused("stream not found")
    try:
        wanted = digests.Wanted(asked.first, asked.last, asked.chunk)
        return digests.digests(stream.handle, wanted)
    except StoreError as error:
        raise Refused(f"stream cannot be read: {error}") from None


def _rebuild(server: Watched, asked: Rebuild) -> dict[str, insides.QueueInfo]:
    if server.meta is None:
        raise Refused("this server is no member of a JetStream cluster")
    if why := server.meta.holdings.rebuild(asked.account, asked.stream):
        raise Refused(why)
    return {}


def _health(server: Watched, asked: Health) -> msgspec.Struct:
    wanted = healthz.Wanted(
        enabled=asked.enabled,
        enabled_only=asked.enabled_only,
        server_only=asked.server_only,
        meta_only=asked.meta_only,
        details=asked.details,
        account=asked.account,
        stream=asked.stream,
        consumer=asked.consumer,
    )
    code, page = healthz.healthz(server, wanted)
    return HealthOverWire(
        status=page.status, status_code=code, error=page.error, errors=page.errors
    )


def _queues(server: Watched, asked: Queues) -> dict[str, insides.QueueInfo]:
    return insides.waiting(server.waiting(), everything=asked.all, name=asked.filter)


def _profile(server: Watched, asked: Profile) -> msgspec.Struct:
    if not asked.name:
        return ProfileOverWire(error="Profile name not specified")
    return ProfileOverWire(error=not_available(f"the profile {quote(asked.name)}"))


def statistics(server: Watched, asked: Statistics, only: list[str]) -> msgspec.Struct | None:
    """STATZ of the named accounts, or of all; None: there is nothing to report."""
    page = accountz.accstatz(server, server.closed, asked.include_unused, time.time_ns())
    if only:
        page.account_statz = [row for row in page.account_statz if row.acc in only]
    return page if page.account_statz else None


def _account_streams(server: Watched, asked: Streams) -> msgspec.Struct:
    name = asked.account
    if name not in server.accounts:
        raise Refused(f"account {quote(name)} not found")
    page = _streams(server, asked)
    if not page.account_details:
        raise Refused(f"account {quote(name)} not jetstream enabled")
    return page.account_details[0]


class Operators:
    """Answers requests one at a time, in a thread of `System`."""

    def __init__(self, server: Watched) -> None:
        self._server = server
        self._usage = ProcessUsage()

    def answer(self, subject: str, payload: bytes) -> msgspec.Struct | None:
        """The answer to a request; None: it is for other servers."""
        if subject.startswith(OF_AN_ACCOUNT):
            account, _, page = subject[len(OF_AN_ACCOUNT) :].rpartition(".")
            return self._told(lambda: self._of_account(account, page, payload))
        _, _, page = subject[len(OF_A_SERVER) :].partition(".")
        return self._told(lambda: self._of_server(page, payload))

    def answer_within(self, account: str, subject: str, payload: bytes) -> msgspec.Struct | None:
        """As answer(), for an account's request about itself."""
        _, _, page = subject.rpartition(".")
        return self._told(lambda: self._of_account(account, page, payload))

    def _told(self, make: Callable[[], Made | None]) -> msgspec.Struct | None:
        """The answer with what `make` returns, or with the reason why it failed."""
        answer = Answer(server=self._server.identity.info())
        try:
            found = make()
        except Unreadable as error:
            answer.error = Failure(code=400, description=str(error))
            return answer
        except jsz.NotLeader:
            return None
        except (BadParameter, Refused) as error:
            answer.data = None
            answer.error = Failure(code=500, description=str(error))
            return answer
        if isinstance(found, Stats | Name | Answer):
            return found
        if found is None:
            return None
        answer.data = found
        return answer

    def _asked(self, payload: bytes, kind: type[Asked]) -> Asked | None:
        """The parameters; None: the request is for other servers."""
        asked = parse(payload, kind, strict=False)
        return asked if self._server.identity.is_meant(asked) else None

    def _of_server(self, page: str, payload: bytes) -> Made | None:
        server = self._server
        match page:
            case "CONNZ":
                return self._page(payload, Connections, connections)
            case "SUBSZ":
                return self._page(payload, Subscriptions, _subscriptions)
            case "JSZ":
                return self._page(payload, Streams, _streams)
            case "HEALTHZ":
                return self._page(payload, Health, _health)
            case "ACCOUNTZ":
                return self._page(payload, OfAccount, self._accounts)
            case "VARZ":
                return self._page(payload, ServerFilter, self._varz)
            case "ROUTEZ":
                return self._page(payload, Routes, _routes)
            case "GATEWAYZ":
                return self._page(payload, GatewayPage, _gateways)
            case "LEAFZ":
                return self._page(payload, Leafs, _leafs)
            case "RAFTZ":
                return self._page(payload, RaftGroups, _raft_groups)
            case "IPQUEUESZ":
                return self._page(payload, Queues, _queues)
            case "EXPVARZ":
                return self._page(payload, ServerFilter, self._variables)
            case "PROFILEZ":
                return self._page(payload, Profile, _profile)
            case "" | "STATSZ":
                return self._page(payload, ServerFilter, self._stats)
            case "IDZ":
                return Name(name=server.name, host=server.options.host, id=server.id)
            case "JSSERVER.DIGEST":
                return self._page(payload, Digest, _digest)
            case "JSSERVER.REBUILD":
                return self._page(payload, Rebuild, _rebuild)
            case "KICK" | "LDM":
                return self._control(page, payload)
        return None

    def _page(
        self,
        payload: bytes,
        kind: type[Asked],
        make: Callable[[Watched, Asked], Made | None],
    ) -> Made | None:
        asked = self._asked(payload, kind)
        return None if asked is None else make(self._server, asked)

    def _of_account(self, account: str, page: str, payload: bytes) -> Made | None:
        server = self._server
        match page:
            case "CONNZ":
                about = self._asked(payload, Connections)
                return about and connections(server, msgspec.structs.replace(about, acc=account))
            case "SUBSZ":
                subs = self._asked(payload, Subscriptions)
                return subs and _subscriptions(
                    server,
                    msgspec.structs.replace(subs, account=account, subscriptions=True),
                )
            case "JSZ":
                streams = self._asked(payload, Streams)
                return streams and _account_streams(
                    server, msgspec.structs.replace(streams, account=account)
                )
            case "LEAFZ":
                leafs = self._asked(payload, Leafs)
                return leafs and _leafs(server, msgspec.structs.replace(leafs, account=account))
            case "INFO":
                asked = self._asked(payload, OfAccount)
                return asked and self._accounts(server, OfAccount(account=account)).account_detail
            case "STATZ":
                stats = self._asked(payload, Statistics)
                if stats is None:
                    return None
                only = stats.accounts if account == "PING" else [account]
                return statistics(server, stats, only)
        return None

    def _accounts(self, server: Watched, asked: OfAccount) -> accountz.Accountz:
        return accountz.accountz(server, asked.account, time.time_ns())

    def _varz(self, server: Watched, asked: ServerFilter) -> msgspec.Struct:
        requests = dict(server.page_requests)
        return varz.varz(server, self._usage, requests, time.time_ns())

    def _variables(self, server: Watched, asked: ServerFilter) -> msgspec.Struct:
        return insides.debug_vars(self._usage)

    def _stats(self, server: Watched, asked: ServerFilter) -> msgspec.Struct:
        return Stats(server=server.identity.info(), statsz=statsz.statsz(server, self._usage))

    def _control(self, what: str, payload: bytes) -> msgspec.Struct | None:
        server = self._server
        done = Answer(server=server.identity.info())
        if not payload:
            return None
        try:
            cid = parse(payload, OfConnection, strict=False).cid
        except Unreadable:
            return None  # as nats-server, which tells its log alone
        if what == "KICK":
            is_there = server.plane.connection(cid) is not None or any(
                leaf.cid == cid for leaf in server.plane.leafs()
            )
            if not is_there or not server.plane.close_connection(cid, CLOSE_CODES["Kicked"]):
                text = "no such client or leafnode id"
                done.error = Failure(code=500, description=text)
        elif server.plane.connection(cid) is None:
            done.error = Failure(code=500, description="no such client id")
        elif not server.plane.send_elsewhere(cid):
            text = "client does not support Lame Duck Mode or is not ready to receive the"
            done.error = Failure(code=500, description=f"{text} notification")
        return done
