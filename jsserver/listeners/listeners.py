"""All listeners of a server, in the order in which they are opened."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.access.info import InfoBuilder, Urls
from jsserver.cext.engine import DataPlane
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from .clients import ClientListener

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from jsserver.access.secured import Links, Secured, Staples
    from jsserver.cext.tls import SecurityContext
    from jsserver.config.options import Tls

    from . import Listener
    from .gateways import GatewayListener
    from .leafs import LeafListener
    from .monitoring import MonitoringListener
    from .routes import RouteListener
    from .websocket import WebsocketListener


def blocks_of_tls(options: Options) -> Iterator[Tls]:
    """All that say what connections are secured by."""
    leafs, gateway = options.leafnodes, options.gateway
    blocks = [options.tls, options.websocket.tls, options.cluster.tls, leafs.tls, gateway.tls]
    blocks += [remote.tls for remote in (*leafs.remotes, *gateway.gateways)]
    yield from filter(None, blocks)


class Listeners:
    """Those of one server: open() and close() frame their life."""

    def __init__(
        self, options: Options, plane: DataPlane, log: Logger, builder: InfoBuilder
    ) -> None:
        self._options = options
        self._log = log
        self._monitoring: MonitoringListener | None = None
        self._websocket: WebsocketListener | None = None
        self._all: list[Listener] = []
        # Those that not every server has are imported only here.
        if options.http_port or options.https_port:
            from .monitoring import MonitoringListener

            self._monitoring = MonitoringListener(options, log)
            self._all.append(self._monitoring)
        if options.websocket.port:
            from .websocket import WebsocketListener

            self._websocket = WebsocketListener(options, plane, log, builder)
            self._all.append(self._websocket)
        self._routes: RouteListener | None = None
        if options.cluster.port:
            from .routes import RouteListener

            self._routes = RouteListener(options, plane, log, builder.cluster)
            self._all.append(self._routes)
        self._leafs: LeafListener | None = None
        if options.leafnodes.port:
            from .leafs import LeafListener

            self._leafs = LeafListener(options, plane, log)
            self._all.append(self._leafs)
        self._gateways: GatewayListener | None = None
        if options.gateway.port:
            from .gateways import GatewayListener

            self._gateways = GatewayListener(options, plane, log)
            self._all.append(self._gateways)
        # Clients last: who can connect is served at once.
        self._clients = ClientListener(options, plane, log, builder)
        self._all.append(self._clients)
        self.staples: Staples = {}
        """The OCSP responses that certificates are shown with."""
        self.links: Links | None = None
        """What connections to other servers are secured by."""

    # ---- what others are told

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._clients.port

    @property
    def websocket_port(self) -> int:
        """Where clients that speak WebSocket connect; 0: nowhere."""
        return 0 if self._websocket is None else self._websocket.port

    @property
    def route_port(self) -> int:
        """Where other servers of the cluster connect; 0: nowhere."""
        return 0 if self._routes is None else self._routes.port

    @property
    def leaf_port(self) -> int:
        """Where leaf nodes connect; 0: nowhere."""
        return 0 if self._leafs is None else self._leafs.port

    def leaf_urls(self) -> list[str]:
        """Where leaf nodes reach this server, as far as it knows."""
        if self._leafs is None:
            return []
        from jsserver.process.addresses import reached_at

        return reached_at(*self._advertised(self._options.leafnodes.advertise, self._leafs))[:1]

    @property
    def gateway_port(self) -> int:
        """Where servers of other clusters connect; 0: nowhere."""
        return 0 if self._gateways is None else self._gateways.port

    def gateway_urls(self) -> list[str]:
        """Where servers of other clusters reach this one, as far as it knows."""
        if self._gateways is None:
            return []
        from jsserver.process.addresses import reached_at

        return reached_at(*self._advertised(self._options.gateway.advertise, self._gateways))[:1]

    def connect_urls(self) -> Urls:
        """Where clients reach this server, as far as it knows."""
        from jsserver.process.addresses import reached_at  # who is in no cluster tells nobody

        o = self._options
        plain = reached_at(*self._advertised(o.client_advertise, self._clients))
        if self._websocket is None:
            return Urls(plain, [])
        return Urls(plain, reached_at(*self._advertised(o.websocket.advertise, self._websocket)))

    def _advertised(self, advertise: str, listener: Listener) -> tuple[str, int]:
        from jsserver.config.otherservers import advertised

        return advertised(advertise, listener.port) if advertise else (listener.host, listener.port)

    @property
    def certificate_ends(self) -> str:
        """When the certificate of clients' connections does; "" without TLS."""
        return self._clients.certificate_ends

    @property
    def websocket_certificate_ends(self) -> str:
        """When that of clients behind WebSocket does."""
        return "" if self._websocket is None else self._websocket.certificate_ends

    @property
    def monitoring_security(self) -> SecurityContext | None:
        """What monitoring is secured by, if it is."""
        return None if self._monitoring is None else self._monitoring.security

    def take_monitoring(self) -> socket.socket | None:
        """The socket of monitoring, which the caller closes; None where there is none."""
        return None if self._monitoring is None else self._monitoring.take()

    def urls(self) -> dict[str, tuple[str, str, int]]:
        """Scheme, host and port of each that is open, by its name; clients' first."""
        listed = (self._clients, *self._all[:-1])
        return {one.name: (one.scheme, one.host, one.port) for one in listed if one.port}

    # ---- from the start to the end

    @property
    def responders_first(self) -> bool:
        """Whether no client can be served before somebody was asked about a certificate."""
        blocks = [*filter(None, (self._options.tls, self._options.websocket.tls))]
        if not blocks:
            return False
        from jsserver.access.certificates import to_staple

        return any(tls.inquires for tls in blocks) or any(True for _ in to_staple(self._options))

    def open(self) -> None:
        """Opens the ports that the options ask for; StartError if one cannot be had, ConfigError if
        it cannot be secured."""
        made: list[Secured | None] = []

        def securing() -> Secured | None:
            if not made:
                made.append(self.secured(self._options, self.staples))
                self._secure_links(made[0])
            return made[0]

        for listener in self._all:
            listener.open(securing)
        if self._monitoring is not None:
            self._monitoring.secure(securing())

    def terms(self) -> None:
        """Connections that come from now on are held to what the options say."""
        for listener in self._all:
            listener.terms()

    def tell(self, *, plain: bool, websocket: bool) -> None:
        """Sends INFO to clients that take such at any time: of the protocol's own port, or those
        that speak WebSocket."""
        if plain:
            self._clients.tell()
        if websocket and self._websocket is not None:
            self._websocket.tell()

    def secured(self, options: Options, staples: Staples) -> Secured | None:
        """What connections are secured by where these options hold; None: nothing. ConfigError."""
        if not any(True for _ in blocks_of_tls(options)):
            return None
        from jsserver.access.secured import secured  # a server without TLS goes without it

        return secured(options, staples, self._log)

    def renew(self, secured: Secured | None) -> None:
        """Has clients secured so, where there is a choice from their next connection on."""
        self.staples = secured.staples if secured else {}
        self._secure_links(secured)
        for listener in self._all:
            if listener.port:
                listener.secure(secured)

    def _secure_links(self, secured: Secured | None) -> None:
        self.links = None if secured is None else secured.links

    def staple(self, digest: bytes, response: bytes, until: int) -> None:
        """Has handshakes with a certificate carry another response from now on."""
        self.staples[digest] = (response, until)
        for context in {listener.security for listener in self._all} - {None}:
            assert context is not None
            context.staple(digest, response, until)

    def close_clients(self) -> None:
        """Lets no more clients come; servers and monitoring still do."""
        self._clients.close()
        if self._websocket is not None:
            self._websocket.close()

    def close(self) -> None:
        """Lets no more connections come."""
        for listener in self._all:
            listener.close()
