"""The kinds of clusters that are simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.unit.stream_world import INTEREST, LIMITS, MEMORY, SECOND, WORKQUEUE

if TYPE_CHECKING:
    import random


@dataclass(frozen=True)
class Kind:
    servers: int = 3
    loose: bool = True
    """Whether disks may write in any order between two syncs."""
    limits: bool = False
    """Whether the stream has limits."""
    retention: str = LIMITS
    batches: bool = False
    """Whether publishers also send atomic batches."""
    memory: bool = False
    """Whether the stream and its log are in memory. Then only a minority stops at a time, because
    what a majority has must survive."""
    damage: bool = False
    """Whether a starting server may find a flipped bit in a file, or an empty disk."""
    odd: bool = False
    """Whether single messages are lost or late."""

    @property
    def keeps_all(self) -> bool:
        """Whether no message is ever removed from the stream."""
        return not self.limits and self.retention == LIMITS


KINDS = {
    "three": Kind(),
    "five": Kind(servers=5),
    "three, odd": Kind(odd=True),
    "limits": Kind(limits=True),
    "interest": Kind(retention=INTEREST),
    "work queue": Kind(retention=WORKQUEUE),
    "batches": Kind(batches=True),
    "memory": Kind(memory=True),
    "damage": Kind(damage=True),
}


def stream_of(kind: Kind, rng: random.Random) -> dict[str, Any]:
    """The stream's configuration."""
    made: dict[str, Any] = {"duplicate_window": 120 * SECOND, "retention": kind.retention}
    if kind.batches:
        made["allow_atomic"] = True
    if kind.memory:
        made["storage"] = MEMORY
    if kind.limits:
        made |= {
            "max_msgs": rng.choice((-1, 10, 100)),
            "max_bytes": rng.choice((-1, 20_000)),
            "max_msgs_per_subject": rng.choice((-1, 1, 5)),
            "max_age": rng.choice((0, 3 * SECOND, 20 * SECOND)),
            "discard": rng.choice(("old", "old", "new")),
        }
    return made
