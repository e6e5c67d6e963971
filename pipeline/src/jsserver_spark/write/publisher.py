"""Rows into streams over one connection: pipelined, acknowledged, and sent again when need be."""

import select
import ssl
import time
from collections.abc import Sequence
from typing import Self

import pyarrow as pa

from jsserver_spark.cext.columns import ROW_FAULTS, Outbox
from jsserver_spark.client.connection import Connection, ConnectionFailed, new_inbox
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import Unreachable, connect, failure
from jsserver_spark.options import SinkOptions
from jsserver_spark.write import outgoing
from jsserver_spark.write.doubles import Doubles
from jsserver_spark.write.refusals import BadRow, NotAcked, PublishError, refusal

FILL_BYTES = 64 << 10
"""Taken from the rows in one turn."""
SEND_BYTES = 256 << 10
RECEIVE_BYTES = 256 << 10
MAX_PAYLOAD_MAX = 64 << 20
"""As large as a server allows."""
BACKOFF_S = 0.25
BACKOFF_MAX_S = 5.0

_FATAL = ("permissions violation", "maximum payload", "invalid publish subject", "authorization")


class Publisher:
    """Publishes batches of rows in order; `flush` returns when every row is acked.

    At most `maxInflight` rows and `maxInflightBytes` are under way. Rows that get no ack within
    `ackTimeout`, that nobody takes, or whose connection is lost are sent again, up to `retries`
    times in a row without progress; a first connection is tried again as often. A row that is sent
    again may be stored twice, unless it has a message id and the stream's duplicate_window is
    longer than that took. Rows keep their order, but for those that are sent again.

    `id_prefix`: row n gets the message id <id_prefix><n>, n counted over all batches.
    `subject`: of rows whose column `subject` is null or missing. `left_out`: names of headers that
    the rows bring and that are not sent. Headers that columns or options stand for are never taken
    from the rows' own, unless they are to stay `exact`; so are subjects then: a server stores some
    that nobody should publish to.

    `doubles` looks at some of the rows that were there already. `first_row`: the number of the
    first row. `batch`: the rows are one atomic batch of that id, numbered by the column
    batch_sequence; see atomic.py.

    PublishError, or another NatsError, ends the publisher's use.
    """

    def __init__(
        self,
        options: SinkOptions,
        name: str,
        *,
        id_prefix: str | None = None,
        subject: str = "",
        left_out: Sequence[str] = (),
        exact: bool = False,
        first_row: int = 0,
        batch: str = "",
        doubles: Doubles | None = None,
    ) -> None:
        self._options = options
        self._name = name
        self._doubles = doubles
        self._inbox = new_inbox()
        self._failed: NatsError | None = None
        self._piece: memoryview | None = None
        self._refused = False
        self._tries = 0
        self._stuck_at = -1
        self._memory = memoryview(bytearray(RECEIVE_BYTES))
        self._connection = self._first_connection()
        hidden = [name.encode() for name in left_out]
        if not exact:
            own = [*outgoing.ADDED.values(), *outgoing.BATCH.values(), *outgoing.NEVER]
            hidden += [name for name in own if name not in hidden]
        lines = f"Nats-Expected-Stream: {options.stream}\r\n" if options.stream else ""
        lines += f"Nats-Batch-Id: {batch}\r\n" if batch else ""
        self._out = Outbox(
            f"{self._inbox}.".encode(),
            options.max_inflight,
            options.max_inflight_bytes,
            min(int(self._connection.info["max_payload"]), MAX_PAYLOAD_MAX),
            subject=subject.encode(),
            lines=lines.encode(),
            id_prefix=None if id_prefix is None else id_prefix.encode(),
            left_out=hidden,
            first_row=first_row,
            atomic=bool(batch),
            stored=exact,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; rows that are not acked may or may not be stored."""
        self._connection.close()

    @property
    def rows(self) -> int:
        """The number that the next row will have."""
        return self._out.next_row

    @property
    def acked(self) -> int:
        return self._out.acked

    @property
    def duplicates(self) -> int:
        """Of the acked ones, those that the stream had already."""
        return self._out.duplicates

    @property
    def left_out(self) -> set[str]:
        """Of the headers that are not sent, those that rows brought."""
        return {name.decode() for name in self._out.left_out}

    @property
    def last_seq(self) -> int:
        """The highest sequence of an ack."""
        return self._out.last_seq

    def publish(self, rows: pa.RecordBatch) -> None:
        """Takes all rows; not all are acked when it returns. Columns: see outgoing.COLUMNS."""
        self._usable()
        if not self._out.under_way:
            self._moved_at = time.monotonic_ns()
        try:
            outgoing.load(self._out, rows)
            while not self._out.taken:
                before = self._out.next_row
                fault = self._out.fill(FILL_BYTES)
                if fault:
                    raise self._bad_row(fault)
                self._turn(wait=self._out.next_row == before)
                while self._out.crowded and not self._out.taken:
                    self._turn(wait=True)
        except BaseException as error:
            self._out.drop()
            self._failed = error if isinstance(error, NatsError) else NatsError(repr(error))
            raise

    def flush(self) -> None:
        """Waits until every row is acked."""
        self._usable()
        try:
            while self._out.under_way:
                self._turn(wait=True)
        except BaseException as error:
            self._failed = error if isinstance(error, NatsError) else NatsError(repr(error))
            raise

    def _usable(self) -> None:
        if self._failed is not None:
            raise NatsError(f"the publisher failed before: {self._failed}")

    def _bad_row(self, fault: int) -> BadRow:
        row = self._out.next_row
        subject = self._subject(row)
        text = f"row {row} (subject {subject!r}): {ROW_FAULTS[fault]}"
        return BadRow(text, 0, row, subject)

    def _subject(self, row: int) -> str:
        return self._out.subject_of(row).decode(errors="replace")

    # ---- one turn ------------------------------------------------------------------------------

    def _turn(self, *, wait: bool) -> None:
        """Sends and receives what can be; with `wait`, waits until something can."""
        try:
            moved = self._send()
            moved = self._receive() or moved
            if not moved and wait:
                self._wait()
            elif moved:
                self._moved_at = time.monotonic_ns()
        except (ConnectionFailed, OSError) as error:
            self._reconnect(str(error))
            return
        self._settle()

    def _send(self) -> bool:
        moved = False
        while True:
            # What TLS did not take has to be offered again as it is.
            piece = self._piece or self._out.to_send(SEND_BYTES)
            self._piece = None
            if piece is None:
                return moved
            try:
                size = self._connection.socket.send(piece)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._piece = piece
                return moved
            except BlockingIOError:
                return moved
            self._out.sent(size, time.monotonic_ns())
            moved = True

    def _receive(self) -> bool:
        moved = False
        while True:
            try:
                size = self._connection.socket.recv_into(self._memory)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return moved
            if size == 0:
                raise ConnectionFailed(f"{self._connection.url} closed the connection")
            moved = True
            self._took(self._memory, size)
            if size < len(self._memory) // 2:
                return moved

    def _took(self, data: memoryview | bytes, size: int) -> None:
        if not self._out.received(data, size):
            raise ConnectionFailed(f"{self._connection.url} is no NATS server")
        said = self._out.said.decode(errors="replace").strip(" '")
        if not said:
            return
        if any(word in said.lower() for word in _FATAL):
            raise PublishError(f"{self._connection.url} said: {said}")
        raise ConnectionFailed(f"{self._connection.url} said: {said}")

    def _wait(self) -> None:
        poll = select.poll()
        unsent = self._piece is not None or self._out.to_send(1) is not None
        poll.register(self._connection.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
        left = self._deadline() - time.monotonic_ns()
        poll.poll(max(left // 1_000_000 + 1, 1))

    def _deadline(self) -> int:
        """When the first row's ack is late, or when nothing was sent for as long."""
        since = self._out.first_sent_at or self._moved_at
        return since + int(self._options.ack_timeout * 1e9)

    # ---- when something does not work ------------------------------------------------------------

    def _settle(self) -> None:
        doubles = self._out.doubles()
        if self._doubles is not None:
            self._doubles.check(doubles)
        for row, said in self._out.refusals():
            error = refusal(row, self._subject(row), said)
            if not error.passes:
                raise error
            if not self._refused:
                self._again(error)
            self._refused = True
        if self._refused and self._piece is None and self._out.refused_again() >= 0:
            self._refused = False
        now = time.monotonic_ns()
        if self._out.under_way and now > self._deadline():
            why = f"no ack came for {self._options.ack_timeout:g} s (option ackTimeout)"
            before = now - int(self._options.ack_timeout * 1e9)
            if self._piece is not None or not self._out.first_sent_at:
                self._reconnect(why)
            else:
                row = self._out.first_row
                self._again(self._not_acked(row, why))
                if self._out.again(before) < 0:
                    self._reconnect(why)

    def _not_acked(self, row: int, why: str) -> NotAcked:
        subject = self._subject(row)
        return NotAcked(f"row {row} (subject {subject!r}): {why}", 0, row, subject, passes=True)

    def _again(self, error: PublishError) -> None:
        """Waits before another try; raises the error when there were enough without progress."""
        row = self._out.first_row
        if row != self._stuck_at:
            self._stuck_at = row
            self._tries = 0
        if self._tries >= self._options.retries:
            raise error.reworded(f"{error}; gave up after {self._tries} retries (option retries)")
        time.sleep(backoff(self._tries))
        self._tries += 1

    def _reconnect(self, why: str) -> None:
        self._connection.close()
        self._piece = None
        self._refused = False
        self._out.lost()
        while True:
            self._again(self._not_acked(self._out.first_row, why))
            try:
                self._connection = self._connected()
                return
            except NatsError as error:
                if not error.passes:
                    raise
                why = str(error)

    def _first_connection(self) -> Connection:
        for tries in range(self._options.retries):
            try:
                return self._connected()
            except Unreachable:
                time.sleep(backoff(tries))
        return self._connected()

    def _connected(self) -> Connection:
        """Unreachable; NatsError when the server refuses."""
        connection = connect(self._options, self._name)
        self._moved_at = time.monotonic_ns()
        try:
            connection.subscribe(f"{self._inbox}.*")
            connection.flush()
            connection.socket.setblocking(False)
        except ConnectionFailed as error:
            connection.close()
            raise failure(error) from None
        except OSError as error:
            connection.close()
            raise Unreachable(str(error)) from None
        return connection


class Fit:
    """Finds rows that cannot be published `exact` where payloads have `max_payload` bytes."""

    def __init__(self, max_payload: int, left_out: Sequence[str]) -> None:
        self._out = Outbox(
            f"{new_inbox()}.".encode(),
            1,
            FILL_BYTES,
            min(max_payload, MAX_PAYLOAD_MAX),
            left_out=[name.encode() for name in left_out],
            stored=True,
        )

    def faults(self, rows: pa.RecordBatch) -> bytearray:
        """A byte for each row: 0, or a key of ROW_FAULTS."""
        outgoing.load(self._out, rows)
        try:
            return self._out.faults()
        finally:
            self._out.drop()


def backoff(tries: int) -> float:
    """Seconds to wait before another try."""
    return float(min(BACKOFF_S * 2**tries, BACKOFF_MAX_S))
