"""Batch reads of a live server: the reader's methods in the order in which Spark calls them."""

import datetime
import itertools
import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from jsserver_spark.errors import DataLossError, NatsError, OptionError
from jsserver_spark.jetstream import FENCE
from jsserver_spark.live.fetch import fetch
from jsserver_spark.live.fetch_consumer import ConsumerReader
from jsserver_spark.live.fetch_direct import DirectReader
from jsserver_spark.options import SourceOptions
from jsserver_spark.splits import Bundle, Span, Split, splits_of, tasks_of
from pipeline.tests.site import Site, header_of, payload_of, seqs_of, table_of
from tests.client.tls import Site as Certificates
from tests.servers import Servers

COUNT = 500


@pytest.fixture(scope="module")
def orders(site: Site) -> Site:
    site.create("orders")
    site.create("closed", allow_direct=False)
    for name in ("orders", "closed"):
        site.fill(name, COUNT)
        site.delete(name, 7, 8, 100, 499)
    return site


DELETED = {7, 8, 100, 499}
LEFT = [seq for seq in range(1, COUNT + 1) if seq not in DELETED]


# ---- what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders", "closed"])
def test_a_whole_stream_is_read_as_it_is(orders: Site, name: str) -> None:
    options = {"includeHeaders": "true", "headersFormat": "raw", "includeNanos": "true"}
    rows = orders.read(stream=name, batchRows="64", **options).to_pylist()
    assert [row["seq"] for row in rows] == LEFT
    for row in rows:
        seq = row["seq"]
        assert row["stream"] == name and row["subject"] == f"{name}.{seq % 3}"
        assert row["data"] == payload_of(seq) and row["headers"] == (header_of(seq) or None)
        assert row["partition"] == 0 and 0 <= row["ts_nanos"] < 1000
    ages = [time.time() - row["timestamp"].timestamp() for row in rows]
    assert min(ages) > 0 and max(ages) < 600
    assert orders.consumers(name) == []


@pytest.mark.parametrize("name", ["orders", "closed"])
@pytest.mark.parametrize(
    ("filters", "thirds"),
    [
        ("{}.1", {1}),
        ("{}.0,{}.2", {0, 2}),
        ("{}.*,{}.1", {0, 1, 2}),
        ("{}.1,*.1", {1}),
        ("{}.1,*.2,{}.9", {1, 2}),
        ("{}.9", set()),
        ("{}.8,{}.9", set()),
        (">", {0, 1, 2}),
    ],
)
def test_filters_choose_subjects(orders: Site, name: str, filters: str, thirds: set[int]) -> None:
    reader = orders.reader(stream=name, filterSubjects=filters.replace("{}", name), batchRows="50")
    assert seqs_of(reader, reader.partitions()) == [seq for seq in LEFT if seq % 3 in thirds]
    assert orders.consumers(name) == []


