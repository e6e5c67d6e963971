"""The fence of a streaming sink: its last finished batch, in a key-value bucket.

Message ids keep a batch that is written again from being stored twice, as long as the streams
remember them; a batch that was finished is not written again at all, however late it comes. One
that was begun and not finished is refused when it comes so late that ids do not help. What the
last finished batches held is kept too: a batch that comes again with other rows, as from a
checkpoint out of a backup, would lose them.
"""

import time
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from jsserver.spark.errors import NatsError
from jsserver.spark.jetstream import NO_SUCH_STREAM, ApiError, JetStream


class FenceError(NatsError):
    """Another query writes under the same sinkId."""


KEPT = 100
"""Batches that a mark remembers."""

_DIGESTS = 1 << 64


class Finished(msgspec.Struct, frozen=True, array_like=True):
    """A batch's number, how many rows it had, and which ones."""

    batch: int
    rows: int
    digest: str


class Mark(msgspec.Struct, frozen=True):
    """What the bucket holds: the query, its last finished batch, and who wrote this."""

    query: str
    batch: int
    writer: str = ""
    finished: tuple[Finished, ...] = ()
    """The last batches, the newest last; none in marks of old versions."""


def finished(batch: int, rows: int, digests: Iterable[int]) -> Finished:
    """A batch of so many rows; `digests` are those of its parts."""
    return Finished(batch, rows, f"{sum(digests) % _DIGESTS:016x}")


def check_same(mark: Mark, again: Finished, bucket: str, sink_id: str) -> None:
    """FenceError when a finished batch comes again and has not the rows that it had."""
    known = {one.batch: one for one in mark.finished}
    before = known.get(again.batch)
    if before == again or (before is None and not known):
        return
    if before is None:
        what = f"was finished before the last {len(known)} batches, and comes again"
    elif before.rows != again.rows:
        what = f"was finished with {before.rows} rows, and comes again with {again.rows}"
    else:
        what = f"was finished, and comes again with other rows ({again.rows}, as before)"
    advice = (
        " Go on with the newest checkpoint; or with a new one, a new sinkId and startingOffsets"
        " behind what the streams hold"
    )
    if before is not None and before.rows == again.rows:
        advice += (
            ". If only a clock or a random number in the rows differs, name their ids by the"
            f" option idColumn, and write the batch again: `nats kv del {bucket}"
            f" fence.{sink_id}`"
        )
    raise FenceError(
        f"sinkId {sink_id!r}: batch {again.batch} of query {mark.query} {what}. So its"
        " checkpoint is older than what was written, as one out of a backup; rows that are new"
        f" in the batch would be lost, and nothing was written now.{advice}"
    )


class Begun(msgspec.Struct, frozen=True):
    """The batch that is being written: `at` in seconds since 1970."""

    query: str
    batch: int
    at: float
    run: str
    """The query's run; every restart is another."""


class Seen(msgspec.Struct, frozen=True):
    """A mark as it was read; revision 0 and no mark where there is none."""

    mark: Mark | None
    revision: int


_T = TypeVar("_T")

_BEGIN_TRIES = 5


