"""Finds the one changed bit that makes bytes wrong, and changes it back."""

from __future__ import annotations

from collections.abc import Callable

SEARCHED = 4096
"""Bytes of a damaged place that are searched."""


def changed_back(
    data: bytearray, at: int, size: int, is_good: Callable[[], bool], most: int = SEARCHED
) -> int | None:
    """Tries the bits of `size` bytes from `at` on, of the first `most` of them: the first one with
    which `is_good` says that `data` is right stays changed, and its number from `at` on is
    returned. None: there is none, and `data` is as it was."""
    for bit in range(min(size, most) * 8):
        place, mask = at + (bit >> 3), 1 << (bit & 7)
        data[place] ^= mask
        if is_good():
            return bit
        data[place] ^= mask
    return None
