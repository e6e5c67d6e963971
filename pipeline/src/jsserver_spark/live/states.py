"""The states of the streams that a query reads, asked for no more often than they need to be."""

import logging
import math
import time
from collections.abc import Sequence

from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import NO_SUCH_STREAM, ApiError, JetStream, Patient, StreamInfo
from jsserver_spark.live.offsets import matching, names_of
from jsserver_spark.options import SourceOptions

REQUESTS_PER_SECOND = 9
"""At most, at the server, for one query."""
PAGE = 256
"""Streams that the server puts on a page of its list."""
PATIENCE_SECONDS = 60.0
"""How long states may be old because the server does not answer."""

log = logging.getLogger(__name__)


class States:
    """What was last known; `server` is who is asked."""

    def __init__(self, options: SourceOptions) -> None:
        self.server = Patient(options, "jsserver-spark-driver")
        self._options = options
        self._infos: list[StreamInfo] = []
        self._asked_at = -math.inf
        self._known_at = -math.inf
        self._pause = 0.0
        self._pages = 1

    def clock(self) -> float:
        return time.monotonic()

    def recent(self) -> list[StreamInfo]:
        """At most a pause old; older only while the server does not answer."""
        now = self.clock()
        if now - self._asked_at < self._pause:
            return self._infos
        try:
            return self.now()
        except NatsError as error:
            if not error.passes:
                raise
            if now - self._known_at > PATIENCE_SECONDS:
                raise NatsError(f"{error} (tried for {PATIENCE_SECONDS:g} s)") from None
            log.warning("%s; going on with what is known", error)
            self._asked_at, self._pause = now, 1.0
            return self._infos

    def now(self) -> list[StreamInfo]:
        """As the server says at this moment."""
        self._asked_at = self.clock()
        names = names_of(self._options)
        if names and len(names) <= self._pages:
            requests = len(names)
            found = self.server.ask_once(lambda js: _infos(js, names))
        else:
            found = self.server.ask_once(lambda js: list(js.stream_infos()))
            requests = self._pages = max(math.ceil(len(found) / PAGE), 1)
            if names:
                found = [info for info in found if info.name in names]
            else:
                found = matching(found, self._options)
        missing = set(names) - {info.name for info in found}
        if missing and not self._infos:
            raise NatsError(
                f"there is no stream {min(missing)!r} (see the options stream, streams and servers)"
            )
        self._infos = found
        self._known_at = self._asked_at
        self._pause = requests / REQUESTS_PER_SECOND
        return found


def _infos(js: JetStream, names: Sequence[str]) -> list[StreamInfo]:
    """Of those streams that there are."""
    found = []
    for name in names:
        try:
            found.append(js.stream_info(name))
        except ApiError as error:
            if error.code != NO_SUCH_STREAM:
                raise
    return found
