"""Arrow columns of messages: filled from replies and block files, read back into publishes."""

import mmap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

ReadableBuffer: TypeAlias = Any
"""What has the buffer protocol, such as bytes and pyarrow.Buffer."""

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
    `headers`: "map" or "array". `token`: the subject's token that is the partition, from 1; or 0.
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

        stream, subject, data: offsets, bytes. seq (int64), timestamp (int64, µs), ts_nanos,
        partition (int32): values. headers_raw: validity bits, offsets, bytes. headers: validity
        bits, number of entries, number of values, offsets of rows, offsets of names, names, offsets
        of entries' values (None for "array"), offsets of values, values.
        """

class ReplyError(Exception):
    """What came is not what a server sends; the text says what is wrong, and shows its start."""

class Answer(NamedTuple):
    """How far an answer is."""

    messages: int
    """That came, wanted or not."""
    bytes: int
    """Of their subjects, headers and payloads."""
    seen: int
    """The last sequence that came; 0: none."""
    pending: int
    """Messages behind that one, as the server said last."""
    unused: int
    """Messages that a pull request asked for and did not get."""
    status: int
    """The code of the header that ended the answer; 0: it is under way; 421: another stream gave
    the answer, of which nothing was taken."""
    text: str
    """The status in the server's words, or the other stream's name."""

class Replies:
    """What a server sends, parsed into rows: `recv_into` it, then `feed` the size.

    Takes the answers of `stream` to batched direct gets, with `deliveries` what a consumer
    delivers, with `headers_only` without the header that such a consumer adds. Rows of subjects
    that none of `filters` matches are left out. An answer is told by its subscription (`sid`).
    """

    def __init__(
        self,
        *,
        stream: str = "",
        deliveries: bool = False,
        headers_only: bool = False,
        filters: Iterable[str] = (),
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def full(self) -> bool:
        """The next message finds no room, or comes behind a status nobody has cleared yet: take
        the rows or clear it, then feed(0)."""

    def expect(self, slot: int, sid: int, rows: Rows, after: int, last: int) -> None:
        """What comes for `sid` fills `rows` where after < seq <= last. Two slots, 0 and 1."""

    def ends_before(self, slot: int, seq: int) -> int:
        """No more rows of `slot` from `seq` on, or from behind what came already; from where."""

    def answer(self, slot: int) -> Answer: ...
    def clear_status(self, slot: int) -> None: ...
    def take_pings(self) -> int:
        """PINGs that came and want a PONG each."""

    def take_refusal(self) -> str:
        """The text of an -ERR that came, or nothing."""

    def feed(self, size: int) -> None:
        """`size` bytes were received. ReplyError, MemoryError."""

class Archived:
    """Rows of a record batch with the columns of an archive, to be poured into `Rows`.

    `n` rows. Variable columns: (offset, validity bits or None, offsets, bytes or None), Arrow's
    buffers; seq, timestamp (int64), ts_nanos (int32): (offset, values). Only rows with first <= seq
    <= last, since <= time in ns <= until and a subject that one of `patterns` matches (none: all)
    are poured. ValueError where a buffer is too short.
    """

    def __init__(
        self,
        n: int,
        subject: tuple[Any, ...],
        headers: tuple[Any, ...],
        data: tuple[Any, ...],
        seq: tuple[Any, ...],
        timestamp: tuple[Any, ...],
        ts_nanos: tuple[Any, ...],
        *,
        patterns: Iterable[str] = (),
        first: int = 0,
        last: int = ...,
        since: int = ...,
        until: int = ...,
    ) -> None: ...
    def pour(self, rows: Rows) -> bool:
        """True when all rows were poured; False when `rows` is full: take them and go on."""

ROW_FAULTS: dict[int, str]
"""What `Outbox.fill` returns, in words that follow a row's number."""

class Offsets:
    """The buffers of an Arrow array with offsets: texts (`data`) or lists (of `children` rows).

    `at`: the array's offset; `wide`: offsets have 64 bits. Buffers are kept. ValueError when one is
    too small.
    """

    def __init__(
        self,
        n: int,
        at: int,
        wide: bool,
        valid: ReadableBuffer | None,
        offsets: ReadableBuffer | None,
        *,
        data: ReadableBuffer | None = None,
        children: int = 0,
    ) -> None: ...

def rows_digest(n: int, columns: Sequence[Offsets], first_row: int | None = None) -> int:
    """What n rows of some columns (to 8) hold, whatever their order; with `first_row`, the number
    of the first one, in their order. Digests of parts add up to that of the whole, modulo 2^64.
    ValueError where an array's offsets are not in order."""

class Double(NamedTuple):
    """A row that a stream had already, by its id."""

    row: int
    stream: str
    seq: int
    """Where the stream has it."""
    size: int
    """Of the payload of this row, in bytes."""
    start: bytes
    """Of that payload, up to 4,096 bytes."""

