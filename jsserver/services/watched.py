"""The server as requests of the system account and its events look at it: a protocol."""

from collections.abc import Mapping
from typing import Protocol

from jsserver.access.accounts import Accounts
from jsserver.cext.engine import DataPlane
from jsserver.monitor import sources
from jsserver.monitor.closed import ClosedConnections
from jsserver.services.answers import Identity


class Watched(sources.Server, Protocol):
    """What monitoring knows of, and more."""

    @property
    def plane(self) -> DataPlane:
        """Its data plane."""

    @property
    def accounts(self) -> Accounts:
        """Its accounts."""

    @property
    def closed(self) -> ClosedConnections:
        """Connections that have ended, and what they add up to."""

    @property
    def identity(self) -> Identity:
        """Tells who it is."""

    @property
    def page_requests(self) -> Mapping[str, int]:
        """How often each page of monitoring was asked for over HTTP, by its path."""
