"""Tells the service manager how the server fares, by systemd's readiness protocol (sd_notify(3)).

Each message is one datagram of `NAME=value` lines to the socket that $NOTIFY_SOCKET names: a path,
or an abstract address written with a leading `@`. Without that variable every call does nothing.
"""

import asyncio
import contextlib
import os
import socket

SECOND_US = 1_000_000
START_PATIENCE_S = 60.0
START_INTERVAL_S = 20.0


class Notifier:
    """Sends state changes to the service manager; a manager that went away is no error."""

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        """`address`: as in $NOTIFY_SOCKET, empty for none. `watchdog_s`: a sign of life is due
        at least this often, None where the manager does not watch."""
        self.address = address
        self.watchdog_s = watchdog_s
        self._started = asyncio.Event()

    @classmethod
    def from_environment(cls) -> "Notifier":
        """Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID and removes them, so that no
        process started from here speaks for the service.

        The watchdog's pid may be the parent's, the launcher of a one-file executable.
        """
        address = os.environ.pop("NOTIFY_SOCKET", "")
        period = os.environ.pop("WATCHDOG_USEC", "")
        pid = os.environ.pop("WATCHDOG_PID", "")
        watchdog_s = None
        if (
            period.isdigit()
            and int(period) > 0
            and pid in ("", str(os.getpid()), str(os.getppid()))
        ):
            watchdog_s = int(period) / SECOND_US
        return cls(address, watchdog_s)

    @property
    def enabled(self) -> bool:
        return self.address.startswith(("/", "@"))

    def ready(self, status: str = "") -> None:
        """The listeners are open. Names this process as the main one: under a one-file
        executable the manager started its launcher."""
        self._send(f"READY=1\nMAINPID={os.getpid()}", status)
        self._started.set()

    def stopping(self, status: str = "") -> None:
        """Shutdown has begun."""
        self._send("STOPPING=1", status)

    def alive(self) -> None:
        """The sign of life the watchdog waits for."""
        self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float, status: str = "") -> None:
        """Starting or stopping takes longer: do not give up for that long from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * SECOND_US)}", status)

    async def attend(self) -> None:
        """Run beside the server: asks for more time until it is `ready`, then shows the watchdog
        twice a period that the event loop runs."""
        if not self.enabled:
            return
        while not self._started.is_set():
            self.extend_timeout(START_PATIENCE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_INTERVAL_S):
                    await self._started.wait()
        while self.watchdog_s:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def _send(self, state: str, status: str = "") -> None:
        if not self.enabled:
            return
        lines = [state] if state else []
        if status:
            lines.append("STATUS=" + " ".join(status.split()))
        address = self.address
        if address.startswith("@"):
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                # The manager may be slow, the server must not wait for it.
                out.setblocking(False)
                out.sendto("\n".join(lines).encode(), address)
        except (OSError, ValueError):
            return
