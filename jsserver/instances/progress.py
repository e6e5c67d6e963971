"""A consumer's state: in the form of nats-server's o.dat, and as JSON in archives and
assignments."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

_LAST = (1 << 62) - 1
"""The largest sequence: a block's record uses the higher bits for its kind."""
_MAGIC, _VERSION = 22, 2
_SECOND = 10**9

Number = Annotated[int, msgspec.Meta(ge=0, le=_LAST)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Position(msgspec.Struct):
    """The consumer's sequence of a delivery, and the stream's sequence of its message."""

    consumer_seq: Number = 0
    stream_seq: Number = 0


class Pending(msgspec.Struct, rename="pascal"):
    """A message that waits for its ack: the consumer's sequence and the time of its delivery."""

    sequence: Number
    timestamp: Nanoseconds


class Progress(msgspec.Struct, omit_defaults=True):
    """The state. `pending` and `redelivered` are by sequence of the stream."""

    delivered: Position
    ack_floor: Position
    pending: dict[Number, Pending] | None = None
    redelivered: dict[Number, Number] | None = None

    def encoded(self) -> bytes:
        """The state as an o.dat; ValueError where a pending message is below the ack floor."""
        floor, delivered = self.ack_floor, self.delivered
        pending, redelivered = self.pending or {}, self.redelivered or {}
        out = bytearray((_MAGIC, _VERSION))
        for number in (floor.consumer_seq, floor.stream_seq, delivered.consumer_seq):
            _put(out, number)
        _put(out, delivered.stream_seq)
        _put(out, len(pending))
        if pending:
            base = max(entry.timestamp for entry in pending.values()) // _SECOND
            _put_signed(out, base)
            for seq, entry in pending.items():
                _put(out, seq - floor.stream_seq)
                _put(out, entry.sequence - floor.consumer_seq)
                _put_signed(out, base - entry.timestamp // _SECOND)
        _put(out, len(redelivered))
        for seq, times in redelivered.items():
            _put(out, seq - floor.stream_seq)
            _put(out, times)
        return bytes(out)


def decoded(data: bytes) -> Progress:
    """The state in an o.dat; ValueError."""
    try:
        return _decoded(data)
    except IndexError:
        raise ValueError("corrupt state file") from None


def _decoded(data: bytes) -> Progress:
    version = data[1]
    if data[0] != _MAGIC or not 1 <= version <= _VERSION:
        raise ValueError("corrupt state file")
    numbers = _Numbers(data, 2)
    floor = Position(numbers.next(), numbers.next())
    found = Progress(Position(numbers.next(), numbers.next()), floor)
    count = numbers.next()
    if count:
        base = numbers.signed()
        found.pending = {}
        for number in range(count):
            seq = numbers.next() + floor.stream_seq
            delivery = floor.consumer_seq + (numbers.next() if version > 1 else number + 1)
            found.pending[seq] = Pending(delivery, (base - numbers.signed()) * _SECOND)
    count = numbers.next()
    if count:
        pairs = ((numbers.next() + floor.stream_seq, numbers.next()) for _ in range(count))
        found.redelivered = dict(pairs)
    return found


def state_of(said: Any) -> bytes:
    """The o.dat of the state in a consumer's assignment; b"": the assignment has no valid one."""
    try:
        return msgspec.convert(said, Progress, strict=False).encoded()
    except (msgspec.ValidationError, ValueError):
        return b""


class _Numbers:
    """Reads the numbers of an o.dat from an offset on."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def next(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        raise ValueError("corrupt state file")

    def signed(self) -> int:
        value = self.next()
        return value >> 1 ^ -(value & 1)


def _put_signed(out: bytearray, value: int) -> None:
    _put(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _put(out: bytearray, value: int) -> None:
    if value < 0:
        raise ValueError(value)
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
