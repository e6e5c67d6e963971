"""Writes that are repeated with other partitions or other rows: exactly once, or refused."""

import itertools
import random
import threading

import pyarrow as pa
import pytest

from jsserver_spark.jetstream import JetStream
from jsserver_spark.write.doubles import OtherRow
from jsserver_spark.write.fence import FenceError
from pipeline.tests.sink_world import (
    OTHER,
    ROWS,
    Query,
    Torn,
    payloads,
    rows_of,
    torn_after,
    write_batch,
    write_parts,
)
from tests.servers import Server

BUCKET = "jsserver_spark_fence"

pytestmark = pytest.mark.usefixtures("peer_present")


_names = itertools.count()


@pytest.fixture
def run() -> dict[str, str]:
    """Options of a run under a name of its own: a peer may bring back what a bucket held."""
    return {"subject": "S.x", "sinkId": f"s{next(_names)}", "runId": "1"}


def rows(first: int, stop: int) -> pa.RecordBatch:
    return rows_of(data=[str(i) for i in range(first, stop)])


def cut(stop: int, count: int) -> list[pa.RecordBatch]:
    """Rows 0 to stop in so many partitions."""
    edges = [stop * i // count for i in range(count + 1)]
    return [rows(a, b) for a, b in itertools.pairwise(edges)]


def torn(server: Server, parts: list[pa.RecordBatch], count: int, **given: str) -> None:
    """A run whose last part is torn after `count` of its rows."""
    with pytest.raises(Torn):
        write_parts(server, parts, torn=count, **given)


def noted(stop: int) -> list[str]:
    return [str(i) for i in range(stop)]


# ---- runs of batch writes ----------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), [(4, 2), (2, 4), (4, 5), (3, 1), (1, 3)])
@pytest.mark.parametrize("begun", [1, 2, 9])
def test_a_torn_run_that_is_cut_otherwise_is_refused(
    server: Server, js: JetStream, run: dict[str, str], first: int, then: int, begun: int
) -> None:
    parts = cut(100, first)[:begun]
    torn(server, parts, 3, **run)
    before = payloads(js)
    with pytest.raises(FenceError, match=r"run '1' was begun with other rows in partition 0 .*idC"):
        write_parts(server, cut(100, then), **run)
    assert payloads(js) == before
    write_parts(server, cut(100, first), **run)
    assert sorted(payloads(js), key=int) == noted(100)


def test_a_run_whose_input_grew_is_refused(
    server: Server, js: JetStream, run: dict[str, str]
) -> None:
    write_parts(server, cut(60, 2), **run)
    assert all(each.skipped for each in write_parts(server, cut(60, 3), **run))
    with pytest.raises(FenceError, match=r"run '1' was finished with 60 rows.*with 66.*runId"):
        write_parts(server, cut(66, 2), **run)
    assert sorted(payloads(js), key=int) == noted(60)


def test_an_end_that_grew_is_refused_before_it_is_written(
    server: Server, js: JetStream, run: dict[str, str]
) -> None:
    """The first partitions are as they were, the last one that was noted is not."""
    torn(server, cut(60, 3)[:2], 5, **run)
    with pytest.raises(FenceError, match=r"partition 1 \(20 rows, and 26 rows now\)"):
        write_parts(server, [rows(0, 20), rows(20, 46), rows(46, 66)], **run)
    assert payloads(js) == noted(25)


def test_rows_in_another_order_are_other_rows(
    server: Server, js: JetStream, run: dict[str, str]
) -> None:
    torn(server, [rows(0, 20)], 5, **run)
    with pytest.raises(FenceError, match="other rows in partition 0"):
        write_parts(server, [rows(0, 20).take(pa.array(range(19, -1, -1)))], **run)
    assert payloads(js) == noted(5)


def test_fewer_partitions_with_the_rows_of_all_are_found_out(
    server: Server, js: JetStream, run: dict[str, str]
) -> None:
    torn(server, [rows(0, 5), rows(5, 5), rows(5, 10)], 2, **run)
    with pytest.raises(FenceError, match="partition 2"):
        write_parts(server, [rows(0, 5), rows(5, 5)], **run)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_torn_is_completed_once(
    server: Server, js: JetStream, run: dict[str, str], seed: int
) -> None:
    chance = random.Random(seed)
    stop, count = chance.randint(10, 200), chance.randint(1, 5)
    for _ in range(3):
        parts = cut(stop, count)
        begun = chance.randint(1, count)
        torn(server, parts[:begun], chance.randint(0, len(parts[begun - 1])), **run)
    write_parts(server, cut(stop, count), **run)
    assert sorted(payloads(js), key=int) == noted(stop)


def test_a_task_waits_for_those_before_it_in_a_second_attempt(
    server: Server, js: JetStream
) -> None:
    """Another cut may show in them: two partitions became four."""
    Query(server).write(0, rows(0, 50))
    again = Query(server, run="r2")
    done: list[object] = []

    def last() -> None:
        try:
            done.append(again.write(0, rows(75, 100), partition=3))
        except FenceError as error:
            done.append(error)

    thread = threading.Thread(target=last)
    thread.start()
    thread.join(0.5)
    assert not done
    with pytest.raises(FenceError, match="other rows in partition 0"):
        again.write(0, rows(0, 25))
    thread.join(20)
    assert isinstance(done[0], FenceError)
    assert payloads(js) == noted(50)


def test_a_torn_batch_that_comes_again_with_other_rows_is_refused(
    server: Server, js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        torn_after(patch, 5)
        with pytest.raises(Torn):
            Query(server).write(0, ROWS)
    with pytest.raises(FenceError, match="batch 0 of query q1 was begun with other rows"):
        Query(server, run="r2").write(0, OTHER)
    assert payloads(js) == noted(5)


# ---- ids of the rows' own ----------------------------------------------------------------------


def origins(first: int, stop: int, stream: str = "ORDERS") -> pa.RecordBatch:
    """Rows of format nats."""
    count = stop - first
    data = [str(i) for i in range(first, stop)]
    return rows_of(stream=[stream] * count, seq=list(range(first, stop)), data=data)


@pytest.mark.parametrize("given", [{}, {"idColumn": "stream,seq"}, {"idColumn": "stream, seq"}])
def test_rows_of_format_nats_are_written_once_however_they_are_cut(
    server: Server, js: JetStream, given: dict[str, str]
) -> None:
    for edges in ([0, 60], [0, 20, 40, 60], [0, 45, 66], [0, 1, 2, 66]):
        parts = [origins(a, b) for a, b in itertools.pairwise(edges)]
        write_parts(server, parts, subject="S.x", **given)
    assert sorted(payloads(js), key=int) == noted(66)
    message = js.message_at("S", 1)
    assert message is not None and b"Nats-Msg-Id: ORDERS-0\r\n" in message.header


def test_a_query_writes_rows_of_format_nats_once_however_they_are_cut(
    server: Server, js: JetStream
) -> None:
    Query(server).write(0, origins(0, 30))
    again = Query(server, run="r2")
    parts = [again.write(0, origins(0, 15)), again.write(0, origins(15, 40), partition=1)]
    again.commit(0, *parts)
    assert sorted(payloads(js), key=int) == noted(40)
    message = js.message_at("S", 1)
    assert message is not None and b"Nats-Msg-Id: sink-ORDERS-0\r\n" in message.header


def test_two_rows_of_one_message_need_ids_of_their_own(server: Server, js: JetStream) -> None:
    both = rows_of(stream=["A", "A"], seq=[1, 1], data=["x", "y"], place=[0, 1])
    with pytest.raises(OtherRow, match=r"row 1 was dropped as a duplicate of message 1 .*idColumn"):
        write_batch(server, both.select(["stream", "seq", "data"]), subject="S.x")
    assert write_batch(server, both, subject="S.x", idColumn="stream,seq,place").rows == 2
    assert payloads(js) == ["x", "x", "y"]


def test_a_row_under_the_id_of_another_is_an_error(
    server: Server, js: JetStream, run: dict[str, str]
) -> None:
    """Two writes of one name, where no fence tells them apart."""
    given = {**run, "fence": "false"}
    write_batch(server, rows(0, 50), **given)
    with pytest.raises(OtherRow, match=r"row 0 was dropped .* which holds another payload"):
        write_batch(server, rows(1, 51), **given)
    assert len(payloads(js)) == 50


def test_a_payload_with_a_clock_under_an_id_of_the_user_is_told(
    server: Server, js: JetStream, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"subject": "S.x", "idColumn": "id"}
    write_batch(server, rows_of(data=["at 12:00"], id=[1]), **given)
    assert write_batch(server, rows_of(data=["at 12:01"], id=[1]), **given).duplicates == 1
    assert "another payload under the same id" in caplog.text
