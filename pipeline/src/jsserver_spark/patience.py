"""Trying again while a server is away."""

import logging
import time

from jsserver_spark.errors import NatsError

AWAY_SECONDS = 10.0
"""How long a server may be away before what needs it gives up."""
PAUSE_SECONDS = 0.05
PAUSE_SECONDS_MAX = 1.0

log = logging.getLogger(__name__)


class Patience:
    """Waits between tries, longer each time, until they got nowhere for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.progress()

    def progress(self) -> None:
        """The last try got somewhere."""
        self._since: float | None = None
        self._pause = PAUSE_SECONDS

    def wait(self, error: NatsError) -> None:
        """After a try that failed. NatsError: no patience helps against it, or it lasted long."""
        if not error.passes:
            raise error from None
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since > self.seconds:
            raise NatsError(f"{error} (tried for {self.seconds:g} s)") from None
        log.warning("%s; trying again", error)
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)
