"""The gateways of a server: carries out the state machine's decisions with sockets, data plane and
clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from jsserver import NATS_VERSION
from jsserver.access.clients import CLOSE_CODES, read_connection
from jsserver.cext import engine
from jsserver.config.otherservers import advertised
from jsserver.links.gatewaymodel import GatewayReason, GatewaySettings, Place, Remote
from jsserver.links.gateways import Gateways
from jsserver.links.gatewaywords import command_head, gateway_hash
from jsserver.process.sockets import host_port
from jsserver.services.linked import (
    Pace,
    address_of,
    begin_to_dial,
    certified_name,
    error_line,
    reports_of,
    slow_line,
)
from jsserver.services.proving import Passwords, password_sent
from jsserver.text.goformat import SECOND, quote

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from jsserver.access.secured import Links
    from jsserver.cext.engine import DataPlane, Item
    from jsserver.config.gateways import RemoteGateway
    from jsserver.config.options import Options
    from jsserver.links.gatewaywords import GatewayInfo
    from jsserver.process.logs import Logger
    from jsserver.services.routes import Routes

DIAL_TIMEOUT = SECOND
FIRST_WORD = 10 * SECOND
"""Nanoseconds that a dialled server may take to send its INFO."""


def remote_of(remote: RemoteGateway) -> Remote:
    """A configured remote cluster in the state machine's form."""
    places = [
        Place(url.host, url.port, (url.user, url.password) if url.has_login else None)
        for url in remote.urls
    ]
    return Remote(
        name=remote.name, configured=places, places=list(places), tls=remote.tls is not None
    )


