"""A set of sequences in pages of bits, which takes little memory where many stand together."""

from __future__ import annotations

_BITS = 1 << 13


class Removed:
    """Sequences that were removed."""

    def __init__(self) -> None:
        self._pages: dict[int, int | bytearray] = {}

    def add(self, seq: int) -> None:
        """A page with one sequence is a number: many pages have no more."""
        page, bit = divmod(seq, _BITS)
        had = self._pages.get(page)
        if had is None:
            self._pages[page] = bit
            return
        if isinstance(had, int):
            if had == bit:
                return
            self._pages[page] = bits = bytearray(_BITS // 8)
            bits[had >> 3] |= 1 << (had & 7)
            had = bits
        had[bit >> 3] |= 1 << (bit & 7)

    def add_bits(self, base: int, bits: bytes) -> None:
        """Those of a bitmap whose first bit stands for `base`."""
        for at, byte in enumerate(bits):
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        self.add(base + at * 8 + bit)

    def __contains__(self, seq: int) -> bool:
        page, bit = divmod(seq, _BITS)
        had = self._pages.get(page)
        if had is None:
            return False
        return had == bit if isinstance(had, int) else bool(had[bit >> 3] >> (bit & 7) & 1)

    def __bool__(self) -> bool:
        return bool(self._pages)

    def forget_above(self, seq: int) -> None:
        """Lets go of whole pages above a sequence, of which nobody will ask."""
        limit = seq // _BITS
        for page in [page for page in self._pages if page > limit]:
            del self._pages[page]


def ranges(seqs: list[int]) -> list[tuple[int, int]]:
    """Ascending sequences as first and last ones of runs."""
    out: list[tuple[int, int]] = []
    for seq in seqs:
        if out and out[-1][1] + 1 == seq:
            out[-1] = out[-1][0], seq
        else:
            out.append((seq, seq))
    return out


def shown(runs: list[tuple[int, int]], most: int = 10) -> str:
    """Ranges for people."""
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    return ", ".join(texts) + (f" and {len(runs) - most} more" if len(runs) > most else "")
