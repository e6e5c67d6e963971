"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

ReadableBuffer: TypeAlias = Any
"""What has the buffer protocol, such as bytes and pyarrow.Buffer."""

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
    """The code of the header that ended the answer; 0: it is under way."""
    text: str
    """The status in the server's words."""

class Replies:
    """What a server sends, parsed into rows: `recv_into` it, then `feed` the size.

    Takes the answers to batched direct gets, with `deliveries` what a consumer delivers, with
    `headers_only` without the header that such a consumer adds. Rows of subjects that none of
    `filters` matches are left out. An answer is told by its subscription (`sid`).
    """

    def __init__(
        self, *, deliveries: bool = False, headers_only: bool = False, filters: Iterable[str] = ()
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

class Outbox:
    """Rows under way as PUB and HPUB frames; sans I/O.

    Row n, counted from 0 over all that was loaded, is answered to `inbox` (which ends in a dot)
    and n. `subject`: of rows that name none; `lines`: header lines for every row, each with CRLF;
    with `id_prefix` a row's Nats-Msg-Id is that and n; `left_out`: names of the rows' headers that
    are not sent (to 16). At most `max_rows` (to 2^20) and `max_bytes` are under way, or one row
    that is larger.
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
