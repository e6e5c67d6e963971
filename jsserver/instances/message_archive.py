"""Reads archives of nats-server 2.15 as the files that archives of other servers have.

Such an archive has a stream's messages one by one instead of its blocks: `NATSARC1`, then entries,
each with the lengths of its parts before them. The first entry is `state.json`, `consumers/NAME`
follow, then the messages with their subjects as names, and an empty entry at the end. It has no
configuration of the stream: a restore's request has one.
"""

import struct
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from jsserver.cext.bytes import hh64, sha256
from jsserver.text import goformat

from .metafiles import INF, SUM
from .progress import Number, Progress
from .recovery import NotRestorable
from .running import CONSUMERS, MESSAGES

MAGIC = b"NATSARC1"
BLOCK = 4 << 20
"""Bytes of a block, unless one message is larger."""
STATE = "o.dat"

_NAME_LIMIT = 0xFFFF
"""Bytes of a subject, or of another entry's name."""
_JSON_LIMIT = 1 << 28
"""Bytes of a consumer with its state."""
_RECORD_LIMIT = 32 << 20
"""Bytes of a message in a block; nats-server takes longer ones for damage."""
_PIECE = 1 << 18
_HEADER = 50
"""The most bytes that the five numbers before an entry's name may have."""
_FIXED, _TAIL = 22, 8
_HAS_HEADERS, GONE = 1 << 31, 1 << 62



class _State(msgspec.Struct):
    """What `state.json` says and is of use here."""

    last_seq: Number
    last_ts: str


class _Consumer(msgspec.Struct):
    config: dict[str, Any]
    state: Progress


T = TypeVar("T")


class Plain(Protocol):
    """An archive, decompressed."""

    def read(self, size: int) -> bytes:
        """The next bytes, so many unless the archive ends before."""


class _Entry(msgspec.Struct):
    name: bytes
    ts: int
    """ns since 1970."""
    seq: int
    headers: int
    """Bytes."""
    payload: int


class _Entries:
    """The entries of an archive, whose magic was read, from front to back."""

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self._data = b""
        self._at = 0

    def next(self) -> _Entry:
        """What stands before an entry's content; NotRestorable."""
        self._fill(_HEADER)
        size, ts = self._number(), self._number()
        seq, headers, payload = self._number(), self._number(), self._number()
        if size > _NAME_LIMIT:
            raise NotRestorable(f"an entry's name of {size} bytes")
        return _Entry(self.take(size), ts >> 1 ^ -(ts & 1), seq, headers, payload)

    def take(self, size: int) -> bytes:
        """The next bytes; NotRestorable where they are not all there."""
        self._fill(size)
        at, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise NotRestorable("backup was truncated")
        return self._data[at : self._at]

    def _fill(self, size: int) -> None:
        """Has so many bytes at hand, if the archive has."""
        if len(self._data) - self._at < size:
            self._data = self._data[self._at :] + self._plain.read(max(size, _PIECE))
            self._at = 0

    def _number(self) -> int:
        value = shift = 0
        for at in range(self._at, min(self._at + 10, len(self._data))):
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self._at = at + 1
                return value & (1 << 64) - 1
        if len(self._data) - self._at < 10:
            raise NotRestorable("backup was truncated")
        raise NotRestorable("an entry's number has more than 64 bits")


def record(
    key: bytes, seq: int, ts: int, subject: bytes = b"", headers: bytes = b"", data: bytes = b""
) -> bytes:
    """A message in a block: length, sequence, time, subject, headers, data, checksum. `GONE` in the
    sequence: the message is gone."""
    size = _FIXED + len(subject) + len(headers) + len(data) + _TAIL
    length = b""
    if headers:
        size = size + 4 | _HAS_HEADERS
        length = struct.pack("<I", len(headers))
    head = struct.pack("<IQqH", size, seq, ts, len(subject))
    hashed = hh64(key, head[4:20] + subject + headers + data).to_bytes(8, "little")
    return b"".join((head, subject, length, headers, data, hashed))


