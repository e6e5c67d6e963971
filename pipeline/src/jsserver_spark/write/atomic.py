"""Rows as atomic batches (ADR-50): a stream stores all rows of a batch, or none."""

import secrets
import time
from dataclasses import replace
from typing import Self

import numpy as np
import pyarrow as pa

from jsserver_spark.errors import NatsError
from jsserver_spark.options import SinkOptions
from jsserver_spark.write.doubles import Doubles
from jsserver_spark.write.publisher import Publisher, backoff
from jsserver_spark.write.refusals import NotAcked, PublishError

BATCH_ROWS = 1000
"""As many as a stream takes in one batch."""

_DISABLED = 10174
_DUPLICATE_IDS = 10201


class AtomicPublisher:
    """A Publisher whose rows n*1000 to n*1000+999 are stored all or not at all.

    All rows of a batch belong to one stream, which has to allow it (allow_atomic). A batch whose
    ack is lost is written again under another batch id. With `id_prefix` it is stored once, because
    the stream refuses the ids of a batch that it has; without, at least once. NatsError.
    """

    def __init__(
        self,
        options: SinkOptions,
        name: str,
        *,
        id_prefix: str | None = None,
        subject: str = "",
        doubles: Doubles | None = None,
    ) -> None:
        self._options = options
        self._once = replace(options, retries=0)
        self._name = name
        self._id_prefix = id_prefix
        self._subject = subject
        self._doubles = doubles
        self._waiting: list[pa.RecordBatch] = []
        self._first = 0
        self.rows = 0
        self.acked = 0
        self.duplicates = 0
        self.last_seq = 0
        self.left_out: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Rows that make no whole batch and were not flushed are not stored."""
        self._waiting.clear()

    def publish(self, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            part = rows.slice(0, BATCH_ROWS - (self.rows - self._first))
            rows = rows.slice(part.num_rows)
            self._waiting.append(part)
            self.rows += part.num_rows
            if self.rows - self._first == BATCH_ROWS:
                self.flush()

    def flush(self) -> None:
        """Writes what waits as one batch, and returns when the stream has it."""
        if self._waiting:
            rows = pa.concat_batches(self._waiting)
            self._waiting.clear()
            self._write(rows)
            self._first = self.rows

    def _write(self, rows: pa.RecordBatch) -> None:
        numbers = pa.array(np.arange(1, rows.num_rows + 1))
        last = pa.concat_arrays([pa.nulls(rows.num_rows - 1, pa.string()), pa.array(["1"])])
        rows = rows.append_column("batch_sequence", numbers).append_column("batch_commit", last)
        tries = 0
        while True:
            try:
                self._write_once(rows)
                return
            except PublishError as error:
                if not error.passes:
                    self._refused(error, rows.num_rows)
                    return
                if tries >= self._options.retries:
                    raise
                time.sleep(backoff(tries))
                tries += 1

    def _write_once(self, rows: pa.RecordBatch) -> None:
        with self._publisher() as publisher:
            publisher.publish(rows)
            publisher.flush()
            if publisher.acked != 1:
                raise NatsError(
                    f"rows {self._first} to {self.rows - 1}: the stream took them one by one, not"
                    " as a batch (does the server know ADR-50?)"
                )
            self.last_seq = max(self.last_seq, publisher.last_seq)
            self.left_out |= publisher.left_out
        self.acked += rows.num_rows

    def _publisher(self) -> Publisher:
        try:
            return Publisher(
                self._once,
                self._name,
                id_prefix=self._id_prefix,
                subject=self._subject,
                first_row=self._first,
                batch=secrets.token_hex(16),
                doubles=self._doubles,
            )
        except NatsError as error:
            text = f"rows {self._first} to {self.rows - 1}: {error}"
            raise NotAcked(text, 0, self._first, passes=error.passes) from None

    def _refused(self, error: PublishError, count: int) -> None:
        """Rows and batches are counted alike each time: with ids made of them, all are there."""
        if error.code == _DUPLICATE_IDS and self._id_prefix is not None:
            self.acked += count
            self.duplicates += count
            return
        if error.code == _DISABLED:
            text = f"{error}; set allow_atomic in the stream's configuration, or atomic=false"
            raise error.reworded(text)
        raise error
