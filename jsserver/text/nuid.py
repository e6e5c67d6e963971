"""Unique ids of 22 characters, for events, inboxes and names that nobody chose."""

import os
import threading

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_PREFIX = 12
_DIGITS = 10
_LIMIT = 62**_DIGITS


def _below(limit: int) -> int:
    """A random number in [0, limit), from the system: the modules random and secrets cost a start
    some milliseconds."""
    return int.from_bytes(os.urandom(16)) % limit


def token(length: int) -> str:
    """Random base62 characters; not for secrets."""
    return "".join(ALPHABET[_below(len(ALPHABET))] for _ in range(length))


class _Sequence:
    """A random prefix followed by a counter with random steps; a new prefix before it wraps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._renew()

    def _renew(self) -> None:
        self._prefix = token(_PREFIX)
        self._next = _below(_LIMIT // 2)

    def take(self) -> str:
        with self._lock:
            self._next += 33 + _below(301)
            if self._next >= _LIMIT:
                self._renew()
            prefix, rest = self._prefix, self._next
        digits = []
        for _ in range(_DIGITS):
            rest, digit = divmod(rest, 62)
            digits.append(ALPHABET[digit])
        return prefix + "".join(reversed(digits))


_sequence = _Sequence()


def new() -> str:
    """A new id; callable from any thread."""
    return _sequence.take()
