"""Which sequences replicas of a stream differ in, found by digests of ever smaller parts.

Plain data: what replicas say is asked through a callable.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

SHOWN = 10
"""Sequences that are looked for one by one."""
NARROWER = 64
"""How many times smaller the parts are that are looked at next."""


class Part(NamedTuple):
    """Sequences from `first` to `last`, by digests of so many each."""

    first: int
    last: int
    chunk: int


Ask = Callable[[str, Part], Mapping[int, str]]
"""Asks a replica: digests by the first sequence of their chunk, of chunks that have messages."""


class Difference(NamedTuple):
    """A message that not all replicas have alike."""

    seq: int
    digests: dict[str, str]
    """By replica; "" where the message is not there."""

    def odd(self, leader: str) -> list[str]:
        """The replicas that differ from most others, or, where no more agree, from the leader: all
        of them where that makes no digests."""
        counted = Counter(self.digests.values()).most_common(2)
        right, count = counted[0]
        if len(counted) > 1 and counted[1][1] == count:
            if leader not in self.digests:
                return sorted(self.digests)
            right = self.digests[leader]
        return sorted(name for name, digest in self.digests.items() if digest != right)


def differences(replicas: Sequence[str], ask: Ask, part: Part) -> list[Difference]:
    """The first of the messages that differ, in order; none where all are alike."""
    said = {name: ask(name, part) for name in replicas}
    firsts = sorted({first for one in said.values() for first in one})
    found: list[Difference] = []
    for first in firsts:
        digests = {name: one.get(first, "") for name, one in said.items()}
        if len({*digests.values()}) == 1:
            continue
        if part.chunk == 1:
            found.append(Difference(first, digests))
        else:
            last = min((first - 1) // part.chunk * part.chunk + part.chunk, part.last)
            smaller = Part(first, last, max(part.chunk // NARROWER, 1))
            found += differences(replicas, ask, smaller)
        if len(found) >= SHOWN:
            return found[:SHOWN]
    return found
