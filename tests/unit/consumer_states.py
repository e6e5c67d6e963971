"""States of consumers as nats-server keeps them in o.dat and in snapshots, read apart."""

from typing import NamedTuple


class State(NamedTuple):
    delivered: tuple[int, int]
    """Of the last delivery: its number, and the highest sequence delivered."""
    floor: tuple[int, int]
    pending: dict[int, tuple[int, int]]
    """By sequence: the number of its first delivery, and from when on its ack is waited for, s."""
    redelivered: dict[int, int]
    """By sequence: how often it was delivered after the first time."""

    def near(self, other: "State") -> bool:
        """Whether both are the same but for times, which may be a second apart."""
        if self._replace(pending={}) != other._replace(pending={}):
            return False
        return self.pending.keys() == other.pending.keys() and all(
            dseq == other.pending[seq][0] and abs(sent - other.pending[seq][1]) <= 1
            for seq, (dseq, sent) in self.pending.items()
        )


def read_state(text: bytes) -> State:
    """Of an o.dat that is whole."""
    at = 2

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = text[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed() -> int:
        value = number()
        return value >> 1 ^ -(value & 1)

    assert text[:2] == b"\x16\x02"
    floor = number(), number()
    delivered = number(), number()
    pending: dict[int, tuple[int, int]] = {}
    if n := number():
        base = signed()
        for _ in range(n):
            seq = floor[1] + number() & 2**64 - 1
            pending[seq] = floor[0] + number() & 2**64 - 1, base - signed()
    redelivered: dict[int, int] = {}
    for _ in range(number()):
        seq = floor[1] + number() & 2**64 - 1
        redelivered[seq] = number()
    assert at == len(text)
    return State(delivered, floor, pending, redelivered)
