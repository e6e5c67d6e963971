"""The port of monitoring: opened with the others, and served once the control plane is there."""

from __future__ import annotations

from jsserver import TYPE_CHECKING
from jsserver.config.options import Options
from jsserver.process.logs import Logger

from . import Listener, Securing

if TYPE_CHECKING:
    import socket

    from jsserver.access.secured import Secured


class MonitoringListener(Listener):
    """Of one server, where `http_port` or `https_port` is set."""

    name = "monitoring"

    def __init__(self, options: Options, log: Logger) -> None:
        super().__init__(options)
        self._log = log

    @property
    def host(self) -> str:
        return self.options.http_host

    @property
    def asked_port(self) -> int:
        return self.options.http_port or self.options.https_port

    @property
    def scheme(self) -> str:
        return "https" if self.options.https_port else "http"

    def open(self, securing: Securing) -> None:
        """Connections wait until somebody takes the socket: nothing needs to be secured yet."""
        self.bind('Can\'t start monitoring on {}, "{}"')
        self._log.info(f"Starting {self.scheme} monitor on {self.address}")

    def secure(self, secured: Secured | None) -> None:
        """By the certificate of clients' connections, where it is HTTPS."""
        self.keep(secured.clients if secured and self.options.https_port else None)

    def take(self) -> socket.socket | None:
        """The socket, which the caller closes; None where there is none."""
        taken, self._socket = self._socket, None
        return taken
