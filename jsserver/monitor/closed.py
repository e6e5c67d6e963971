"""Connections that ended: the last ones in full, all of them as totals of their accounts."""

import threading
from collections import deque

import msgspec

from jsserver.access.clients import Connection


class ClosedConnection(msgspec.Struct):
    """A connection at its end; `stop` in ns since the epoch."""

    connection: Connection
    stop: int


class Totals(msgspec.Struct):
    """What the connections of an account that have ended moved."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0


class ClosedConnections:
    """Filled from the event loop, read by the monitoring thread."""

    def __init__(self, most: int) -> None:
        """`most`: how many connections are kept (max_closed_clients)."""
        self._kept: deque[ClosedConnection] = deque(maxlen=max(most, 0))
        self._totals: dict[int, Totals] = {}
        self._lock = threading.Lock()

    def add(self, connection: Connection, stop: int | None = None) -> None:
        """Takes a connection that has ended, with its reason and user; `stop`: its `now`, if not
        given."""
        at = connection.now if stop is None else stop
        with self._lock:
            self._kept.append(ClosedConnection(connection, at))
            totals = self._totals.setdefault(connection.account, Totals())
            totals.in_msgs += connection.in_msgs
            totals.in_bytes += connection.in_bytes
            totals.out_msgs += connection.out_msgs
            totals.out_bytes += connection.out_bytes
            totals.slow_consumers += connection.reason.startswith("Slow Consumer")

    def kept(self) -> list[ClosedConnection]:
        """Those still kept, the oldest first."""
        with self._lock:
            return list(self._kept)

    def totals(self, account: int) -> Totals:
        """The sums over all connections of an account that have ended."""
        with self._lock:
            return msgspec.structs.replace(self._totals.get(account, Totals()))