class Outbox:
    """Rows under way as PUB and HPUB frames; sans I/O.

    Row n, counted from `first_row` over all that was loaded, is answered to `inbox` (which ends in
    a dot) and n. `subject`: of rows that name none; `lines`: header lines for every row, each with
    CRLF; with `id_prefix` a row's Nats-Msg-Id is that and n; `left_out`: names of the rows' headers
    that are not sent (to 32). At most `max_rows` (to 2^20) and `max_bytes` are under way, or one
    row that is larger. `atomic`: an empty answer is one to a row of a batch that is not committed
    yet (ADR-50), and does not count as `acked`. `stored`: subjects may be whatever a server stores.
    """

    def __init__(
        self,
        inbox: bytes,
        max_rows: int,
        max_bytes: int,
        max_payload: int,
        *,
        subject: bytes = b"",
        lines: bytes = b"",
        id_prefix: bytes | None = None,
        left_out: Sequence[bytes] = (),
        first_row: int = 0,
        atomic: bool = False,
        stored: bool = False,
    ) -> None: ...
    def load(
        self,
        n: int,
        *,
        subject: Offsets | None = None,
        data: Offsets | None = None,
        headers: tuple[str, Offsets | None, Offsets | None, Offsets | None, Offsets] | None = None,
        added: Sequence[tuple[bytes, Offsets]] = (),
    ) -> None:
        """The next n rows, once those before them are all `taken`.

        `headers`: layout, entries of rows, names, values of entries, values. Layouts: "grouped"
        (entries have lists of values), "pairs" (one value each), "block" (whole blocks in values,
        nothing else).
        `added`: header names and their values, null for none (to 8).
        """

    def drop(self) -> None:
        """Forgets the rows that are not taken yet."""

    def fill(self, most: int) -> int:
        """Takes rows until they are `most` bytes or nothing more may be under way.

        0, or what is wrong with row `next_row`: a key of ROW_FAULTS. MemoryError.
        """

    def faults(self) -> bytearray:
        """A byte for each loaded row: 0, or a key of ROW_FAULTS. MemoryError."""

    @property
    def taken(self) -> bool: ...
    @property
    def next_row(self) -> int: ...
    def subject_of(self, n: int) -> bytes:
        """Of a row that is under way or next; empty for others."""

    def to_send(self, limit: int) -> memoryview | None:
        """What to send next, about `limit` bytes; valid until `sent`, which comes before others."""

    def sent(self, size: int, now: int) -> None:
        """That much of it was sent; `now` in monotonic ns."""

    def received(self, data: ReadableBuffer, size: int) -> bool:
        """What the server said; False if no server says that. MemoryError."""

    def lost(self) -> None:
        """The connection is gone: what is not acked will be sent again on the next."""

    def again(self, before: int) -> int:
        """Rows that were sent by then and not answered will be sent again; their number.

        -1 while a frame is sent in part.
        """

    def refused_again(self) -> int:
        """The same for rows that the server refused."""

    def refusals(self) -> list[tuple[int, bytes]]:
        """Rows refused since the last call and what the server said: JSON, or a status header.

        Bounded: of very many the last ones are not told.
        """

    def doubles(self) -> list[Double]:
        """Some of the rows that were acked as duplicates since the last call: the first eight, then
        the 16th, the 32nd and so on."""

    @property
    def left_out(self) -> list[bytes]:
        """Of the headers that are not sent, those that rows brought."""

    @property
    def said(self) -> bytes:
        """The text of an -ERR."""

    @property
    def under_way(self) -> int: ...
    @property
    def crowded(self) -> bool:
        """Whether more than three quarters of what may be under way are."""

    @property
    def first_row(self) -> int:
        """The first that is not acked."""

    @property
    def first_sent_at(self) -> int:
        """When it was sent, monotonic ns; 0 if it waits for that."""

    @property
    def acked(self) -> int: ...
    @property
    def duplicates(self) -> int: ...
    @property
    def last_seq(self) -> int: ...

# ---- blocks of a store -------------------------------------------------------------------------

WALK_DONE: int
WALK_FULL: int
WALK_BAD: int
SIDE_NONE: int
SIDE_LOAD: int

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
    def fill(self, rows: Rows) -> int:
        """WALK_DONE, WALK_FULL: take the batch and go on, WALK_BAD: no good record at `offset`."""
    def skip(self) -> int:
        """Goes on at the next good record; the bytes passed over."""

class Survey:
    """A replay of a stream's blocks that finds out which messages are live.

    `ours`: as our server recovers, else as nats-server does. `lives`: messages may have lives of
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
        ours: bool = False,
        lives: bool = False,
    ) -> None: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def first_seq(self) -> int:
        """No message below it is left, by the markers of our server; 0 when there are none."""
    @property
    def offset(self) -> int: ...
    def dictionary(self, data: SupportsBytes, stream: str) -> None:
        """Our subjects.jsd, which says what the subjects of sidecars stand for."""
    def sided(
        self,
        number: int,
        side: bytes,
        size: int,
        end: bytes,
        stream: str,
        plain: Plain | None = None,
    ) -> int:
        """The next block from our sidecar alone; `size`, `end`: its file's, and its last 8 bytes.

        WALK_DONE; SIDE_NONE: it does not fit, the block is to be walked; SIDE_LOAD: once more with
        the block's bytes.
        """
    def begin(self, number: int, plain: Plain, key: bytes) -> None:
        """The next block; `plain` must stay as it is until its walk is done."""
    def walk(self) -> int:
        """WALK_DONE; WALK_BAD: no good record at `offset`."""
    @property
    def rest_is_zero(self) -> bool:
        """Whether nothing but zeros follows: room that a server took ahead of use."""
    def skip(self) -> int:
        """Goes on at the next good record; the bytes passed over."""
    def finish(self, now: int) -> None: ...
    def gone(self) -> tuple[bool, Buffer]:
        """(True, runs: 2 x u64 each, ascending) or (False, deleted sequences as they came).

        The latter without those below `first_seq`.
        """
    def surveyed(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """(number, first, last, min_ts, max_ts, end, lost) of every block; first 0: no messages."""

def record_kinds(plain: Plain, key: bytes) -> tuple[int, int]:
    """How many good records stand at a block's start, and how many are marks of our server."""

def index_db(
    data: SupportsBytes, key: bytes
) -> (
    tuple[int, int, int, int, list[tuple[int, int, int, int, int, int, int, bytes]], int, bytes]
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
