"""The fence of a streaming sink: its last finished batch, in a key-value bucket.

Message ids keep a batch that is written again from being stored twice, as long as the streams
remember them; a batch that was finished is not written again at all, however late it comes. One
that was begun and not finished is refused when it comes so late that ids do not help. What the
last finished batches held is kept too: a batch that comes again with other rows, as from a
checkpoint out of a backup, would lose them. Where ids are made of partition and row, what each
partition holds is noted before any of it is written: a batch that comes again cut otherwise is
refused.
"""

import time
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec import structs

from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import FENCE, NO_SUCH_STREAM, ApiError, JetStream, is_fence
from jsserver_spark.patience import Patience

WAIT_SECONDS = 600.0
"""How long a task waits for those before it to note their rows, after another attempt."""


class FenceError(NatsError):
    """Another query writes under the same sinkId, or the same one writes other rows."""


class NotAgreed(NatsError):
    """Tasks before this one have not noted yet what they hold."""

    passes = True


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
    return Finished(batch, rows, hex_digest(digests))


def hex_digest(digests: Iterable[int]) -> str:
    """Of digests that add up."""
    return f"{sum(digests) % _DIGESTS:016x}"


def check_same_run(mark: Mark, again: Finished, sink_id: str) -> None:
    """FenceError when a finished run of a batch write comes again with other rows."""
    if again in mark.finished:
        return
    before = mark.finished[-1].rows if mark.finished else 0
    raise FenceError(
        f"sinkId {sink_id!r}: run {mark.query!r} was finished with {before} rows, and comes again"
        f" with {again.rows}, of which some are others. Nothing was written now: give what is to be"
        " written beside it a runId of its own; or give rows ids by the option idColumn, and leave"
        " runId out: then those are added that the streams do not remember"
    )


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


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What one partition of a batch holds: how many rows, which in what order, and in which attempt
    that was said last."""

    rows: int
    digest: str
    attempt: str


class Begun(msgspec.Struct, frozen=True):
    """The batch that is being written: `at` in seconds since 1970."""

    query: str
    batch: int
    at: float
    run: str
    """The query's run; every restart is another."""
    attempt: str = ""
    """To write the batch: all tasks of one have the same partitions."""
    parts: dict[int, Part] = {}
    """By partition, where ids are made of partition and row."""
    refused: str = ""
    """The attempt that came with other rows."""


class Seen(msgspec.Struct, frozen=True):
    """A mark as it was read; revision 0 and no mark where there is none."""

    mark: Mark | None
    revision: int


_T = TypeVar("_T")

_BEGIN_TRIES = 5


class Fence:
    """One sink's keys: its mark, and the batch that was begun. NatsError names bucket and key.

    Every run of a batch write has keys of its own, as if it were a query with one batch.
    """

    def __init__(self, js: JetStream, bucket: str, sink_id: str, run_id: str = "") -> None:
        self._js = js
        self._bucket = bucket
        self._sink_id = sink_id
        keys = ("fence", "begun", sink_id)
        if run_id:
            keys = ("run", "running", f"{sink_id}.{sha256(run_id.encode()).hexdigest()[:16]}")
        self._key = f"{keys[0]}.{keys[2]}"
        self._begun_key = f"{keys[1]}.{keys[2]}"

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
            if self._put_begun(mine, revision):
                return
        raise self._other_begins(mine)

    def agree(self, mine: Begun, partition: int, rows: int, digest: str) -> None:
        """Notes what a partition holds, before any of it is written.

        FenceError when an attempt before had other rows there: their ids would be the same. While
        partitions in front of this one were noted by an attempt before and not yet by this one, it
        waits: they may show that everything is cut otherwise.
        """
        waiting = Patience(WAIT_SECONDS)
        while True:
            found, revision = self._get(self._begun_key, Begun)
            if found is None or (found.query, found.batch) != (mine.query, mine.batch):
                raise self._other_begins(mine)
            known = found.parts.get(partition)
            if known is not None and (known.rows, known.digest) != (rows, digest):
                self._refuse(found, mine, revision)
                raise self._other_rows(mine, partition, known, rows)
            if found.refused == mine.attempt:
                raise self._other_rows(mine, partition, None, rows)
            if known is not None and known.attempt == mine.attempt:
                return
            if known is None and any(
                other < partition and part.attempt != mine.attempt
                for other, part in found.parts.items()
            ):
                waiting.wait(NotAgreed(f"{self._what(mine)}: tasks before this one are not noted"))
                continue
            parts = {**found.parts, partition: Part(rows, digest, mine.attempt)}
            if self._put_begun(structs.replace(found, parts=parts), revision):
                return

    def _put_begun(self, begun: Begun, revision: int) -> bool:
        value = msgspec.json.encode(begun)
        return self._js.bucket_put(self._bucket, self._begun_key, value, revision) is not None

    def _refuse(self, found: Begun, mine: Begun, revision: int) -> None:
        """Tells the attempt's other tasks; those that hear it late hear it at the commit."""
        self._put_begun(structs.replace(found, refused=mine.attempt), revision)

    def check_parts(self, mine: Begun, partitions: int) -> None:
        """FenceError when an attempt before had more partitions than were written now."""
        found, _ = self._get(self._begun_key, Begun)
        if found is not None and (found.query, found.batch) == (mine.query, mine.batch):
            last = max(found.parts, default=-1)
            if last >= partitions:
                raise self._other_rows(mine, last, found.parts[last], 0)

    def _what(self, mine: Begun) -> str:
        if self._begun_key.startswith("running."):
            return f"sinkId {self._sink_id!r}: run {mine.query!r}"
        return f"sinkId {self._sink_id!r}: batch {mine.batch} of query {mine.query}"

    def _other_rows(self, mine: Begun, partition: int, known: Part | None, rows: int) -> FenceError:
        which = "some partition"
        if known is not None:
            which = f"partition {partition} ({known.rows} rows, and {rows} rows now)"
        return FenceError(
            f"{self._what(mine)} was begun with other rows in {which}: message ids name partition"
            " and row, so some rows would be lost, and others stored twice. Write it as it was cut"
            " before (the same input in the same order, as many cores, the same minPartitions,"
            " splitBytes and spark.sql.files.maxPartitionBytes); or give rows ids of their own by"
            " the option idColumn, and write under another sinkId what is not stored yet"
        )

    def _other_begins(self, mine: Begun) -> FenceError:
        return FenceError(
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
            info = self._js.stream_info(f"KV_{self._bucket}")
        except ApiError as error:
            if error.code != NO_SUCH_STREAM:
                raise
            self._js.bucket_ensure(self._bucket, replicas)
            return
        if not is_fence(info):
            raise NatsError(
                f"bucket {self._bucket!r} (option fenceBucket) was made for something else, or by"
                " hand: a query that reads streams by a pattern would read its own marks in it. Say"
                f' what it is for: `nats stream edit {info.name} --description "{FENCE}"`'
            )
