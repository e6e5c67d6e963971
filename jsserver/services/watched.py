"""What monitoring, requests to `$SYS` and events read of the running server, and nothing else."""

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
    """The server as `jsserver/monitor/sources.py` describes it, with what `$SYS` tells besides.
    Read by several threads; times in ns since the epoch."""

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
        """When the server took its configuration."""
        self.accepting = False
        """Whether it takes connections: not before it is ready, not while it shuts down."""
        self.system_account = options.system
        self.identity = identity
        self.closed = closed
        """Connections that have ended, and what they add up to."""
        self.jetstream = jetstream
        self.meta = meta
        self.complete: Callable[[Connection], None] = inbox.complete
        """Says of an open connection who is behind it, as others may see it."""
        self.waiting = waiting
        """What waits for the control plane, by what it is called."""
        self.page_requests: Mapping[str, int] = {}
        """How often each page of monitoring was asked for over HTTP, by its path."""
        self._inbox = inbox
        self._configured = configured
        self._listeners = listeners
        self._certificates = certificates
        self._delegates = delegates
        self._routes = routes
        self.leaf_nodes = leafs
        """Made by a reload where there were none at the start."""
        self._gateways = gateways

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._listeners.port

    @property
    def websocket_port(self) -> int:
        """Where clients that speak WebSocket connect; 0: nowhere."""
        return self._listeners.websocket_port

    @property
    def cluster(self) -> str:
        """The name of the cluster that the server is in, "" for none."""
        if self._routes is None:
            return "" if self._gateways is None else self.options.gateway.name
        return self._routes.cluster

    @property
    def connect_urls(self) -> Urls:
        """Where clients are told that they may connect."""
        return Urls([], []) if self._routes is None else self._routes.told

    @property
    def route_port(self) -> int:
        """Where other servers of the cluster connect; 0: nowhere."""
        return self._listeners.route_port

    def routes(self) -> list[Link]:
        """Open connections to other servers of the cluster."""
        return [] if self._routes is None else self._routes.mesh.shown()

    @property
    def interest(self) -> tuple[SubjectPermission | None, SubjectPermission | None]:
        """What interest of its own those are told of, and what of theirs counts; None: all."""
        if self._routes is None:
            return None, None
        settings = self._routes.mesh.settings
        return settings.imports, settings.exports

    @property
    def leaf_port(self) -> int:
        """Where leaf nodes connect; 0: nowhere."""
        return self._listeners.leaf_port

    def leafs(self) -> list[LeafLink]:
        """Open connections to leaf nodes and hubs."""
        return [] if self.leaf_nodes is None else self.leaf_nodes.leafs.shown()

    @property
    def gateway_port(self) -> int:
        """Where servers of other clusters connect; 0: nowhere."""
        return self._listeners.gateway_port

    @property
    def gateways(self) -> Gateways | None:
        """Those to other clusters, if there are any."""
        return None if self._gateways is None else self._gateways.gateways

    def gateway_links(self) -> list[GatewayLink]:
        """Open connections to other clusters."""
        return [] if self._gateways is None else self._gateways.gateways.shown()

    @property
    def auth_required(self) -> bool:
        """Whether clients must prove anything."""
        return self._inbox.authenticator.required

    @property
    def monitor_security(self) -> SecurityContext | None:
        """What monitoring is secured by, if it is."""
        return self._listeners.monitoring_security

    @property
    def certificate_ends(self) -> str:
        """When the certificate of clients' connections does; "" without TLS."""
        return self._listeners.certificate_ends

    @property
    def websocket_certificate_ends(self) -> str:
        """When that of clients behind WebSocket does."""
        return self._listeners.websocket_certificate_ends

    @property
    def peer_answers(self) -> Figures | None:
        """What is kept of OCSP responders' answers about clients, if it is."""
        return self._certificates.peer_answers

    @property
    def pinned_account_fails(self) -> int:
        """Logins to accounts that are none of those that are pinned."""
        return 0 if self._delegates is None else self._delegates.pinned_account_fails

    def shared(self, account: str) -> tuple[Sharing | None, list[SubjectMapping]]:
        """What accounts share, and what is mapped in this one."""
        tenants = self._delegates and self._delegates.tenants
        if tenants:
            return tenants.links.sharing, tenants.links.mappings.get(account, [])
        mappings = {a.name: a.mappings for a in self.options.accounts}
        mappings[GLOBAL_ACCOUNT] = self.options.mappings
        return self._configured.sharing, mappings.get(account, [])

    def claims(self, account: str) -> tuple[AccountClaims, str] | None:
        """What the token of an account says, with that; None for one that has none."""
        tenants = self._delegates and self._delegates.tenants
        tenant = tenants.get(account) if tenants else None
        return None if tenant is None or not tenant.token else (tenant.claims, tenant.token)
