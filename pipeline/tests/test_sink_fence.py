"""Streaming writes as Spark calls them: exactly once, or an error."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from jsserver_spark import jetstream
from jsserver_spark.errors import NatsError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.write import fence, sink
from jsserver_spark.write.fence import FenceError
from jsserver_spark.write.sink import Written
from pipeline.tests.jobs_world import connected
from pipeline.tests.sink_world import (
    OTHER,
    ROWS,
    Query,
    Task,
    Torn,
    create,
    payloads,
    rows_of,
    running,
    stored,
    torn_after,
)
from tests.servers import Server, Servers
from tests.waiting import call_at_sleep

BUCKET = "jsserver_spark_fence"

pytestmark = pytest.mark.usefixtures("peer_present")


def test_batches_are_written_once_and_the_fence_follows(server: Server, js: JetStream) -> None:
    query = Query(server)
    for batch in range(3):
        assert query.run_batch(batch, ROWS).rows == 10
    assert payloads(js) == [str(i) for i in range(10)] * 3
    assert stored(js)[12][1] == "NATS/1.0\r\nNats-Msg-Id: sink-1-0-2\r\n\r\n"
    mark = fence.Fence(js, BUCKET, "sink").read().mark
    assert mark is not None and (mark.query, mark.batch) == ("q1", 2)


def test_a_repeated_task_and_a_speculative_copy_add_nothing(server: Server, js: JetStream) -> None:
    query = Query(server)
    first = query.write(0, ROWS)
    again = query.write(0, ROWS, attempt=1)
    other = query.write(0, OTHER, partition=1)
    assert (first.duplicates, again.duplicates, other.duplicates) == (0, 10, 0)
    query.commit(0, again, other)
    assert payloads(js) == [str(i) for i in range(10)] + [f"other {i}" for i in range(10)]
    # A slow copy that wakes up when the batch is finished.
    assert query.write(0, ROWS, attempt=2).skipped
    assert js.stream_info("S").state.messages == 20


def test_a_torn_batch_is_completed_by_its_replay(
    server: Server, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(server)
    with monkeypatch.context() as patch:
        torn_after(patch, 4)
        with pytest.raises(Torn):
            query.write(0, ROWS)
    query.sink(ROWS).abort([None], 0)
    restarted = Query(server, run="r2")
    assert restarted.run_batch(0, ROWS).duplicates == 4
    assert payloads(js) == [str(i) for i in range(10)]


def test_a_driver_killed_between_the_sinks_commit_and_sparks_log(
    server: Server, js: JetStream
) -> None:
    Query(server).run_batch(0, ROWS)
    restarted = Query(server, run="r2")
    replay = restarted.write(0, ROWS)
    assert (replay.skipped, replay.rows) == (True, 0)
    restarted.commit(0, replay)
    restarted.run_batch(1, OTHER)
    assert js.stream_info("S").state.messages == 20


def test_a_finished_batch_that_comes_with_other_rows_is_an_error(
    server: Server, js: JetStream
) -> None:
    """A checkpoint out of a backup: what was read since is in a batch of an old number."""
    query = Query(server)
    ten, other, more = ROWS, OTHER, pa.concat_batches([ROWS, OTHER])
    query.run_batch(0, ten)
    parts = [query.write(1, ten), query.write(1, other, partition=1)]
    query.commit(1, *parts)
    query.run_batch(2, other)
    restored = Query(server, run="r2")
    with pytest.raises(FenceError, match=r"batch 0 .* with 10 rows, and comes .*with 20.*older"):
        restored.run_batch(0, more)
    with pytest.raises(FenceError, match=r"batch 2 .* other rows \(10, as before\).*idColumn"):
        restored.run_batch(2, ten)
    # The same rows, however they come: in another order, in another number of tasks.
    assert restored.run_batch(0, ten.take(pa.array(range(9, -1, -1)))).skipped
    assert restored.run_batch(1, more).skipped
    assert restored.run_batch(2, other).skipped
    assert restored.run_batch(3, ten).rows == 10
    assert js.stream_info("S").state.messages == 50


def test_a_batch_that_was_finished_too_long_ago_is_an_error(
    server: Server, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "KEPT", 3)
    query = Query(server)
    for batch in range(5):
        query.run_batch(batch, ROWS)
    assert query.run_batch(2, ROWS).skipped
    with pytest.raises(FenceError, match=r"batch 1 .*finished before the last 3 batches"):
        query.run_batch(1, ROWS)


def test_only_ids_tell_rows_that_have_them(server: Server, js: JetStream) -> None:
    query = Query(server, idColumn="id")
    query.run_batch(0, rows_of(data=["a at 12:00"], id=[1]))
    assert query.run_batch(0, rows_of(data=["a at 12:01"], id=[1])).skipped
    with pytest.raises(FenceError, match="other rows"):
        query.run_batch(0, rows_of(data=["a at 12:00"], id=[2]))


def test_a_mark_of_an_old_version_knows_no_rows(server: Server, js: JetStream) -> None:
    query = Query(server)
    query.run_batch(0, ROWS)
    old = b'{"query":"q1","batch":0,"writer":"w"}'
    js.bucket_put(BUCKET, "fence.sink", old, fence.Fence(js, BUCKET, "sink").read().revision)
    assert query.run_batch(0, OTHER).skipped
    assert query.run_batch(1, ROWS).rows == 10


def test_a_finished_batch_stays_out_when_ids_are_forgotten(server: Server, js: JetStream) -> None:
    """As if hours had gone by: the stream knows no ids any more."""
    query = Query(server)
    query.run_batch(0, ROWS)
    query.run_batch(1, ROWS)
    js.api("STREAM.DELETE.S")
    create(js, "S")
    for batch in (0, 1):
        assert query.run_batch(batch, ROWS).skipped
    assert js.stream_info("S").state.messages == 0


def test_a_torn_batch_that_comes_too_late_is_refused(
    server: Server, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(server)
    query.write(0, ROWS.slice(0, 4))
    later = time.time() + 700
    monkeypatch.setattr(time, "time", lambda: later)
    query.write(0, OTHER, partition=1)  # a first attempt of the same run: nothing to repeat
    with pytest.raises(FenceError, match=r"begun at .* 600 s: .*`nats kv del \S+ begun.sink`"):
        Query(server, run="r2").write(0, ROWS)
    with pytest.raises(FenceError, match="begun at"):
        query.write(0, ROWS, attempt=1)
    assert js.stream_info("S").state.messages == 14
    forget(js, "begun.sink")
    assert Query(server, run="r2").write(0, ROWS).duplicates == 4


def forget(js: JetStream, key: str) -> None:
    js.api(f"STREAM.PURGE.KV_{BUCKET}", {"filter": f"$KV.{BUCKET}.{key}"})


def test_a_new_checkpoint_under_an_old_name_is_refused(server: Server, js: JetStream) -> None:
    Query(server).run_batch(5, ROWS)
    other = Query(server, query="q2")
    with pytest.raises(FenceError, match=r"belongs to query q1, .* 5; this is query q2"):
        other.write(0, OTHER)
    forget(js, "fence.sink")
    with pytest.raises(FenceError, match=r"belongs to query q1"):
        other.write(0, OTHER)
    assert js.stream_info("S").state.messages == 10
    forget(js, "begun.sink")
    assert other.run_batch(0, OTHER).rows == 10


def test_two_queries_under_one_name_at_once_are_found_out(server: Server, js: JetStream) -> None:
    one, two = Query(server), Query(server, query="q2")
    mine = one.write(0, ROWS)
    with pytest.raises(FenceError, match="belongs to query q1"):
        two.write(0, OTHER)
    one.commit(0, mine)
    assert payloads(js) == [str(i) for i in range(10)]


def test_one_query_that_runs_twice_at_once_is_found_out(server: Server, js: JetStream) -> None:
    one, two = Query(server), Query(server, run="r2")
    mine, copy = one.write(0, ROWS), two.write(0, ROWS)
    one.commit(0, mine)
    with pytest.raises(FenceError, match="another writer moved the fence"):
        two.commit(0, copy)
    assert payloads(js) == [str(i) for i in range(10)]


def test_tasks_that_saw_different_fences_are_an_error(server: Server, js: JetStream) -> None:
    query = Query(server)
    first = query.write(0, ROWS)
    query.commit(0, first)
    late = query.write(0, OTHER, partition=1)
    assert late.skipped
    with pytest.raises(FenceError, match="another writer"):
        query.commit(0, first, late)


def test_without_a_fence_only_ids_count(server: Server, js: JetStream) -> None:
    query = Query(server, fence="false")
    query.run_batch(0, ROWS)
    assert query.run_batch(0, ROWS).duplicates == 10
    assert f"KV_{BUCKET}" not in [info.name for info in js.stream_infos()]


def test_an_empty_batch_moves_the_fence_and_no_message_does_not(
    server: Server, js: JetStream
) -> None:
    query = Query(server)
    query.commit(0)
    assert query.run_batch(1, ROWS.slice(0, 0)).rows == 0
    mark = fence.Fence(js, BUCKET, "sink").read().mark
    assert mark is not None and mark.batch == 1


def before_the_commit(servers: Servers) -> tuple[Server, JetStream, Query, Written]:
    """A server of its own whose stream S has the rows of batch 0, which is not committed."""
    server = servers.under_test(jetstream=True)
    js = connected(server)
    create(js, "S")
    query = Query(server)
    return server, js, query, query.write(0, ROWS)


def test_a_server_restarted_between_write_and_commit(servers: Servers) -> None:
    server, js, query, written = before_the_commit(servers)
    server.restart(kill=True)
    query.commit(0, written)
    assert query.run_batch(0, ROWS).skipped
    js = connected(server)
    assert payloads(js) == [str(i) for i in range(10)]


def test_a_server_restarted_while_rows_tell_where_they_go(servers: Servers) -> None:
    """The streams of later rows are looked up when these come."""
    server = servers.under_test(jetstream=True)
    js = connected(server)
    create(js, "S")
    create(js, "T")
    query = Query(server)
    first = rows_of(subject=["S.a", "S.b"], data=["1", "2"])
    second = rows_of(subject=["T.a", "S.c"], data=["3", "4"])

    def batches() -> Iterator[pa.RecordBatch]:
        yield first
        server.restart(kill=True)
        yield second

    assert query.write_by(query.sink(first), 0, batches()).rows == 4
    js = connected(server)
    assert sorted(payloads(js)) == ["1", "2", "4"]
    assert payloads(js, "T") == ["3"]


def test_a_commit_waits_for_a_server_that_is_away(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, query, written = before_the_commit(servers)
    server.kill()
    tries = call_at_sleep(monkeypatch, 3, server.start)
    query.commit(0, written)
    monkeypatch.undo()
    assert len(tries) >= 3
    assert query.run_batch(0, ROWS).skipped


def test_a_server_that_stays_away_ends_a_commit(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _, query, written = before_the_commit(servers)
    server.kill()
    monkeypatch.setattr(jetstream, "AWAY_SECONDS", 0.3)
    with pytest.raises(NatsError, match=r"cannot connect .*tried for 0\.3 s"):
        query.commit(0, written)


def test_a_bucket_made_by_hand_has_to_say_what_it_is_for(server: Server, js: JetStream) -> None:
    """Else a pattern that names it reads what the sink writes there."""
    js.bucket_ensure("byhand", 1)
    config = js.stream_info("KV_byhand").raw["config"]
    js.api("STREAM.UPDATE.KV_byhand", config | {"description": "mine"})
    query = Query(server, sinkId="handmade", fenceBucket="byhand")
    with pytest.raises(NatsError, match=r"nats stream edit KV_byhand --description \"finished"):
        query.write(0, ROWS)
    assert js.stream_info("S").state.messages == 0
    js.api("STREAM.UPDATE.KV_byhand", config)
    assert query.run_batch(0, ROWS).rows == 10


def test_a_sink_outside_of_a_task_says_so(server: Server, js: JetStream) -> None:
    with pytest.raises(NatsError, match="tasks only"):
        Query(server).sink(ROWS).write(iter([ROWS]))
    with running(Task()), pytest.raises(NatsError, match="not a streaming write"):
        Query(server).sink(ROWS).write(iter([ROWS]))
