"""What is damaged in a stream's files, in words for the log."""

from collections.abc import Iterator
from logging import ERROR, WARNING

from .backend import Lost

SHOWN = 20
"""Sequences that a line names."""


def lines(lost: Lost) -> Iterator[tuple[int, str]]:
    """A line for every damaged place, and one for all messages that are lost, with its level: what
    a kill leaves behind is no error."""
    for place in lost.places:
        where = f"block {place.block}, {place.size} bytes at {place.at}"
        cost = _cost(place.first, place.last, place.count)
        match place.kind:
            case "records":
                yield ERROR, f"{where} are damaged{cost}"
            case "message":
                yield ERROR, f"{where} are damaged: message {place.first} is not served"
            case "block":
                yield ERROR, f"block {place.block} is missing or not what it was{cost}"
            case "aside":
                yield WARNING, f"block {place.block} has no record of this stream: it is put aside"
            case "tail":
                yield WARNING, f"{where} are of a write that never ended: they are put aside"
            case "batch":
                yield WARNING, f"{where} are of a batch that never ended: it is removed as a whole"
            case "sequences":
                yield ERROR, (
                    f"its end is damaged: sequences {place.first} to {place.last} may have been "
                    "used and are left out"
                )
            case "log":
                yield ERROR, (
                    f"the log of its consumers is damaged, {place.size} bytes at {place.at}: what "
                    "they had acked there may be delivered again"
                )
    if lost.damage > len(lost.places) > 0:
        yield ERROR, f"{lost.damage - len(lost.places)} more places are damaged"
    if lost.sequences:
        named = ", ".join(map(str, lost.sequences[:SHOWN]))
        more = ", ..." if len(lost.sequences) > SHOWN else ""
        yield ERROR, f"lost messages: {len(lost.sequences)} ({named}{more})"


def _cost(first: int, last: int, count: int) -> str:
    if not first:
        return ""
    if first == last:
        return f": message {first} is lost"
    return f": up to {count} messages of the sequences {first} to {last} are lost"
