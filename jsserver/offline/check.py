"""Checks one stream: its configuration, each record, and what the files beside the blocks say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jsserver.cext.bytes import subject_is_literal, subject_is_valid, subject_matches
from jsserver.cext.store import record_mark
from jsserver.instances.metafiles import KEY, MetaFiles, is_encrypted

from . import beside, blocks, caches, seals
from .blocks import Block, Kind, Row
from .findings import Finding, Findings, Severity
from .messages import Look, Walk, messages_of
from .places import Place, Unreadable, found, names_in
from .removed import Removed, ranges, shown
from .wheels import Wheels

NOTE, WARNING, DAMAGE = Severity.NOTE, Severity.WARNING, Severity.DAMAGE
RECORD_MAX = 1 << 25
SHOWN_MISSING = 1 << 20
"""Missing sequences of a block that are named one by one."""


@dataclass
class Report:
    """What a check of a stream came to."""

    place: Place
    findings: Findings
    walk: Walk
    encrypted: bool = False
    sealed: bool = False
    """Encrypted, and not opened."""
    offline: str = ""
    blocks: int = 0
    records: int = 0
    size: int = 0


@dataclass
class StreamCheck:
    """One check; `run` may be called once."""

    place: Place
    root: Path
    files: MetaFiles
    progress: Callable[[int], None] = lambda size: None
    findings: Findings = field(default_factory=Findings)

    def __post_init__(self) -> None:
        self.key = blocks.key_of(self.place.name)
        self.folder, self._hidden = self.place.messages()
        self.encrypted = self.sealed = False
        self.storage = "file"
        self.subjects: list[str] = []

    def run(self) -> Report:
        """Looks at everything."""
        walk = Walk(self.place)
        report = Report(self.place, self.findings, walk)
        try:
            self._configuration()
            report.encrypted, report.sealed = self.encrypted, self.sealed
            walk.index = self._index(walk)
            self._blocks(walk, report)
            beside.check(self, walk)
        except Unreadable as error:
            self.unread(self.place.folder, str(error))
        return report

    # ---- telling -------------------------------------------------------------------------------

    def say(
        self,
        severity: Severity,
        kind: str,
        path: Path,
        what: str,
        offset: int | None = None,
        size: int | None = None,
        lost: str = "",
    ) -> None:
        """Adds a finding."""
        where = self.name_of(path)
        place = self.place
        made = Finding(severity, kind, place.account, place.name, where, what, offset, size, lost)
        self.findings.add(made)

    def name_of(self, path: Path) -> str:
        """A path as findings name it."""
        try:
            return str(path.relative_to(self.root))
        except ValueError:
            return str(path)

    def unread(self, path: Path, why: str) -> None:
        """A file that could not be looked at."""
        self.findings.unread += 1
        kind = "link" if path.is_symlink() else "unread"
        self.say(WARNING, kind, path, f"cannot be read: {why}")

    def bytes_of(self, path: Path) -> bytes | None:
        """A file's bytes; None where there is none, or it cannot be read, which is told."""
        try:
            return found(path)
        except Unreadable as error:
            self.unread(path, str(error))
            return None

    def sheet_of(
        self, path: Path, severity: Severity = WARNING, kind: str = "cache"
    ) -> bytes | None:
        """The bytes of a file of jsserver's own; None where there is none, or it stays closed. The
        latter is told where a key was given."""
        data = self.bytes_of(path)
        try:
            return data if data is None else seals.sheet(self.place, data, path.name)
        except seals.Locked as error:
            if self.place.keys is not None:
                self.say(severity, kind, path, str(error))
            return None

    # ---- the configuration ---------------------------------------------------------------------

    def _configuration(self) -> None:
        names = names_in(self.place.folder)
        body = self.meta(self.place.folder, self.place.name)
        if body is None:
            self.encrypted = KEY in names
            self.sealed = self.encrypted and self.place.keys is None
            return
        self.encrypted = is_encrypted(names, body)
        if self.encrypted:
            body = self._opened(body)
            if body is None:
                return
        try:
            config = json.loads(body)
            self.storage = config.get("storage", "file")
            if not any(config.get(k) for k in ("mirror", "sources", "subject_transform")):
                self.subjects = [str(subject) for subject in config.get("subjects") or []]
        except (ValueError, AttributeError):
            self.say(DAMAGE, "meta", self.place.folder / "meta.inf", "it is no JSON object")

    def _opened(self, body: bytes) -> bytes | None:
        """The meta.inf of an encrypted stream as it would be without; None: it stays closed."""
        path = self.place.folder / "meta.inf"
        try:
            return seals.opened(seals.of_stream(self.place), body, "meta.inf")
        except seals.Locked as error:
            self.sealed = True
            if self.place.keys is None:
                what = "encrypted: what stands in its blocks cannot be checked without the key"
                self.say(NOTE, "unseen", path, what)
            else:
                self.unread(path, str(error))
            return None

    def meta(self, folder: Path, asset: str) -> bytes | None:
        """A meta.inf, checked against its sum; None where it is missing or not to be trusted."""
        inf, total = folder / "meta.inf", folder / "meta.sum"
        body, had = self.bytes_of(inf), self.bytes_of(total)
        if body is None:
            if not inf.exists():
                self.say(DAMAGE, "meta", inf, "missing")
            return None
        want = self.files.checksum(asset, body)
        if had == want:
            return body
        if self.bytes_of(folder / "meta.sum.tmp") == want:
            what = "an update was broken off here, and is finished by a start"
            self.say(NOTE, "leftover", total, what)
            return body
        if had is None:
            self.say(DAMAGE, "meta", total, "missing")
        else:
            what = "it is not the checksum of meta.inf: one of the two is damaged"
            self.say(DAMAGE, "meta", total, what)
        return None

    # ---- the blocks ----------------------------------------------------------------------------

    def _index(self, walk: Walk) -> caches.Index | None:
        """An index.db that nats-server would go by."""
        path = self.folder / "index.db"
        data = self.bytes_of(path)
        if data is None:
            return None
        try:
            if self.sealed:
                if not caches.checked(self.key, data):
                    raise caches.Damaged("its checksum does not fit")
                return None
            if self.encrypted:
                data = caches.index_opened(data, self.key, seals.of_stream(self.place))
            index = caches.index_db(data, self.key)
        except (caches.Damaged, seals.Locked) as error:
            self.say(WARNING, "index", path, str(error))
            return None
        numbers = walk.numbers()
        if numbers and numbers[-1] == index.end_number:
            block = self.read(index.end_number)
            if block.end == index.end or block.fault:
                return index
        lacks = sorted(set(index.blocks) - set(numbers))
        if numbers and numbers[-1] > index.end_number:
            self.say(NOTE, "stale", path, "older than the blocks")
        elif lacks:
            what = f"it lists blocks that are not there: {shown(ranges(lacks))}"
            gone = [index.blocks[n] for n in lacks if index.blocks[n].messages]
            lost = [(listed.first, listed.last) for listed in gone]
            self.say(DAMAGE, "missing", path, what, lost=shown(lost))
        else:
            self.say(NOTE, "stale", path, "the last block has changed since")
        return None

    def read(self, number: int) -> Block:
        """A block; what cannot be read is a block with a fault."""
        return blocks.read_or_fault(self.place, number, self.encrypted)

    def _blocks(self, walk: Walk, report: Report) -> None:
        wheels = Wheels(self, walk)
        if not self.folder.is_dir() and self.storage == "file" and not self.sealed:
            what = "the folder of its blocks is missing"
            self.say(WARNING, "missing", self.folder, what)
        for look in walk.looks(self.read):
            report.blocks += 1
            report.size += look.block.size
            self._block(walk, look, report)
            wheels.see(look.block)
            self.progress(look.block.size)
        wheels.finish()

    def _block(self, walk: Walk, look: Look, report: Report) -> None:
        block, path = look.block, self.folder / f"{look.block.number}.blk"
        if block.sealed and self.sealed:
            self._key(block)
            return
        if block.sealed:
            self.say(DAMAGE, "key", path, block.fault)
            return
        if block.fault:
            if block.packed:
                what = f"compressed, and cannot be unpacked: {block.fault}"
                self.say(DAMAGE, "packed", path, what, 0)
            else:
                self.unread(path, block.fault)
            return
        if look.span.void:
            self.say(NOTE, "leftover", path, "a truncation took this block away")
            return
        if block.size == 0:
            severity, kind = (NOTE, "leftover") if look.is_last else (WARNING, "missing")
            self.say(severity, kind, path, "empty")
            return
        good = self._rows(walk, look, path)
        report.records += good
        listed = walk.index.blocks.get(block.number) if walk.index is not None else None
        if listed is not None:
            self._compare(look, listed, path)

    def _key(self, block: Block) -> None:
        """The file with the key of an encrypted block."""
        path = self.folder / f"{block.number}.key"
        data = self.bytes_of(path)
        if data is None or len(data) not in (64, 72):
            what = "missing" if data is None else f"{len(data)} bytes, where a key has 64 or 72"
            self.say(DAMAGE, "key", path, what)

    def _rows(self, walk: Walk, look: Look, path: Path) -> int:
        """Tells of everything in a block that is not as it should be; how many records are good."""
        block, good, last, order = look.block, 0, 0, Severity.NOTE
        bad: list[tuple[Row, int]] = []
        group: list[Row] = []
        for row in block.rows():
            at, raw, _, size, _, _, kind, _ = row
            if kind == Kind.BAD:
                bad.append((row, last))
            if kind in (Kind.BAD, Kind.ZEROS):
                continue
            good += 1
            if kind in (Kind.MARK, Kind.MISFIT):
                start = block.mark(row).start
                self._subjects(block, [row for row in group if row[0] < start], walk, path)
                if kind == Kind.MISFIT:
                    self._misfit(block, row, path)
                    start = at
                self._headers([row for row in group if row[0] < start], path)
                group.clear()
            else:
                group.append(row)
            if raw & (blocks.TOMB | blocks.ERASED) and row[5]:
                what = "a record without a subject says that it has one"
                self.say(WARNING, "bare", path, what, at, size)
            seq = raw & blocks.SEQUENCE
            if kind != Kind.RECORD or not seq or raw & blocks.TOMB:
                continue
            self._places(bad, look, seq, path)
            if seq <= last and order is NOTE:
                order = WARNING
                self.say(order, "order", path, f"sequence {seq} stands behind {last}", at, size)
            last = max(last, seq)
        if not look.marks:
            self._subjects(block, group, walk, path)
        self._headers(group, path)
        self._places(bad, look, look.next_first, path)
        if look.next_first and last >= look.next_first:
            what = f"it holds sequence {last}, and a block behind it begins at {look.next_first}"
            self.say(WARNING, "order", path, what)
        if not good and any(row[6] == Kind.BAD for row in block.rows()):
            self.say(DAMAGE, "foreign-block", path, "no record of this stream is in it")
        return good

    def _headers(self, rows: list[Row], path: Path) -> None:
        """Messages whose lengths no marker vouches for: what their headers tell."""
        for row in rows:
            if not row[7] & blocks.OPEN_HEADER:
                continue
            what = f"message {row[1]}: its header does not end where its length says"
            self.say(DAMAGE, "lengths", path, what, row[0], row[3], str(row[1]))

    def _subjects(self, block: Block, rows: list[Row], walk: Walk, path: Path) -> None:
        """The same of their subjects, unless an index.db knows their lengths."""
        for row in rows if walk.index is None else ():
            if not row[1] & (blocks.TOMB | blocks.ERASED):
                self._subject(block, row, path)

    def _subject(self, block: Block, row: Row, path: Path) -> None:
        """Where nothing else tells the length of a subject, at least what cannot be one."""
        text = block.subject(row)
        if not text:
            return
        if not subject_is_valid(text) or not subject_is_literal(text) or min(text) < 0x20:
            what = f"message {row[1]}: its subject is none"
            self.say(DAMAGE, "lengths", path, what, row[0], row[3], str(row[1]))
        elif self.subjects and not any(subject_matches(s, text) for s in self.subjects):
            what = f"message {row[1]}: its subject {text!r} is none of the stream's"
            self.say(WARNING, "lengths", path, what, row[0], row[3], str(row[1]))

    def _places(self, bad: list[tuple[Row, int]], look: Look, after: int, path: Path) -> None:
        """Tells of damaged places, each with the sequence before it; `after` is the next one."""
        for row, before in bad:
            at, size = row[0], row[3]
            is_end = at + size == len(look.block.plain) and look.is_last
            if is_end and may_be_torn(look.block, row):
                self.say(NOTE, "tail", path, "a write that never ended", at, size)
                continue
            lost = ""
            if before and after > before + 1:
                lost = f"at most {shown([(before + 1, after - 1)])}"
            elif before and not after:
                lost = f"those behind {before}"
            self.say(DAMAGE, "record", path, "no good record", at, size, lost)
        bad.clear()

    def _misfit(self, block: Block, row: Row, path: Path) -> None:
        mark = block.mark(row)
        culprit = lengths_changed(block, row)
        at = culprit[0] if culprit else mark.start
        what = "the lengths of a record are not those that were written"
        if culprit:
            what = f"message {culprit[1] & blocks.SEQUENCE}: {what}"
        self.say(DAMAGE, "lengths", path, what, at, row[0] - at, str(culprit[1]) if culprit else "")

    def _compare(self, look: Look, listed: caches.IndexBlock, path: Path) -> None:
        span = look.span
        if span.live < listed.messages:
            there = Removed()
            for row in messages_of(look.block):
                there.add(row[1])
            upto = min(listed.last, listed.first + SHOWN_MISSING)
            wanted = (seq for seq in range(listed.first, upto + 1) if seq not in listed.gone)
            lacks = [seq for seq in wanted if seq not in there]
            what = f"{listed.messages - span.live} messages that index.db lists are not in it"
            self.say(DAMAGE, "missing", path, what, lost=shown(ranges(lacks)))
        elif span.live_bytes != listed.size:
            what = f"its messages have {span.live_bytes} bytes, and {listed.size} in index.db"
            self.say(WARNING, "counts", path, what)


