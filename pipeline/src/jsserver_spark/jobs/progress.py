"""A line at the terminal that says how far a job is and when it will be done."""

import sys
import time
from typing import TextIO

REFRESH_S = 0.2


class Progress:
    """Counts rows of `total` (0: unknown) and shows them on `stream` where that is a terminal."""

    def __init__(self, what: str, total: int = 0, stream: TextIO | None = None) -> None:
        self.rows = 0
        self.total = total
        self._what = what
        self._stream = sys.stderr if stream is None else stream
        self._shown = bool(self._stream) and self._stream.isatty()
        self._started = time.monotonic()
        self._next = self._started
        self._width = 0

    def add(self, rows: int) -> None:
        self.rows += rows
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + REFRESH_S
            self._show(self.line(now - self._started))

    def line(self, elapsed: float) -> str:
        """How it stands after `elapsed` seconds."""
        rate = self.rows / elapsed if elapsed > 0 else 0.0
        if not self.total:
            return f"{self._what}: {self.rows:,} rows, {rate:,.0f}/s"
        share = min(100 * self.rows // self.total, 100)
        left = max(self.total - self.rows, 0) / rate if rate else 0.0
        return (
            f"{self._what}: {self.rows:,} of {self.total:,} rows ({share} %), {rate:,.0f}/s,"
            f" {duration(left)} left"
        )

    def _show(self, line: str) -> None:
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """Takes the line away: what comes next starts at the margin."""
        if self._shown and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def amount(size: float) -> str:
    """Bytes with a unit: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
