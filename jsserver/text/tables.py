"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], left: int = 2) -> str:
    """The rows below their heads, as lines without a last newline. The first `left` columns are
    aligned to the left, the others to the right."""
    texts = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(heads))]
    lines = []
    for row in texts:
        sized = enumerate(zip(row, widths, strict=True))
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in sized]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
