"""The port of clients that speak the protocol over TCP, with TLS or without."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.access.info import InfoBuilder
from jsserver.cext.engine import LISTEN_CLIENTS, DataPlane
from jsserver.config import advice
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import PlaneListener, Securing, terms_of

if TYPE_CHECKING:
    from jsserver.access.secured import Secured


class ClientListener(PlaneListener):
    """Of one server, which always has it."""

    name = "nats"

    def __init__(
        self, options: Options, plane: DataPlane, log: Logger, builder: InfoBuilder
    ) -> None:
        super().__init__(options, plane.listener(LISTEN_CLIENTS))
        self._log = log
        self._builder = builder

    @property
    def host(self) -> str:
        return self.options.host

    @property
    def asked_port(self) -> int:
        return self.options.port

    @property
    def scheme(self) -> str:
        return "nats" if self.options.tls is None else "tls"

    def open(self, securing: Securing) -> None:
        o, log = self.options, self._log
        secured = securing()
        self.bind('Error listening on port: {}, "{}"')
        self.terms()
        self.secure(secured)
        self.accept()
        log.info(f"Listening for client connections on {self.address}")
        if o.proxy_protocol:
            log.info("PROXY protocol enabled for client connections")
        if o.tls is not None:
            log.info(f"TLS {'required' if o.tls_required else 'available'} for client connections")
            for line in advice.of_handshakes(o):
                log.warn(line)

    def secure(self, secured: Secured | None) -> None:
        by = secured.clients if secured else None
        self.secure_by(by, proxied=self.options.proxy_protocol)

    def terms(self) -> None:
        """Before the port is open there is no INFO to be told."""
        o = self.options
        info = self._builder.for_clients(o, self.port) if self.port else None
        self._handle.configure(terms_of(o, info))
