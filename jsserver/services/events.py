"""Events for the system account: connections that begin and end, and figures of accounts and the
server. An event is made only if somebody subscribes to it.

Lives in the event loop. Loaded where the system account has users, or where there are other
servers.
"""

from __future__ import annotations

import asyncio
import base64
import time
from typing import TYPE_CHECKING

import msgspec

from jsserver.access.clients import TYPE_LEAF, Connection, read_connection
from jsserver.access.refusal import ProxyNotTrusted, ProxyRequired, Refused, Told
from jsserver.api.advisories import ClientInfo, Event
from jsserver.config.options import GLOBAL_ACCOUNT
from jsserver.monitor import statsz
from jsserver.monitor.accountz import Data, Moved, leafs_of
from jsserver.monitor.process import ProcessUsage
from jsserver.services.answers import ServerInfo, encoded
from jsserver.services.operators import Stats
from jsserver.services.subjects import is_plain_subject
from jsserver.text import nuid
from jsserver.text.goformat import rfc3339_nano
from jsserver.wire.types import Wire, always

if TYPE_CHECKING:
    from jsserver.access.certificates import Certificate
    from jsserver.services.watched import Watched

TYPE = "io.nats.server.advisory.v1."
STATSZ_FIRST = 0.25
STATSZ_PERIOD = 10.0
"""Seconds between two messages with the server's figures; begins lower, and doubles up to this."""
CONNS_PERIOD = 30.0
"""Seconds after which an account's connections are published again."""

FAILURES = (Refused.reason, ProxyRequired.reason, ProxyNotTrusted.reason)
"""Reasons of connections that were not admitted."""
ACCOUNT_FULL = "Maximum Account Connections Exceeded"


class Connected(Event, kw_only=True):
    """A client was admitted."""

    server: ServerInfo
    client: ClientInfo


class Disconnected(Event, kw_only=True):
    """A client's connection ended; `sent`: what the client sent."""

    server: ServerInfo
    client: ClientInfo
    sent: Moved
    received: Moved
    reason: str


class LeafConnected(Wire):
    """A leaf node or hub was connected to an account, where there are gateways."""

    server: ServerInfo
    acc: str


class CertificateInfo(Wire):
    """A certificate: its names, its SHA-256 in base64, and the whole of it."""

    subject: str = ""
    issuer: str = ""
    fingerprint: str = ""
    raw: bytes = b""


class PeerRefused(Event, kw_only=True):
    """A client was refused because OCSP responders do not vouch for its certificate."""

    kind: str = always("Client")
    peer: CertificateInfo
    server: ServerInfo
    reason: str = always("client not OCSP valid")


class LinkInvalid(Event, kw_only=True):
    """The invalid certificate in a peer's chain, and the reason."""

    link: CertificateInfo
    peer: CertificateInfo
    server: ServerInfo
    reason: str


class AccountConnections(Event, kw_only=True):
    """An account's connections; `sent`: what the server sent to them."""

    server: ServerInfo
    acc: str
    name: str
    conns: int = always(0)
    leafnodes: int = always(0)
    total_conns: int = always(0)
    num_subscriptions: int = always(0)
    sent: Data = always(Data())
    received: Data = always(Data())
    slow_consumers: int = always(0)


