"""Filters of a query that narrow what is asked of the server, and those that stay Spark's."""

import datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from jsserver.spark.batch_source import BatchReader, FilteringReader
from jsserver.spark.filters import SLACK_NANOS, Narrowed, narrowed_by
from jsserver.spark.options import SourceOptions
from tests.spark.site import Site, seqs_of

NOON = datetime.datetime(2026, 5, 4, 12, tzinfo=datetime.UTC)
NOON_NANOS = int(NOON.timestamp()) * 1_000_000_000


def narrowed(*filters: Filter, **options: str) -> tuple[Narrowed, list[Filter]]:
    return narrowed_by(filters, SourceOptions.read({"stream": "S", **options}, "a test"))


@pytest.mark.parametrize(
    ("one", "first", "last"),
    [
        (EqualTo(("seq",), 5), 5, 5),
        (GreaterThan(("seq",), 5), 6, Narrowed().last),
        (GreaterThanOrEqual(("seq",), 5), 5, Narrowed().last),
        (LessThan(("seq",), 5), 0, 4),
        (LessThanOrEqual(("seq",), 5), 0, 5),
    ],
)
def test_bounds_of_seq_are_exact(one: Filter, first: int, last: int) -> None:
    found, left = narrowed(one)
    assert (found.first, found.last, left) == (first, last, [])


def test_several_bounds_meet() -> None:
    found, left = narrowed(
        GreaterThan(("seq",), 5),
        LessThan(("seq",), 20),
        In(("seq",), (3, 9, 12)),
        IsNotNull(("seq",)),
    )
    assert (found.first, found.last, left) == (6, 12, [In(("seq",), (3, 9, 12))])


@pytest.mark.parametrize(
    ("one", "since", "until"),
    [
        (GreaterThanOrEqual(("timestamp",), NOON), NOON_NANOS - SLACK_NANOS, None),
        (LessThan(("timestamp",), NOON), None, NOON_NANOS + SLACK_NANOS),
        (EqualTo(("timestamp",), NOON), NOON_NANOS - SLACK_NANOS, NOON_NANOS + SLACK_NANOS),
    ],
)
def test_times_only_prune(one: Filter, since: int | None, until: int | None) -> None:
    found, left = narrowed(one)
    assert (found.since, found.until, left) == (since, until, [one])


@pytest.mark.parametrize(
    ("one", "subjects", "exact"),
    [
        (EqualTo(("subject",), "a.b"), ("a.b",), True),
        (EqualTo(("subject",), "a.*"), (), False),
        (EqualTo(("subject",), "a b"), (), False),
        (EqualTo(("subject",), ""), (), False),
        (In(("subject",), ("a", "b", "a")), ("a", "b"), True),
        (StringStartsWith(("subject",), "a.b."), ("a.b.>",), True),
        (StringStartsWith(("subject",), "a.b.c"), ("a.b.>",), False),
        (StringStartsWith(("subject",), "ab"), (), False),
        (StringContains(("subject",), "ab"), (), False),
    ],
)
def test_subjects_become_filter_subjects(one: Filter, subjects: Any, exact: bool) -> None:
    found, left = narrowed(one)
    assert found.subjects == subjects
    assert left == ([] if exact else [one])


def test_subjects_meet_those_that_were_given() -> None:
    one = EqualTo(("subject",), "a.b")
    assert narrowed(one, filterSubjects="a.*,c")[0].subjects == ("a.b",)
    assert narrowed(one, filterSubjects="c.>")[1] == [one]
    other = EqualTo(("subject",), "a.c")
    assert narrowed(one, other)[1] == [other]


def test_the_kafka_names_are_known() -> None:
    found, left = narrowed(
        EqualTo(("key",), b"a.b"),
        GreaterThan(("offset",), 4),
        EqualTo(("topic",), "S"),
        schemaMode="kafka",
    )
    assert (found.subjects, found.first, found.streams, left) == (("a.b",), 5, ("S",), [])


def test_all_others_stay_with_spark() -> None:
    others: list[Filter] = [
        IsNull(("seq",)),
        IsNotNull(("headers",)),
        Not(EqualTo(("seq",), 1)),
        EqualTo(("data",), b"x"),
        EqualTo(("seq", "inner"), 1),
        EqualTo(("nothing",), 1),
        GreaterThan(("seq",), None),
        GreaterThan(("timestamp",), "2026"),
    ]
    found, left = narrowed(*others, includeHeaders="true")
    assert found == Narrowed() and left == others


def test_only_pushdown_gives_a_reader_that_takes_filters(site: Site) -> None:
    site.create("plain")
    assert type(site.reader(stream="plain")) is BatchReader
    assert type(site.reader(stream="plain", pushdown="true")) is FilteringReader


def test_pushed_filters_read_no_more_than_they_must(site: Site) -> None:
    for name in ("pushed", "other"):
        site.create(name)
        site.fill(name, 30)

    def read(*filters: Filter) -> list[int]:
        reader = site.reader(streams="pushed,other", pushdown="true", minPartitions="4")
        assert isinstance(reader, FilteringReader)
        list(reader.pushFilters(list(filters)))
        return seqs_of(reader, reader.partitions())

    mine = EqualTo(("stream",), "pushed")
    assert read(mine, GreaterThan(("seq",), 25)) == [26, 27, 28, 29, 30]
    assert read(EqualTo(("subject",), "pushed.1"), LessThan(("seq",), 8)) == [1, 4, 7]
    assert read(EqualTo(("stream",), "nothing")) == []
    now = datetime.datetime.now(datetime.UTC)
    assert read(mine, GreaterThan(("timestamp",), now + datetime.timedelta(hours=1))) == []
    assert read(mine, LessThan(("timestamp",), now - datetime.timedelta(hours=1))) == []
    assert len(read(mine, LessThan(("timestamp",), now))) == 30


def test_bounds_name_the_streams_of_the_options_whatever_is_filtered(site: Site) -> None:
    for name in ("bounded", "beside"):
        site.create(name)
        site.fill(name, 9)
    given = {
        "streams": "bounded,beside",
        "startingOffsets": '{"bounded": 3, "beside": 2}',
        "endingOffsets": '{"bounded": 6, "beside": 9}',
    }

    def read(wanted: str, **options: str) -> list[int]:
        reader = site.reader(pushdown="true", **options)
        assert isinstance(reader, FilteringReader)
        list(reader.pushFilters([EqualTo(("stream",), wanted)]))
        return seqs_of(reader, reader.partitions())

    assert read("bounded", **given) == [3, 4, 5]
    assert read("nothing", **given) == []
    assert read("nothing", stream="bounded", startingOffsets="3") == []
