"""Rows that wait until all of a task's rows are known."""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

MEMORY_BYTES = 32 << 20
"""Beyond this they wait in a temporary file."""


class Spool:
    """Takes batches of one schema, then gives them back in order, once."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._writer: Any = None

    def add(self, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, rows.schema)
        self._writer.write_batch(rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)


@contextlib.contextmanager
def spooling() -> Iterator[Spool]:
    with tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES) as file:
        yield Spool(file)
