"""Which failed attempts to reach another server the log tells as errors, and which only when it
shows debugging too.
"""

from __future__ import annotations

import msgspec


class Reports(msgspec.Struct, frozen=True):
    """`connect_error_reports` and `reconnect_error_reports`: the first attempt in vain is told, and
    then one of so many."""

    first: int = 3600
    """Of attempts to reach a server that was never there."""
    again: int = 1
    """Of attempts to reach a server that was there before."""

    def are_due(self, attempt: int, *, was_there: bool) -> bool:
        """Whether the log tells of an attempt; `attempt`: 1 and up."""
        return attempt == 1 or attempt % (self.again if was_there else self.first) == 0

    def level(self, attempt: int, *, was_there: bool) -> str:
        """Of the line that tells why an attempt failed."""
        return "error" if self.are_due(attempt, was_there=was_there) else "debug"
