"""Reads the data plane's inbox, and hands each item to the service in charge."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from jsserver.access.accounts import Accounts
from jsserver.access.auth import Admission, Authenticator
from jsserver.access.clientlog import ClientLog
from jsserver.access.clients import (
    CLOSE_CODES,
    Connect,
    Connection,
    decode_connect,
    gave_up,
    is_leaf,
    kind_of,
    read_connection,
)
from jsserver.access.refusal import Refused
from jsserver.cext import engine
from jsserver.cext.engine import Item
from jsserver.config.options import Options
from jsserver.process.logs import Logger
from jsserver.process.tasks import Tasks
from jsserver.text.goformat import quote

HASHING = max((os.cpu_count() or 1) // 2, 1)
"""Passwords that are hashed at the same time: logins may take half of the machine at most."""

if TYPE_CHECKING:
    from jsserver.access.websocket import Websockets
    from jsserver.services.gateways import GatewayService
    from jsserver.services.leafs import LeafService
    from jsserver.services.measured import Measured
    from jsserver.services.routes import Routes


Outcome = Admission | Refused | None
"""The outcome of a login; None: refused for a wrong login."""


class Linked(Protocol):
    """The service for one kind of links to other servers. A link may fail and end before it
    opens."""

    def failed(self, item: Item) -> None:
        """An INBOX_ERROR of such a link."""

    def ended(self, item: Item) -> None:
        """An INBOX_CLOSED of such a link."""


class Finished:
    """Reports finished requests to the data plane, together at the end of a turn of the event loop.

    The data plane reads no further from a connection with many unfinished requests.
    """

    def __init__(self, plane: engine.DataPlane) -> None:
        self.plane = plane
        self._counts: Counter[int] = Counter()

    def __call__(self, cid: int, cost: int) -> None:
        """Notes a finished request; `cost`: its weight, the request's second number."""
        if not self._counts:
            asyncio.get_running_loop().call_soon(self._report)
        self._counts[cid] += cost

    def _report(self) -> None:
        counts, self._counts = self._counts, Counter()
        with suppress(engine.PlaneClosed):  # all connections are closed then
            for cid, count in counts.items():
                self.plane.requests_done(cid, count)


class _Gone(Exception):
    """The connection ended before its login was decided."""