class GatewayService:
    """The gateways of one server, driven; start() and close() frame its life in one event loop."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        log: Logger,
        *,
        name: str,
        server_id: str,
        routes: Routes | None,
        met: Callable[[], None],
        lost: Callable[[str], None],
        security: Callable[[], Links | None],
    ) -> None:
        """`met`: is called with each new remote cluster; `lost`: with the name of a server that no
        link goes to or comes from any more; `security`: TLS of links."""
        self._security = security
        self._options = options
        self._plane = plane
        self._log = log
        self._met = met
        self._lost = lost
        self._routes = routes
        self._where: dict[int, str] = {}
        """Remote addresses by connection number."""
        self._passwords = Passwords()
        o = options.gateway
        logins = ((url.user, url.password) for remote in o.gateways for url in remote.urls)
        self._handle = plane.gateway_links(
            gateway_hash(o.name), gateway_hash(server_id), command_head(o.name)
        )
        settings = GatewaySettings(
            server_id=server_id,
            server_name=name,
            version=NATS_VERSION,
            name=o.name,
            host=o.host,
            user=o.username,
            password=o.password,
            fits=self._passwords.fits,
            password_sent=password_sent(o.password, o.username, logins),
            headers=not options.no_header_support,
            max_payload=options.max_payload,
            reject_unknown=o.reject_unknown,
            connect_retries=o.connect_retries,
            connect_backoff=o.connect_backoff,
            reports=reports_of(options),
            tls=o.tls is not None,
        )
        remotes = [remote_of(remote) for remote in o.gateways if remote.name != o.name]
        self.gateways = Gateways(settings, remotes, self, random.Random())
        self._pace = Pace(self.gateways.tick)

    def start(self, port: int, urls: list[str]) -> None:
        """Begins to dial. `port`: the gateways' port; `urls`: the URLs for it, the first is
        announced."""
        s, o = self.gateways.settings, self._options.gateway
        s.port = port
        if o.advertise:
            s.host, s.port = advertised(o.advertise, port)
            s.url = host_port(s.host, s.port)
        elif urls:
            s.url = urls[0]
            s.host = s.url.rpartition(":")[0].strip("[]")
        s.urls = [s.url]
        self._log.info(f"Address for gateway {quote(s.name)} is {s.url}")
        self._handle.limit(
            ping_interval=max(o.ping_interval, 0),
            ping_max=max(o.ping_max, 0),
            write_deadline=max(o.write_deadline, 0),
            whole_writes=o.write_timeout == "close",
        )
        self.gateways.start(self._pace.now())
        self._pace.go_on()

    def close(self) -> None:
        """Stops dialling; the data plane closes the connections."""
        self._pace.close()
        self._passwords.close()

    def members_at(self, urls: list[str]) -> None:
        """Takes the URLs at which other clusters reach the servers of this cluster."""
        own = self.gateways.settings.url
        self.gateways.reached(list(dict.fromkeys([own, *urls])))

    def greet(self) -> list[bytes]:
        """The lines about remote clusters for a server that is new in this cluster."""
        return self.gateways.greet()

    def heard(self, said: GatewayInfo) -> None:
        """Takes what another server of this cluster knows of a remote cluster."""
        self.gateways.heard(said, self._pace.now())
        self._pace.go_on()

    # ---- news from the data plane

    def said(self, item: Item) -> None:
        """An INBOX_GATEWAY: a gateway connection has sent a protocol line."""
        number, now = item.cid, self._pace.now()
        what, text = item.numbers[2], item.texts[2]
        if what == engine.SAID_OPENED:
            where = self._where.setdefault(number, address_of(item))
            self.gateways.opened(number, where)
        elif what == engine.SAID_INFO:
            self.gateways.info(number, text, now)
        elif what == engine.SAID_CONNECT:
            o = self._options.gateway
            self._passwords.connect(
                self._pace,
                (o.username, o.password),
                text,
                is_there=lambda: number in self._where,
                then=lambda: self.gateways.connect(number, text),
            )
        elif what == engine.SAID_ERROR:
            self.gateways.error(number, text)
        elif what == engine.SAID_HAILED:
            self._met()
        self._pace.go_on()

    def failed(self, item: Item) -> None:
        """An INBOX_ERROR of a gateway connection."""
        self._where.setdefault(item.cid, address_of(item))  # errors may come before the opening
        line = error_line(item).replace("TLS handshake", "TLS gateway handshake", 1)
        self._log.error(f"{self._named(item.cid)} - {line}")

    def ended(self, item: Item) -> None:
        """An INBOX_CLOSED of a gateway connection."""
        number = item.cid
        connection = read_connection(item)
        self._where.setdefault(number, address_of(item))
        who, reason = self._named(number), connection.reason
        deadline = self._options.gateway.write_deadline or self._options.write_deadline
        slow = slow_line(connection, self._options, deadline)
        if slow:
            self._log.info(f"{who} - {slow}")
        self._log.info(f"{who} - Gateway connection closed: {reason}")
        del self._where[number]
        name = self.gateways.name_of(number)
        self.gateways.closed(number, self._pace.now())
        if name and name not in self.gateways.names():
            self._lost(name)
        self._pace.go_on()

    def _named(self, number: int) -> str:
        """The connection's name in the log: address, number, and the server's name once known."""
        name = self.gateways.name_of(number)
        where = self._where.get(number, "")
        return f"{where} - gid:{number}" + (f" - {quote(name)}" if name else "")

    # ---- what the state machine asks for

    def dial(self, remote: Remote, place: Place) -> None:
        self._pace.begin(self._dial(remote, place))

    def write(self, link: int, data: bytes) -> None:
        self._handle.write(link, data)

    def resume(self, link: int) -> None:
        self._handle.resume(link)

    def open_link(self, link: int, *, inbound: bool, cluster: str, headers: bool) -> None:
        self._handle.open(
            link,
            inbound=inbound,
            name=cluster.encode(),
            hash=gateway_hash(cluster),
            headers=headers,
        )

    def cut(self, link: int, reason: GatewayReason, error: str = "") -> None:
        code = CLOSE_CODES[reason.value]
        self._plane.close_connection(link, code, error.encode() if error else None)

    def is_member(self, name: str) -> bool:
        if name == self.gateways.settings.server_name:
            return True
        return self._routes is not None and name in self._routes.names()

    def tell_cluster(self, line: bytes) -> None:
        if self._routes is not None:
            self._routes.tell_all(line)

    def log(self, level: str, text: str, link: int = 0) -> None:
        getattr(self._log, level)(f"{self._named(link)} - {text}" if link else text)

    # ---- dialling

    async def _dial(self, remote: Remote, place: Place) -> None:
        try:
            fd, reached = await begin_to_dial(place.host, place.port)
        except OSError as error:
            self.gateways.unreachable(remote, place, str(error), self._pace.now())
            self._pace.go_on()
            return
        secured = self._secured(remote, place.host)
        number = self._handle.dial(fd, DIAL_TIMEOUT, FIRST_WORD, *secured)
        self._where[number] = reached
        self.gateways.dialled(number, remote, place, reached)

    def _secured(self, remote: Remote, host: str) -> tuple[Any, bytes]:
        """TLS of a connection to a remote cluster, and the name that its certificate must have."""
        links = self._security()
        if links is None:
            return None, b""
        own = None if links.gateways is None else links.gateways.context
        context = links.clusters.get(remote.name, own)
        if context is None:
            return None, b""
        others = (place.host for place in remote.configured)
        return context.security(), certified_name(host, others)
