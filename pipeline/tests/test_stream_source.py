"""Structured Streaming's reader: its methods in the order in which Spark calls them."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
)

from jsserver_spark.errors import DataLossError, NatsError, OptionError
from jsserver_spark.live.stream_source import StreamReader
from pipeline.tests.site import Site, copy, seqs_of, table_of

Offset = dict[str, Any]


class Query:
    """What Spark does with a reader from batch to batch; offsets pass through a checkpoint."""

    def __init__(self, site: Site, checkpoint: Offset | None = None, **options: str) -> None:
        reader = site.stream_reader(**options)
        assert isinstance(reader, StreamReader)
        self.reader = reader
        self.site = site
        self.at = checkpoint if checkpoint is not None else self._logged(reader.initialOffset())

    def _logged(self, offset: Offset) -> Offset:
        return dict(json.loads(json.dumps(offset)))

    def latest(self) -> Offset:
        limit = self.reader.getDefaultReadLimit()
        time.sleep(0.12)  # until the states that are known may be asked for again
        return self._logged(self.reader.latestOffset(self.at, limit))

    def batch(self) -> list[int]:
        """The sequences of one batch; none when there is nothing new."""
        end = self.latest()
        self.reader.reportLatestOffset()
        self.reader.commit(self.at)
        start, self.at = self.at, end
        return self.replay(start, end) if start != end else []

    def replay(self, start: Offset, end: Offset) -> list[int]:
        return seqs_of(self.reader, self.reader.partitions(start, end))

    def place(self, stream: str) -> Offset:
        return dict(self.at["streams"][stream])


@pytest.fixture
def name(site: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream with ten messages, named after the test."""
    made = str(request.node.originalname)[5:45]
    site.create(made)
    site.fill(made, 10)
    yield made
    site.remove(made)


def test_starts_at_the_latest_and_stays_there(site: Site, name: str) -> None:
    query = Query(site, stream=name)
    site.fill(name, 5)
    assert query.reader.initialOffset() == query.at
    assert query.place(name) == {"id": str(site.info(name).created), "seq": 10, "first": 11}
    assert query.batch() == [11, 12, 13, 14, 15]
    assert query.batch() == []
    site.fill(name, 1)
    assert query.batch() == [16]


def test_starts_where_the_options_say(site: Site, name: str) -> None:
    assert Query(site, stream=name, startingOffsets="earliest").batch() == list(range(1, 11))
    chosen = json.dumps({name: 8})
    assert Query(site, stream=name, startingOffsets=chosen).batch() == [8, 9, 10]
    assert Query(site, stream=name, startingTimestamp="0").batch() == list(range(1, 11))


def test_a_replay_gives_the_same_splits_and_rows(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="earliest", minPartitions="3")
    start, end = query.at, query.latest()
    splits = query.reader.partitions(start, end)
    site.fill(name, 50)
    again = Query(site, start, stream=name, minPartitions="3")
    assert again.reader.partitions(start, end) == splits and len(splits) == 3
    assert again.replay(start, end) == list(range(1, 11))
    assert query.replay(end, end) == []


