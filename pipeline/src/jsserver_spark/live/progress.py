"""A streaming query's offsets: how far each stream was read, and how far the next batch may go."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jsserver_spark.errors import DataLossError, NatsError
from jsserver_spark.jetstream import StreamInfo
from jsserver_spark.options import SourceOptions

VERSION = 1

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """A stream, told by its time of creation, is read up to `seq`.

    In the end of a batch: `seq_bytes`, the mean bytes a sequence, sizes its splits. `first` is
    where the query begins to read the stream: a batch that starts there, and is written again,
    begins there too, whatever comes first by then. `earliest`: that was simply what came first.
    `missing`: sequences that the query passed over since it began, for they had no message when
    their batch was planned.
    """

    created: int
    seq: int
    seq_bytes: int = 0
    first: int = 0
    earliest: bool = False
    missing: int = 0


@dataclass(frozen=True)
class Offset:
    """Places of streams, by name."""

    places: Mapping[str, Place]

    def write(self) -> dict[str, Any]:
        streams = {}
        for name, place in sorted(self.places.items()):
            streams[name] = {"id": str(place.created), "seq": place.seq}
            if place.seq_bytes:
                streams[name]["size"] = place.seq_bytes
            if place.first:
                streams[name]["first"] = place.first
            if place.earliest:
                streams[name]["earliest"] = True
            if place.missing:
                streams[name]["missing"] = place.missing
        return {"v": VERSION, "streams": streams}

    def first_of(self, name: str, end: Place) -> int:
        """The first sequence of a batch that starts here and ends there."""
        place = self.places.get(name)
        if end.first and self.is_unread(name, end):
            return end.first
        return place.seq + 1 if place is not None and place.created == end.created else 1

    def is_unread(self, name: str, end: Place) -> bool:
        """Whether nothing of the stream was read before a batch that starts here and ends there."""
        place = self.places.get(name)
        return place is None or place.created != end.created or place.seq == place.first - 1

    def rows_since(self, start: "Offset") -> int:
        """Sequences between; at least as many as there are rows."""
        return sum(_width(start, name, place) for name, place in self.places.items())

    def same_streams(self, start: "Offset") -> bool:
        """Whether both know the same streams, and none is behind where it was."""
        return self.places.keys() == start.places.keys() and all(
            place.created == start.places[name].created and place.seq >= start.places[name].seq
            for name, place in self.places.items()
        )

    def counted(self, missing: Mapping[str, int]) -> "Offset":
        """With so many more sequences of streams that have no message."""
        return Offset(
            {
                name: replace(place, missing=place.missing + missing.get(name, 0))
                for name, place in self.places.items()
            }
        )

    def limited(self, start: "Offset", *, rows: int = 0, size: int = 0) -> "Offset":
        """No more than `rows` sequences, or about `size` bytes, of all streams together.

        Each stream gets a share by how much waits in it; at least one sequence is read.
        """
        weights = {
            name: _width(start, name, place) * (max(place.seq_bytes, 1) if size else 1)
            for name, place in self.places.items()
        }
        whole, most = sum(weights.values()), rows or size
        if whole <= most:
            return self
        places = {}
        for name, place in self.places.items():
            share = _width(start, name, place) * most // whole
            places[name] = replace(place, seq=start.first_of(name, place) - 1 + share)
        if Offset(places).rows_since(start) == 0:
            name = max(weights, key=lambda key: weights[key])
            places[name] = replace(places[name], seq=start.first_of(name, places[name]))
        return Offset(places)


def _width(start: Offset, name: str, end: Place) -> int:
    return max(end.seq - start.first_of(name, end) + 1, 0)


def read_offset(given: Mapping[str, Any]) -> Offset:
    """An offset out of a checkpoint. NatsError when it is not one of ours."""
    try:
        if given["v"] != VERSION:
            raise NatsError(
                f"the checkpoint's offsets have version {given['v']}, this program knows {VERSION}"
            )
        return Offset({name: _place(place) for name, place in given["streams"].items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise NatsError(f"the checkpoint's offsets are not of format nats: {given!r}") from None


def _place(given: Mapping[str, Any]) -> Place:
    return Place(
        int(given["id"]),
        int(given["seq"]),
        int(given.get("size", 0)),
        int(given.get("first", 0)),
        bool(given.get("earliest", False)),
        int(given.get("missing", 0)),
    )


def advance(
    start: Offset, infos: Sequence[StreamInfo], options: SourceOptions, target: Offset | None
) -> Offset:
    """The furthest end of a batch that starts there, with the streams as they are.

    DataLossError when a stream is gone, was made anew, or has lost what was not read.
    """
    places = {}
    found = {info.name: info for info in infos}
    for name in start.places.keys() - found.keys():
        _lost(options, f"stream {name!r} is gone")
    for name, info in found.items():
        before = start.places.get(name)
        last = info.state.last_seq
        if target is not None:
            goal = target.places.get(name)
            if goal is None or goal.created != info.created:
                if before is not None:
                    places[name] = before
                continue
            last = min(last, goal.seq)
        place = _next_place(before, info, last, options)
        same = before is not None and (before.created, before.seq) == (place.created, place.seq)
        places[name] = before if before is not None and same else place
    return Offset(places)


def _next_place(before: Place | None, info: StreamInfo, last: int, options: SourceOptions) -> Place:
    state = info.state
    size = round(state.bytes / max(state.last_seq - state.first_seq + 1, 1))
    if before is not None and before.created != info.created:
        _lost(options, f"stream {info.name!r} was deleted and made anew; it is read from its first")
        before = None
    if before is None:
        first = max(state.first_seq, 1)
        return Place(info.created, max(last, first - 1), size, first, earliest=True)
    if state.last_seq < before.seq:
        _lost(
            options,
            f"stream {info.name!r} ends at sequence {state.last_seq}, but was read up to"
            f" {before.seq}",
        )
        return Place(info.created, state.last_seq, size, missing=before.missing)
    if before.seq != before.first - 1:
        return Place(info.created, max(last, before.seq), size, missing=before.missing)
    first = max(before.first, state.first_seq) if before.earliest else before.first
    return Place(info.created, max(last, first - 1), size, first, before.earliest)


def _lost(options: SourceOptions, what: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(f"{what} (failOnDataLoss=false goes on)")
    log.warning("%s", what)
