"""Arrow columns of messages: filled from servers' replies and block files, and read back into publishes."""

from collections.abc import Iterable

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
