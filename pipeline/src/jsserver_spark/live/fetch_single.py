"""Reading a range of a stream message by message from its leader, which removes none."""

from collections.abc import Iterator

import pyarrow as pa

from jsserver_spark.cext.bytes import subject_matches
from jsserver_spark.jetstream import JetStream
from jsserver_spark.live.fetch_range import Range


class SingleReader:
    """Slow: for what neither a direct get nor a consumer may read."""

    def __init__(self, api: JetStream, wanted: Range) -> None:
        self._api = api
        self._wanted = wanted

    def read(self) -> Iterator[pa.RecordBatch]:
        """Batches of the range's rows, `wanted.done` kept up to date."""
        wanted = self._wanted
        batches = wanted.batches()
        one = wanted.filters[0] if len(wanted.filters) == 1 else ">"
        at = wanted.done
        while True:
            message = self._api.message_from(wanted.stream, at + 1, one)
            end = message is None or message.seq > wanted.last
            if end or batches.rows.full:
                wanted.check_gap()
                wanted.reached(wanted.last if end else at)
                yield from wanted.take(batches)
            if message is None or end:
                return
            at = message.seq
            subject = message.subject
            if not wanted.filters or any(subject_matches(f, subject) for f in wanted.filters):
                batches.rows.add(subject.encode(), at, message.ts, message.header, message.data)
