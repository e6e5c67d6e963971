"""The sinks as Spark calls them: pickled between the steps, exactly once or an error."""

import base64
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from jsserver.goformat import SECOND
from jsserver.spark import fence, jetstream
from jsserver.spark.atomic import AtomicPublisher
from jsserver.spark.errors import NatsError, OptionError
from jsserver.spark.fence import FenceError
from jsserver.spark.jetstream import JetStream
from jsserver.spark.options import SinkOptions
from jsserver.spark.refusals import NoStream, PublishError, StreamMismatch
from jsserver.spark.sink import BATCH_ID, QUERY_ID, RUN_ID, BatchSink, StreamSink, Written
from tests.servers import Server, Servers
from tests.spark.jobs_world import connected
from tests.waiting import call_at_sleep

pytestmark = pytest.mark.usefixtures("peer_present")

BUCKET = "jsserver_spark_fence"


class Task:
    """What a writer asks a TaskContext for."""

    def __init__(self, partition: int = 0, attempt: int = 0, **properties: str) -> None:
        self._partition = partition
        self._attempt = attempt
        self._properties = properties

    def partitionId(self) -> int:
        return self._partition

    def attemptNumber(self) -> int:
        return self._attempt

    def getLocalProperty(self, key: str) -> str | None:
        return self._properties.get(key)


class Query:
    """A streaming query and its batches, as Spark runs them: a writer for each step."""

    def __init__(self, server: Server, query: str = "q1", run: str = "r1", **given: str) -> None:
        self.given = {"servers": server.url, "sinkId": "sink", "subject": "S.x", "retries": "1"}
        self.given.update(given)
        self.query = query
        self.run = run

    def sink(self, rows: pa.RecordBatch) -> StreamSink:
        return StreamSink(options(self.given), schema_of(rows), False)

    def write(
        self, batch: int, rows: pa.RecordBatch, partition: int = 0, attempt: int = 0
    ) -> Written:
        sink = self.sink(rows)
        return self.write_by(
            sink, batch, iter([rows.slice(0, 3), rows.slice(3)]), partition, attempt
        )

    def write_by(
        self,
        sink: StreamSink,
        batch: int,
        rows: Iterator[pa.RecordBatch],
        partition: int = 0,
        attempt: int = 0,
    ) -> Written:
        sink = pickle.loads(pickle.dumps(sink))
        properties = {QUERY_ID: self.query, BATCH_ID: str(batch), RUN_ID: self.run}
        with running(Task(partition, attempt, **properties)):
            message = sink.write(rows)
        return pickle.loads(pickle.dumps(message))  # type: ignore[no-any-return]

    def commit(self, batch: int, *messages: WriterCommitMessage | None) -> None:
        self.sink(ROWS).commit(list(messages), batch)

    def run_batch(self, batch: int, rows: pa.RecordBatch) -> Written:
        written = self.write(batch, rows)
        self.commit(batch, written)
        return written


class running:
    """The task that TaskContext.get() gives."""

    def __init__(self, task: Task | None) -> None:
        self.task = task

    def __enter__(self) -> None:
        TaskContext._taskContext = self.task  # type: ignore[assignment]

    def __exit__(self, *exc: object) -> None:
        TaskContext._taskContext = None


def options(given: dict[str, str]) -> SinkOptions:
    return SinkOptions.read(given, "writing format nats")


def schema_of(rows: pa.RecordBatch) -> StructType:
    fields = [{"name": n, "type": "string", "nullable": True, "metadata": {}} for n in names(rows)]
    return StructType.fromJson({"type": "struct", "fields": fields})


def names(rows: pa.RecordBatch) -> list[str]:
    return list(rows.schema.names)


def rows_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


ROWS = rows_of(data=[str(i) for i in range(10)])
OTHER = rows_of(data=[f"other {i}" for i in range(10)])


@pytest.fixture(scope="module", params=["jsserver", "peer"])
def server(request: pytest.FixtureRequest, module_servers: Servers) -> Server:
    started = module_servers.under_test if request.param == "jsserver" else module_servers.peer
    return started(jetstream=True)


@pytest.fixture
def js(server: Server) -> Iterator[JetStream]:
    """A server with the stream S alone."""
    js = connected(server)
    for name in [info.name for info in js.stream_infos()]:
        js.api(f"STREAM.DELETE.{name}")
    create(js, "S")
    yield js
    js.close()


