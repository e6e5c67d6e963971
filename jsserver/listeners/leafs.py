"""The port of leaf nodes."""

from __future__ import annotations

from jsserver.cext.engine import LISTEN_LEAFS, DataPlane, ListenerConfig
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import PlaneListener, Securing


class LeafListener(PlaneListener):
    """Of one server, where `leafnodes` names a port. What its connections say is for the control
    plane, which also tells them INFO."""

    name = "leafnodes"
    scheme = "nats"

    def __init__(self, options: Options, plane: DataPlane, log: Logger) -> None:
        super().__init__(options, plane.listener(LISTEN_LEAFS))
        self._log = log

    @property
    def host(self) -> str:
        return self.options.leafnodes.host

    @property
    def asked_port(self) -> int:
        return self.options.leafnodes.port

    def open(self, securing: Securing) -> None:
        self.bind("Error listening on leafnode port: {} - {}")
        self.terms()
        self.accept()
        self._log.info(f"Listening for leafnode connections on {self.address}")

    def terms(self) -> None:
        self._handle.configure(
            ListenerConfig(
                handshake_timeout=0,
                ping_interval=0,
                auth_timeout=int(self.options.leafnodes.auth_timeout * 1e9),
                auth_required=True,
                no_auth_user=False,
                nonce=False,
                info=None,
                later_head=b"",
            )
        )
