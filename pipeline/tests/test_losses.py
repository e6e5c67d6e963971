"""Messages that are gone before they are read: told as lost, or counted where nobody can tell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jsserver_spark.errors import DataLossError
from jsserver_spark.jobs import archive as archiving
from jsserver_spark.jobs.archive import ArchiveOptions, archive
from jsserver_spark.text.goformat import SECOND
from pipeline.tests.site import Site, seqs_of
from pipeline.tests.test_stream_source import Query
from tests.waiting import wait_until

KEPT = 10
"""Of a subject."""


def messages(name: str, tokens: list[str]) -> list[tuple[str, bytes, bytes]]:
    return [(f"{name}.{token}", b"", b"%d" % i) for i, token in enumerate(tokens)]


def cold(site: Site, name: str) -> None:
    """Thirty messages, each of its own subject."""
    site.publish(messages(name, [f"cold.{i}" for i in range(30)]), name)


def hot(site: Site, name: str, count: int = 2 * KEPT) -> None:
    """As many messages of one subject as the stream keeps, and more."""
    site.publish(messages(name, ["hot"] * count), name)


def expired(site: Site, name: str) -> None:
    cold(site, name)
    wait_until(lambda: site.info(name).state.messages == 0, "the messages are expired")
    config = site.info(name).raw["config"] | {"max_age": 3600 * SECOND}
    site.js.api(f"STREAM.UPDATE.{name}", config)
    hot(site, name)


def purged(site: Site, name: str) -> None:
    cold(site, name)
    hot(site, name)
    site.purge(name, 31)


def purged_but_some(site: Site, name: str) -> None:
    cold(site, name)
    hot(site, name)
    site.js.api(f"STREAM.PURGE.{name}", {"keep": KEPT})


def limited(site: Site, name: str) -> None:
    cold(site, name)
    hot(site, name, 60)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    ("config", "history"),
    [
        ({"max_age": SECOND}, expired),
        ({}, purged),
        ({}, purged_but_some),
        ({"max_msgs": KEPT}, limited),
    ],
)
def test_a_full_subject_excuses_no_other(
    site: Site, config: dict[str, Any], history: Callable[[Site, str], None], direct: bool
) -> None:
    name = f"{history.__name__}{direct}".lower()
    site.create(name, max_msgs_per_subject=KEPT, allow_direct=direct, **config)
    site.publish(messages(name, ["first"]), name)
    query = Query(site, stream=name, startingOffsets="1")
    assert query.batch() == [1]
    at = query.at
    history(site, name)
    with pytest.raises(DataLossError, match="but 2 was to be read"):
        query.batch()
    tolerant = Query(site, at, stream=name, failOnDataLoss="false")
    assert tolerant.batch() == [s for s in range(2, 100) if site.js.message_at(name, s) is not None]


def test_a_subject_that_is_full_excuses_what_is_gone_of_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    name = "excused"
    site.create(name, max_msgs_per_subject=KEPT)
    site.publish(messages(name, ["hot", "warm"] * 5), name)

    def read(filters: str) -> list[int]:
        reader = site.reader(stream=name, startingOffsets="1", filterSubjects=filters)
        splits = reader.partitions()
        hot(site, name)
        site.purge(name, 9)
        return seqs_of(reader, splits)

    with pytest.raises(DataLossError):
        read(f"{name}.hot,{name}.warm")  # two are as good as any: one of them is not full
    site.remove(name)
    site.create(name, max_msgs_per_subject=KEPT)
    site.publish(messages(name, ["hot", "warm"] * 5), name)
    assert read(f"{name}.hot") == []
    assert "newer messages of their subjects took their place" in caplog.text
    site.remove(name)
    site.create(name, max_msgs_per_subject=KEPT)
    site.publish(messages(name, ["hot", "warm"] * 5), name)
    with pytest.raises(DataLossError):
        read("*.*")


def test_what_is_missing_in_the_middle_is_counted(site: Site) -> None:
    """Purges of a subject, deletes and acks leave the same holes behind."""
    for direct in (True, False):
        name = f"holes{direct}".lower()
        site.create(name, allow_direct=direct)
        site.publish(messages(name, ["a", "b", "b"] * 100), name)
        query = Query(site, stream=name, startingOffsets="earliest", maxOffsetsPerTrigger="150")
        site.js.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.b"})
        assert len(query.batch()) == 50
        assert query.place(name)["missing"] == 100
        assert len(query.batch()) == 50
        assert query.place(name)["missing"] == 200
        assert site.consumers(name) == []


def test_acks_in_the_middle_of_a_work_queue_are_counted(site: Site) -> None:
    name = "acked"
    site.create(name, retention="workqueue")
    site.publish(messages(name, ["a", "b"] * 50), name)
    query = Query(site, stream=name, startingOffsets="1")
    site.delete(name, *range(2, 100, 2))
    assert query.batch() == [*range(1, 101, 2), 100]
    assert query.place(name)["missing"] == 49
    site.publish(messages(name, ["a"] * 3), name)
    assert query.batch() == [101, 102, 103]
    assert query.place(name)["missing"] == 49


def test_an_archive_tells_how_many_sequences_have_no_message(site: Site, tmp_path: Path) -> None:
    name = "sparse"
    site.create(name)
    site.publish(messages(name, ["a", "b"] * 50), name)
    site.js.api(f"STREAM.PURGE.{name}", {"filter": f"{name}.b"})
    given = {"servers": site.server.url, "stream": name}
    made = archive(ArchiveOptions.read(given, "a test"), str(tmp_path), processes=1)
    assert (made.rows, made.missing, made.lost) == (50, 50, 0)
    assert "50 of the new ones have no message" in archiving.told(made)


@pytest.mark.parametrize("filters", ["{}.new.>", "{}.new.*"])
def test_filters_apply_to_what_a_stream_took_before(site: Site, filters: str) -> None:
    name = "moved"
    site.create(name, subjects=[f"{name}.old.>"])
    site.publish(messages(name, ["old.x"] * 10), name)
    update = {"name": name, "subjects": [f"{name}.new.>"], "allow_direct": True}
    site.js.api(f"STREAM.UPDATE.{name}", update)
    site.publish(messages(name, ["new.x"] * 5), name)
    table = site.read(stream=name, filterSubjects=filters.replace("{}", name))
    assert table["seq"].to_pylist() == list(range(11, 16))
    site.remove(name)


def test_filters_apply_to_subjects_as_they_are_stored(site: Site) -> None:
    name = "mapped"
    transform = {"src": "mapd.*", "dest": "stored.{{wildcard(1)}}"}
    site.create(name, subjects=["mapd.*"], subject_transform=transform)
    site.publish([(f"mapd.{i}", b"", b"x") for i in range(30)], name)
    assert site.read(stream=name, filterSubjects="stored.>").num_rows == 30
    reader = site.reader(stream=name, filterSubjects="mapd.>")
    assert seqs_of(reader, reader.partitions()) == []
    site.remove(name)
