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
    """Disks may bring writes to the platter in any order between two syncs."""
    limits: bool = False
    """The stream has some."""
    retention: str = LIMITS
    batches: bool = False
    """Publishers send atomic batches, too."""
    memory: bool = False
    """The stream and its log are in memory: what a majority has at any time is there, and no more
    than a minority stops at a time."""
    damage: bool = False
    """When a server starts, a bit of one of its files may be another one, or its disk a new one."""
    odd: bool = False
    """Single messages are lost, and some come late."""

    @property
    def keeps_all(self) -> bool:
        """Nothing leaves the stream."""
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
    """Its configuration."""
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