def create(js: JetStream, name: str, **config: Any) -> None:
    window = 600 * SECOND
    config = {"name": name, "subjects": [f"{name}.>"], "duplicate_window": window, **config}
    js.api(f"STREAM.CREATE.{name}", config)


def stored(js: JetStream, name: str = "S") -> list[tuple[str, str, str]]:
    """Subject, header block and payload of all messages."""
    found = []
    state = js.stream_info(name).state
    for seq in range(state.first_seq, state.last_seq + 1):
        message = js.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
        parts = [base64.b64decode(message.get(key, "")).decode() for key in ("hdrs", "data")]
        found.append((message["subject"], parts[0], parts[1]))
    return found


def payloads(js: JetStream, name: str = "S") -> list[str]:
    return [row[2] for row in stored(js, name)]


def write_batch(server: Server, rows: pa.RecordBatch, overwrite: bool = False, **given: str) -> Any:
    sink = BatchSink(
        options({"servers": server.url, "retries": "1", **given}), schema_of(rows), overwrite
    )
    with running(Task(3)):
        message = pickle.loads(pickle.dumps(sink)).write(iter([rows]))
    message = pickle.loads(pickle.dumps(message))
    sink.commit([message])
    return message


# ---- batch writes ------------------------------------------------------------------------------


def test_a_batch_write_without_ids_adds_rows_every_time(server: Server, js: JetStream) -> None:
    for _ in range(2):
        assert write_batch(server, ROWS, subject="S.x").rows == 10
    assert payloads(js) == [str(i) for i in range(10)] * 2
    assert stored(js)[0] == ("S.x", "", "0")


def test_a_run_that_is_repeated_adds_nothing(server: Server, js: JetStream) -> None:
    given = {"subject": "S.x", "stream": "S", "sinkId": "a.b", "runId": "2026-11-21"}
    assert write_batch(server, ROWS, **given).duplicates == 0
    assert write_batch(server, ROWS, **given).duplicates == 10
    write_batch(server, ROWS, **{**given, "runId": "2026-11-22"})
    rows = stored(js)
    assert len(rows) == 20
    wanted = "NATS/1.0\r\nNats-Msg-Id: a.b-2026-11-21-3-9\r\nNats-Expected-Stream: S\r\n\r\n"
    assert rows[9] == ("S.x", wanted, "9")


def test_ids_of_a_column_hold_in_any_order(server: Server, js: JetStream) -> None:
    rows = rows_of(data=["a", "b", "c"], order=[7, 8, 9])
    for picked in ([0, 1, 2], [2, 0, 1]):
        write_batch(server, rows.take(pa.array(picked)), subject="S.{order}", idColumn="order")
    assert [(r[0], r[2]) for r in stored(js)] == [("S.7", "a"), ("S.8", "b"), ("S.9", "c")]
    with pytest.raises(NatsError, match="row 1: column 'order' is null"):
        write_batch(
            server, rows_of(data=["a", "b"], order=[1, None]), subject="S.x", idColumn="order"
        )


def test_subjects_from_a_template_and_from_a_column(server: Server, js: JetStream) -> None:
    rows = rows_of(
        data=["a", "b"], region=["eu", "us"], id=[1, 2], subject=pa.array([None, "S.own"])
    )
    write_batch(server, rows, subject="S.{region}-{id}.x")
    assert [row[0] for row in stored(js)] == ["S.eu-1.x", "S.own"]
    with pytest.raises(NatsError, match="row 1: column 'id' is null"):
        write_batch(server, rows_of(data=["a", "b"], id=[1, None]), subject="S.{id}")
    with pytest.raises(PublishError, match=r"row 0 .*there is a blank"):
        write_batch(server, rows_of(data=["a"], id=["x y"]), subject="S.{id}")


def test_kafkas_names_are_taken(server: Server, js: JetStream) -> None:
    headers = pa.array(
        [[{"key": "A", "value": b"1"}]],
        pa.list_(pa.struct([("key", "string"), ("value", "binary")])),
    )
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"S.k"]), pa.array([b"v"]), pa.array(["S"]), headers],
        names=["key", "value", "topic", "headers"],
    )
    write_batch(server, rows)
    wanted = "NATS/1.0\r\nA: 1\r\nNats-Expected-Stream: S\r\n\r\n"
    assert stored(js) == [("S.k", wanted, "v")]
    create(js, "OTHER")
    with pytest.raises(StreamMismatch, match="row 0"):
        write_batch(server, rows.set_column(2, "topic", pa.array(["OTHER"])))


