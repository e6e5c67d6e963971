"""The port of servers of other clusters."""

from __future__ import annotations

from jsserver.cext.engine import LISTEN_GATEWAYS, DataPlane, ListenerConfig
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import PlaneListener, Securing


class GatewayListener(PlaneListener):
    """Of one server, where there is a `gateway` block. What its connections say is for the control
    plane, which also tells them INFO."""

    name = "gateway"
    scheme = "nats"

    def __init__(self, options: Options, plane: DataPlane, log: Logger) -> None:
        super().__init__(options, plane.listener(LISTEN_GATEWAYS))
        self._log = log

    @property
    def host(self) -> str:
        return self.options.gateway.host

    @property
    def asked_port(self) -> int:
        return self.options.gateway.port

    def open(self, securing: Securing) -> None:
        self.bind("Error listening on gateway port: {} - {}")
        self.terms()
        self._log.info(f"Gateway name is {self.options.gateway.name}")
        self.accept()
        self._log.info(f"Listening for gateways connections on {self.address}")

    def terms(self) -> None:
        self._handle.configure(
            ListenerConfig(
                handshake_timeout=0,
                ping_interval=0,
                auth_timeout=int(self.options.gateway.auth_timeout * 1e9),
                auth_required=True,
                no_auth_user=False,
                nonce=False,
                info=None,
                later_head=b"",
            )
        )
