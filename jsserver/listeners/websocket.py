"""The port of clients that speak WebSocket, with TLS or without."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.access.info import InfoBuilder
from jsserver.cext.engine import LISTEN_WEBSOCKET, DataPlane
from jsserver.config import advice
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import PlaneListener, Securing, terms_of

if TYPE_CHECKING:
    from jsserver.access.secured import Secured

ANY_HOST = "0.0.0.0"


class WebsocketListener(PlaneListener):
    """Of one server, where `websocket` names a port."""

    name = "websocket"

    def __init__(
        self, options: Options, plane: DataPlane, log: Logger, builder: InfoBuilder
    ) -> None:
        super().__init__(options, plane.listener(LISTEN_WEBSOCKET))
        self._log = log
        self._builder = builder

    @property
    def host(self) -> str:
        return self.options.websocket.host or ANY_HOST

    @property
    def asked_port(self) -> int:
        return self.options.websocket.port

    @property
    def scheme(self) -> str:
        return "ws" if self.options.websocket.tls is None else "wss"

    def open(self, securing: Securing) -> None:
        secured = securing()
        self.bind("Unable to listen for websocket connections: {1}")
        self.terms()
        self.secure(secured)
        self.accept()
        where = f"{self.scheme}://{self.address}"
        self._log.info(f"Listening for websocket clients on {where}")
        for line in advice.of_websocket(self.options):
            self._log.warn(line)

    def secure(self, secured: Secured | None) -> None:
        self.secure_by(secured.websocket if secured else None)

    def terms(self) -> None:
        if not self.port:
            return  # nobody comes, and what there is to tell is not known
        from jsserver.config.websocket import patience_of  # which has been loaded where it is set

        o, view = self.options, self.options.through_websocket
        build, host, port = self._builder.for_websocket, self.host, self.port
        config = terms_of(
            view,
            build(o, host, port, auth_required=view.auth_required),
            later_head=build(o, host, port, auth_required=o.auth_required)[0],
            ping_interval=max(o.websocket.ping_interval, 0),
            handshake_timeout=patience_of(o.websocket),
        )
        self._handle.configure(config)