class Fence:
    """One sink's keys: its mark, and the batch that was begun. NatsError names bucket and key."""

    def __init__(self, js: JetStream, bucket: str, sink_id: str) -> None:
        self._js = js
        self._bucket = bucket
        self._sink_id = sink_id
        self._key = f"fence.{sink_id}"
        self._begun_key = f"begun.{sink_id}"

    def read(self) -> Seen:
        return Seen(*self._get(self._key, Mark))

    def _get(self, key: str, type_: type[_T]) -> tuple[_T | None, int]:
        """What the key holds, and its revision; (None, 0) for nothing."""
        try:
            entry = self._js.bucket_get(self._bucket, key)
        except ApiError as error:
            if error.code != NO_SUCH_STREAM:
                raise
            entry = None
        if entry is None:
            return None, 0
        if not entry.value:
            return None, entry.revision  # deleted by hand
        try:
            return msgspec.json.decode(entry.value, type=type_), entry.revision
        except msgspec.DecodeError:
            raise NatsError(
                f"key {key!r} in bucket {self._bucket!r} is no sink's"
                " (see the options sinkId and fenceBucket)"
            ) from None

    def is_finished(self, seen: Seen, query: str, batch: int) -> bool:
        """Whether the batch was finished before. FenceError when the mark is another query's.

        A query with a new checkpoint counts its batches from 0 again: under an old sinkId they
        would all pass for finished.
        """
        if seen.mark is None:
            return False
        if seen.mark.query != query:
            raise self._other_query(seen.mark.query, seen.mark.batch, query)
        return batch <= seen.mark.batch

    def _other_query(self, owner: str, batch: int, query: str) -> FenceError:
        return FenceError(
            f"sinkId {self._sink_id!r} belongs to query {owner}, whose last batch was {batch}; this"
            f" is query {query}. Give every query a sinkId of its own; a query with a new"
            " checkpoint is another one. To hand the sinkId over, wait until the streams'"
            " duplicate_window has passed (ids would be the same), then"
            f" `nats kv del {self._bucket} {self._key}` and"
            f" `nats kv del {self._bucket} {self._begun_key}`"
        )

    def begin(self, mine: Begun, window: float, *, again: bool, replicas: int = 1) -> None:
        """Notes that a task writes a part of the batch; every task of it calls this.

        `window`: seconds for which the streams remember ids. `again`: the task is a repeated one.
        `replicas`: of the bucket, where it has to be made.
        FenceError when rows of the batch may be stored already and their ids forgotten, or when
        another query's rows may have the same ids.
        """
        for _ in range(_BEGIN_TRIES):
            found, revision = self._get(self._begun_key, Begun)
            if found and found.query != mine.query:
                raise self._other_query(found.query, found.batch, mine.query)
            if found and found.batch == mine.batch:
                self._check_begun(found, mine, window, again)
                return
            if revision == 0:
                self._ensure_bucket(replicas)
            value = msgspec.json.encode(mine)
            if self._js.bucket_put(self._bucket, self._begun_key, value, revision) is not None:
                return
        raise FenceError(
            f"sinkId {self._sink_id!r}: other writers begin batches in bucket {self._bucket!r}"
            f" while batch {mine.batch} of query {mine.query} is written"
        )

    def _check_begun(self, found: Begun, mine: Begun, window: float, again: bool) -> None:
        age = mine.at - found.at
        if age > window and (again or found.run != mine.run):
            begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.at))
            raise FenceError(
                f"sinkId {self._sink_id!r}: batch {mine.batch} was begun at {begun} and not"
                f" finished. That was {age:.0f} s ago, and the streams forget message ids after"
                f" {window:g} s: rows stored then would be stored twice. Give the streams a"
                " duplicate_window that outlasts a restart. To write the batch nevertheless:"
                f" `nats kv del {self._bucket} {self._begun_key}`"
            )

    def move(self, seen: Seen, mark: Mark) -> None:
        """Marks a batch as finished, if the mark still is the one that was seen. FenceError.

        May be repeated with the same mark when it is not known whether it was stored.
        """
        value = msgspec.json.encode(mark)
        revision = self._js.bucket_put(self._bucket, self._key, value, seen.revision)
        if revision is None and self.read().mark != mark:
            raise FenceError(
                f"sinkId {self._sink_id!r}: another writer moved the fence in bucket"
                f" {self._bucket!r} while batch {mark.batch} of query {mark.query} was written."
                " Does the same query, or a copy of its checkpoint, run twice?"
            )

    def _ensure_bucket(self, replicas: int) -> None:
        try:
            self._js.stream_info(f"KV_{self._bucket}")
        except ApiError as error:
            if error.code != NO_SUCH_STREAM:
                raise
            self._js.bucket_ensure(self._bucket, replicas)
