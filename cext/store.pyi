"""What the control plane sees of the store: the lock on its directory, and its files' records."""

import os

from _typeshed import ReadableBuffer

def lock_directory(path: str | os.PathLike[str]) -> int:
    """Keeps a second server off a store directory while the returned descriptor is open.

    BlockingIOError: another process holds it. OSError: it cannot be made.
    """

def journal_drain(
    path: str | os.PathLike[str], look: bool = False
) -> tuple[int, int, int, bool, bool]:
    """Brings what the journal in a store directory holds into the files, and removes the journal:
    how many rounds, files and bytes that were, whether some of it was damaged, and whether it was
    outdated: nats-server has started on the directory since, so nothing of it was brought into the
    files. OSError: it is left as it is. look: only says what there is."""

def block_rows(key: bytes, data: ReadableBuffer) -> bytes:
    """The records of a block's plain bytes, and its places that are none, in order, 40 bytes each:
    offset u64, sequence with its two bits u64, time i64, size u32, header's size u32, subject's
    size u16, kind u8 (0 record, 1 marker, 2 marker of a group with changed lengths, 3 cut,
    4 damaged bytes, 5 zeros to the end), flags u8 (1: the header does not end where it should),
    4 unused bytes. ValueError: a key of another length, or a block of 4 GiB."""

def checkpoint_rows(stream: str, data: ReadableBuffer) -> bytes | None:
    """The blocks that a whole checkpoint.jss lists, 48 bytes each, of u64: number, file size, first
    and last sequence, live messages and their bytes. None: it is damaged, or another stream's."""

def record_mark(checksum: int, size: int, subject: int, header: int, at: int) -> int:
    """A record's part of its group's digest; `size` as it stands in the record."""

BLOCK_HEAD: int
"""Bytes of a block's file that say its plain size."""

def plain_size(head: bytes, size: int) -> int:
    """How long a block is when it is not compressed, of a file of that beginning and size; 0: it is
    compressed and does not say."""
