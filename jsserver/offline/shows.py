"""Tables, sizes and a progress bar for people."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
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


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], left: int = 2) -> str:
    """Columns, the first `left` of them to the left."""
    texts = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(heads))]
    lines = []
    for row in texts:
        sized = enumerate(zip(row, widths, strict=True))
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in sized]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


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
