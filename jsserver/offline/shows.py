"""Sizes and a progress bar for people."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
_EVERY = 0.1
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(n: int) -> str:
    """Bytes with three digits."""
    value, unit = float(n), 0
    while value >= 1000 and unit + 1 < len(_UNITS):
        value /= 1024
        unit += 1
    return f"{n} B" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


class Progress:
    """A bar at a terminal, nothing elsewhere. `total`: bytes to look at."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = self._stream is not None and self._stream.isatty()
        self._total, self._done = total, 0
        self._start = self._last = time.monotonic()

    def add(self, n: int) -> None:
        """So many bytes were looked at."""
        self._done += n
        now = time.monotonic()
        if self._shown and now - self._last >= _EVERY:
            self._last = now
            self._draw(now)

    def _draw(self, now: float) -> None:
        part = min(1.0, self._done / self._total) if self._total else 1.0
        bar = "#" * int(part * _WIDTH)
        rate = size(int(self._done / max(now - self._start, 1e-3)))
        self._stream.write(f"\r[{bar:.<{_WIDTH}}] {part:4.0%} of {size(self._total)}, {rate}/s ")
        self._stream.flush()

    def end(self) -> None:
        """Takes the bar away."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
