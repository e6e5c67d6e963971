"""`jsserver store repair`: what is done to a damaged stream, and doing it so that a crash at any
time leaves a directory that the same command finishes.

Each file is copied to the stream's quarantine before it is touched, and replaced by a rename. The
last block comes first: what files that go later know of the stream's end is in it then."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jsserver.disk.directories import sync_directory
from jsserver.instances.metafiles import MetaFiles

from . import bits, blocks, caches, check, consumers, mending, sealing, seals
from .blocks import SEQUENCE, TOMB, Block, Kind
from .messages import Look, Walk, messages_of
from .places import Place, found, names_in
from .removed import ranges, shown
from .usage import index_of

QUARANTINE = "quarantine-"
"""What the name of the folder in a stream begins with, that keeps what a repair replaced."""


_BATCH = 16 | 32
"""Flags of a marker in front of a batch, or of a part of one."""
_AHEAD = 300_000
"""Sequences beyond a whole line of sequence.jsr that a damaged one may have spoken of."""
_NAMED = 1 << 16
"""Missing sequences of a block that are named."""


@dataclass
class Step:
    """One file that is replaced, or with no bytes goes."""

    path: Path
    what: str
    made: bytes | None
    """Of a block before it is encrypted."""
    lost: list[int] = field(default_factory=list)


@dataclass
class Plan:
    """What is done to a stream, in this order; `left`: what cannot be repaired."""

    place: Place
    steps: list[Step] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    """Messages that are missing with files or their ends, which nothing brings back."""

    def lines(self, root: Path) -> Iterator[str]:
        """For people."""
        for step in self.steps:
            yield f"{step.path.relative_to(root)}: {step.what}"
            if step.lost:
                yield f"    lost: {shown(ranges(step.lost))}"
        if self.gone:
            where = f"{self.place.account}/streams/{self.place.name}"
            yield f"{where}: missing with files or their ends: {shown(ranges(self.gone))}"
        for text in self.left:
            yield f"left as it is: {text}"

    def as_dict(self, root: Path) -> dict[str, object]:
        """For programs."""
        steps = [
            {"file": str(s.path.relative_to(root)), "what": s.what, "lost": ranges(s.lost)}
            for s in self.steps
        ]
        told = {"account": self.place.account, "stream": self.place.name}
        return {**told, "steps": steps, "left": self.left, "missing": ranges(self.gone)}


def plan(place: Place, files: MetaFiles) -> Plan:
    """Looks at a stream; Unreadable."""
    made = Plan(place)
    _meta(made, place.folder, place.name, files)
    for name in place.consumers():
        _meta(made, place.folder / "obs" / name, f"{place.name}/{name}", files)
    if seals.is_encrypted(place.folder) and (why := _locked(place)):
        made.left.append(why)
        return made
    changed = _blocks(made)
    _caches(made, changed)
    _reserve(made)
    _consumers(made)
    return made


def _locked(place: Place) -> str:
    """Why the blocks of an encrypted stream cannot be looked at."""
    try:
        seals.of_stream(place)
    except seals.Locked as error:
        return f"its blocks: {error}"
    return ""


def _plain(place: Place, path: Path) -> bytes | None:
    """A cache, as it would be without encryption; None: it is not there. Damaged."""
    data = found(path)
    if data is None or not seals.is_encrypted(place.folder):
        return data
    try:
        if path.name == "index.db":
            return caches.index_opened(data, blocks.key_of(place.name), seals.of_stream(place))
        return seals.sheet(place, data, path.name)
    except seals.Locked as error:
        raise caches.Damaged(str(error)) from None


# ---- configurations ------------------------------------------------------------------------------


def _meta(made: Plan, folder: Path, asset: str, files: MetaFiles) -> None:
    body, total = found(folder / "meta.inf"), found(folder / "meta.sum")
    if body is None:
        made.left.append(f"{folder.name}: meta.inf is missing")
        return
    want = files.checksum(asset, body)
    if total == want or found(folder / "meta.sum.tmp") == want:
        return
    if total is None or len(total) != len(want) or _bits(total, want) <= 1:
        made.steps.append(Step(folder / "meta.sum", "is made anew for meta.inf", want))
        return
    changed = bytearray(body)
    size = len(body)
    bit = bits.changed_back(
        changed, 0, size, lambda: files.checksum(asset, bytes(changed)) == total, most=size
    )
    if bit is None:
        made.left.append(f"{folder.name}: meta.inf is not what its checksum says")
        return
    what = f"bit {bit} is changed back"
    made.steps.append(Step(folder / "meta.inf", what, bytes(changed)))


def _bits(a: bytes, b: bytes) -> int:
    return sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True))


# ---- blocks --------------------------------------------------------------------------------------


@dataclass
class _Damage:
    """What a look at all blocks has found."""

    holes: dict[int, list[int]] = field(default_factory=dict)
    """Block -> sequences that are missing in it."""
    useless: dict[int, str] = field(default_factory=dict)
    ghosts: list[tuple[int, int]] = field(default_factory=list)
    """Messages that only index.db says are gone."""
    mended: dict[int, bytes] = field(default_factory=dict)


def _blocks(made: Plan) -> bool:
    """Steps for blocks; whether one is not what it was when it was written."""
    place = made.place
    folder, _ = place.messages()
    encrypted = seals.is_encrypted(place.folder)
    walk, damage = Walk(place, index_of(place, encrypted)), _Damage()
    sealed: dict[int, str] = {}
    for look in walk.looks(lambda number: blocks.read(place, number, encrypted)):
        if look.block.sealed:
            sealed[look.block.number] = look.block.fault
        else:
            _look(made, walk, look, damage)
    if sealed and len(sealed) == len(walk.spans) > 1:
        made.left += [f"{number}.blk: {why}" for number, why in sealed.items()]
        return False
    damage.useless |= sealed
    for number, data in damage.mended.items():
        what = "single changed bits are changed back"
        made.steps.append(Step(folder / f"{number}.blk", what, data))
    told = _told(place, walk)
    differs = told.differs and not damage.mended
    if not damage.holes and not damage.useless and not differs:
        return False
    numbers = [span.number for span in walk.spans if span.number not in damage.useless]
    last = max(walk.last, told.last)
    ends = sorted(damage.ghosts)
    if last > max((span.last for span in walk.spans if span.number in numbers), default=0):
        ends.append((last, time.time_ns()))
    if numbers:
        _rewrite(made, damage, numbers[-1], ends)
    elif last:
        number = max([told.number, *damage.useless]) + 1
        empty = blocks.of_bytes(b"", number, place.name)
        data = mending.without_holes(empty, place.name, ends)
        what = "is made: it says where the stream ends"
        made.steps.append(Step(folder / f"{number}.blk", what, data))
    made.gone = told.gone
    for number in damage.holes:
        if number != numbers[-1]:
            _rewrite(made, damage, number, [])
    for number, why in damage.useless.items():
        what = f"goes to the quarantine: {why}"
        made.steps.append(Step(folder / f"{number}.blk", what, None))
        if (folder / f"{number}.key").exists():
            what = "goes to the quarantine with its block"
            made.steps.append(Step(folder / f"{number}.key", what, None))
    return True


def _look(made: Plan, walk: Walk, look: Look, damage: _Damage) -> None:
    block = look.block
    if block.fault:
        damage.useless[block.number] = block.fault
        return
    if walk.index is not None:
        for row in messages_of(block):
            dead = not walk.is_live(block.number, row[1])
            if dead and row[1] not in walk.removed:
                damage.ghosts.append((row[1], row[2]))
    kinds = [row[6] for row in block.rows()]
    bare = any(row[1] & (TOMB | blocks.ERASED) and row[5] for row in block.rows())
    if Kind.BAD not in kinds and Kind.MISFIT not in kinds and not bare:
        return
    if block.packed:
        made.left.append(f"{block.number}.blk: damaged records in a compressed block")
        return
    bad = [row for row in block.rows() if row[6] == Kind.BAD]
    if look.is_last and len(bad) == 1 and not bare and check.may_be_torn(block, bad[0]):
        return  # what any kill leaves: a start cuts it
    data = mending.mended(block, made.place.name)
    if data is not None:
        block = blocks.of_bytes(data, block.number, made.place.name)
        damage.mended[block.number] = data
        kinds = [row[6] for row in block.rows()]
    if look.is_last and Kind.BAD in kinds and _has_open_batch(block):
        what = "a batch may be unfinished behind damaged places: start jsserver once first"
        made.left.append(f"{block.number}.blk: {what}")
    elif Kind.CUT in kinds and Kind.BAD in kinds:
        made.left.append(f"{block.number}.blk: a block of a truncation with damaged places")
    elif Kind.MISFIT in kinds:
        made.left.append(f"{block.number}.blk: lengths of a record that cannot be told")
    elif Kind.BAD in kinds and not any(kind == Kind.RECORD for kind in kinds):
        damage.useless[block.number] = "no record of this stream is in it"
        damage.mended.pop(block.number, None)
    elif Kind.BAD in kinds:
        damage.holes[block.number] = _lost(block)


def _has_open_batch(block: Block) -> bool:
    """Whether records follow a marker that stands in front of a batch."""
    waits = False
    for row in block.rows():
        if row[6] in (Kind.MARK, Kind.MISFIT):
            waits = block.mark(row).flags & _BATCH != 0
    return waits


def _lost(block: Block) -> list[int]:
    """Sequences that may have stood in the damaged places of a block."""
    out: list[int] = []
    before, open_place, most = 0, False, 0
    for row in block.rows():
        seq = row[1] & SEQUENCE
        if row[6] == Kind.BAD:
            open_place, most = True, most + row[3] // blocks.SMALLEST
        elif row[6] == Kind.RECORD and seq and not row[1] & TOMB:
            if open_place and before and seq - before - 1 <= most:
                out += range(before + 1, seq)
            before, open_place, most = seq, False, 0
    return out


@dataclass
class _Told:
    """What the file of the last clean stop knows: the last sequence, and what is gone since."""

    last: int = 0
    number: int = 0
    gone: list[int] = field(default_factory=list)
    differs: bool = False


def _told(place: Place, walk: Walk) -> _Told:
    folder, _ = place.messages()
    spans, out = {span.number: span for span in walk.spans}, _Told()
    listed: list[tuple[int, int, int, bool]] = []
    with contextlib.suppress(caches.Damaged):
        index = _plain(place, folder / "index.db")
        if index is not None:
            told = caches.index_db(index, blocks.key_of(place.name))
            if max(spans, default=0) > told.end_number:
                return out  # older than the blocks
            out.last = told.last
            for one in told.blocks.values():
                there = spans.get(one.number)
                whole = there is not None and (walk.index is None or there.live >= one.messages)
                if walk.index is None and there is not None and one.number == told.end_number:
                    whole = there.last >= one.last
                listed.append((one.number, one.first, one.last, whole or not one.messages))
        elif (data := _plain(place, folder / "checkpoint.jss")) is not None:
            known = caches.checkpoint(data, place.name)
            out.last = known.last
            for block in known.blocks.values():
                there = spans.get(block.number)
                same = there is not None and (there.size, there.live) == (block.size, block.live)
                listed.append((block.number, block.first, block.last, same))
    if not (folder / "index.db").exists():
        listed += _orphans(place, spans.keys() | {number for number, _, _, _ in listed})
        out.last = max([out.last, *(last for _, _, last, _ in listed)])
    for number, first, last, whole in listed:
        out.number = max(out.number, number)
        if not whole:
            out.differs = True
            since = spans[number].last + 1 if number in spans else first
            out.gone += range(max(first, since), min(last, since + _NAMED) + 1)
    return out


def _orphans(place: Place, there: set[int]) -> list[tuple[int, int, int, bool]]:
    """Blocks that are gone, and that only their sidecars know."""
    folder, _ = place.messages()
    out = []
    for name in names_in(folder):
        if name.endswith(".jsx") and name[:-4].isdecimal() and int(name[:-4]) not in there:
            with contextlib.suppress(caches.Damaged):
                data = _plain(place, folder / name) or b""
                head = caches.side(data, blocks.key_of(place.name))
                out.append((head.number, head.first, head.last, False))
    return out


def _rewrite(made: Plan, damage: _Damage, number: int, ends: list[tuple[int, int]]) -> None:
    """A block without its damaged places, and with more tombstones."""
    lost = damage.holes.get(number, [])
    if number not in damage.holes and not ends:
        return
    place = made.place
    folder, _ = place.messages()
    data = damage.mended.pop(number, None)
    made.steps = [s for s in made.steps if s.path != folder / f"{number}.blk"]
    if data is None:
        block = blocks.read(place, number, seals.is_encrypted(place.folder))
    else:
        block = blocks.of_bytes(data, number, place.name)
    what = "is written anew without its damaged places"
    if number not in damage.holes:
        what = "gets tombstones of what only files that go knew to be gone"
    bytes_of = mending.without_holes(block, place.name, ends)
    made.steps.append(Step(folder / f"{number}.blk", what, bytes_of, lost))


# ---- what stands beside them ---------------------------------------------------------------------


def _caches(made: Plan, changed: bool) -> None:
    """Caches that are damaged, or do not fit blocks that change."""
    place, key = made.place, blocks.key_of(made.place.name)
    folder, _ = place.messages()
    for name in names_in(folder):
        if not name.endswith((".jsx", ".jss", ".db")):
            continue
        why = "does not fit the blocks as they are then" if changed else ""
        try:
            data = _plain(place, folder / name) or b""
            _read_cache(name, data, place.name, key)
            if name.endswith(".jsx") and not _fits(place, name, data, key):
                why = "it is of a block that is gone or was changed"
        except caches.Damaged as error:
            why = str(error)
        if why:
            what = f"goes to the quarantine, and is made anew by a server: {why}"
            made.steps.append(Step(folder / name, what, None))
    if not _whole_words(place, place.folder / "subjects.jsd", key):
        what = "goes to the quarantine, and is made anew by a server: damaged"
        made.steps.append(Step(place.folder / "subjects.jsd", what, None))


def _fits(place: Place, name: str, data: bytes, key: bytes) -> bool:
    """Whether a whole sidecar is of its block as that is now; beside an index.db none counts."""
    folder, _ = place.messages()
    head = caches.side(data, key)
    if (folder / "index.db").exists():
        return True
    try:
        block = blocks.read(place, int(name[:-4]), seals.is_encrypted(place.folder))
    except FileNotFoundError:
        return False
    return (block.plain_size, int.from_bytes(block.end, "little")) == (head.size, head.end)


def _read_cache(name: str, data: bytes, stream: str, key: bytes) -> None:
    """Damaged."""
    if name == "checkpoint.jss":
        caches.checkpoint(data, stream)
    elif name == "index.db":
        caches.index_db(data, key)
    elif name in ("thw.db", "sched.db"):
        caches.wheel(data, name == "sched.db")
    elif name.endswith(".jsx"):
        caches.side(data, key)


def _reserve(made: Plan) -> None:
    """Both lines of sequence.jsr, from the whole one."""
    path, key = made.place.folder / "sequence.jsr", blocks.key_of(made.place.name)
    data = found(path)
    if data is None:
        return
    told = caches.reserve(data, key)
    if told.bad:
        lines = caches.reserve_lines(told.number + 2, told.upto + _AHEAD, told.floor, key)
        made.steps.append(Step(path, "a damaged line is made anew", lines))


def _consumers(made: Plan) -> None:
    """Single changed bits in consumers.log, and in o.dat as the log knows it."""
    place, key = made.place, blocks.key_of(made.place.name)
    path = place.folder / consumers.LOG
    if seals.is_encrypted(place.folder):
        return _sealed_consumers(made, path)
    data = found(path)
    if data is None:
        return
    told, changed = consumers.log(data, key), bytearray(data)
    for at, size in told.bad[: mending.PLACES]:
        if not consumers.mend(changed, at, size, key):
            made.left.append(f"{consumers.LOG} at {at}, {size} bytes: a server passes over it")
    if changed != data:
        made.steps.append(Step(path, "single changed bits are changed back", bytes(changed)))
        told = consumers.log(bytes(changed), key)
    for name, known in told.known.items():
        state = place.folder / "obs" / name / consumers.STATE
        body = found(state)
        hashes = {value for value, _ in known}
        if body and consumers.state_hash(body) not in hashes:
            mended = consumers.mend_state(body, hashes)
            if mended is None:
                made.left.append(f"{name}/{consumers.STATE}: {consumers.LOG} does not know it")
            else:
                made.steps.append(Step(state, "one changed bit is changed back", mended))


def _sealed_consumers(made: Plan, path: Path) -> None:
    """Of an encrypted stream they are looked at alone."""
    place = made.place
    try:
        data = _plain(place, path) or b""
        told = consumers.log(data, blocks.key_of(place.name))
        for at, size in told.bad:
            made.left.append(f"{consumers.LOG} at {at}, {size} bytes: a server passes over it")
    except caches.Damaged as error:
        made.left.append(f"{consumers.LOG}: {error}")
    for name in place.consumers():
        state = found(place.folder / "obs" / name / consumers.STATE)
        try:
            if state:
                seals.opened(seals.of_consumer(place, name), state, consumers.STATE)
        except seals.Locked as error:
            made.left.append(f"{name}/{consumers.STATE}: {error}")


def _whole_words(place: Place, path: Path, key: bytes) -> bool:
    """Whether there is no dictionary that is damaged."""
    try:
        data = _plain(place, path)
        return data is None or caches.dictionary(data, key).end == len(data)
    except caches.Damaged:
        return False


# ---- doing it ------------------------------------------------------------------------------------


def carry_out(made: Plan) -> Path:
    """Does what is planned; the folder with what was replaced. OSError: run it again."""
    place = made.place
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    kept = place.folder / f"{QUARANTINE}{stamp}-{os.getpid()}"
    encrypted = seals.is_encrypted(place.folder)
    if encrypted:
        sealing.finish(place.messages()[0])
    for step in made.steps:
        _keep(kept, place.folder, step.path)
        if encrypted and step.path.suffix == ".blk":
            _keep(kept, place.folder, step.path.with_suffix(".key"))
    sync_directory(place.folder)
    for step in made.steps:
        if step.made is not None and encrypted and step.path.suffix == ".blk":
            sealing.replace(place, step.path, step.made, _write)
        elif step.made is not None:
            temporary = step.path.with_name(f"{step.path.name}.tmp")
            _write(temporary, step.made)
            os.rename(temporary, step.path)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(step.path)
        sync_directory(step.path.parent)
    return kept


def _keep(kept: Path, folder: Path, path: Path) -> None:
    """Copies a file to the quarantine, if there is one."""
    data = found(path)
    if data is not None:
        copy = kept / path.relative_to(folder)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(copy, data)
        sync_directory(copy.parent)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
