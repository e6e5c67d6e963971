"""Which part of a stream on disk is asked for by the options."""

import dataclasses
from typing import Any

from jsserver_spark.options import StoreOptions
from jsserver_spark.positions import EARLIEST, LATEST, nanos_at, sequences

MAX_SEQ = (1 << 64) - 1
MIN_TIME, MAX_TIME = -(1 << 63), (1 << 63) - 1


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Both ends count; times are ns since 1970. `subjects`: patterns, None for all. Pickled."""

    first: int = 0
    last: int = MAX_SEQ
    min_ts: int = MIN_TIME
    max_ts: int = MAX_TIME
    subjects: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return self.first > self.last or self.min_ts > self.max_ts

    def narrowed(self, **limits: int) -> "Bounds":
        """With other ends where they leave less."""
        ends: dict[str, Any] = {}
        for name, value in limits.items():
            low = name in ("first", "min_ts")
            ends[name] = (max if low else min)(getattr(self, name), value)
        return dataclasses.replace(self, **ends)


def bounds_of(options: StoreOptions, stream: str) -> Bounds:
    """What the options ask for; OptionError names the one that cannot be understood."""
    bounds = Bounds(subjects=options.filter_subjects)
    text = options.starting_offsets or "earliest"
    first = sequences([stream], "startingOffsets", text, LATEST)[stream]
    text = options.ending_offsets or "latest"
    end = sequences([stream], "endingOffsets", text, EARLIEST)[stream]
    if first != EARLIEST:
        bounds = bounds.narrowed(first=first)
    if end != LATEST:
        bounds = bounds.narrowed(last=end - 1)
    if options.starting_timestamp:
        since = nanos_at(options.starting_timestamp, "startingTimestamp")
        bounds = bounds.narrowed(min_ts=since)
    if options.ending_timestamp:
        bounds = bounds.narrowed(max_ts=nanos_at(options.ending_timestamp, "endingTimestamp") - 1)
    return bounds
