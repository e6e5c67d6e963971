"""Checks what stands beside a stream's blocks: caches, consumers, and files of nobody."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from jsserver.cext.store import BLOCK_HEAD, plain_size

from . import caches, consumers, seals
from .blocks import TAIL, Block
from .findings import Severity
from .messages import Walk, messages_of
from .places import Unreadable, names_in, numbers_of
from .removed import ranges, shown

if TYPE_CHECKING:
    from .check import StreamCheck

NOTE, WARNING, DAMAGE = Severity.NOTE, Severity.WARNING, Severity.DAMAGE

_STREAM = re.compile(
    r"meta\.(inf|sum|key)(\.tmp)?|msgs|obs|batches|sources\.(db|json)|subjects\.jsd|sequence\.jsr"
    r"|consumers\.log|\.del-store|quarantine-.*"
)
_MESSAGES = re.compile(r"[0-9]{1,18}\.(blk|key|jsx)|index\.db|thw\.db|sched\.db|checkpoint\.jss")
_CONSUMER = re.compile(r"meta\.(inf|sum|key)(\.tmp)?|o\.dat")
_LEFT = re.compile(
    r".*\.tmp|.*\.new|[0-9]+\.key\.redo|_test_.*|damaged-.*|.*\.damaged|\.(new|del)-.*|__(new_)?msgs__"
    r"|.*\.(idx|fss)|\.tmp.*"
)


def check(on: StreamCheck, walk: Walk) -> None:
    """All of it, when the blocks are known."""
    _subjects(on, walk)
    told = _checkpoint(on, walk)
    _sidecars(on, told)
    _reserve(on, walk)
    logged = _log(on)
    _consumers(on, walk, logged)
    names_checked(on, on.place.folder, _STREAM)
    names_checked(on, on.folder, _MESSAGES)


def names_checked(on: StreamCheck, folder: Path, known: re.Pattern[str]) -> None:
    """Files that no server wrote there, leftovers of crashes, links."""
    for name in names_in(folder):
        path = folder / name
        if path.is_symlink():
            on.say(WARNING, "link", path, f"a symbolic link to {os.readlink(path)}")
        elif _LEFT.fullmatch(name):
            on.say(NOTE, "leftover", path, "what an interrupted step or a damage left")
        elif not known.fullmatch(name):
            on.say(NOTE, "strange", path, "no file of a server")


# ---- caches --------------------------------------------------------------------------------------


def _subjects(on: StreamCheck, walk: Walk) -> None:
    """The subjects that index.db counts are those of the messages: no checksum has their length."""
    if walk.index is None or any(span.packed and not span.live for span in walk.spans):
        return
    index, total = walk.index, 0
    counts = dict.fromkeys(index.subjects, 0)
    for span in walk.spans:
        if not span.live:
            continue
        block = on.read(span.number)
        total += _count_subjects(on, walk, block, counts)
    wrong = [name for name, n in counts.items() if n != index.subjects[name]]
    if wrong and total == index.messages:
        name = wrong[0]
        what = f"it counts {index.subjects[name]} messages of {name!r}, there are {counts[name]}"
        on.say(WARNING, "counts", on.folder / "index.db", what)


def _count_subjects(on: StreamCheck, walk: Walk, block: Block, counts: dict[bytes, int]) -> int:
    total = 0
    for row in messages_of(block):
        if not walk.is_live(block.number, row[1]):
            continue
        total += 1
        subject = block.subject(row)
        if subject in counts:
            counts[subject] += 1
        elif subject and 0x7F not in subject:
            what = f"message {row[1]}: no subject of this length is in index.db"
            path = on.folder / f"{block.number}.blk"
            on.say(DAMAGE, "lengths", path, what, row[0], row[3], str(row[1]))
    return total


def _checkpoint(on: StreamCheck, walk: Walk) -> set[int]:
    """The blocks that it lists, as far as it counts."""
    path = on.folder / "checkpoint.jss"
    data = on.sheet_of(path)
    if data is None:
        return set()
    try:
        told = caches.checkpoint(data, on.place.name)
    except caches.Damaged as error:
        on.say(WARNING, "cache", path, str(error))
        return set()
    if (on.folder / "index.db").exists():
        on.say(NOTE, "stale", path, "nats-server has been here since")
        return set()
    spans = {span.number: span for span in walk.spans}
    for number, listed in told.blocks.items():
        block = on.folder / f"{number}.blk"
        have = spans.get(number)
        if have is None:
            what = f"missing; the last clean stop left {listed.live} messages in it"
            runs = [(listed.first, listed.last)] if listed.live else []
            on.say(DAMAGE if listed.live else WARNING, "missing", block, what, lost=shown(runs))
        elif have.size != listed.size:
            what = f"{have.size} bytes; the last clean stop left {listed.size}"
            on.say(DAMAGE if have.live < listed.live else WARNING, "missing", block, what)
        elif (have.live, have.live_bytes) != (listed.live, listed.live_bytes):
            what = (
                f"{have.live} messages of {have.live_bytes} bytes; the last clean stop left"
                f" {listed.live} of {listed.live_bytes}"
            )
            on.say(DAMAGE if have.live < listed.live else WARNING, "missing", block, what)
    more = sorted(set(spans) - set(told.blocks))
    if more:
        on.say(NOTE, "stale", path, f"blocks that it does not list: {shown(ranges(more))}")
    if told.lost:
        what = f"{told.lost} messages were known to be lost at the last clean stop"
        on.say(NOTE, "stale", path, what)
    return set(told.blocks)


def _end_of(on: StreamCheck, number: int) -> tuple[int, bytes] | None:
    """The size of a block when it is not compressed, and its last 8 bytes."""
    if on.encrypted:
        block = on.read(number)
        return None if block.fault else (block.plain_size, block.end)
    try:
        with open(on.folder / f"{number}.blk", "rb") as file:
            head = file.read(BLOCK_HEAD)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return plain_size(head, size), file.read(TAIL)
    except OSError:
        return None


def _sidecars(on: StreamCheck, told: set[int]) -> None:
    """And the dictionary of subjects. Blocks that the checkpoint listed are dealt with."""
    names = names_in(on.folder)
    data = on.sheet_of(on.place.folder / "subjects.jsd")
    words: caches.Dictionary | None = None
    path = on.place.folder / "subjects.jsd"
    if data is not None:
        try:
            words = caches.dictionary(data, on.key)
            if words.end < len(data):
                what = "what follows is no whole chunk"
                on.say(WARNING, "cache", path, what, words.end, len(data) - words.end)
        except caches.Damaged as error:
            on.say(WARNING, "cache", path, str(error))
    foreign = (on.folder / "index.db").exists()
    there = set(numbers_of(names)) | told
    for name in names:
        if name.endswith(".jsx") and name[:-4].isdecimal():
            _sidecar(on, on.folder / name, int(name[:-4]), words, foreign, there)


def _sidecar(
    on: StreamCheck,
    path: Path,
    number: int,
    words: caches.Dictionary | None,
    foreign: bool,
    there: set[int],
) -> None:
    data = on.sheet_of(path)
    if data is None:
        return
    try:
        head = caches.side(data, on.key)
    except caches.Damaged as error:
        on.say(WARNING, "cache", path, str(error))
        return
    end = _end_of(on, number)
    if head.number != number:
        on.say(WARNING, "cache", path, f"it is of block {head.number}")
    elif number not in there:
        if foreign:
            on.say(NOTE, "stale", path, "its block has left")
        else:
            block = on.folder / f"{number}.blk"
            what = "missing, and its sidecar knows it"
            lost = f"at most {shown([(head.first, head.last)])}"
            on.say(DAMAGE, "missing", block, what, lost=lost)
    elif end is not None and (end[0] != head.size or int.from_bytes(end[1], "little") != head.end):
        severity = NOTE if foreign else WARNING
        on.say(severity, "stale" if foreign else "cache", path, "its block is not what it was")
    elif words is not None and (words.name != head.dictionary or words.entries < head.needs):
        on.say(NOTE, "stale", path, "it needs more of subjects.jsd than there is")


def _reserve(on: StreamCheck, walk: Walk) -> None:
    path = on.place.folder / "sequence.jsr"
    data = on.bytes_of(path)
    if data is None:
        return
    told = caches.reserve(data, on.key)
    for at in told.bad:
        on.say(WARNING, "reserve", path, "a damaged line", at, min(32, len(data) - at))
    if not told.number and not told.bad:
        on.say(WARNING, "reserve", path, "it has no line")


# ---- consumers -----------------------------------------------------------------------------------


def _log(on: StreamCheck) -> consumers.Log | None:
    path = on.place.folder / consumers.LOG
    data = on.sheet_of(path, DAMAGE, "log")
    if data is None:
        return None
    told = consumers.log(data, on.key)
    for at, size in told.bad:
        is_end = at + size == len(data)
        what = "no good entry"
        if is_end:
            what = "no whole entry, at the end: a write that never ended, or damage"
        on.say(DAMAGE, "log", path, what, at, size)
    if not data:
        on.say(DAMAGE, "log", path, "empty")
    return told


def _consumers(on: StreamCheck, walk: Walk, logged: consumers.Log | None) -> None:
    obs = on.place.folder / "obs"
    own = (on.place.folder / "sequence.jsr").exists() and not (on.folder / "index.db").exists()
    log = on.place.folder / consumers.LOG
    if own and not log.exists() and names_in(obs):
        on.say(DAMAGE, "log", log, "missing")
    for name in names_in(obs):
        folder = obs / name
        if folder.is_symlink():
            on.say(WARNING, "link", folder, "a symbolic link")
            continue
        if not folder.is_dir():
            on.say(NOTE, "strange", folder, "no folder of a consumer")
            continue
        if name.startswith("."):
            on.say(NOTE, "leftover", folder, "what an interrupted step left")
            continue
        if not names_in(folder):
            on.say(WARNING, "consumer-folder", folder, "an empty folder")
            continue
        try:
            body = on.meta(folder, f"{on.place.name}/{name}")
            if body is not None and seals.is_encrypted(folder):
                _opened(on, folder, folder / "meta.inf", body)
            names_checked(on, folder, _CONSUMER)
            _state(on, walk, folder, logged)
        except Unreadable as error:
            on.unread(folder, str(error))


def _opened(on: StreamCheck, folder: Path, path: Path, data: bytes) -> bytes | None:
    """A file of an encrypted consumer as it would be without; None: it stays closed."""
    if on.sealed:
        return None
    try:
        return seals.opened(seals.of_consumer(on.place, folder.name), data, path.name)
    except seals.Locked as error:
        on.say(DAMAGE, "key", path, str(error))
        return None


def _state(on: StreamCheck, walk: Walk, folder: Path, logged: consumers.Log | None) -> None:
    path = folder / consumers.STATE
    data = on.bytes_of(path)
    if data is not None and seals.is_encrypted(folder):
        data = _opened(on, folder, path, data)
    if data is None:
        return
    known = logged.known.get(folder.name, set()) if logged is not None else set()
    if any(consumers.state_hash(data) == value for value, _ in known):
        return
    if not data:
        on.say(WARNING, "state", path, "empty")
        return
    try:
        told = consumers.state(data)
    except caches.Damaged as error:
        on.say(DAMAGE, "state", path, str(error))
        return
    for what in consumers.oddities(told, walk.last):
        on.say(DAMAGE, "state", path, what)
    time = path.stat().st_mtime_ns
    if any(time == when for _, when in known):
        what = "its time is that which consumers.log names, its bytes are not"
        on.say(DAMAGE, "state", path, what)
    elif known and not (on.folder / "index.db").exists():
        what = "consumers.log does not know it: nats-server wrote it since, or it is damaged"
        on.say(WARNING, "state", path, what)
