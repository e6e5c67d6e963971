"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

import mmap
from collections.abc import Iterable
from typing import TypeAlias

SupportsBytes: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | "Plain"

COLUMNS: dict[str, int]
"""The columns that `Rows` can fill."""
HEADER_FORMATS: dict[str, int]

class Buffer:
    """Memory that was filled once, read-only."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Rows:
    """A batch in the making; readers fill it, `take` hands it over.

    `columns`: names out of COLUMNS. `stream`: what stands in the column of that name. A batch is
    full at `max_rows` (to 2^20) or at `max_bytes` (to 256 MiB) of subjects, headers and payloads.
    `headers`: "map" or "array". `token`: the subject's token that is the partition, from 1; 0: none.
    """

    def __init__(
        self,
        columns: Iterable[str],
        stream: str,
        max_rows: int,
        max_bytes: int,
        *,
        headers: str = "map",
        token: int = 0,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def full(self) -> bool: ...
    def add(self, subject: bytes, seq: int, ts: int, header: bytes, data: bytes) -> None:
        """One message, `ts` in ns since 1970, `header` its whole block or empty. MemoryError."""

    def take(self) -> tuple[int, dict[str, tuple[Buffer | int | None, ...]]]:
        """The rows' number and each column's buffers; the batch is empty afterwards.

        stream, subject, data: offsets, bytes. seq (int64), timestamp (int64, µs), ts_nanos, partition
        (int32): values. headers_raw: validity bits, offsets, bytes. headers: validity bits, number of
        entries, number of values, offsets of rows, offsets of names, names, offsets of entries' values
        (None for "array"), offsets of values, values.
        """

# ---- S2 and Snappy -----------------------------------------------------------------------------

def s2_decode(data: SupportsBytes) -> bytes:
    """The plain bytes of one block. ValueError."""

def crc32c_of(data: SupportsBytes) -> tuple[int, int]:
    """A CRC-32C computed in both ways, with the processor's instruction and from tables."""

class S2Stream:
    """Decodes a stream of chunks as its pieces come."""

    def feed(self, data: SupportsBytes) -> bytes:
        """What whole chunks hold so far, about 8 MiB at most: feed b"" until nothing comes. ValueError."""

    def finish(self) -> None:
        """ValueError when the stream ends inside a chunk, or is none."""

# ---- blocks of a store -------------------------------------------------------------------------

WALK_DONE: int
WALK_FULL: int
WALK_BAD: int
SURVEY_AGAIN: int

class Plain:
    """A block's bytes, in memory that is used again for the next one. A writable buffer."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def clear(self) -> None: ...
    def extend(self, data: SupportsBytes) -> None: ...
    def swap(self, other: Plain) -> None:
        """Each has the other's bytes."""
    def read(self, fd: int, size: int) -> None:
        """The first `size` bytes of a file, or as many as there are. OSError."""
    @property
    def packed(self) -> bool:
        """Whether these are the bytes of a compressed block."""
    def unpack(self, source: Plain) -> None:
        """The plain bytes of a compressed block. ValueError."""

def block_key(text: str) -> bytes:
    """The key of a block's checksums, from "STREAM-N", or of a cache's, from "STREAM"."""

class Wanted:
    """Which messages are asked for: bounds include their ends, times are ns since 1970.

    `subjects`: patterns, none for all. `ttl_now`: the time at which the messages' own lives are
    looked at; 0: they are not.
    """

    def __init__(
        self,
        *,
        first: int = 0,
        last: int = ...,
        min_ts: int = ...,
        max_ts: int = ...,
        subjects: Iterable[str] = (),
        ttl_now: int = 0,
    ) -> None: ...

class BlockReader:
    """A walk over one block's records into rows; `gone` are runs of deleted sequences (2 x u64)."""

    def __init__(self, plain: Plain, key: bytes, wanted: Wanted, gone: bytes = b"") -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def last_seq(self) -> int:
        """The highest sequence so far."""
    @property
    def rest_is_zero(self) -> bool: ...
    def fill(self, rows: Rows) -> int:
        """WALK_DONE, WALK_FULL: take the batch and go on, WALK_BAD: no good record at `offset`."""
    def skip(self) -> int:
        """Goes on at the next good record; the bytes passed over."""

class Survey:
    """A replay of a stream's blocks that finds out which messages are live.

    `at_once`: limits apply record by record (our server), else at the end (nats-server). `keep`:
    every message is kept, which `walk` asks for by SURVEY_AGAIN. `lives`: messages may have lives of
    their own.
    """

    def __init__(
        self,
        *,
        max_msgs: int = -1,
        max_bytes: int = -1,
        max_age: int = 0,
        max_msgs_per: int = -1,
        trim: bool = True,
        at_once: bool = False,
        keep: bool = False,
        lives: bool = False,
    ) -> None: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def begin(
        self, number: int, plain: Plain, key: bytes, side: bytes | None = None, stream: str = ""
    ) -> None:
        """The next block; `plain` must stay as it is until its walk is done.

        `side`: the bytes of our sidecar of that block, which is looked at if it fits.
        """
    def walk(self) -> int:
        """WALK_DONE, WALK_BAD: no good record at `offset`, SURVEY_AGAIN."""
    def skip(self) -> int: ...
    def finish(self, now: int) -> None: ...
    def gone(self) -> tuple[bool, Buffer]:
        """(True, runs: 2 x u64 each, ascending) or (False, deleted sequences as they came)."""
    def surveyed(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """(number, first, last, min_ts, max_ts, end, lost) of every block; first 0: no messages."""

def record_kinds(plain: Plain, key: bytes) -> tuple[int, int]:
    """How many good records stand at a block's start, and how many are marks of our server."""

def index_db(
    data: SupportsBytes, key: bytes
) -> (
    tuple[
        int, int, int, int, list[tuple[int, int, int, int, int, int, int, bytes]], int, bytes
    ]
    | None
):
    """nats-server's index.db, None when it is damaged or of an unknown version.

    (messages, bytes, first, last sequence, [(number, bytes, first, first time, last, last time,
    deleted, runs)], last block, its last 8 bytes)
    """

def checkpoint(
    data: SupportsBytes, stream: str
) -> tuple[int, list[tuple[int, int, int, int, int, int, int, int, bytes]], bytes] | None:
    """Our checkpoint.jss, None when it is damaged.

    (last sequence, [(number, file size, first, last, first time, last time, live, live bytes,
    runs)], the last block's last 8 bytes)
    """
