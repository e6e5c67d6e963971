"""What monitoring, requests to `$SYS` and events may read of the running server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsserver.access.info import Urls
from jsserver.config.options import GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsserver.access.accounts import Accounts
    from jsserver.access.clients import Connection
    from jsserver.access.configured import Configured
    from jsserver.access.responses import Figures
    from jsserver.cext.engine import DataPlane
    from jsserver.cext.tls import SecurityContext
    from jsserver.config.links import Sharing
    from jsserver.config.options import Mapping as SubjectMapping
    from jsserver.config.options import Options
    from jsserver.jwt.claims import Account as AccountClaims
    from jsserver.links.gatewaymodel import GatewayLink
    from jsserver.links.gateways import Gateways
    from jsserver.links.leafmodel import LeafLink
    from jsserver.links.model import Link
    from jsserver.links.words import SubjectPermission
    from jsserver.listeners.listeners import Listeners
    from jsserver.monitor.closed import ClosedConnections
    from jsserver.services.answers import Identity
    from jsserver.services.certificates import Certificates
    from jsserver.services.delegates import Delegates
    from jsserver.services.gateways import GatewayService
    from jsserver.services.inbox import Inbox
    from jsserver.services.jetstream import JetStream
    from jsserver.services.leafs import LeafService
    from jsserver.services.metagroup import MetaGroup
    from jsserver.services.routes import Routes


class Watched:
    """Implements `jsserver/monitor/sources.py` for the running server, and more for `$SYS`. Any
    thread may read; times are in ns since the epoch."""

    def __init__(
        self,
        options: Options,
        plane: DataPlane,
        accounts: Accounts,
        inbox: Inbox,
        *,
        id: str,
        name: str,
        started: int,
        identity: Identity,
        closed: ClosedConnections,
        configured: Configured,
        listeners: Listeners,
        certificates: Certificates,
        jetstream: JetStream | None,
        meta: MetaGroup | None,
        routes: Routes | None,
        leafs: LeafService | None,
        gateways: GatewayService | None,
        delegates: Delegates | None,
        waiting: Callable[[], Mapping[str, int]],
    ) -> None:
        self.options = options
        self.plane = plane
        self.accounts = accounts
        self.id = id
        self.name = name
        self.started = started
        self.config_loaded = started
        """When the server loaded its configuration."""
        self.accepting = False
        """Whether the server accepts connections: only when ready, and not during shutdown."""
        self.system_account = options.system
        self.identity = identity
        self.closed = closed
        """Connections that have ended, and their totals."""
        self.jetstream = jetstream
        self.meta = meta
        self.complete: Callable[[Connection], None] = inbox.complete
        """Fills in who is behind an open connection, as others may see it."""
        self.waiting = waiting
        """Lengths of the control plane's queues, by name."""
        self.page_requests: Mapping[str, int] = {}
        """How often each monitoring page was requested over HTTP, by path."""
        self._inbox = inbox
        self._configured = configured
        self._listeners = listeners
        self._certificates = certificates
        self._delegates = delegates
        self._routes = routes
        self.leaf_nodes = leafs
        """None until leaf nodes or hubs are configured, at the start or by a reload."""
        self._gateways = gateways

    def end_jetstream(self) -> None:
        """JetStream is served here no more."""
        self.jetstream = None

    @property
    def port(self) -> int:
        """The clients' port."""
        return self._listeners.port

    @property
    def websocket_port(self) -> int:
        """The port of WebSocket clients; 0: none."""
        return self._listeners.websocket_port

    @property
    def cluster(self) -> str:
        """The name of the server's cluster, "" for none."""
        if self._routes is None:
            return "" if self._gateways is None else self.options.gateway.name
        return self._routes.cluster

    @property
    def connect_urls(self) -> Urls:
        """The URLs that clients are told."""
        return Urls([], []) if self._routes is None else self._routes.told

    @property
    def route_port(self) -> int:
        """The port for routes; 0: none."""
        return self._listeners.route_port

    def routes(self) -> list[Link]:
        """Open routes."""
        return [] if self._routes is None else self._routes.mesh.shown()

    @property
    def interest(self) -> tuple[SubjectPermission | None, SubjectPermission | None]:
        """Permissions of routes: which interest this server announces, and which it accepts; None:
        all."""
        if self._routes is None:
            return None, None
        settings = self._routes.mesh.settings
        return settings.imports, settings.exports

    @property
    def leaf_port(self) -> int:
        """The port for leaf nodes; 0: none."""
        return self._listeners.leaf_port

    def leafs(self) -> list[LeafLink]:
        """Open connections to leaf nodes and hubs."""
        return [] if self.leaf_nodes is None else self.leaf_nodes.leafs.shown()

    @property
    def gateway_port(self) -> int:
        """The port for gateways; 0: none."""
        return self._listeners.gateway_port

    @property
    def gateways(self) -> Gateways | None:
        """The gateways; None: none are configured."""
        return None if self._gateways is None else self._gateways.gateways

    def gateway_links(self) -> list[GatewayLink]:
        """Open connections to other clusters."""
        return [] if self._gateways is None else self._gateways.gateways.shown()

    @property
    def auth_required(self) -> bool:
        """Whether clients must log in."""
        return self._inbox.authenticator.required

    @property
    def monitor_security(self) -> SecurityContext | None:
        """TLS of monitoring, None without."""
        return self._listeners.monitoring_security

    @property
    def certificate_ends(self) -> str:
        """When the certificate for clients expires; "" without TLS."""
        return self._listeners.certificate_ends

    @property
    def websocket_certificate_ends(self) -> str:
        """When the certificate for WebSocket clients expires; "" without TLS."""
        return self._listeners.websocket_certificate_ends

    @property
    def peer_answers(self) -> Figures | None:
        """Cached OCSP answers about clients' certificates; None: not checked."""
        return self._certificates.peer_answers

    @property
    def pinned_account_fails(self) -> int:
        """Refused logins to accounts that are not pinned."""
        return 0 if self._delegates is None else self._delegates.pinned_account_fails

    def shared(self, account: str) -> tuple[Sharing | None, list[SubjectMapping]]:
        """The exports and imports of all accounts, and the mappings of this account."""
        tenants = self._delegates and self._delegates.tenants
        if tenants:
            return tenants.links.sharing, tenants.links.mappings.get(account, [])
        mappings = {a.name: a.mappings for a in self.options.accounts}
        mappings[GLOBAL_ACCOUNT] = self.options.mappings
        return self._configured.sharing, mappings.get(account, [])

    def claims(self, account: str) -> tuple[AccountClaims, str] | None:
        """An account's claims and token; None for an account without token."""
        tenants = self._delegates and self._delegates.tenants
        tenant = tenants.get(account) if tenants else None
        return None if tenant is None or not tenant.token else (tenant.claims, tenant.token)