class Inbox:
    """Drains the data plane's inbox in the event loop and dispatches its items.

    `on_request`: gets JetStream API requests; `on_event`: news of streams and consumers;
    `on_connected`: admitted clients with their accounts; `on_closed`: every ended connection,
    whether it was an admitted client's, and the reason of a refused login, except a wrong password.
    """

    def __init__(
        self,
        plane: engine.DataPlane,
        log: Logger,
        authenticator: Authenticator,
        options: Options,
        accounts: Accounts,
        websockets: Websockets | None,
        routes: Routes | None,
        leafs: LeafService | None,
        gateways: GatewayService | None,
        *,
        on_request: Callable[[Item], None],
        on_event: Callable[[Item], None],
        on_connected: Callable[[int, str], None],
        on_closed: Callable[[Connection, bool, Refused | None], None],
    ) -> None:
        self.plane = plane
        self.log = log
        self.accounts = accounts
        self.authenticator = authenticator
        self.on_request = on_request
        self.on_event = on_event
        self.on_connected = on_connected
        self.on_connect: Callable[[Item, Connect], None] | None = None
        """Decides about connections in the authenticator's place."""
        self.on_delegate: Callable[[Item, Connect, Admission | None], None] | None = None
        """Decides about connections that the authenticator delegates; gets the admission that the
        authenticator would give."""
        self.on_peer: Callable[[Item], None] | None = None
        """Decides about clients' certificates."""
        self.measured: Measured | None = None
        """Reports the answers that other servers measure, too; None: there are none."""
        self.on_closed = on_closed
        self.admissions: dict[int, Admission] = {}
        """Who is behind each connection, while authentication is configured."""
        self._refusals: dict[int, Refused] = {}
        """Why connections were refused, until their INBOX_CLOSED."""
        self.websockets = websockets
        self.lines = ClientLog(log, options, accounts, self.admissions.get, websockets)
        self._dropped = 0
        self._checks = Tasks()
        self._passwords = ThreadPoolExecutor(HASHING, "password")
        self._handlers: dict[int, Callable[[Item], None]] = {
            engine.INBOX_REQUEST: on_request,
            engine.INBOX_CONNECT: self._connect,
            engine.INBOX_OPENED: self.lines.opened,
            engine.INBOX_CLOSED: self._closed,
            engine.INBOX_VIOLATION: self._violation,
            engine.INBOX_TRACE: self.lines.trace,
            engine.INBOX_ERROR: self._error,
            engine.INBOX_LOG: self._log_line,
            engine.INBOX_LATENCY: self._latency,
            engine.INBOX_MEASURED: self._measured,
            engine.INBOX_PEER: self._peer,
        }
        self._links: dict[int, Linked] = {}
        """The services for links to other servers, by kind of link."""
        if routes is not None:
            self._handlers[engine.INBOX_LINK] = routes.said
            self._links[engine.ROUTE_KIND] = routes
        self.leafs: LeafService | None = None
        if leafs is not None:
            self.lead_leafs(leafs)
        if gateways is not None:
            self._handlers[engine.INBOX_GATEWAY] = gateways.said
            self._links[engine.GATEWAY_KIND] = gateways
        self._handlers[engine.INBOX_UPGRADE] = self._upgrade

    def lead_leafs(self, leafs: LeafService) -> None:
        """Sets the service for leaf nodes and hubs."""
        self.leafs = leafs
        self._handlers[engine.INBOX_LEAF] = leafs.said
        self._links[engine.LEAF_KIND] = self._links[engine.HUB_KIND] = leafs
        leafs.ask = self._connect
        if self.websockets is not None and leafs.accepts:
            self.websockets.on_leaf = leafs.framed

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self.plane.inbox_fd, self.drain)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.plane.inbox_fd)
        self._checks.cancel()
        self._passwords.shutdown(wait=False, cancel_futures=True)

    def drain(self) -> None:
        for item in self.plane.drain():
            try:
                self._handlers.get(item.kind, self.on_event)(item)
            except Exception as error:  # the other items are handled all the same
                self.log.error(f"Internal error: {error!r} at an item of kind {item.kind}")
        dropped = self.plane.dropped()
        if dropped != self._dropped:
            count, self._dropped = dropped - self._dropped, dropped
            self.log.warn(f"JetStream API queue limit reached, dropping {count} requests")

    # ---- connections

    def _connect(self, item: Item) -> None:
        options = decode_connect(item.texts[2])
        if self.websockets is not None and item.cid in self.websockets:
            self.websockets.complete(item.cid, options)
        if is_leaf(item):
            assert self.leafs is not None, "leaf nodes have a service"
            options.connection_type = self.leafs.connection_type(item.cid)
        if self.on_connect is not None:
            self.on_connect(item, options)
        elif (authenticator := self._authenticator(item)).slow(options):
            self._checks.begin(self._connect_slowly(item, options))
        else:
            self._decide(item, options, self._outcome(authenticator, item, options))

    def _authenticator(self, item: Item) -> Authenticator:
        if self.leafs is not None and is_leaf(item):
            return self.leafs.authenticator_of(item.cid)
        if self.websockets is not None and item.cid in self.websockets:
            return self.websockets.authenticator
        return self.authenticator

    def _outcome(self, authenticator: Authenticator, item: Item, options: Connect) -> Outcome:
        try:
            return self._admit(authenticator, item, options)
        except Refused as refusal:
            return refusal

    def _admit(
        self, authenticator: Authenticator, item: Item, options: Connect
    ) -> Admission | None:
        if authenticator.maps(options):
            name = authenticator.mapped(item.texts[4])
            if name is None:
                return None
            if options.user:
                user = quote(options.user)
                self.log.warn(f"User {user} found in connect proto, but user required from cert")
            options.user = name
        return authenticator.admit(options, item.texts[3].decode())

    async def _connect_slowly(self, item: Item, options: Connect) -> None:
        loop = asyncio.get_running_loop()
        asked: Authenticator | None = None
        outcome: Outcome = None
        try:
            while asked is not self._authenticator(item):  # a reload may have replaced it meanwhile
                asked = self._authenticator(item)
                outcome = await loop.run_in_executor(
                    self._passwords, self._admit_if_open, asked, item, options
                )
        except _Gone:
            return
        self._decide(item, options, outcome)

    def _admit_if_open(self, authenticator: Authenticator, item: Item, options: Connect) -> Outcome:
        """Spares the computation for a client that has given up while it waited for its turn."""
        if gave_up(self.plane, item):
            raise _Gone
        return self._outcome(authenticator, item, options)

    def _decide(self, item: Item, options: Connect, outcome: Outcome) -> None:
        if is_leaf(item):
            self.decide(item, options, outcome)
        elif isinstance(outcome, Refused):
            self.lines.why(item, str(outcome))
            self.decide(item, options, outcome)
        elif self.on_delegate is not None and self.authenticator.delegates(options, outcome):
            self.on_delegate(item, options, outcome)
        else:
            self.decide(item, options, outcome)

    def decide(self, item: Item, options: Connect, outcome: Outcome) -> bool:
        """Admits a connection, or refuses it if `outcome` is no admission; whether it was
        admitted."""
        cid = item.cid
        if self.leafs is not None and is_leaf(item):
            entered = self.leafs.decide(item, options, outcome)
            if entered and isinstance(outcome, Admission) and outcome.proof is not None:
                # A leaf node's permissions are made when it comes, and ignore later claims.
                proof = outcome.proof._replace(has_default_permissions=False)
                self.admissions[cid] = outcome._replace(proof=proof)
            return entered
        if isinstance(outcome, Admission) and outcome.account not in self.accounts:
            outcome = None  # a reload has ended the account meanwhile
        if outcome is None or isinstance(outcome, Refused):
            reason = Refused.reason if outcome is None else outcome.reason
            self.lines.refused(item, options)
            if isinstance(outcome, Refused) and self.plane.connection(cid) is not None:
                self._refusals[cid] = outcome
            self.plane.close_connection(cid, CLOSE_CODES[reason], b"Authorization Violation")
            return False
        admission = outcome._replace(proxy=options.proxy) if options.proxy else outcome
        self.admissions[cid] = admission
        entered = self.plane.admit(
            cid,
            self.accounts[admission.account],
            admission.permissions,
            admission.user.encode("utf-8", "surrogateescape"),
            admission.max_subscriptions,
            admission.max_payload,
        )
        if entered:
            self.on_connected(cid, admission.account)
        else:
            self.admissions.pop(cid, None)
        return entered

    async def compute(self, work: Callable[[], None]) -> None:
        """Runs something slow in the threads for passwords, and waits for its end."""
        await asyncio.get_running_loop().run_in_executor(self._passwords, work)

    def complete(self, connection: Connection) -> None:
        """Fills in who is behind a connection, as others may see it."""
        admission = self.admissions.get(connection.cid)
        if admission is None or not admission.shows_token:
            connection.jwt = ""
        if admission is not None:
            connection.user = admission.user or connection.user
            connection.issuer, connection.tags = admission.issuer, admission.tags
            connection.name_tag, connection.proxy = admission.name_tag, admission.proxy

    def _error(self, item: Item) -> None:
        linked = self._links.get(kind_of(item))
        if linked is None:
            self.lines.error(item)
        else:
            linked.failed(item)

    def _violation(self, item: Item) -> None:
        if self.leafs is not None and is_leaf(item):
            self.leafs.violated(item)
        else:
            self.lines.violation(item)

    def _closed(self, item: Item) -> None:
        linked = self._links.get(kind_of(item))
        if linked is not None:
            linked.ended(item)
            self.admissions.pop(item.cid, None)
            return
        connection = read_connection(item)
        self.complete(connection)
        self.lines.closed(connection)
        member = self.admissions.pop(item.cid, None) is not None
        self.on_closed(connection, member, self._refusals.pop(item.cid, None))
        if self.websockets is not None:
            self.websockets.forget(item.cid)

    def _upgrade(self, item: Item) -> None:
        if self.leafs is not None and self.leafs.upgraded(item):
            return
        if self.websockets is not None:
            self.websockets.asked(item)

    def _peer(self, item: Item) -> None:
        if self.on_peer is None:
            self.plane.answer_peer(item.cid, False)
        else:
            self.on_peer(item)

    def _latency(self, item: Item) -> None:
        from jsserver.services import latency  # loaded where services are measured

        if self.measured is None or not self.measured.report(item):
            latency.publish(self.accounts, item)

    def _measured(self, item: Item) -> None:
        if self.measured is not None:
            self.measured.tell(item)

    def _log_line(self, item: Item) -> None:
        _, _, (_, is_error, *_), (text, *_) = item
        (self.log.error if is_error else self.log.warn)(text.decode("utf-8", "replace"))