def test_overwrite_purges_only_when_it_is_allowed(server: Server, js: JetStream) -> None:
    create(js, "OTHER")
    write_batch(server, ROWS, subject="S.x")
    for given in ({}, {"stream": "S"}, {"allowPurge": "true"}):
        with pytest.raises(OptionError, match="allowPurge"):
            write_batch(server, OTHER, overwrite=True, subject="S.x", **given)
    given = {"stream": "S", "allowPurge": "true", "subject": "S.x"}
    with pytest.raises(OptionError, match="ids"):
        write_batch(server, OTHER, overwrite=True, sinkId="s", runId="1", **given)
    assert payloads(js) == [str(i) for i in range(10)]
    write_batch(server, OTHER, overwrite=True, **given)
    assert payloads(js) == [f"other {i}" for i in range(10)]


@pytest.mark.parametrize(
    ("columns", "given", "words"),
    [
        ({"data": [""], "seq": [1]}, {"subject": "a"}, "unknown column 'seq'"),
        ({"subject": ["a"]}, {}, "no column 'data'"),
        ({"data": [""]}, {}, "rows need a subject"),
        ({"data": [""], "value": [""]}, {"subject": "a"}, "'data' and 'value' are one"),
        ({"data": [""]}, {"subject": "a.{b}"}, "'b' is not in the input"),
        ({"data": [""]}, {"subject": "a", "idColumn": "b"}, "'b' is not in the input"),
        ({"data": [""]}, {"subject": "a.{"}, "braces"),
        ({"data": [""]}, {"subject": "a", "runId": "1"}, "needs 'sinkId'"),
        ({"data": [""]}, {"subject": "a", "sinkId": "1"}, "needs 'runId'"),
        ({"data": [""]}, {"subject": "a", "sinkId": "a b", "runId": "1"}, "must be a key"),
        ({"data": [""]}, {"subject": "a", "sinkId": "a", "runId": "1 2"}, "without blanks"),
    ],
)
def test_batch_options_and_columns_that_do_not_go_together(
    columns: dict[str, Any], given: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        BatchSink(options(given), schema_of(rows_of(**columns)), False)


@pytest.mark.parametrize(
    ("given", "overwrite", "words"),
    [
        ({"subject": "a"}, False, "'sinkId' is missing"),
        ({"subject": "a", "sinkId": "s", "runId": "1"}, False, "runId"),
        ({"subject": "a", "sinkId": "s"}, True, "complete"),
    ],
)
def test_streaming_options_that_do_not_go_together(
    given: dict[str, str], overwrite: bool, words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        StreamSink(options(given), schema_of(ROWS), overwrite)


# ---- the streams that are written to -----------------------------------------------------------


def test_a_short_duplicate_window_is_refused_before_anything_is_written(
    server: Server, js: JetStream
) -> None:
    create(js, "SHORT", duplicate_window=60 * SECOND)
    ids = {"sinkId": "s", "runId": "1"}
    rows = rows_of(data=["a"], subject=["SHORT.x"])
    for columns, given in [
        (ROWS, {"subject": "SHORT.x"}),
        (ROWS, {"subject": "SHORT.x", "stream": "SHORT"}),
        (rows, {}),
        (rows_of(data=["a"], id=["x"]), {"subject": "SHORT.{id}"}),
        (rows.append_column("topic", pa.array(["SHORT"])), {}),
    ]:
        with pytest.raises(NatsError, match=r"'SHORT' forgets .* 60 s .* 600 s .*minDedupWindow"):
            write_batch(server, columns, **ids, **given)
    assert js.stream_info("SHORT").state.messages == 0
    write_batch(server, rows, **ids, minDedupWindow="1m")
    write_batch(server, rows)
    assert js.stream_info("SHORT").state.messages == 2


def test_every_stream_of_many_subjects_is_found(server: Server, js: JetStream) -> None:
    create(js, "T", subjects=["t.*.a", "t.b"])
    rows = rows_of(data=["1"] * 4, subject=["t.x.a", "S.1.2", "t.b", "S.q"])
    write_batch(server, rows, sinkId="s", runId="1")
    assert (len(stored(js)), len(stored(js, "T"))) == (2, 2)
    rows = rows_of(data=["1"] * 2, subject=["t.x.a", "t.x.b"])
    with pytest.raises(NoStream, match=r"no stream takes the subject 't\.x\.b'"):
        write_batch(server, rows, sinkId="s", runId="2")
    with pytest.raises(NatsError, match="no stream 'NONE'"):
        write_batch(server, ROWS, sinkId="s", runId="1", stream="NONE", subject="S.x")


# ---- all or nothing ----------------------------------------------------------------------------


def test_atomic_batches_are_stored_whole(servers: Servers) -> None:
    server = servers.peer(jetstream=True)
    js = connected(server)
    create(js, "S", allow_atomic=True)
    rows = rows_of(data=[str(i) for i in range(2500)])
    given = {"subject": "S.x", "atomic": "true", "sinkId": "s", "runId": "1"}
    for duplicates in (0, 2500):
        message = write_batch(server, rows, **given)
        assert (message.rows, message.duplicates) == (2500, duplicates)
        assert js.stream_info("S").state.messages == 2500
    assert payloads(js) == [str(i) for i in range(2500)]
    assert "Nats-Msg-Id: s-1-3-2499\r\n" in stored(js)[2499][1]
    # One bad row: the 1,000 before its batch are there, of its own batch none is.
    rows = rows_of(data=["x"] * 1500, expected_last_subject_seq=[None] * 1400 + [1] + [None] * 99)
    with pytest.raises(PublishError, match="wrong last sequence"):
        write_batch(server, rows, **{**given, "runId": "2"})
    assert js.stream_info("S").state.messages == 3500


def test_an_atomic_write_goes_on_when_the_server_is_back(servers: Servers) -> None:
    server = servers.peer(jetstream=True)
    js = connected(server)
    create(js, "S", allow_atomic=True)
    given = options({"servers": server.url, "retries": "6"})
    counts: list[tuple[int, int]] = []

    def rest(publisher: AtomicPublisher) -> None:
        publisher.publish(rows_of(data=["b"] * 1200))
        publisher.flush()
        counts.append((publisher.acked, publisher.duplicates))

    with AtomicPublisher(given, "test", id_prefix="i-", subject="S.x") as publisher:
        publisher.publish(rows_of(data=["a"] * 1200))
        server.kill()
        thread = threading.Thread(target=rest, args=(publisher,))
        thread.start()
        server.start()
        thread.join(30)
    assert counts == [(2400, 0)]
    js = connected(server)
    assert payloads(js) == ["a"] * 1200 + ["b"] * 1200


def test_atomic_batches_are_refused_where_a_stream_does_not_allow_them(
    server: Server, js: JetStream
) -> None:
    with pytest.raises(PublishError, match=r"10174.*set allow_atomic"):
        write_batch(server, ROWS, subject="S.x", atomic="true")
    assert js.stream_info("S").state.messages == 0


def test_an_atomic_batch_whose_ids_are_there_in_part_is_an_error(servers: Servers) -> None:
    server = servers.peer(jetstream=True)
    js = connected(server)
    create(js, "S", allow_atomic=True)
    given = {"subject": "S.x", "atomic": "true", "idColumn": "id"}
    write_batch(server, rows_of(data=["a"], id=[1]), **given)
    with pytest.raises(PublishError, match="duplicate message id"):
        write_batch(server, rows_of(data=["a", "b"], id=[1, 2]), **given)
    assert payloads(js) == ["a"]


# ---- exactly once ------------------------------------------------------------------------------


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


def test_a_torn_batch_is_completed_by_its_replay(server: Server, js: JetStream) -> None:
    query = Query(server)
    query.write(0, ROWS.slice(0, 4))
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


def test_a_sink_outside_of_a_task_says_so(server: Server, js: JetStream) -> None:
    with pytest.raises(NatsError, match="tasks only"):
        Query(server).sink(ROWS).write(iter([ROWS]))
    with running(Task()), pytest.raises(NatsError, match="not a streaming write"):
        Query(server).sink(ROWS).write(iter([ROWS]))
