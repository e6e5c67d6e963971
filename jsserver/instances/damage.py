"""What is damaged in a stream's files, in words for the log."""

from collections.abc import Iterator
from logging import ERROR, WARNING

from .backend import Lost

SHOWN = 20
"""Sequences that a line names."""


UNFINISHED = ("tail", "batch")
"""Kinds of places that any crash may leave: nobody was promised what stood there."""


def summary(lost: Lost) -> str:
    """What an operator has to know of a stream whose files are damaged; empty where none is."""
    places = [place for place in lost.places if place.kind not in UNFINISHED]
    if any(place.kind == "sequences" for place in places):
        return "has lost its end, and how many messages with it is not known: damaged files"
    if lost.sequences:
        return f"has lost {len(lost.sequences)} messages: damaged files"
    for _, line in lines(Lost([], 0, len(places), places)):
        return f"has damaged files: {line}"
    return ""


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
            case "short":
                yield ERROR, (
                    f"block {place.block} is shorter than it was at the stop: {place.size} bytes "
                    f"at {place.at} are missing, but no message"
                )
            case "key":
                yield ERROR, (
                    f"{place.block}.key is damaged or missing: its block, which nobody can read, "
                    "is put aside"
                )
            case "reserve":
                yield WARNING, "sequence.jsr is damaged and made anew: nothing is lost with it"
            case "log" if not place.size:
                yield ERROR, (
                    "the log of its consumers is missing or empty: they stand where the last clean "
                    "stop left them, and what they had acked since may be delivered again"
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
        cut = any(place.kind == "sequences" for place in lost.places)
        rest = ", and what stood behind them" if cut else ""
        yield ERROR, f"lost messages: {len(lost.sequences)} ({named}{more}){rest}"


def _cost(first: int, last: int, count: int) -> str:
    if not first:
        return ""
    if first == last:
        return f": message {first} is lost"
    return f": up to {count} messages of the sequences {first} to {last} are lost"
