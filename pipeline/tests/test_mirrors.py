"""Streams whose mirrors answer their direct gets: rows come from the stream itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsserver_spark.jobs.archive import ArchiveOptions, archive
from jsserver_spark.jobs.verify import VerifyOptions, verify
from jsserver_spark.live.offsets import sequence_at
from pipeline.tests.site import Site, seqs_of
from tests.waiting import wait_until

COUNT = 200
READS = 16
"""Of a stream and its mirror either answers: the mirror none of so many once in 65,536 runs."""

MIRRORS: dict[str, tuple[dict[str, Any], int]] = {
    "filtered": ({"mirror": {"filter_subject": "{}.2"}}, 67),
    "limited": ({"max_msgs": 20}, 20),
    "whole": ({}, COUNT),
    "renamed": ({"mirror": {"subject_transforms": [{"src": "{}.>", "dest": "other.>"}]}}, COUNT),
}
"""What mirrors have beside the name of their origin, and how many messages they come to hold."""


def filled_in(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: filled_in(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [filled_in(each, name) for each in value]
    return value.replace("{}", name) if isinstance(value, str) else value


def mirror(site: Site, name: str, kind: str) -> None:
    """A mirror of the stream `name`, which holds what it is to hold when this returns."""
    given, held = MIRRORS[kind]
    config = filled_in(given, name)
    config["mirror"] = {"name": name, **config.get("mirror", {})}
    copy = f"{name}copy"
    config = {"name": copy, "mirror_direct": True, "allow_direct": True, **config}
    site.js.api(f"STREAM.CREATE.{copy}", config)
    wait_until(lambda: site.info(copy).state.messages == held, f"{copy} holds {held} messages")


@pytest.fixture(params=MIRRORS)
def origin(site: Site, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream with a mirror; some of its messages were deleted after the mirror had them."""
    name = f"origin{request.param}"
    site.create(name)
    site.fill(name, COUNT)
    mirror(site, name, request.param)
    site.delete(name, *range(30, 40))
    yield name
    site.remove(f"{name}copy")
    site.remove(name)


LEFT = [seq for seq in range(1, COUNT + 1) if not 30 <= seq < 40]


def test_rows_are_the_streams_own(site: Site, origin: str) -> None:
    for _ in range(READS):
        rows = site.read(stream=origin, minPartitions="3").to_pylist()
        assert [row["seq"] for row in rows] == LEFT
        assert {row["subject"] for row in rows} == {f"{origin}.{i}" for i in range(3)}
        assert {row["stream"] for row in rows} == {origin}
    assert site.consumers(origin) == []


def test_filters_choose_among_the_streams_own(site: Site, origin: str) -> None:
    for _ in range(READS):
        rows = site.read(stream=origin, filterSubjects=f"{origin}.1").to_pylist()
        assert [row["seq"] for row in rows] == [seq for seq in LEFT if seq % 3 == 1]


def test_a_purged_origin_is_read_as_it_is(site: Site, origin: str) -> None:
    reader = site.reader(stream=origin)
    splits = reader.partitions()
    site.purge(origin, 101)
    for _ in range(READS):
        assert seqs_of(reader, splits) == list(range(101, COUNT + 1))


def test_a_time_is_looked_for_in_the_stream_itself(site: Site, origin: str) -> None:
    info = site.info(origin)
    times = {m.seq: m.ts for seq in LEFT if (m := site.js.message_at(origin, seq)) is not None}
    for seq in (1, 40, 120, COUNT):
        first = min(other for other, time in times.items() if time >= times[seq])
        for _ in range(READS):
            assert sequence_at(site.js, info, times[seq]) == first
    for _ in range(READS):
        assert sequence_at(site.js, info, times[COUNT] + 1) is None


def test_an_archive_holds_the_stream_and_is_compared_with_it(
    site: Site, origin: str, tmp_path: Path
) -> None:
    for i in range(READS):
        root = str(tmp_path / str(i))
        given = {"servers": site.server.url, "stream": origin}
        made = archive(ArchiveOptions.read(given, "a test"), root, processes=1)
        assert (made.rows, made.missing, made.lost) == (len(LEFT), COUNT - len(LEFT), 0)
        found = verify(VerifyOptions.read(given, "a test"), root, processes=1)
        assert found.equal and found.found.rows == len(LEFT)


@pytest.mark.parametrize("filters", ["", "{}.1", "{}.0,*.1"])
def test_what_waits_for_its_acks_is_read_and_stays(site: Site, filters: str) -> None:
    """No consumer may read it: it would be one more whose acks are waited for."""
    name = f"interest{len(filters)}"
    site.create(name, retention="interest")
    waiting = {"durable_name": "waiting", "ack_policy": "explicit"}
    body = {"stream_name": name, "config": waiting}
    site.js.api(f"CONSUMER.DURABLE.CREATE.{name}.waiting", body)
    site.fill(name, 30)
    mirror_config = {"mirror": {"name": name, "filter_subject": f"{name}.2"}}
    config = {"name": f"{name}copy", "mirror_direct": True, "allow_direct": True}
    site.js.api(f"STREAM.CREATE.{name}copy", config | mirror_config)
    wait_until(lambda: site.info(f"{name}copy").state.messages == 10, "the mirror has its share")
    reader = site.reader(stream=name, filterSubjects=filters.replace("{}", name))
    splits = reader.partitions()
    thirds = {"": {0, 1, 2}, "{}.1": {1}, "{}.0,*.1": {0, 1}}[filters]
    for _ in range(READS):
        assert seqs_of(reader, splits) == [seq for seq in range(1, 31) if seq % 3 in thirds]
    assert site.info(name).state.messages == 30
    assert not any(each.startswith("spark-") for each in site.consumers(name))
