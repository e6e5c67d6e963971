"""Requests to the system that every client may make: who am I, and what does my account do here.

nats-server's system account offers these few services to every account; the others are for its own
users. What is told concerns the asker's account alone.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from jsserver import NATS_VERSION
from jsserver.access.auth import Admission
from jsserver.cext.engine import Item
from jsserver.config.options import Permissions, SubjectPermission
from jsserver.services.subjects import STATISTICS, USER_INFO
from jsserver.text.goformat import escape_json, rfc3339_nano
from jsserver.wire.decode import Unreadable, parse
from jsserver.wire.types import FeatureFlags, Int64, Uint64, Wire, always

if TYPE_CHECKING:
    from jsserver.server import Server

PENDING_MAX = 256
"""Requests that wait for an answer; more are dropped, as by a server that is too busy."""

WITH_JETSTREAM = 7
"""The capability bits of a server whose JetStream is on."""


class ServerInfo(Wire):
    """Which server answers."""

    name: str
    host: str
    id: str
    domain: str = ""
    ver: str = always(NATS_VERSION)
    tags: list[str] = msgspec.field(default_factory=list)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    feature_flags: FeatureFlags = always(FeatureFlags())
    jetstream: bool = always(False)
    flags: int = always(0)
    seq: int = always(0)
    time: str = always("")


class Failure(Wire):
    """Why there is no answer."""

    code: int
    description: str


class Answer(Wire):
    """What goes to the asker: `data` or `error`."""

    server: ServerInfo
    data: msgspec.Struct | None = None
    error: Failure | None = None


class SubjectRules(Wire):
    """What may be published or subscribed to."""

    allow: list[str] = msgspec.field(default_factory=list)
    deny: list[str] = msgspec.field(default_factory=list)


class ResponseRules(Wire):
    """Leave to answer: how often, and for how long in ns."""

    max: int = always(0)
    ttl: int = always(0)


class PermissionRules(Wire):
    """The permissions of a user."""

    publish: SubjectRules | None = None
    subscribe: SubjectRules | None = None
    responses: ResponseRules | None = None


class UserInfo(Wire):
    """Who the asker is."""

    user: str = always("")
    account: str = always("")
    account_name: str = always("")
    permissions: PermissionRules | None = None


class ServerFilter(msgspec.Struct):
    """Which servers shall answer; "" and no tags: all."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    domain: str = ""
    exact_match: bool = False
    tags: list[str] = []


class ConnectionsRequest(ServerFilter):
    """The parameters of /connz; `state`: 0 open, 1 closed, 2 all."""

    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: Int64 = 0
    limit: Int64 = 0
    cid: Uint64 = 0
    state: Int64 = 0
    user: str = ""


class StatisticsRequest(ServerFilter):
    """The parameters of /accstatz."""

    include_unused: bool = False


class System:
    """Answers in a thread of its own, so that a page of many connections holds nothing up."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pool = ThreadPoolExecutor(1, "system")
        self._pending = 0
        self._seq = 0

    def close(self) -> None:
        """Answers nothing more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def request(self, item: Item) -> None:
        """One request, as it comes out of the inbox."""
        _, cid, (account_id,), (subject, reply, _, payload) = item
        if not reply or self._pending >= PENDING_MAX:
            return
        account = self._server.accounts.name_of(account_id)
        self._pending += 1
        loop = asyncio.get_running_loop()
        who = self._server.inbox.admissions.get(cid)
        work = loop.run_in_executor(
            self._pool, self._answer, subject.decode(), account, who, payload
        )
        work.add_done_callback(lambda done: self._done(account, reply, done))

    def _done(self, account: str, reply: bytes, done: asyncio.Future[bytes]) -> None:
        self._pending -= 1
        if not done.cancelled() and done.result():
            self._server.accounts[account].publish(reply, b"", b"", done.result())

    def _answer(self, subject: str, account: str, who: Admission | None, payload: bytes) -> bytes:
        """The bytes of an answer; none where the request is for other servers."""
        from jsserver.monitor.query import BadParameter

        answer = Answer(server=self._info())
        try:
            if subject == USER_INFO:
                answer.data = _user(account, who)
            elif subject == STATISTICS:
                answer.data = self._statistics(account, payload)
            else:
                answer.data = self._connections(account, payload)
        except (BadParameter, Unreadable) as error:
            answer.error = Failure(code=400, description=str(error))
        if answer.data is None and answer.error is None:
            return b""
        return escape_json(msgspec.json.encode(answer))

    def _info(self) -> ServerInfo:
        server = self._server
        self._seq += 1
        enabled = server.jetstream is not None
        return ServerInfo(
            name=server.name,
            host=server.options.host,
            id=server.id,
            domain=server.options.jetstream.domain,
            tags=server.options.server_tags,
            metadata=server.options.server_metadata,
            jetstream=enabled,
            flags=WITH_JETSTREAM if enabled else 0,
            seq=self._seq,
            time=rfc3339_nano(time.time_ns()),
        )

    def _wanted(self, options: ServerFilter) -> bool:
        """Whether this server is among those that are asked."""
        server = self._server
        if options.cluster or options.domain not in ("", server.options.jetstream.domain):
            return False
        for asked, own in ((options.server_name, server.name), (options.host, server.options.host)):
            if asked and asked != own and (options.exact_match or asked not in own):
                return False
        return set(options.tags) <= set(server.options.server_tags)

    def _connections(self, account: str, raw: bytes) -> msgspec.Struct | None:
        from jsserver.monitor.connz import connz
        from jsserver.monitor.query import BadParameter, Query

        options = parse(raw, ConnectionsRequest, strict=False)
        if not self._wanted(options):
            return None
        if not 0 <= options.state <= 2:
            raise BadParameter(f"invalid connection state: {options.state}")
        asked = {
            "acc": account,
            "sort": options.sort,
            "auth": "1" if options.auth else "",
            "subs": "detail" if options.subscriptions_detail else "1" * options.subscriptions,
            "offset": str(options.offset),
            "limit": str(options.limit),
            "cid": str(options.cid),
            "state": ("open", "closed", "all")[options.state],
            "user": options.user,
        }
        return connz(self._server, self._server.closed, Query.of(asked), time.time_ns())

    def _statistics(self, account: str, raw: bytes) -> msgspec.Struct | None:
        from jsserver.monitor.accountz import accstatz
        from jsserver.monitor.query import Query

        options = parse(raw, StatisticsRequest, strict=False)
        if not self._wanted(options):
            return None
        query = Query.of({"unused": "1" if options.include_unused else ""})
        page = accstatz(self._server, self._server.closed, query, time.time_ns())
        page.account_statz = [row for row in page.account_statz if row.acc == account]
        return page


def _user(account: str, who: Admission | None) -> UserInfo:
    info = UserInfo(account=account, account_name=account)
    if who is not None:
        info.user = who.user
        info.permissions = None if who.rules is None else _rules(who.rules)
    return info


def _rules(permissions: Permissions) -> PermissionRules:
    def rules(of: SubjectPermission | None) -> SubjectRules | None:
        return None if of is None else SubjectRules(allow=of.allow or [], deny=of.deny or [])

    responses = permissions.responses
    return PermissionRules(
        publish=rules(permissions.publish),
        subscribe=rules(permissions.subscribe),
        responses=None
        if responses is None
        else ResponseRules(max=responses.max, ttl=responses.ttl),
    )