def test_rows_are_limited(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert [query.batch() for _ in range(4)] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10], []]
    query = Query(site, stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert query.reader.latestOffset(query.at, ReadAllAvailable())["streams"][name]["seq"] == 10


def test_bytes_are_limited(site: Site, name: str) -> None:
    site.fill(name, 90, 1000)
    query = Query(site, stream=name, startingOffsets="earliest", maxBytesPerTrigger="30000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(30000)
    counts = []
    while seqs := query.batch():
        counts.append(len(seqs))
    assert sum(counts) == 100 and 3 <= len(counts) <= 6
    query = Query(site, stream=name, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert query.batch() == [1]


def test_a_minimum_waits_but_not_for_ever(site: Site, name: str) -> None:
    options = {"stream": name, "startingOffsets": "earliest", "minOffsetsPerTrigger": "12"}
    query = Query(site, maxTriggerDelay="2s", **options)
    assert query.reader.getDefaultReadLimit() == ReadMinRows(12)
    assert query.batch() == []
    site.fill(name, 2)
    assert len(query.batch()) == 12
    site.fill(name, 1)
    begun = time.monotonic()
    while not (seqs := query.batch()):
        assert time.monotonic() - begun < 10
    assert seqs == [13] and time.monotonic() - begun >= 2
    now = Query(site, maxTriggerDelay="1h", **options | {"minOffsetsPerTrigger": "99"})
    now.reader.prepareForTriggerAvailableNow()
    assert len(now.batch()) == 13


def test_available_now_stops_where_it_was_prepared(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    query.reader.prepareForTriggerAvailableNow()
    site.fill(name, 10)
    assert [len(query.batch()) for _ in range(3)] == [6, 4, 0]
    limit = query.reader.getDefaultReadLimit()
    assert query.reader.latestOffset(query.at, limit) == query.at


def test_other_limits_are_refused(site: Site, name: str) -> None:
    query = Query(site, stream=name)
    with pytest.raises(OptionError, match="ReadMaxFiles"):
        query.reader.latestOffset(query.at, ReadMaxFiles(1))


@pytest.mark.parametrize(
    "options",
    [
        {"endingOffsets": "latest"},
        {"endingTimestamp": "5"},
        {"archivePath": "/x"},
    ],
)
def test_what_is_for_batch_reads_is_refused(site: Site, options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))}.* is for batch reads"):
        site.stream_reader(stream="S", **options)


def test_lag_is_reported(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query.batch()
    report = query.reader.reportLatestOffset()
    assert report is not None
    assert report["streams"][name]["seq"] - query.place(name)["seq"] == 6


# ---- several streams ---------------------------------------------------------------------------


def test_a_limit_is_shared_out_among_streams(site: Site) -> None:
    for name, count in (("sharea", 30), ("shareb", 10)):
        site.create(name)
        site.fill(name, count)
    query = Query(
        site, streams="sharea,shareb", startingOffsets="earliest", maxOffsetsPerTrigger="8"
    )
    query.batch()
    assert (query.place("sharea")["seq"], query.place("shareb")["seq"]) == (6, 2)
    while query.batch():
        pass
    assert (query.place("sharea")["seq"], query.place("shareb")["seq"]) == (30, 10)


def test_a_new_stream_of_a_pattern_is_read_from_its_first(site: Site) -> None:
    site.create("patternone")
    site.fill("patternone", 3)
    query = Query(site, streamPattern="pattern.*")
    assert query.batch() == []
    site.create("patterntwo")
    site.fill("patterntwo", 5)
    site.purge("patterntwo", 3)
    start = query.at
    assert query.batch() == [3, 4, 5]
    assert query.batch() == []
    assert query.replay(start, query.at) == [3, 4, 5]
    site.fill("patterntwo", 1)
    assert query.batch() == [6]
    site.remove("patterntwo")
    with pytest.raises(DataLossError, match="'patterntwo' is gone"):
        query.batch()


# ---- what is gone ------------------------------------------------------------------------------


def test_a_stream_made_anew_is_noticed(site: Site, name: str) -> None:
    query = Query(site, stream=name)
    query.batch()
    site.remove(name)
    site.create(name)
    site.fill(name, 3)
    with pytest.raises(DataLossError, match="made anew"):
        query.batch()
    tolerant = Query(site, query.at, stream=name, failOnDataLoss="false")
    assert tolerant.batch() == [1, 2, 3]
    assert tolerant.batch() == []


def test_a_purge_before_it_was_read_is_lost_data(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="2")
    site.purge(name, 6)
    with pytest.raises(DataLossError, match="begins at sequence 6"):
        query.batch()
    query = Query(site, stream=name, startingOffsets="6", failOnDataLoss="false")
    site.purge(name, 9)
    assert query.batch() == [9, 10]


def test_a_query_begins_with_what_comes_first_when_it_is_read(site: Site, name: str) -> None:
    """What the stream's limits take before is no loss; what was to come next is one."""
    query = Query(site, stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="3")
    site.purge(name, 3)
    end = query.latest()
    assert end["streams"][name]["first"] == 3 and end["streams"][name]["seq"] == 5
    site.purge(name, 4)
    splits = query.reader.partitions(query.at, end)
    assert seqs_of(query.reader, splits) == [4, 5]
    query.at = end
    site.purge(name, 8)
    with pytest.raises(DataLossError, match="begins at sequence 8, but 6 was to be read"):
        query.batch()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_first_batch_that_is_written_again_has_the_rows_of_before(
    site: Site, name: str, start: str
) -> None:
    """Spark asks again where the query begins, until its first batch is done."""
    query = Query(site, stream=name, startingOffsets=start)
    site.fill(name, 2)
    end = query.latest()
    rows = query.replay(query.at, end)
    assert rows == list(range(1 if start == "earliest" else 11, 13))
    site.fill(name, 3)
    again = Query(site, stream=name, startingOffsets=start)
    assert again.replay(again.at, end) == rows
    site.purge(name, 12)
    again = Query(site, stream=name, startingOffsets=start)
    with pytest.raises(DataLossError, match=f"but {rows[0]} was to be read"):
        again.replay(again.at, end)


def test_limits_that_took_what_was_not_read_are_lost_data(site: Site) -> None:
    site.create("overrun", max_msgs=100, max_msgs_per_subject=100_000)
    site.fill("overrun", 50)
    query = Query(site, stream="overrun", startingOffsets="earliest")
    assert len(query.batch()) == 50
    site.fill("overrun", 500)
    with pytest.raises(DataLossError, match="begins at sequence 451, but 51 was to be read"):
        query.batch()


def test_a_missing_stream_is_named(site: Site) -> None:
    with pytest.raises(NatsError, match="no stream 'nowhere'"):
        Query(site, stream="nowhere")


def test_offsets_of_another_format_are_refused(site: Site, name: str) -> None:
    for offset in ({}, {"v": 1}, {"v": 9, "streams": {}}, {"v": 1, "streams": {name: 5}}):
        with pytest.raises(NatsError, match="checkpoint"):
            Query(site, offset, stream=name).batch()


# ---- cost --------------------------------------------------------------------------------------


def test_an_idle_query_asks_ten_times_a_second_at_most(site: Site, name: str) -> None:
    query = Query(site, stream=name)
    before = requests_of(site)
    begun = time.monotonic()
    calls = 0
    while time.monotonic() - begun < 1.5:
        query.reader.latestOffset(query.at, ReadAllAvailable())
        query.reader.reportLatestOffset()
        calls += 1
    asked = requests_of(site) - before
    assert 5 <= asked <= 10 * 1.5 + 1 and calls > 100


def requests_of(site: Site) -> int:
    """API requests that the server has answered, this one not counted."""
    info = site.js.api("INFO")
    return int(info["api"]["total"])


def test_a_copy_of_a_reader_holds_no_connection(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="earliest")
    end = query.latest()
    splits = query.reader.partitions(query.at, end)
    assert table_of(copy(query.reader), copy(splits)).num_rows == 10
    query.reader.stop()
    assert query.reader.latestOffset(query.at, ReadAllAvailable()) == end


def test_a_server_that_is_away_for_a_moment_is_waited_for(site: Site, name: str) -> None:
    query = Query(site, stream=name, startingOffsets="earliest")
    end = query.latest()
    site.server.restart()
    site.connect()
    assert query.latest() == end
    site.fill(name, 1)
    begun = time.monotonic()
    while query.latest()["streams"][name]["seq"] != 11:
        assert time.monotonic() - begun < 10