def test_filters_that_let_much_through_are_applied_here(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer with many filters picks message by message, which costs more than reading all."""
    used = []
    for kind in (ConsumerReader, DirectReader):
        read = kind.read

        def noted(self: Any, kind: Any = kind, read: Any = read) -> Any:
            used.append(kind)
            return read(self)

        monkeypatch.setattr(kind, "read", noted)
    site.create("shares")
    site.publish(((f"shares.{i % 100}", b"", b"%d" % i) for i in range(1, 1001)), "shares")
    site.create("heavies")
    site.publish(((f"heavies.{i % 100}", b"", b"x" * 30_000) for i in range(1, 301)), "heavies")
    for name, count, kind in (
        ("shares", 2, ConsumerReader),
        ("shares", 50, DirectReader),
        ("heavies", 50, ConsumerReader),
    ):
        used.clear()
        wanted = ",".join(f"{name}.{i}" for i in range(count))
        table = site.read(stream=name, filterSubjects=wanted, startingOffsets="2")
        last = site.info(name).state.last_seq
        assert table["seq"].to_pylist() == [i for i in range(2, last + 1) if i % 100 < count]
        assert used == [kind]
        assert site.consumers(name) == []


@pytest.mark.parametrize("name", ["orders", "closed"])
def test_payloads_can_stay_at_the_server(orders: Site, name: str) -> None:
    table = orders.read(stream=name, includeData="false", includeHeaders="true")
    assert "data" not in table.column_names
    found = table["headers"].to_pylist()
    assert found[2] == [("Number", ["3"])] and found[0] is None


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("data", ["true", "false"])
def test_stored_headers_come_back_byte_for_byte(site: Site, direct: bool, data: str) -> None:
    name = f"headers{direct}{data}".lower()
    site.create(name, allow_direct=direct)
    stored = [
        b"",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"NATS/1.0\r\na:b\r\nA:  b \r\n a\r\n\r\n",
        b"NATS/1.0\r\nNats-Sequence: 9\r\nNats-Subject: x\r\nNats-Msg-Size: 1\r\n\r\n",
        b"NATS/1.0\r\nNats-Num-Pending: 1\r\nNats-Last-Sequence: 3\r\n\r\n",
        b"NATS/1.0\r\nEmpty:\r\nBytes: \xff\xfe\r\n\r\n",
    ]
    site.publish(((f"{name}.a", head, b"\r\nPING\r\n\x00") for head in stored), name)
    options = {"includeHeaders": "true", "headersFormat": "raw", "includeData": data}
    table = site.read(stream=name, **options)
    assert [head or b"" for head in table["headers"].to_pylist()] == stored
    if data == "true":
        assert set(table["data"].to_pylist()) == {b"\r\nPING\r\n\x00"}


def test_small_requests_bring_everything_too(orders: Site) -> None:
    reader = orders.reader(
        stream="orders", fetchBytes="1024", splitBytes="65536", minPartitions="3"
    )
    splits = reader.partitions()
    assert len(splits) == 3
    assert seqs_of(reader, splits) == LEFT


def test_messages_larger_than_a_request_are_read(site: Site) -> None:
    for name, direct in (("large", True), ("largeclosed", False)):
        site.create(name, allow_direct=direct)
        sizes = [10, 300_000, 5, 500_000, 20]
        site.publish(((f"{name}.a", b"", b"x" * size) for size in sizes), name)
        table = site.read(stream=name, fetchBytes="1024")
        assert [len(data) for data in table["data"].to_pylist()] == sizes


def test_every_schema_is_the_one_that_spark_was_told(orders: Site) -> None:
    for mode, headers, form, data, nanos in itertools.product(
        ("nats", "kafka"),
        ("true", "false"),
        ("map", "array", "raw"),
        ("true", "false"),
        ("true", "false"),
    ):
        options = {
            "stream": "orders",
            "schemaMode": mode,
            "includeHeaders": headers,
            "headersFormat": form,
            "includeData": data,
            "includeNanos": nanos,
            "endingOffsets": '{"orders": 12}',
        }
        source = orders.source(**options)
        reader = source.reader(schema=source.schema())
        wanted = to_arrow_schema(source.schema(), timezone="UTC")
        table = table_of(reader, reader.partitions())
        assert table.schema.equals(wanted), options
        assert table.num_rows == 9
        table.validate(full=True)


def test_columns_choose_and_order(orders: Site) -> None:
    assert orders.read(stream="orders", columns="seq,subject").column_names == ["seq", "subject"]


def test_several_streams_and_patterns(site: Site) -> None:
    for name in ("east", "west", "eastern"):
        site.create(name)
        site.fill(name, 5)

    def streams(**options: str) -> dict[str, int]:
        found = site.read(**options)["stream"].to_pylist()
        return {name: found.count(name) for name in found}

    assert streams(streams="east, west") == {"east": 5, "west": 5}
    assert streams(subscribe="west") == {"west": 5}
    assert streams(streamPattern="east.*") == {"east": 5, "eastern": 5}
    assert streams(subscribePattern="east") == {"east": 5}
    with pytest.raises(NatsError, match="streamPattern"):
        streams(streamPattern="north")
    with pytest.raises(OptionError, match="regular expression"):
        streams(streamPattern="(")


def test_patterns_pass_over_buckets_unless_they_name_them(site: Site) -> None:
    for name in ("KV_colours", "OBJ_files", "lakeside", "KV_jsserver_spark_fence", "KV_mine"):
        site.create(name, description=FENCE if name == "KV_mine" else "")
        site.fill(name, 2)

    def streams(pattern: str) -> set[str]:
        reader = site.stream_reader(streamPattern=pattern)
        known = set(reader.initialOffset()["streams"])
        reader.stop()
        assert set(site.read(streamPattern=pattern)["stream"].to_pylist()) == known
        return known

    assert streams("(lake|KV|OBJ).*") == {"lakeside"}
    assert streams("KV_.*") == {"KV_colours"}
    assert streams("(KV_|OBJ_).*") == {"KV_colours", "OBJ_files"}


# ---- bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ({"startingOffsets": '{"orders": 490}'}, range(490, 501)),
        ({"startingOffsets": '{"orders": -2}', "endingOffsets": '{"orders": 4}'}, range(1, 4)),
        ({"startingOffsets": "490"}, range(490, 501)),
        ({"startingOffsets": "earliest", "endingOffsets": '{"orders": -1}'}, LEFT),
        ({"startingOffsets": '{"orders": 99}', "endingOffsets": '{"orders": 101}'}, [99]),
        ({"startingOffsets": '{"orders": 9}', "endingOffsets": '{"orders": 9}'}, ()),
        ({"startingOffsets": '{"orders": 501}'}, ()),
    ],
)
def test_offsets_bound_a_read(orders: Site, options: dict[str, str], seqs: Any) -> None:
    reader = orders.reader(stream="orders", **options)
    splits = reader.partitions()
    assert splits, "Spark wants a partition"
    assert seqs_of(reader, splits) == [seq for seq in seqs if seq not in DELETED]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "must not be 'latest'"),
        ({"startingOffsets": '{"orders": -1}'}, "must not be 'latest'"),
        ({"endingOffsets": "earliest"}, "must not be 'earliest'"),
        ({"startingOffsets": "soon"}, "must be earliest, latest, .* or JSON"),
        ({"startingOffsets": '{"other": 1}'}, "'orders' is missing|'other' is not read"),
        ({"startingOffsets": '{"orders": "x"}'}, "must be a sequence"),
        ({"startingOffsets": '{"orders": true}'}, "must be a sequence"),
        ({"startingOffsets": '{"orders": {"0": 23}}'}, "offsets of partitions.*one run"),
        ({"startingOffsets": str(1 << 63)}, "must be a sequence"),
        ({"startingTimestamp": "yesterday"}, "ISO 8601"),
        ({"startingTimestamp": "9" * 30}, "from 1970 to 2262"),
        ({"startingTimestamp": "1789300000"}, "Seconds are 1789300000000 milliseconds"),
        ({"startingOffsetsByTimestamp": '{"orders": 1789300000}'}, "Seconds are 1789300000000"),
        ({"startingTimestamp": "1969-12-31T23:59:59Z"}, "from 1970 to 2262"),
        ({"startingTimestamp": "5", "startingOffsetsByTimestamp": "{}"}, "exclude each other"),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": 1}'}, "exclude"),
        ({"maxOffsetsPerTrigger": "5"}, "is for streaming reads"),
    ],
)
def test_bounds_that_make_no_sense_name_their_option(
    orders: Site, options: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        orders.reader(stream="orders", **options).partitions()


def test_offsets_beyond_the_stream_are_lost_data(orders: Site) -> None:
    with pytest.raises(DataLossError, match=r"'startingOffsets' is 900 .* 1 to 500"):
        orders.reader(stream="orders", startingOffsets='{"orders": 900}').partitions()
    table = orders.reader(
        stream="orders", startingOffsets='{"orders": 900}', failOnDataLoss="false"
    )
    assert seqs_of(table, table.partitions()) == []


@pytest.mark.parametrize("direct", [True, False])
def test_times_bound_a_read(site: Site, direct: bool) -> None:
    name = f"times{direct}".lower()
    site.create(name, allow_direct=direct)
    site.fill(name, 3)
    time.sleep(0.02)  # the clock moves on
    between = time.time_ns()
    time.sleep(0.02)  # the clock moves on
    site.fill(name, 3)
    millis = str(between // 1_000_000)
    iso = datetime.datetime.fromtimestamp(between / 1e9, datetime.UTC).isoformat()
    for moment in (millis, iso):
        assert site.read(stream=name, startingTimestamp=moment)["seq"].to_pylist() == [4, 5, 6]
        assert site.read(stream=name, endingTimestamp=moment)["seq"].to_pylist() == [1, 2, 3]
    each = f'{{"{name}": {millis}}}'
    assert site.read(stream=name, startingOffsetsByTimestamp=each)["seq"].to_pylist() == [4, 5, 6]
    assert site.read(stream=name, endingOffsetsByTimestamp=each)["seq"].to_pylist() == [1, 2, 3]
    later = {"stream": name, "startingTimestamp": "2100-01-01T00:00:00Z"}
    with pytest.raises(NatsError, match="startingOffsetsByTimestampStrategy"):
        site.reader(**later).partitions()
    reader = site.reader(startingOffsetsByTimestampStrategy="latest", **later)
    assert seqs_of(reader, reader.partitions()) == []
    assert site.consumers(name) == []


# ---- what is gone ------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
def test_what_retention_took_after_planning_is_lost_data(site: Site, direct: bool) -> None:
    name = f"lost{direct}".lower()
    site.create(name, allow_direct=direct)
    site.fill(name, 50)
    plans = {}
    for choice in ("true", "false"):
        reader = site.reader(stream=name, failOnDataLoss=choice, startingOffsets="1")
        plans[choice] = (reader, reader.partitions())
    site.purge(name, 21)
    with pytest.raises(DataLossError, match="begins at sequence 21, but 1 was"):
        seqs_of(*plans["true"])
    assert seqs_of(*plans["false"]) == list(range(21, 51))


@pytest.mark.parametrize("start", [{}, {"startingTimestamp": "0"}, {"filterSubjects": "*.0,*.1"}])
@pytest.mark.parametrize("direct", [True, False])
def test_the_earliest_is_what_comes_first_when_it_is_read(
    site: Site, direct: bool, start: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """A stream at its limits, and a writer between planning and reading."""
    name = f"full{direct}{len(start and next(iter(start)))}".lower()
    site.create(name, allow_direct=direct, max_msgs=60)
    site.fill(name, 70)
    reader = site.reader(stream=name, minPartitions="3", **start)
    splits = reader.partitions()
    site.fill(name, 30)
    wanted = [seq for seq in range(41, 71) if "filterSubjects" not in start or seq % 3 != 2]
    assert seqs_of(reader, splits) == wanted
    assert "was first when the read was planned" in caplog.text
    site.fill(name, 100)
    assert seqs_of(reader, splits) == []


def test_a_stream_made_anew_after_planning_is_another_one(site: Site) -> None:
    site.create("anew")
    site.fill("anew", 5)
    reader = site.reader(stream="anew")
    splits = reader.partitions()
    site.remove("anew")
    site.create("anew")
    site.fill("anew", 9)
    with pytest.raises(DataLossError, match="made anew"):
        seqs_of(reader, splits)
    site.remove("anew")
    with pytest.raises(NatsError, match=r"no stream 'anew' .*options stream"):
        seqs_of(reader, splits)


def test_a_work_queue_is_read_without_a_consumer_or_not_at_all(site: Site) -> None:
    for name, direct in (("queue", True), ("queueclosed", False)):
        site.create(name, allow_direct=direct, retention="workqueue")
        site.fill(name, 9)
    reader = site.reader(stream="queue", includeData="false", filterSubjects="queue.0,queue.1")
    assert seqs_of(reader, reader.partitions()) == [1, 3, 4, 6, 7, 9]
    reader = site.reader(stream="queueclosed")
    with pytest.raises(NatsError, match="allow_direct"):
        seqs_of(reader, reader.partitions())
    assert site.info("queue").state.messages == site.info("queueclosed").state.messages == 9


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            {"kafka.bootstrap.servers": "a:9092"},
            "'kafka.bootstrap.servers' is not there: .*nats://",
        ),
        ({"assign": '{"S":[0]}'}, "'assign' is not there: .*no partitions"),
        ({"groupIdPrefix": "x"}, "'groupIdPrefix' is not there: .*a checkpoint is all"),
        ({"provider": "nats"}, "CREATE TEMPORARY VIEW"),
    ],
)
def test_options_from_elsewhere_are_explained(option: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        SourceOptions.read({"stream": "S", **option}, "reading format nats")


def test_a_missing_stream_is_named(site: Site) -> None:
    with pytest.raises(NatsError, match="no stream 'nowhere'"):
        site.reader(stream="nowhere").partitions()


@pytest.mark.parametrize("direct", [True, False])
def test_a_domain_is_reached_by_its_option(
    servers: Servers, peer_present: None, direct: bool
) -> None:
    site = Site(servers.peer(jetstream=True, config="jetstream { domain: hub }"))
    site.create("far", allow_direct=direct)
    site.fill("far", 20)
    for options in ({"jsDomain": "hub"}, {"apiPrefix": "$JS.hub.API"}):
        assert site.read(stream="far", **options).num_rows == 20
    with pytest.raises(NatsError, match="jsDomain"):
        site.reader(stream="far", jsDomain="moon").partitions()


def test_refused_users_are_told_which_options_to_change(servers: Servers) -> None:
    site = Servers.under_test(servers, jetstream=True, args=["--user", "me", "--pass", "secret"])
    for options in ({}, {"user": "me", "password": "wrong"}, {"token": "wrong"}):
        given = {"servers": site.url, "stream": "S", **options}
        with pytest.raises(NatsError, match="credentialsFile") as caught:
            list(fetch(SourceOptions.read(given, "a test"), "S", 1, 2))
        assert "secret" not in str(caught.value) and "wrong" not in str(caught.value)
    given = {"servers": site.url, "stream": "S", "tls.caFile": "/nowhere.pem"}
    with pytest.raises(NatsError, match=r"TLS|nowhere.pem"):
        list(fetch(SourceOptions.read(given, "a test"), "S", 1, 2))


@pytest.mark.parametrize("kind", ["under_test", "peer"])
def test_a_missing_client_certificate_names_its_options(
    servers: Servers, peer_present: None, tmp_path: Path, kind: str
) -> None:
    certificates = Certificates(tmp_path)
    config = certificates.config(certificates.verifying)
    server = getattr(servers, kind)(jetstream=True, config=config)
    url = server.url.replace("127.0.0.1", "localhost")
    given = {"servers": url, "stream": "S", "tls.caFile": str(certificates.authority.cert)}
    with pytest.raises(NatsError, match=r"options tls\.certFile and tls\.keyFile"):
        list(fetch(SourceOptions.read(given, "a test"), "S", 1, 2))


@pytest.mark.parametrize("options", [{"stream": "a b"}, {"stream": "a.b"}, {"streams": "a,*"}])
def test_names_that_no_stream_can_have_are_refused(site: Site, options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="no stream can have"):
        site.reader(**options)


@pytest.mark.parametrize("subject", ["a..b", "a b", "a.>.b", ".a"])
def test_subjects_that_are_none_are_refused(site: Site, subject: str) -> None:
    with pytest.raises(OptionError, match="no subject"):
        site.reader(stream="S", filterSubjects=subject)
    with pytest.raises(OptionError, match="no subject"):
        site.stream_reader(stream="S", filterSubjects=subject)


def test_a_bucket_loses_nothing_when_its_keys_change(site: Site) -> None:
    site.create("bucket", max_msgs_per_subject=1)
    site.fill("bucket", 30)
    reader = site.reader(stream="bucket")
    splits = reader.partitions()
    site.fill("bucket", 1)
    assert seqs_of(reader, splits) == [29, 30]


def test_a_server_that_is_away_names_the_option() -> None:
    options = {"servers": "nats://127.0.0.1:1", "stream": "S"}
    with pytest.raises(NatsError, match="option servers"):
        list(fetch(SourceOptions.read(options, "a test"), "S", 1, 2))


# ---- interruptions -----------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
def test_a_lost_server_that_comes_back_costs_no_row(servers: Servers, direct: bool) -> None:
    site = Site(servers.under_test(jetstream=True))
    site.create("long", allow_direct=direct)
    site.fill("long", 20_000, 200)
    options = SourceOptions.read(
        {"servers": site.server.url, "stream": "long", "batchRows": "500"}, "a test"
    )
    seqs: list[int] = []
    for i, batch in enumerate(fetch(options, "long", 1, 20_000)):
        seqs += batch["seq"].to_pylist()
        if i in (3, 9):
            site.server.restart(kill=i == 3)
    assert seqs == list(range(1, 20_001))


@pytest.mark.parametrize("direct", [True, False])
def test_a_reader_that_stops_early_leaves_nothing_behind(site: Site, direct: bool) -> None:
    name = f"early{direct}".lower()
    site.create(name, allow_direct=direct)
    site.fill(name, 3000)
    reader = site.reader(stream=name, batchRows="100")
    rows = reader.read(reader.partitions()[0])
    assert isinstance(next(iter(rows)), pa.RecordBatch)
    rows.close()  # type: ignore[union-attr]
    assert site.consumers(name) == []


# ---- splits ------------------------------------------------------------------------------------


def test_splits_are_even_small_and_never_none() -> None:
    span = Span("S", 1, 11, 1_000_010, 100.0)
    splits = splits_of([span], 1_000_000, 1)
    assert len(splits) == 100
    assert [(split.first, split.last) for split in splits[:2]] == [(11, 10010), (10011, 20010)]
    assert splits[-1].last == 1_000_010
    assert len(pickle.dumps(splits[50])) < 150
    assert pickle.loads(pickle.dumps(splits[50])) == splits[50]
    assert len(splits_of([span], 1 << 40, 7)) == 7
    assert len(splits_of([Span("S", 1, 5, 6, 1.0)], 1 << 20, 9)) == 2
    assert splits_of([Span("S", 1, 5, 4, 1.0)], 1 << 20, 9) == [Split("S", 1, 1, 0)]
    assert splits_of([], 1, 1) == [Split("", 0, 1, 0)]


def test_small_streams_share_tasks() -> None:
    small = [Span(f"S{i}", 1, 1, 10, 100.0) for i in range(200)]
    tasks = tasks_of(small, 32 << 20, 1)
    assert [len(task.splits) for task in tasks if isinstance(task, Bundle)] == [128, 72]
    assert [split.stream for task in tasks for split in splits_in(task)] == [
        s.stream for s in small
    ]
    assert len(tasks_of(small, 32 << 20, 8)) == 8
    assert len(tasks_of(small, 32 << 20, 200)) == len(tasks_of(small, 1 << 16, 1)) == 200
    large = Span("L", 1, 1, 1000, 1 << 20)
    tasks = tasks_of([small[0], large, small[1]], 32 << 20, 1)
    assert [split.stream for task in tasks for split in splits_in(task)].count("L") == 32
    assert len(tasks) <= 33 and tasks_of([], 1, 1) == [Split("", 0, 1, 0)]


def splits_in(task: InputPartition) -> tuple[Split, ...]:
    assert isinstance(task, Split | Bundle)
    return task.splits if isinstance(task, Bundle) else (task,)


def test_many_small_streams_are_read_by_few_tasks(site: Site) -> None:
    names = [f"tiny{i}" for i in range(20)]
    for name in names:
        site.create(name)
        site.fill(name, 3)
    reader = site.reader(streams=",".join(names))
    assert len(reader.partitions()) == 1
    rows = table_of(reader, reader.partitions()).to_pylist()
    assert [(row["stream"], row["seq"]) for row in rows] == [
        (n, i) for n in names for i in (1, 2, 3)
    ]
    assert len(site.reader(streams=",".join(names), minPartitions="4").partitions()) == 4


def test_partitions_are_shared_out_by_size() -> None:
    spans = [Span("big", 1, 1, 900, 1.0), Span("small", 1, 1, 100, 1.0)]
    splits = splits_of(spans, 1 << 20, 10)
    assert [split.stream for split in splits] == ["big"] * 9 + ["small"]
