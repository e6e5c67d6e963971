"""What stands beside the blocks and says what they hold: nats-server's index.db, thw.db and
sched.db; our checkpoint.jss, sidecars, subjects.jsd and sequence.jsr."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from jsserver.cext.bytes import hh64
from jsserver.cext.store import checkpoint_rows
from jsserver.disk.keys import Seed

from . import seals
from .removed import Removed

_CHECKSUM = 8
_END = struct.Struct("<Q")


class Damaged(Exception):
    """The bytes are not what was written; the text says how that shows."""


class Varints:
    """Numbers taken from front to back; Damaged where there are not enough bytes."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def unsigned(self) -> int:
        value, shift = 0, 0
        while self.at < self.end and shift < 70:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF
            shift += 7
        raise Damaged(f"a number is cut off at {self.at}")

    def signed(self) -> int:
        value = self.unsigned()
        return value >> 1 ^ -(value & 1)

    def take(self, n: int) -> bytes:
        if n > self.end - self.at:
            raise Damaged(f"{n} bytes are missing at {self.at}")
        self.at += n
        return self.data[self.at - n : self.at]

    def fixed(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")


def checked(key: bytes, data: bytes) -> bool:
    """Whether the last 8 bytes are the checksum of those before."""
    return len(data) > _CHECKSUM and hh64(key, data[:-8]) == _END.unpack(data[-8:])[0]


# ---- nats-server's -------------------------------------------------------------------------------


@dataclass
class IndexBlock:
    """A block as index.db has it: its messages are those from first to last but for `gone`."""

    number: int
    size: int
    first: int
    last: int
    gone: Removed
    deleted: int

    @property
    def messages(self) -> int:
        return max(0, self.last + 1 - self.first - self.deleted)


@dataclass
class Index:
    """A whole index.db."""

    messages: int
    size: int
    first: int
    last: int
    subjects: dict[bytes, int]
    blocks: dict[int, IndexBlock]
    end_number: int
    end: bytes


def index_db(data: bytes, key: bytes) -> Index:
    """Damaged: its checksum, its version, or its sums do not fit."""
    if not checked(key, data):
        raise Damaged("its checksum does not fit")
    if data[0] != 11 or not 1 <= data[1] <= 4:
        raise Damaged(f"version {data[0]}.{data[1]} is not known")
    version, t = data[1], Varints(data, 2, len(data) - 8)
    messages, size, first = t.unsigned(), t.unsigned(), t.unsigned()
    t.signed()
    last = t.unsigned()
    t.signed()
    subjects = {}
    for _ in range(t.unsigned()):
        name = t.take(t.unsigned())
        subjects[name] = total = t.unsigned()
        t.unsigned()
        if total > 1 or version >= 4:
            t.unsigned()
    blocks = {}
    for _ in range(t.unsigned()):
        block = _index_block(t, version)
        blocks[block.number] = block
    end_number, end = t.unsigned(), t.take(8)
    sums = [sum(b.messages for b in blocks.values()), sum(b.size for b in blocks.values())]
    if sums != [messages, size]:
        raise Damaged("its sums do not fit its blocks")
    return Index(messages, size, first, last, subjects, blocks, end_number, end)


def index_opened(data: bytes, key: bytes, seed: Seed) -> bytes:
    """An encrypted index.db as it would be without; Damaged, Locked."""
    if not checked(key, data):
        raise Damaged("its checksum does not fit")
    plain = seals.opened(seed, data[:-_CHECKSUM], "index.db")
    return plain + _END.pack(hh64(key, plain))


def _index_block(t: Varints, version: int) -> IndexBlock:
    number, size, first = t.unsigned(), t.unsigned(), t.unsigned()
    t.signed()
    last = t.unsigned()
    t.signed()
    deleted = t.unsigned()
    for _ in range(2, min(version, 3) + 1):
        t.unsigned()
    gone = Removed()
    if deleted:
        magic, kind = t.take(2)
        if magic != 22 or kind not in (1, 2):
            raise Damaged(f"a delete map at {t.at} is none")
        nodes, _ = t.fixed(4), t.fixed(4)
        for _ in range(nodes):
            base = t.fixed(8)
            gone.add_bits(base, t.take(256 if kind == 2 else 512))
            t.take(2)
    return IndexBlock(number, size, first, last, gone, deleted)


@dataclass
class Wheel:
    """thw.db or sched.db: sequence -> (subject of a schedule, or b""; time in ns)."""

    entries: dict[int, tuple[bytes, int]]
    stamp: int


def wheel(data: bytes, schedules: bool) -> Wheel:
    """Damaged. Neither file has a checksum."""
    t = Varints(data)
    if not data or data[0] != 1:
        raise Damaged("its version is not known")
    t.at = 1
    count, stamp = t.fixed(8), t.fixed(8)
    if count > len(data):
        raise Damaged(f"it counts {count} entries, which do not fit its size")
    entries = {}
    for _ in range(count):
        subject = t.take(t.fixed(2)) if schedules else b""
        time = t.signed()
        entries[t.unsigned()] = subject, time
    if t.at != t.end:
        raise Damaged(f"{t.end - t.at} bytes too many at {t.at}")
    return Wheel(entries, stamp)


# ---- ours ----------------------------------------------------------------------------------------

_CHECK_HEAD = struct.Struct("<QQQQQQQqQQQQQQQQ")


@dataclass
class CheckedBlock:
    """A block as a checkpoint has it."""

    number: int
    size: int
    first: int
    last: int
    live: int
    live_bytes: int


@dataclass
class Checkpoint:
    """A whole checkpoint.jss: how the last clean stop left the stream."""

    messages: int
    size: int
    first: int
    last: int
    lost: int
    end: int
    blocks: dict[int, CheckedBlock] = field(default_factory=dict)


def checkpoint(data: bytes, stream: str) -> Checkpoint:
    """Damaged."""
    rows = checkpoint_rows(stream, data)
    if rows is None:
        raise Damaged("its checksum does not fit")
    head = _CHECK_HEAD.unpack_from(data)
    made = Checkpoint(head[3], head[4], head[5], head[6], head[13], head[2])
    for row in struct.iter_unpack("<6Q", rows):
        made.blocks[row[0]] = CheckedBlock(*row)
    return made


_SIDE_HEAD = struct.Struct("<QQQQQQQQ")
_SIDE_MAGIC = 0x3453534A534A534A


@dataclass
class Side:
    """The head of a whole sidecar N.jsx."""

    number: int
    dictionary: int
    needs: int
    size: int
    end: int
    first: int
    last: int


def side(data: bytes, key: bytes) -> Side:
    """Damaged."""
    if len(data) < _SIDE_HEAD.size + _CHECKSUM or not checked(key, data):
        raise Damaged("its checksum does not fit")
    magic, *rest = _SIDE_HEAD.unpack_from(data)
    if magic != _SIDE_MAGIC:
        raise Damaged("it is of another version")
    return Side(*rest)


_DICTIONARY_MAGIC = 0x3244534A534A534A


@dataclass
class Dictionary:
    """subjects.jsd: its random name, its entries, and where what is whole of it ends."""

    name: int
    entries: int
    end: int


def dictionary(data: bytes, key: bytes) -> Dictionary:
    """Damaged: not even its head is one. Chunks behind the first damaged one do not count."""
    if len(data) < 16 or _END.unpack_from(data)[0] != _DICTIONARY_MAGIC:
        raise Damaged("it does not begin as one")
    name, at, total = _END.unpack_from(data, 8)[0], 16, 0
    while at + 16 <= len(data):
        size, count, checksum = struct.unpack_from("<IIQ", data, at)
        chunk = data[at + 16 : at + 16 + size]
        hashed = data[8:16] + data[at : at + 8] + chunk
        if len(chunk) < size or hh64(key, hashed) != checksum:
            break
        total += count + _left_out(chunk, count)
        at += 16 + size
    return Dictionary(name, total, at)


def _left_out(chunk: bytes, count: int) -> int:
    """Entries that others of the same id made void, as the first one of a rewritten file says."""
    at, more = 0, 0
    for _ in range(count):
        if at + 6 > len(chunk):
            break
        number, size = struct.unpack_from("<IH", chunk, at)
        if number == 0 and size == 8:
            more += _END.unpack_from(chunk, at + 6)[0] - 1
        at += 6 + size
    return more


_LINE = struct.Struct("<QQQQ")
_RESERVE_MAGIC, _FLOOR_MAGIC = 0x3152534A534A534A, 0x3146534A534A534A


@dataclass
class Reserve:
    """sequence.jsr: up to which sequence blocks may have been filled; `bad`: offsets of damaged
    lines."""

    number: int = 0
    upto: int = 0
    floor: int = 0
    bad: list[int] = field(default_factory=list)


def reserve(data: bytes, key: bytes) -> Reserve:
    """The first two lines are written in turn, so that one of them is whole; a third may follow."""
    made = Reserve()
    for at in range(0, len(data), _LINE.size):
        line = data[at : at + _LINE.size]
        if at < 2 * _LINE.size and not any(line):
            continue  # the second line is written before the first
        if not _is_line(line, key, _FLOOR_MAGIC if at >= 2 * _LINE.size else _RESERVE_MAGIC):
            made.bad.append(at)
            continue
        magic, number, upto, _ = _LINE.unpack(line)
        if magic == _FLOOR_MAGIC:
            made.floor = number
        elif number > made.number:
            made.number, made.upto = number, upto
    return made


def _is_line(line: bytes, key: bytes, magic: int) -> bool:
    return (
        len(line) == _LINE.size
        and _LINE.unpack(line)[0] == magic
        and _LINE.unpack(line)[3] == hh64(key, line[:24])
    )


def reserve_lines(number: int, upto: int, floor: int, key: bytes) -> bytes:
    """The bytes of a sequence.jsr that says so."""
    lines = [(_RESERVE_MAGIC, number, upto)]
    lines.insert(number % 2, (_RESERVE_MAGIC, number + 1, upto))
    lines.sort(key=lambda line: line[1] % 2)
    if floor:
        lines.append((_FLOOR_MAGIC, floor, 0))
    packed = (struct.pack("<QQQ", *line) for line in lines)
    return b"".join(line + _END.pack(hh64(key, line)) for line in packed)
