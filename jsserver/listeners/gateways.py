"""The port of servers of other clusters."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.cext.engine import LISTEN_GATEWAYS, DataPlane, ListenerConfig
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import PlaneListener, Securing

if TYPE_CHECKING:
    from jsserver.access.secured import Secured


class GatewayListener(PlaneListener):
    """Of one server, where there is a `gateway` block. What its connections say is for the control
    plane, which also tells them INFO."""

    name = "gateway"

    def __init__(self, options: Options, plane: DataPlane, log: Logger) -> None:
        super().__init__(options, plane.listener(LISTEN_GATEWAYS))
        self._log = log

    @property
    def host(self) -> str:
        return self.options.gateway.host

    @property
    def asked_port(self) -> int:
        return self.options.gateway.port

    @property
    def scheme(self) -> str:
        return "nats" if self.options.gateway.tls is None else "tls"

    def open(self, securing: Securing) -> None:
        secured = securing()
        self.bind("Error listening on gateway port: {} - {}")
        self.terms()
        self._log.info(f"Gateway name is {self.options.gateway.name}")
        self.secure(secured)
        self.accept()
        self._log.info(f"Listening for gateways connections on {self.address}")

    def secure(self, secured: Secured | None) -> None:
        self.secure_by(secured.links.gateways if secured else None)

    def terms(self) -> None:
        self._handle.configure(
            ListenerConfig(
                handshake_timeout=0,
                ping_interval=max(self.options.gateway.ping_interval, 0),
                auth_timeout=int(self.options.gateway.auth_timeout * 1e9),
                auth_required=True,
                no_auth_user=False,
                nonce=False,
                info=None,
                later_head=b"",
            )
        )
