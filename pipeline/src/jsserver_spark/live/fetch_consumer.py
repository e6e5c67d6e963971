"""Reading a range of a stream through an ephemeral consumer, where direct gets cannot do it."""

import contextlib
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from jsserver_spark.cext.columns import Answer, Replies
from jsserver_spark.client.connection import ConnectionFailed, TimedOut
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.live.answers import Answers, Interrupted
from jsserver_spark.live.fetch_range import Range
from jsserver_spark.text import nuid
from jsserver_spark.text.goformat import SECOND

INACTIVE_SECONDS = 30
CONFLICT = 409
MESSAGE_BYTES_MAX = 128 << 20
_SLOT = 0


class ConsumerReader:
    """Pull requests under way for up to two batches; the consumer is deleted at the end."""

    def __init__(self, api: JetStream, wanted: Range) -> None:
        self._api = api
        self._wanted = wanted
        self._headers_only = "data" not in wanted.table.sources
        self._name = f"spark-{nuid.new()}"
        self._max_bytes = wanted.options.fetch_bytes
        self._pending = -1
        self._asked = 0
        self._messages = 0
        self._answers = Answers(api, Replies(deliveries=True, headers_only=self._headers_only))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Batches of the range's rows, `wanted.done` kept up to date. Interrupted to try again."""
        wanted = self._wanted
        try:
            pending = self._create() if self._pending < 0 else self._pending
            batches = wanted.batches()
            self._answers.expect(_SLOT, batches, wanted.done, wanted.last)
            came = 0
            while pending and wanted.done < wanted.last:
                self._keep_asking(pending)
                try:
                    self._answers.receive()
                except TimedOut:
                    wanted.fell_silent(came)
                    raise
                answer = self._answers.of(_SLOT)
                self._asked -= answer.messages - came
                came = answer.messages
                if came:
                    pending = answer.pending
                    seen = answer.seen
                if answer.status:
                    self._ended(answer)
                if batches.rows.full or not pending or (came and seen >= wanted.last):
                    if came:
                        wanted.reached(seen)
                    yield from wanted.take(batches)
            if wanted.done < wanted.last:
                wanted.end_or_lag()
        finally:
            self.delete()

    def share(self) -> float:
        """Of the messages from here on, about those it would deliver. Makes the consumer."""
        state = self._wanted.info.state
        self._pending = self._create()
        width = max(state.last_seq - state.first_seq + 1, 1)
        behind = state.last_seq - max(self._wanted.done, state.first_seq - 1)
        return self._pending / max(state.messages * behind / width, 1)

    def _create(self) -> int:
        """Messages that wait to be delivered."""
        wanted = self._wanted
        config: dict[str, object] = {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": wanted.done + 1,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": INACTIVE_SECONDS * SECOND,
            "num_replicas": 1,
            "mem_storage": True,
            "headers_only": self._headers_only,
        }
        if len(wanted.filters) == 1:
            config["filter_subject"] = wanted.filters[0]
        elif wanted.filters:
            config["filter_subjects"] = wanted.filters
        answer = self._api.api(
            f"CONSUMER.CREATE.{wanted.stream}.{self._name}"
            + (f".{wanted.filters[0]}" if len(wanted.filters) == 1 else ""),
            {"stream_name": wanted.stream, "config": config, "action": "create"},
        )
        return int(answer["num_pending"])

    def _keep_asking(self, pending: int) -> None:
        rows = self._wanted.options.batch_rows
        if self._asked > rows // 2 or pending <= self._asked:
            return
        count = min(rows, pending - self._asked)
        body = {
            "batch": count,
            "max_bytes": self._max_bytes,
            "expires": int(self._wanted.options.request_timeout * SECOND),
        }
        subject = f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self._wanted.stream}.{self._name}"
        self._answers.ask(_SLOT, subject, msgspec.json.encode(body))
        self._asked += count

    def _ended(self, answer: Answer) -> None:
        """A pull request ended, as it should or not."""
        self._answers.goes_on(_SLOT)
        if answer.status == CONFLICT and answer.text.endswith("Batch Completed"):
            return
        if answer.status != CONFLICT or "MaxBytes" not in answer.text:
            raise Interrupted(f"reading stream {self._wanted.stream!r}: {answer.text}")
        self._asked = max(self._asked - answer.unused, 0)
        if answer.messages == self._messages and not self._asked:
            self._max_bytes *= 2
            if self._max_bytes > MESSAGE_BYTES_MAX:
                raise NatsError(f"reading stream {self._wanted.stream!r}: {answer.text}")
        self._messages = answer.messages

    def delete(self) -> None:
        """If that fails, the server does it when the consumer was inactive for long enough."""
        with contextlib.suppress(ConnectionFailed, NatsError):
            self._wanted.control().api(f"CONSUMER.DELETE.{self._wanted.stream}.{self._name}")