def may_be_torn(block: Block, row: Row) -> bool:
    """Whether damaged bytes at the end of the last block are what a kill leaves of one write: a
    record that goes on behind the end of the file."""
    data = block.plain[row[0] : row[0] + row[3]]
    if row[0] + row[3] < len(block.plain):
        return False
    claimed = int.from_bytes(data[:4], "little") & 0x7FFFFFFF
    return len(data) < 4 or len(data) < claimed <= RECORD_MAX


def lengths_changed(block: Block, marker: Row) -> tuple[int, int] | None:
    """Offset and sequence of the one record of a marker's group in whose lengths one changed bit
    explains the group's digest; None where that is not one record."""
    fits = [(row[0], row[1]) for row, _ in lengths_explained(block, marker)]
    return fits[0] if len(set(fits)) == 1 else None


def lengths_explained(block: Block, marker: Row) -> list[tuple[Row, tuple[int, int, int]]]:
    """Records of a marker's group, each with the size, subject's size and header's size that one
    changed bit less would give it, where the digest of the group then fits."""
    group: list[tuple[Row, int, int]] = []
    for row in block.rows():
        if row[0] >= marker[0]:
            break
        if row[6] in (Kind.MARK, Kind.MISFIT):
            group = []
        elif row[6] in (Kind.RECORD, Kind.CUT):
            end = row[0] + row[3]
            head = int.from_bytes(block.plain[row[0] : row[0] + 4], "little")
            group.append((row, int.from_bytes(block.plain[end - 8 : end], "little"), head))
    start = block.mark(marker).start
    group = [part for part in group if part[0][0] >= start]
    at = marker[0] + blocks.HEAD + 32
    digest = int.from_bytes(block.plain[at : at + 8], "little")
    now = [record_mark(total, head, row[5], row[4], row[0]) for row, total, head in group]
    missing = digest - sum(now)
    out = []
    for (row, total, head), mark in zip(group, now, strict=True):
        tries = [(head, row[5] ^ 1 << bit, row[4]) for bit in range(16)]
        tries += [(head, row[5], row[4] ^ 1 << bit) for bit in range(26)]
        tries += [(head ^ 1 << bit, row[5], row[4]) for bit in range(32)]
        for size, subject, header in tries:
            other = record_mark(total, size, subject, header, row[0])
            if (other - mark - missing) % (1 << 64) == 0:
                out.append((row, (size, subject, header)))
    return out
