"""Writes segments of a store's journal as the store does."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from jsserver.cext.bytes import hh64

PAGE = 4096
WRITE, FORGET, FORGET_ALL = 1, 2, 3
FOLDER = ".jsserver.journal"
WITNESS = ".snap-staging/.jsserver.untouched"
MAGIC = 0x31304C4E524A736A
FRAME_MAGIC = 0x6D52466A

Entry = tuple[int, bytes, int, bytes]
"""Kind, path, offset, bytes."""


def paged(data: bytes) -> bytes:
    return data + bytes(-len(data) % PAGE)


def head(use: int, key: bytes, version: int = 1) -> bytes:
    plain = struct.pack("<QQQ", MAGIC, version, use) + key
    return paged(plain + struct.pack("<Q", hh64(bytes(32), plain)))


def entry(kind: int, path: bytes, offset: int = 0, data: bytes = b"") -> bytes:
    return struct.pack("<BBHIQ", kind, 0, len(path), len(data), offset) + path + data


def frame(number: int, key: bytes, entries: Iterable[Entry]) -> bytes:
    body = b"".join(entry(*e) for e in entries)
    plain = struct.pack("<IIQ", FRAME_MAGIC, 24 + len(body), number)
    return paged(plain + struct.pack("<Q", hh64(key, plain + body)) + body)


def segment(use: int, frames: Iterable[Iterable[Entry]], key: bytes = b"k" * 32) -> bytes:
    return head(use, key) + b"".join(frame(i, key, f) for i, f in enumerate(frames))


def journal(root: Path, *segments: bytes) -> Path:
    """The folder of a journal of these segments, which counts."""
    folder = root / FOLDER
    folder.mkdir()
    (root / WITNESS).parent.mkdir(exist_ok=True)
    (root / WITNESS).touch()
    for number, data in enumerate(segments, 1):
        (folder / str(number)).write_bytes(data)
    return folder
