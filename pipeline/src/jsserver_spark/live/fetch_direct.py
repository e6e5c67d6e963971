"""Reading a range of a stream by batched direct gets (ADR-31): no consumer, no acks."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from jsserver_spark.cext.columns import Answer, Replies
from jsserver_spark.client.connection import TimedOut
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.live.answers import SLOTS, Answers, Interrupted, Misdirected
from jsserver_spark.live.fetch_range import Range

END_OF_BATCH = 204
NOT_FOUND = 404
MISDIRECTED = 421
UNAVAILABLE = 503
FILL = 0.8
"""Of fetchBytes: what a request is expected to bring, so that few are cut short by it."""
ALONE_ROUNDS = 8
"""Requests that go one by one after it turned out that the next one's start was guessed wrong."""
SPREAD_MAX = 1.1
"""Sequences a message up to which the next request is sent before the last one is answered."""
MESSAGE_BYTES_MAX = 128 << 20


@dataclass
class _Request:
    slot: int
    start: int


class DirectReader:
    """Two requests under way; a batch of rows for each, in order of sequence.

    Where the second starts is a guess, right for streams without holes. What it brings twice is
    left out, what it jumped over is asked for again. Misdirected when a mirror answers.
    """

    def __init__(self, api: JetStream, wanted: Range, here: tuple[str, ...]) -> None:
        """`here`: filters that are applied to what comes, where the server applies none."""
        self._api = api
        self._wanted = wanted
        self._next_by = wanted.filters[0] if len(wanted.filters) == 1 and not here else ""
        self._answers = Answers(api, Replies(stream=wanted.stream, filters=here))
        self._flight: deque[_Request] = deque()
        self._free = list(range(SLOTS))
        self._batches = [wanted.batches() for _ in range(SLOTS)]
        self._row_bytes = wanted.mean_bytes
        dense = wanted.info.state.num_deleted == 0 and not self._next_by
        self._spread = 1.0 if dense else SPREAD_MAX
        self._alone = 0
        self._max_bytes = wanted.options.fetch_bytes

    def read(self) -> Iterator[pa.RecordBatch]:
        """Batches of the range's rows, `wanted.done` kept up to date. Interrupted to try again."""
        wanted = self._wanted
        start = wanted.done + 1
        while wanted.done < wanted.last:
            while self._may_send() and start <= wanted.last:
                start = self._send(start)
            request = self._flight[0]
            answer = self._wait(request)
            self._flight.popleft()
            self._free.append(request.slot)
            batches = self._batches[request.slot]
            if request.start > wanted.done + 1:
                self._alone = ALONE_ROUNDS
                batches.take()
            else:
                self._judge(request, answer)
                yield from wanted.take(batches)
                if self._exhausted(request, answer):
                    wanted.end_or_lag()
                    return
            if not self._flight or self._flight[0].start > wanted.done + 1:
                start = wanted.done + 1

    def _may_send(self) -> bool:
        if not self._flight:
            return True
        return bool(self._free) and self._spread < SPREAD_MAX and not self._alone

    def _send(self, start: int) -> int:
        """One request; the start of the one after it."""
        wanted = self._wanted
        if self._flight and self._flight[-1].start < start:
            start = self._answers.ends_before(self._flight[-1].slot, start)
            if start > wanted.last:
                return start
        count = min(
            wanted.options.batch_rows,
            max(int(self._max_bytes * FILL / max(self._row_bytes, 1)), 1),
        )
        if not self._next_by:
            count = min(count, wanted.last - start + 1)
        body: dict[str, object] = {"seq": start, "batch": count, "max_bytes": self._max_bytes}
        if self._next_by:
            body["next_by_subj"] = self._next_by
        request = _Request(self._free.pop(), start)
        self._answers.expect(request.slot, self._batches[request.slot], start - 1, wanted.last)
        subject = f"{self._api.prefix}.DIRECT.GET.{wanted.info.name}"
        self._answers.ask(request.slot, subject, msgspec.json.encode(body))
        self._flight.append(request)
        self._alone = max(self._alone - 1, 0)
        return start + count

    def _wait(self, request: _Request) -> Answer:
        while True:
            answer = self._answers.of(request.slot)
            if answer.status:
                return answer
            try:
                self._answers.receive()
            except TimedOut:
                self._wanted.fell_silent(self._answers.of(request.slot).messages)
                raise

    def _judge(self, request: _Request, answer: Answer) -> None:
        """Takes note of what an answer brought; NatsError when it says what it must not."""
        wanted = self._wanted
        if answer.status == UNAVAILABLE:
            raise Interrupted(f"nobody answers direct gets of stream {wanted.info.name!r}")
        if answer.status == MISDIRECTED:
            raise Misdirected(
                f"stream {answer.text!r} answers direct gets of stream {wanted.info.name!r}"
            )
        if answer.status not in (END_OF_BATCH, NOT_FOUND):
            raise NatsError(
                f"direct get of stream {wanted.info.name!r} from sequence {request.start}:"
                f" {answer.text}"
            )
        if answer.messages:
            self._row_bytes = answer.bytes / answer.messages
            self._spread = (answer.seen - request.start + 1) / answer.messages
            if answer.seen - request.start + 1 > answer.messages:
                wanted.check_gap()
            wanted.reached(min(answer.seen, self._end_of(request)))
        elif answer.pending:
            self._max_bytes *= 2
            if self._max_bytes > MESSAGE_BYTES_MAX:
                raise NatsError(f"direct get of stream {wanted.info.name!r}: an empty answer")

    def _exhausted(self, request: _Request, answer: Answer) -> bool:
        """Whether nothing is behind what came, as far as the answering server knows."""
        last = max(answer.seen, self._wanted.done)
        return answer.pending == 0 and last < self._end_of(request)

    def _end_of(self, request: _Request) -> int:
        """The last sequence that is this request's, and not one's under way behind it."""
        return self._flight[0].start - 1 if self._flight else self._wanted.last