class Events:
    """Publishes the events; start() and stop() frame its life."""

    def __init__(self, server: Watched, account: str) -> None:
        self._server = server
        self._system = server.accounts[account]
        self._usage = ProcessUsage()
        self._told: dict[str, float] = {}
        """Accounts with connections, and when their counts were last published."""
        self._period = STATSZ_FIRST
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to publish the server's figures."""
        self._timer = asyncio.get_running_loop().call_later(self._period, self._tick)

    def hurry(self) -> None:
        """Publishes the figures soon, because there is a new listener."""
        if self._timer is not None:
            self._timer.cancel()
            self._period = STATSZ_FIRST
            self.start()

    def lame_duck(self) -> None:
        """Announces that the server will stop soon."""
        self._publish(f"$SYS.SERVER.{self._server.id}.LAMEDUCK", self._server.identity.info())

    def stop(self) -> None:
        """Announces that the server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._publish(f"$SYS.SERVER.{self._server.id}.SHUTDOWN", self._server.identity.info())

    # ---- connections

    def connected(self, cid: int, account: str) -> None:
        """A client was admitted to an account."""
        self._count(account)
        if self._wanted(f"$SYS.ACCOUNT.{account}.CONNECT"):
            item = self._server.plane.connection(cid)
            if item is not None:
                connection = read_connection(item)
                self._server.complete(connection)
                self._connect(connection, account)

    def leaf_connected(self, connection: Connection, account: str) -> None:
        """An account was connected to a leaf node or hub."""
        self._count(account)
        if self._wanted(f"$SYS.ACCOUNT.{account}.CONNECT"):
            self._connect(connection, account)
        subject = f"$SYS.ACCOUNT.{account}.LEAFNODE.CONNECT"
        if self._server.options.gateway.port and self._wanted(subject):
            info = self._server.identity.info()
            self._publish(subject, LeafConnected(server=info, acc=account))

    def leaf_closed(self, connection: Connection, account: str) -> None:
        """A connection to a leaf node or hub ended."""
        self._count(account)
        if self._wanted(f"$SYS.ACCOUNT.{account}.DISCONNECT"):
            ended = self._disconnect(connection, account)
            self._publish(f"$SYS.ACCOUNT.{account}.DISCONNECT", ended)

    def _connect(self, connection: Connection, account: str) -> None:
        self._publish(
            f"$SYS.ACCOUNT.{account}.CONNECT",
            Connected(
                type=TYPE + "client_connect",
                id=nuid.new(),
                timestamp=_now(),
                server=self._server.identity.info(),
                client=self._client(connection, account),
            ),
        )

    def closed(self, connection: Connection, member: bool, refusal: Refused | None) -> None:
        """A connection ended; `member`: a client's that was admitted; `refusal`: why it was
        refused, if more is known than the reason of its end."""
        account = self._server.accounts.name_of(connection.account)
        if member:
            self._count(account)
        if connection.reason in FAILURES:
            account = GLOBAL_ACCOUNT  # a client without a login is in no account of its own
            subject = f"$SYS.SERVER.{self._server.id}.CLIENT.AUTH.ERR"
            if self._wanted(subject):
                self._publish(subject, self._disconnect(connection, account))
            if connection.reason != ProxyNotTrusted.reason:  # for which no login was checked
                self._tell_account(connection, refusal)
        elif connection.reason == ACCOUNT_FULL and self._wanted(f"$SYS.ACCOUNT.{account}.CONNECT"):
            self._connect(connection, account)
        subject = f"$SYS.ACCOUNT.{account}.DISCONNECT"
        if self._wanted(subject):
            self._publish(subject, self._disconnect(connection, account))

    def peer_refused(self, peer: Certificate, link: Certificate, why: str) -> None:
        """A client's certificate, or one that it depends on (`link`), is not valid."""
        subject = f"$SYS.SERVER.{self._server.id}.OCSP.PEER"
        if self._wanted(f"{subject}.LINK.INVALID"):
            event = LinkInvalid(
                type=TYPE + "ocsp_peer_link_invalid",
                id=nuid.new(),
                timestamp=_now(),
                link=_certificate(link),
                peer=_certificate(peer),
                server=self._server.identity.info(),
                reason=why,
            )
            self._publish(f"{subject}.LINK.INVALID", event)
        if self._wanted(f"{subject}.CONN.REJECT"):
            refused = PeerRefused(
                type=TYPE + "ocsp_peer_reject",
                id=nuid.new(),
                timestamp=_now(),
                peer=_certificate(peer),
                server=self._server.identity.info(),
            )
            self._publish(f"{subject}.CONN.REJECT", refused)

    def _tell_account(self, connection: Connection, refusal: Refused | None) -> None:
        """Publishes a failed login in an account, too: in that of the auth callout which decided,
        or in the global one."""
        subject = b"$SYS.ACCOUNT.CLIENT.AUTH.ERR"
        callout = self._server.options.authorization.callout
        told = None if refusal is None else refusal.told
        if told is None:
            told = Told(GLOBAL_ACCOUNT if callout is None else callout.account)
        accounts = self._server.accounts
        if told.account not in accounts:
            return
        handle = accounts[told.account]
        if handle.subject_interest(subject):
            event = self._disconnect(connection, told.account)
            event.reason = connection.reason if told.reason is None else told.reason
            event.client.user = told.user or connection.user
            event.client.issuer_key, event.client.tags = told.issuer, list(told.tags)
            event.client.name_tag = accounts.tag_of(told.issuer or GLOBAL_ACCOUNT)
            handle.publish(subject, b"", b"", encoded(event))

    def _disconnect(self, connection: Connection, account: str) -> Disconnected:
        client = self._client(connection, account, ended=True)
        return Disconnected(
            type=TYPE + "client_disconnect",
            id=nuid.new(),
            timestamp=_now(),
            server=self._server.identity.info(),
            client=client,
            sent=Moved(msgs=connection.in_msgs, bytes=connection.in_bytes),
            received=Moved(msgs=connection.out_msgs, bytes=connection.out_bytes),
            reason=connection.reason,
        )

    # ---- accounts

    def _count(self, account: str) -> None:
        """Publishes the number of an account's connections, which has changed."""
        if account != GLOBAL_ACCOUNT:
            self._told[account] = time.monotonic()
            self._tell_of(account)

    def _tell_of(self, account: str) -> None:
        event = None
        for subject in (
            f"$SYS.SERVER.ACCOUNT.{account}.CONNS",
            f"$SYS.ACCOUNT.{account}.SERVER.CONNS",
        ):
            if not self._wanted(subject):
                continue
            if event is None:
                event = self.connections_of(account)
                if event is None:
                    return
            else:
                event.server = self._server.identity.info()
            self._publish(subject, event)

    def connections_of(self, account: str) -> AccountConnections | None:
        """An account's connections; None: the account is gone."""
        server = self._server
        if account not in server.accounts:
            self._told.pop(account, None)
            return None
        handle = server.accounts[account]
        found = handle.traffic()
        leafs = len(leafs_of(server, account))
        if not found.clients + leafs:
            self._told.pop(account, None)
        return AccountConnections(
            type=TYPE + "account_connections",
            id=nuid.new(),
            timestamp=_now(),
            server=server.identity.info(),
            acc=account,
            name=server.accounts.tag_of(account),
            conns=found.clients,
            leafnodes=leafs,
            total_conns=found.clients + leafs,
            num_subscriptions=found.subscriptions,
            sent=Data(msgs=found.out_msgs, bytes=found.out_bytes),
            received=Data(msgs=found.in_msgs, bytes=found.in_bytes),
            slow_consumers=server.closed.totals(handle.id).slow_consumers,
        )

    # ---- the server

    def _tick(self) -> None:
        self._period = min(2 * self._period, STATSZ_PERIOD)
        self._timer = asyncio.get_running_loop().call_later(self._period, self._tick)
        now = time.monotonic()
        for account, told in list(self._told.items()):
            if now - told >= CONNS_PERIOD:
                self._count(account)
        self.tell_figures()

    def tell_figures(self) -> None:
        """Publishes the server's figures."""
        server = self._server
        subject = f"$SYS.SERVER.{server.id}.STATSZ"
        if self._wanted(subject):
            figures = statsz.statsz(server, self._usage)
            self._publish(subject, Stats(server=server.identity.info(), statsz=figures))

    # ---- publishing

    def _client(self, c: Connection, account: str, ended: bool = False) -> ClientInfo:
        return ClientInfo(
            start=rfc3339_nano(c.start),
            host=c.ip,
            id=c.cid,
            acc=account,
            user=c.user,
            name=c.name,
            lang=c.lang,
            ver=c.version,
            rtt=c.rtt if ended else 0,
            stop=rfc3339_nano(c.now) if ended else "",
            jwt=c.jwt,
            issuer_key=c.issuer,
            name_tag=self._server.accounts.tag_of(account),
            tags=list(c.tags),
            kind="Leafnode" if c.type == TYPE_LEAF else "Client",
            client_type="" if c.type == TYPE_LEAF else c.type,
        )

    def _wanted(self, subject: str) -> bool:
        # The name of an account may have blanks or wildcards, which no client takes in a subject.
        return is_plain_subject(subject) and self._system.subject_interest(subject.encode())

    def _publish(self, subject: str, event: msgspec.Struct) -> None:
        self._system.publish(subject.encode(), b"", b"", encoded(event))


def _now() -> str:
    return rfc3339_nano(time.time_ns())


def _certificate(found: Certificate) -> CertificateInfo:
    from jsserver.access.certificates import subject_text  # loaded only with TLS

    return CertificateInfo(
        subject=subject_text(found.subject, others=False),
        issuer=subject_text(found.issuer, others=False),
        fingerprint=base64.b64encode(bytes.fromhex(found.digest)).decode(),
        raw=found.der,
    )
