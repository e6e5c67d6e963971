"""What is remembered of a simulated stream and its consumers, to compare with later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from jsserver.cext.consumer import ConsumerHandle
from jsserver.cext.stream import Damage

Message = tuple[bytes, bytes, bytes]


class Wrong(AssertionError):
    """What was found after a seed's last step."""


@dataclass
class Snap:
    """What a stream held after something was done, and the ticket of that."""

    what: str
    at: int
    ticket: int
    live: dict[int, Message]
    last: int
    passed: dict[int, Message] = field(default_factory=dict)
    """What it stored and a limit took at once."""
    acked_at: int = -1
    """When it was known to be acked, where that does not wait for the sync."""


class Shown(NamedTuple):
    """What a start shows of a stream."""

    live: dict[int, Message]
    last: int
    floors: list[int]
    """Of each consumer the first message above its floor. A floor passes over sequences without a
    message, at once or at the next start: which of the two says nothing of a message."""
    lost: list[int]
    places: list[Damage]

    def covers(self, place: Damage) -> bool:
        """Whether that is no news: what was never finished, which a start with a checkpoint does
        not see, and of sequences that are left out one may know better which."""
        return place.kind in ("tail", "batch") or any(
            known.kind == place.kind and known.first <= place.first and place.last <= known.last
            for known in self.places
        )


@dataclass
class Reader:
    """A consumer, and what of its acks was asked and confirmed."""

    name: bytes
    filter: bytes
    acks_all: bool = False
    """Whether an ack is one of everything delivered before."""
    in_memory: bool = False
    handle: ConsumerHandle | None = None
    asked: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    kept: set[int] = field(default_factory=set)
    """Those of the confirmed that a power cut leaves."""
    open: dict[int, bytes] = field(default_factory=dict)
    """Delivered and not acked: sequence -> where its ack goes."""
    delivered: set[int] = field(default_factory=set)
    got: list[int] = field(default_factory=list)
    """What came since this was emptied."""

    def acked_by(self, seq: int) -> set[int]:
        """What an ack of that message stands for."""
        return {s for s in self.delivered if s <= seq} if self.acks_all else {seq}

    def begins(self, last: int, killed: bool = False) -> None:
        """In a new life, whose stream ends there: what comes behind has the sequences again."""
        if self.in_memory:
            last = 0
        self.open = {}
        self.asked = {seq for seq in self.asked if seq <= last}
        self.confirmed = {seq for seq in self.confirmed if seq <= last}
        self.kept = self.kept & self.confirmed if killed else set(self.confirmed)
        self.delivered = {seq for seq in self.delivered if seq <= last}

    def wants(self, subject: bytes) -> bool:
        return not self.filter or subject.split(b".")[1] == self.filter.split(b".")[1]
