"""Monitoring of one server: its pages, served over HTTP."""

import socket

from jsserver.monitor.closed import ClosedConnections
from jsserver.monitor.http import HttpServer
from jsserver.monitor.pages import Pages
from jsserver.monitor.sources import Server


class Monitor:
    """start() and close() frame its life in the server's event loop."""

    def __init__(self, server: Server, closed: ClosedConnections) -> None:
        pages = Pages(server, closed)
        self.requests = pages.requests
        """How often each page was asked for, by its path."""
        self._http = HttpServer(
            pages.answer, urgent=pages.urgent, security=lambda: server.monitor_security
        )

    async def start(self, listener: socket.socket) -> None:
        """Answers requests of connections to the listener."""
        await self._http.start(listener)

    async def close(self) -> None:
        """Stops listening and cuts the connections."""
        await self._http.close()
