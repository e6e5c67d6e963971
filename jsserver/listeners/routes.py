"""The port of other servers of the cluster."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.cext.engine import LISTEN_ROUTES, DataPlane, ListenerConfig
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import PlaneListener, Securing

if TYPE_CHECKING:
    from jsserver.access.secured import Secured


class RouteListener(PlaneListener):
    """Of one server, where `cluster` names a port. What its connections say is for the control
    plane, which also tells them INFO."""

    name = "cluster"

    def __init__(self, options: Options, plane: DataPlane, log: Logger, cluster: str) -> None:
        super().__init__(options, plane.listener(LISTEN_ROUTES))
        self._log = log
        self._cluster = cluster

    @property
    def host(self) -> str:
        return self.options.cluster.host

    @property
    def asked_port(self) -> int:
        return self.options.cluster.port

    @property
    def scheme(self) -> str:
        return "nats" if self.options.cluster.tls is None else "tls"

    def open(self, securing: Securing) -> None:
        secured = securing()
        self.bind("Error listening on router port: {}, {}")
        self.terms()
        self._log.info(f"Cluster name is {self._cluster}")
        if not self.options.cluster.name:
            self._log.warn("Cluster name was dynamically generated, consider setting one")
        self.secure(secured)
        self.accept()
        self._log.info(f"Listening for route connections on {self.address}")

    def secure(self, secured: Secured | None) -> None:
        self.secure_by(secured.links.routes if secured else None)

    def terms(self) -> None:
        o = self.options.cluster
        self._handle.configure(
            ListenerConfig(
                handshake_timeout=0,
                ping_interval=o.ping_interval,
                auth_timeout=int(o.auth_timeout * 1e9),
                auth_required=True,
                no_auth_user=False,
                nonce=False,
                info=None,
                later_head=b"",
            )
        )
