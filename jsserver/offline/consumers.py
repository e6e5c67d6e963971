"""What files say of consumers: o.dat of nats-server, and our log beside the blocks."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from jsserver.cext.bytes import hh64

from .bits import changed_back
from .caches import Damaged, Varints

LOG = "consumers.log"
STATE = "o.dat"

_STATE_KEY = struct.pack("<4Q", 0x6A736572766572, 0x636F6E73756D6572, 0x6F2E646174, 1)
_SECOND = 10**9
_ENTRY = struct.Struct("<IQ")
_NUMBERS = {
    ord("D"): 4,
    ord("R"): 3,
    **dict.fromkeys(b"UTKB", 2),
    **dict.fromkeys(b"AEP", 1),
    ord("X"): 0,
}


@dataclass
class State:
    """How far a consumer is."""

    ack_floor: tuple[int, int] = (0, 0)
    """Of deliveries and of the stream, as `delivered`."""
    delivered: tuple[int, int] = (0, 0)
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Stream sequence -> number of its delivery, and when that was, in ns since 1970."""
    redelivered: dict[int, int] = field(default_factory=dict)
    """Stream sequence -> deliveries."""


def state(data: bytes) -> State:
    """What an o.dat says; Damaged. It has no checksum: what cannot be is told, no more."""
    if len(data) < 2 or data[0] != 22 or data[1] not in (1, 2):
        raise Damaged("it does not begin as one")
    t = Varints(data, 2)
    floor = t.unsigned(), t.unsigned()
    delivered = t.unsigned(), t.unsigned()
    made = State(floor, delivered)
    count = t.unsigned()
    base = t.signed() if count else 0
    for number in range(_bounded(count, t)):
        seq = t.unsigned() + floor[1]
        delivery = t.unsigned() + floor[0] if data[1] > 1 else floor[0] + number + 1
        made.pending[seq] = delivery, (base - t.signed()) * _SECOND
    for _ in range(_bounded(t.unsigned(), t)):
        seq = t.unsigned() + floor[1]
        made.redelivered[seq] = t.unsigned() + 1
    if t.at != t.end:
        raise Damaged(f"{t.end - t.at} bytes too many at {t.at}")
    return made


def _bounded(count: int, t: Varints) -> int:
    if count > t.end - t.at:
        raise Damaged(f"it counts {count} entries at {t.at}, which do not fit its size")
    return count


def oddities(found: State, last: int) -> list[str]:
    """What cannot be of a consumer of a stream with this last sequence."""
    out = []
    if found.ack_floor[0] > found.delivered[0] or found.ack_floor[1] > found.delivered[1]:
        out.append("it has acked more than was delivered")
    if found.delivered[1] > last:
        out.append(f"it stands at {found.delivered[1]}, the stream ends at {last}")
    if found.delivered[0] - found.ack_floor[0] < len(found.pending):
        out.append("more messages wait for an ack than were delivered")
    low, high = found.ack_floor[1], found.delivered[1]
    if any(not low < seq <= high for seq in found.pending):
        out.append("messages wait for an ack that were not delivered")
    if any(not found.ack_floor[0] < d <= found.delivered[0] for d, _ in found.pending.values()):
        out.append("messages wait for an ack under numbers that were not given")
    return out


@dataclass
class Log:
    """What a consumers.log says."""

    entries: int = 0
    bad: list[tuple[int, int]] = field(default_factory=list)
    """Places that are no entry: offset and size."""
    zeros: int = -1
    """Where zeros begin that stand to the end, -1: nowhere."""
    known: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Consumer -> hash and time of files o.dat that say nothing newer than the log."""
    names: dict[int, str] = field(default_factory=dict)


def log(data: bytes, key: bytes) -> Log:
    """Every entry of a log; damaged ones are passed over."""
    made, at = Log(), 0
    work = len(data) * 32 + (1 << 24)
    while at < len(data):
        size = entry_size(data, at, key)
        if size:
            if not _records(data[at + _ENTRY.size : at + size], made):
                made.bad.append((at, size))
            made.entries += 1
            at += size
            continue
        if not any(data[at:]):
            made.zeros = at
            break
        start, at = at, at + 1
        while at < len(data):
            claimed = int.from_bytes(data[at : at + 4], "little")
            if 0 < claimed <= len(data) - at - _ENTRY.size:
                work -= claimed
                if work < 0:
                    at = len(data)
                    break
                if entry_size(data, at, key):
                    break
            at += 1
        made.bad.append((start, at - start))
    return made


def entry_size(data: bytes, at: int, key: bytes) -> int:
    """Bytes of the whole entry that stands there, 0: there is none."""
    if len(data) - at < _ENTRY.size:
        return 0
    size, checksum = _ENTRY.unpack_from(data, at)
    if size == 0 or size > len(data) - at - _ENTRY.size:
        return 0
    entry = data[at + _ENTRY.size : at + _ENTRY.size + size]
    return _ENTRY.size + size if hh64(key, data[at : at + 4] + entry) == checksum else 0


def _records(entry: bytes, made: Log) -> bool:
    """Takes in the records of an entry; False: they are none."""
    t = Varints(entry)
    try:
        while t.at < t.end:
            kind = entry[t.at]
            t.at += 1
            number = t.unsigned()
            if kind == ord("N"):
                t.unsigned()
                made.names[number] = t.take(t.unsigned()).decode("utf-8", "surrogateescape")
            elif kind == ord("S"):
                t.take(t.unsigned())
            elif kind in _NUMBERS:
                numbers = [t.unsigned() for _ in range(_NUMBERS[kind])]
                if kind == ord("K") and number in made.names:
                    pair = numbers[0], numbers[1]
                    made.known.setdefault(made.names[number], set()).add(pair)
            else:
                return False
    except Damaged:
        return False
    return True


def state_hash(data: bytes) -> int:
    """By which the log knows an o.dat."""
    return hh64(_STATE_KEY, data) if data else 0


def mend(data: bytearray, at: int, size: int, key: bytes) -> bool:
    """Whether one changed bit explains a place that is no entry: it is changed back then."""

    def is_entry() -> bool:
        return entry_size(bytes(data[at : at + size]), 0, key) == size

    return changed_back(data, at, size, is_entry) is not None


def mend_state(data: bytes, hashes: set[int]) -> bytes | None:
    """An o.dat with the one bit changed back that makes it a known one; None: there is none."""
    changed = bytearray(data)

    def is_known() -> bool:
        return state_hash(bytes(changed)) in hashes

    return None if changed_back(changed, 0, len(data), is_known) is None else bytes(changed)
