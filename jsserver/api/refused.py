"""Tells the log of requests whose bodies cannot be read, and of those that an option refuses."""

import logging
import time

from jsserver.wire import errcodes
from jsserver.wire.errors import ApiError

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds in which the same line comes once."""
LINES_MAX = 20
"""Lines in that time; what comes beyond is counted with the next line."""

INVALID = errcodes.INVALID_JSON.err_code


class RefusedRequests:
    """Lives in the event loop."""

    def __init__(self) -> None:
        self._since = 0.0
        self._told: set[str] = set()
        self._left_out = 0

    def seen(self, account: str, subject: bytes, error: ApiError) -> ApiError:
        """The error; the log is told of it where the body of the request is to blame, or where the
        error has notes for the operator."""
        request = f"JetStream request '{account} > {subject.decode('utf-8', 'replace')}'"
        if error.err_code == INVALID:
            why = error.body.description
            reason = why.removeprefix(errcodes.INVALID_JSON.description.removesuffix("{err}"))
            self._tell(f"Invalid {request}: {reason}")
        for note in getattr(error, "__notes__", ()):
            self._tell(f"{request} is refused ({error.err_code}): {note}")
        return error

    def _tell(self, line: str) -> None:
        now = time.monotonic()
        if now - self._since >= PERIOD:
            self._since = now
            self._told.clear()
        if line in self._told or len(self._told) >= LINES_MAX:
            self._left_out += line not in self._told
            return
        self._told.add(line)
        more = f" (and {self._left_out} other requests before)" if self._left_out else ""
        self._left_out = 0
        log.warning("%s%s", line, more)