class _Blocks:
    """Messages as the blocks of a stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._number = 0
        self._block = bytearray()
        self._begin()

    def _begin(self) -> None:
        self._number += 1
        self._key = sha256(f"{self._stream}-{self._number}".encode())

    def add(self, seq: int, ts: int, subject: bytes, headers: bytes, data: bytes) -> None:
        self._block += record(self._key, seq, ts, subject, headers, data)

    def full(self, more: int) -> bool:
        """Whether a record of so many bytes is for the next block."""
        return bool(self._block) and len(self._block) + more > BLOCK

    def taken(self) -> Iterator[tuple[str, bytes]]:
        """The block so far, if there is anything in it; the next one begins."""
        if self._block:
            yield f"{MESSAGES}/{self._number}.blk", bytes(self._block)
            self._block = bytearray()
            self._begin()


def files(plain: Plain, stream: str) -> Iterator[tuple[str, bytes]]:
    """The files of an archive whose magic was read, each a name and its content.

    NotRestorable where the archive is no such one, or is cut.
    """
    entries = _Entries(plain)
    first = entries.next()
    if first.name != b"state.json":
        raise NotRestorable("expected state.json first")
    state = _decoded(entries, first, _State)
    made = goformat.rfc3339_nano(first.ts)
    yield INF, msgspec.json.encode({"Created": made, "name": stream})
    blocks, last, entry = _Blocks(stream), 0, entries.next()
    while entry.name.startswith(b"consumers/") and entry.seq == 0:
        yield from _consumer(entries, entry)
        entry = entries.next()
    while entry.seq:
        if not last < entry.seq <= state.last_seq:
            raise NotRestorable(f"message sequence {entry.seq} out of order")
        size = _FIXED + len(entry.name) + 4 + entry.headers + entry.payload + _TAIL
        if size > _RECORD_LIMIT:
            raise NotRestorable(f"message {entry.seq} of {size} bytes")
        if blocks.full(size):
            yield from blocks.taken()
        last = entry.seq
        headers = entries.take(entry.headers)
        blocks.add(last, entry.ts, entry.name, headers, entries.take(entry.payload))
        entry = entries.next()
    if entry.name or entry.ts or entry.headers or entry.payload:
        raise NotRestorable("expected message sequence")
    yield from blocks.taken()
    if last < state.last_seq:
        # In a block of its own: else the sequence of a last message that is gone is used again.
        blocks.add(GONE | state.last_seq, _time(state.last_ts), b"", b"", b"")
        yield from blocks.taken()


def _decoded(entries: _Entries, entry: _Entry, kind: type[T]) -> T:
    name = entry.name.decode("utf-8", "replace")
    size = entry.headers + entry.payload
    if size > _JSON_LIMIT:
        raise NotRestorable(f"{name} of {size} bytes")
    try:
        return msgspec.json.decode(entries.take(size), type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NotRestorable(f"error in {name}: {error}") from None


def _time(text: str) -> int:
    """ns since 1970; Go's zero time, of a stream that never had a message, is the epoch's here."""
    try:
        return max(goformat.parse_rfc3339(text), 0)
    except ValueError as error:
        raise NotRestorable(f"error in state.json: last_ts: {error}") from None


def _consumer(entries: _Entries, entry: _Entry) -> Iterator[tuple[str, bytes]]:
    name = entry.name.removeprefix(b"consumers/").decode("utf-8", "surrogateescape")
    if "/" in name:
        raise NotRestorable(f"a consumer named {name!r}")
    found = _decoded(entries, entry, _Consumer)
    meta = {"Created": goformat.rfc3339_nano(entry.ts), "Name": name} | found.config
    folder = f"{CONSUMERS}/{name}"
    yield f"{folder}/{INF}", msgspec.json.encode(meta)
    yield f"{folder}/{SUM}", b""
    try:
        yield f"{folder}/{STATE}", found.state.encoded()
    except ValueError:
        raise NotRestorable(f"consumer {name!r}: its state is before its ack floor") from None
