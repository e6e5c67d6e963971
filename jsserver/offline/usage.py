"""`jsserver store du`: what takes the room of a store directory, by account, stream and kind of
file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from . import blocks, caches, seals
from .messages import Walk
from .places import Place, Unreadable, found, names_in

KINDS = ("blocks", "caches", "consumers", "configuration", "other")
_CACHES = (".jsx", ".db", ".jss", ".jsd", ".jsr")


@dataclass
class Usage:
    """Of one stream. Messages are counted as records; `gone`: removed ones still in the blocks."""

    place: Place
    disk: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """Bytes on disk by kind of file."""
    files: int = 0
    blocks: int = 0
    messages: int = 0
    live: int = 0
    gone: int = 0
    encrypted: bool = False
    sealed: bool = False
    """Encrypted, and not opened."""
    unread: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.disk.values())

    @property
    def ratio(self) -> float:
        """Bytes of live messages for each byte on disk."""
        return self.live / self.total if self.total else 0.0

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "account": self.place.account,
            "stream": self.place.name,
            "disk_bytes": self.total,
            "kinds": self.disk,
            "files": self.files,
            "blocks": self.blocks,
            "messages": self.messages,
            "live_bytes": self.live,
            "deleted_bytes": self.gone,
            "ratio": round(self.ratio, 4),
            "encrypted": self.encrypted,
            "sealed": self.sealed,
            "unread": self.unread,
        }


def of_stream(place: Place) -> Usage:
    """Reads the stream's blocks; Unreadable."""
    made = Usage(place)
    made.encrypted = seals.is_encrypted(place.folder)
    _files(place.folder, made, "")
    walk = Walk(place, index_of(place, made.encrypted))
    for look in walk.looks(lambda number: blocks.read_or_fault(place, number, made.encrypted)):
        if look.block.sealed and place.keys is None:
            made.sealed = True
        elif look.block.fault:
            made.unread.append(f"{look.block.number}.blk: {look.block.fault}")
    made.blocks = len(walk.spans)
    made.messages, made.live = walk.live, walk.live_bytes
    made.gone = sum(span.gone_bytes for span in walk.spans)
    return made


def index_of(place: Place, encrypted: bool) -> caches.Index | None:
    """An index.db that nats-server would go by: it says what its limits have removed."""
    folder, _ = place.messages()
    try:
        data = found(folder / "index.db")
        if data is None:
            return None
        key = blocks.key_of(place.name)
        if encrypted:
            data = caches.index_opened(data, key, seals.of_stream(place))
        index = caches.index_db(data, key)
    except (Unreadable, caches.Damaged, seals.Locked):
        return None
    number = index.end_number
    numbers = Walk(place).numbers()
    if not numbers or numbers[-1] != number:
        return None
    last = blocks.read_or_fault(place, number, encrypted)
    return index if last.end == index.end else None


def _files(folder: Path, made: Usage, within: str) -> None:
    for name in names_in(folder):
        path = folder / name
        try:
            status = os.lstat(path)
        except OSError as error:
            made.unread.append(f"{path}: {error.strerror}")
            continue
        if path.is_dir() and not path.is_symlink():
            _files(path, made, within or name)
            continue
        made.files += 1
        made.disk[_kind(name, within)] += status.st_blocks * 512


def _kind(name: str, within: str) -> str:
    if within == "obs" or name == "consumers.log":
        return "consumers"
    if name.endswith(".blk") and name[:-4].isdecimal():
        return "blocks"
    if name.endswith(_CACHES):
        return "caches"
    if name.startswith("meta.") or name.endswith(".key"):
        return "configuration"
    return "other"
