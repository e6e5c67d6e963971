"""Compares nats-server's thw.db and sched.db, which have no checksums, with the messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jsserver.text.goformat import parse_duration, parse_rfc3339

from . import caches
from .blocks import Block
from .findings import Severity
from .messages import Walk, messages_of

if TYPE_CHECKING:
    from .check import StreamCheck

_TTL, _SCHEDULE = b"Nats-TTL", b"Nats-Schedule"
_SECOND = 10**9


class Wheels:
    """What the two files say, until every block was seen."""

    def __init__(self, check: StreamCheck, walk: Walk) -> None:
        self._check, self._walk = check, walk
        self._times = self._load("thw.db", False)
        self._schedules = self._load("sched.db", True)
        self._wrong: dict[Path, list[int]] = {}

    def _load(self, name: str, schedules: bool) -> caches.Wheel | None:
        path = self._check.folder / name
        data = self._check.bytes_of(path)
        if data is None:
            return None
        try:
            return caches.wheel(data, schedules)
        except caches.Damaged as error:
            self._check.say(Severity.WARNING, "cache", path, str(error))
            return None

    def see(self, block: Block) -> None:
        """Messages of a block, which take what the files say of them."""
        if self._times is None and self._schedules is None:
            return
        for row in messages_of(block):
            if not row[4] or not self._walk.is_live(block.number, row[1]):
                continue
            header = block.header(row)
            if self._times is not None and _TTL in header:
                self._time(self._times, header, row[1], row[2])
            if self._schedules is not None and _SCHEDULE in header:
                self._schedule(self._schedules, row[1], block.subject(row), header)

    def _time(self, wheel: caches.Wheel, header: bytes, seq: int, ts: int) -> None:
        life = lifetime(header)
        had = wheel.entries.pop(seq, None)
        if life and seq < wheel.stamp and (had is None or had[1] != ts + life):
            self._wrong.setdefault(self._check.folder / "thw.db", []).append(seq)

    def _schedule(self, wheel: caches.Wheel, seq: int, subject: bytes, header: bytes) -> None:
        had = wheel.entries.pop(seq, None)
        once = due_once(header)
        if seq >= wheel.stamp:
            return
        if had is None or had[0] != subject or (once is not None and had[1] != once):
            self._wrong.setdefault(self._check.folder / "sched.db", []).append(seq)

    def finish(self) -> None:
        """Tells what does not fit; entries of messages that are gone do no harm."""
        if self._check.sealed:
            return  # no message was seen
        for path, seqs in self._wrong.items():
            what = f"what it says of {len(seqs)} messages is not so (sequence {min(seqs)})"
            self._check.say(Severity.WARNING, "wheel", path, what)
        for name, wheel in (("thw.db", self._times), ("sched.db", self._schedules)):
            if wheel is not None and wheel.stamp > self._walk.last + 1:
                last = self._walk.last
                what = f"it counts sequences up to {wheel.stamp - 1}, the stream ends at {last}"
                self._check.say(Severity.WARNING, "wheel", self._check.folder / name, what)


def lifetime(header: bytes) -> int:
    """The time of its own of a message with this header, ns; 0: it has none."""
    text = _value(header, _TTL)
    if text.isdecimal():
        return int(text) * _SECOND
    try:
        return parse_duration(text) // _SECOND * _SECOND
    except ValueError:
        return 0


def due_once(header: bytes) -> int | None:
    """When a message that is sent once is due, ns since 1970; None: it is another kind."""
    kind, _, when = _value(header, _SCHEDULE).partition(" ")
    try:
        return parse_rfc3339(when.strip()) if kind == "@at" else None
    except ValueError:
        return None


def _value(header: bytes, wanted: bytes) -> str:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == wanted:
            return value.strip().decode("ascii", "replace")
    return ""
