"""Monitoring of one server: its listener and its pages."""

import socket

from jsserver.monitor.closed import ClosedConnections
from jsserver.monitor.http import HttpServer
from jsserver.monitor.pages import Pages
from jsserver.monitor.sources import Server
from jsserver.sockets import bound_port, open_listener


class Monitor:
    """start() and close() frame its life in the server's event loop."""

    def __init__(self, server: Server, closed: ClosedConnections) -> None:
        options = server.options
        self.host = options.http_host or options.host
        self.port = options.http_port
        pages = Pages(server, closed)
        self._http = HttpServer(pages.answer, urgent=pages.urgent)
        self._listener: socket.socket | None = None

    async def start(self) -> None:
        """Opens the listener, `port` being the real one afterwards; OSError if that fails."""
        self._listener = open_listener(self.host, self.port)
        self.port = bound_port(self._listener)
        await self._http.start(self._listener)

    async def close(self) -> None:
        """Stops listening and cuts the connections."""
        await self._http.close()
