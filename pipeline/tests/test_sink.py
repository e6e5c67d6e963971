"""Batch writes as Spark calls them: columns, headers, streams, ids, atomic batches."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jetstream import JetStream
from jsserver_spark.text.goformat import SECOND
from jsserver_spark.write.atomic import AtomicPublisher
from jsserver_spark.write.refusals import NoStream, PublishError, StreamMismatch
from jsserver_spark.write.sink import BatchSink, StreamSink
from pipeline.tests.jobs_world import connected
from pipeline.tests.sink_world import (
    OTHER,
    ROWS,
    Query,
    create,
    options,
    payloads,
    rows_of,
    schema_of,
    stored,
    write_batch,
)
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")


# ---- batch writes ------------------------------------------------------------------------------


def test_a_batch_write_without_ids_adds_rows_every_time(server: Server, js: JetStream) -> None:
    for _ in range(2):
        assert write_batch(server, ROWS, subject="S.x").rows == 10
    assert payloads(js) == [str(i) for i in range(10)] * 2
    assert stored(js)[0] == ("S.x", "", "0")


def test_a_run_that_is_repeated_adds_nothing(server: Server, js: JetStream) -> None:
    given = {"subject": "S.x", "stream": "S", "sinkId": "a.b", "runId": "2026-11-21"}
    assert write_batch(server, ROWS, **given).duplicates == 0
    assert write_batch(server, ROWS, **given).skipped
    assert write_batch(server, ROWS, fence="false", **given).duplicates == 10
    write_batch(server, ROWS, **{**given, "runId": "2026-11-22"})
    rows = stored(js)
    assert len(rows) == 20
    wanted = "NATS/1.0\r\nNats-Msg-Id: a.b-2026-11-21-0-9\r\nNats-Expected-Stream: S\r\n\r\n"
    assert rows[9] == ("S.x", wanted, "9")


def test_a_copied_rollup_removes_nothing(
    server: Server, js: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    create(js, "ROLL", allow_rollup_hdrs=True)
    for i, header in enumerate(["sub", "all", None]):
        headers = None if header is None else [("Nats-Rollup", [header]), ("A", ["b"])]
        kind = pa.map_(pa.string(), pa.list_(pa.string()))
        rows = rows_of(data=[str(i)], headers=pa.array([headers], kind))
        write_batch(server, rows, subject="ROLL.x")
    assert payloads(js, "ROLL") == ["0", "1", "2"]
    assert "NATS/1.0\r\nA: b\r\n\r\n" in stored(js, "ROLL")[0][1]
    assert "Nats-Rollup" in caplog.text and "would remove messages" in caplog.text


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


def test_headers_that_columns_stand_for_are_left_out_and_named(
    server: Server, js: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy of rows with headers must not bring other rows' ids along."""
    headers = [("Nats-Msg-Id", ["other"]), ("Trace", ["1"]), ("Nats-Expected-Stream", ["T"])]
    of_map = pa.map_(pa.string(), pa.list_(pa.string()))
    rows = rows_of(data=["a", "b"], headers=pa.array([headers, None], of_map))
    write_batch(server, rows, subject="S.x")
    assert [row[1] for row in stored(js)] == ["NATS/1.0\r\nTrace: 1\r\n\r\n", ""]
    wanted = "headers Nats-Expected-Stream, Nats-Msg-Id of the rows are left out"
    assert [r.message.startswith(wanted) for r in caplog.records] == [True]
    Query(server).run_batch(0, rows)
    assert [r.message.startswith(wanted) for r in caplog.records] == [True, True]


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
        write_batch(server, ROWS, sinkId="s", runId="3", stream="NONE", subject="S.x")


# ---- all or nothing ----------------------------------------------------------------------------


def test_atomic_batches_are_stored_whole(servers: Servers) -> None:
    server = servers.peer(jetstream=True)
    js = connected(server)
    create(js, "S", allow_atomic=True)
    rows = rows_of(data=[str(i) for i in range(2500)])
    given = {"subject": "S.x", "atomic": "true", "sinkId": "s", "runId": "1", "fence": "false"}
    for duplicates in (0, 2500):
        message = write_batch(server, rows, **given)
        assert (message.rows, message.duplicates) == (2500, duplicates)
        assert js.stream_info("S").state.messages == 2500
    assert payloads(js) == [str(i) for i in range(2500)]
    assert "Nats-Msg-Id: s-1-0-2499\r\n" in stored(js)[2499][1]
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
