"""Which failed attempts to reach another server are logged as errors, and which only for
debugging."""

from __future__ import annotations

import msgspec


class Reports(msgspec.Struct, frozen=True):
    """`connect_error_reports` and `reconnect_error_reports`: the first failed attempt is an error,
    and then one of so many."""

    first: int = 3600
    """For servers that were never connected."""
    again: int = 1
    """For servers that were connected before."""

    def are_due(self, attempt: int, *, was_there: bool) -> bool:
        """Whether an attempt is logged as an error; `attempt`: counted from 1."""
        return attempt == 1 or attempt % (self.again if was_there else self.first) == 0

    def level(self, attempt: int, *, was_there: bool) -> str:
        """The log level of a failed attempt: error or debug."""
        return "error" if self.are_due(attempt, was_there=was_there) else "debug"
