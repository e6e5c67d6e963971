"""Which messages of a stream are live, as its blocks say: read from the last block to the first.

What removes a message stands behind it, so each block is read once, and little is kept in memory:
a bit for each removed sequence below the block at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from . import blocks
from .blocks import ERASED, SEQUENCE, TOMB, Block, Kind, Row
from .caches import Index
from .places import Place, names_in, numbers_of
from .removed import Removed

Read = Callable[[int], Block]
"""A block by its number."""


@dataclass
class Span:
    """What a block holds. `gone` is what is still in the file of messages that were removed."""

    number: int
    size: int
    first: int = 0
    last: int = 0
    """The highest sequence that a message or a tombstone of it names."""
    live: int = 0
    live_bytes: int = 0
    gone: int = 0
    gone_bytes: int = 0
    packed: bool = False
    sealed: bool = False
    void: bool = False
    """A truncation took it away whole; a start removes it."""


@dataclass
class Extent:
    """What markers say of the stream: no message below `first`, no sequence above `last` used."""

    first: int = 0
    last: int = 0


@dataclass
class Look:
    """A block that was just read, and its place among the others."""

    block: Block
    span: Span
    next_first: int
    """The first sequence of the blocks behind it, 0: none."""
    is_last: bool = False
    """No block stands behind it."""
    marks: int = 0


@dataclass
class Walk:
    """A stream's blocks, from the last one on; figures are whole when it has ended."""

    place: Place
    index: Index | None = None
    """An index.db that fits the blocks: it says what limits of nats-server have removed."""
    removed: Removed = field(default_factory=Removed)
    extent: Extent = field(default_factory=Extent)
    spans: list[Span] = field(default_factory=list)
    own: bool = False
    """There are markers of ours."""
    _cut: tuple[int, int] = (0, 0)
    _frozen: bool = False

    def numbers(self) -> list[int]:
        folder, hidden = self.place.messages()
        return numbers_of(names_in(folder), hidden)

    def looks(self, read: Read) -> Iterator[Look]:
        """Each block, the last one first; what it removes is known when it is shown."""
        next_first = 0
        for number in reversed(self.numbers()):
            block = read(number)
            span = Span(number, block.plain_size, packed=block.packed, sealed=block.sealed)
            look = Look(block, span, next_first, not self.spans)
            if self._cut[0] and self._cut[0] <= number < self._cut[1]:
                span.void = True
            else:
                self._removals(block, look)
                self._count(block, span)
            self.spans.append(span)
            yield look
            next_first = span.first or next_first
            self.removed.forget_above(span.first or next_first or SEQUENCE)
        self.spans.reverse()

    def _removals(self, block: Block, look: Look) -> None:
        cut: blocks.Cut | None = None
        first = last = 0
        for row in block.rows():
            kind, raw = row[6], row[1]
            if kind in (Kind.MARK, Kind.MISFIT):
                mark = block.mark(row)
                look.marks += 1
                first, last = max(first, mark.first), max(last, mark.last)
            elif kind == Kind.CUT:
                cut = block.cut(row)
                first = last = 0
            elif kind == Kind.RECORD and raw & TOMB and raw & SEQUENCE:
                self.removed.add(raw & SEQUENCE)
                look.span.last = max(look.span.last, raw & SEQUENCE)
        self.own = self.own or look.marks > 0
        if not self._frozen:
            self.extent.first = max(self.extent.first, first)
            self.extent.last = max(self.extent.last, last)
        if cut is not None:  # what stood before it counts no more
            self._cut, self._frozen = (cut.number, block.number), True
            self.extent.last = max(self.extent.last, cut.behind)

    def _count(self, block: Block, span: Span) -> None:
        for row in messages_of(block):
            seq, size = row[1], row[3]
            span.first = span.first or seq
            span.last = max(span.last, seq)
            if self.is_live(block.number, seq):
                span.live += 1
                span.live_bytes += size
            else:
                span.gone += 1
                span.gone_bytes += size
        for row in block.rows():
            if row[6] == Kind.RECORD and row[1] & ERASED:
                span.last = max(span.last, row[1] & SEQUENCE)
                span.gone_bytes += row[3]
                span.gone += 1

    def is_live(self, number: int, seq: int) -> bool:
        """Whether a message of a block was not removed."""
        if seq in self.removed:
            return False
        if self.index is not None:
            listed = self.index.blocks.get(number)
            return listed is not None and (
                listed.first <= seq <= listed.last and seq not in listed.gone
            )
        return seq >= self.extent.first

    @property
    def last(self) -> int:
        """The last sequence that the blocks know of."""
        told = max((span.last for span in self.spans if not span.void), default=0)
        return max(told, self.extent.last, self.extent.first - 1)

    @property
    def live(self) -> int:
        return sum(span.live for span in self.spans)

    @property
    def live_bytes(self) -> int:
        return sum(span.live_bytes for span in self.spans)


def messages_of(block: Block) -> Iterator[Row]:
    """The messages of a block: records whose sequence is above that of each before."""
    last = 0
    for row in block.rows():
        raw = row[1]
        if row[6] == Kind.RECORD and raw and not raw & (TOMB | ERASED) and raw > last:
            last = raw
            yield row
