"""Reports: sums that are right however they are added up, tables, and a page that stands alone."""

import json
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsserver_spark.errors import NatsError, OptionError
from jsserver_spark.jobs.page import nice, page
from jsserver_spark.jobs.report import Report, ReportOptions, report, tables
from jsserver_spark.jobs.survey import BUCKETS_MAX, SUBJECTS_MAX, Survey, survey
from pipeline.tests.jobs_world import (
    DAY_NS,
    NOON,
    Place,
    Row,
    add,
    api,
    batches,
    create,
    done,
    job,
    new_archive,
    publish,
    some_messages,
)
from pipeline.tests.test_jobs_archive import archived
from tests.servers import Server

HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"
rows_of = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 10**13),
        st.sampled_from(["a", "b.c", "ü"]),
        st.sampled_from([b"", HEADER]),
        st.binary(max_size=40),
    ),
    max_size=60,
)


@given(given_rows=rows_of, cut=st.integers(0, 60))
def test_parts_add_up(given_rows: list[tuple[int, int, str, bytes, bytes]], cut: int) -> None:
    rows, seq = [], 0
    for step, ts, subject, header, data in given_rows:
        seq += step
        rows.append(Row(seq, NOON + ts, subject, header, data))
    middle = rows[cut].seq - 1 if cut < len(rows) else seq
    last = seq + 2
    whole = Survey()
    for first, end in ((1, middle), (middle + 1, last)):
        part = [row for row in rows if first <= row.seq <= end]
        whole.add(survey(batches(part, 7), first, end))
    sizes = [len(r.subject.encode()) + len(r.header) + len(r.data) for r in rows]
    assert (whole.total.messages, whole.total.bytes) == (len(rows), sum(sizes))
    assert whole.with_headers == sum(bool(row.header) for row in rows)
    assert whole.largest == max((len(row.data) for row in rows), default=0)
    assert sum(count.messages for count in whole.times.values()) == len(rows)
    assert sum(count.bytes for count in whole.times.values()) == sum(sizes)
    assert len(whole.times) <= BUCKETS_MAX
    by_subject = {s: count.messages for s, count in whole.subjects.items()}
    assert by_subject == Counter(row.subject for row in rows)
    assert whole.sizes == Counter(len(row.data).bit_length() for row in rows)
    missing = set(range(1, last + 1)) - {row.seq for row in rows}
    assert {s for a, b in whole.gaps for s in range(a, b + 1)} == missing
    assert whole.missing == len(missing)


def test_many_subjects_take_bounded_memory() -> None:
    count = 3 * SUBJECTS_MAX
    rows = [Row(i, NOON, f"s.{i}") for i in range(1, count + 1)]
    rows += [Row(count + i, NOON, "s.often") for i in range(1, 50)]
    found = survey(batches(rows[count:], 1000), count + 1, count + 49)
    found.add(survey(batches(rows[:count], 1000), 1, count))
    assert len(found.subjects) <= 2 * SUBJECTS_MAX
    assert found.subjects["s.often"].messages == 49
    kept = sum(c.messages for c in found.subjects.values())
    assert kept + found.others.messages == count + 49


def made_up(tmp_path: Path) -> Report:
    place = Place(str(tmp_path))
    archive = new_archive(place)
    rows = [
        Row(i, NOON + i * 10**9, f"S.<{i % 30}>&", HEADER if i % 2 else b"", b"x" * (i % 700))
        for i in range(1, 901)
        if not 300 <= i < 350
    ]
    archive = add(place, archive, rows, 900)
    add(place, archive, [Row(901, NOON + DAY_NS)], 901)
    return report(ReportOptions(stream="S"), str(tmp_path), processes=1)


def test_tables_say_what_is_there(tmp_path: Path) -> None:
    text = tables(made_up(tmp_path))
    assert "851 messages" in text
    assert "50 sequences without a message: 300-349" in text
    assert re.search(r"2024-10-04 +1 +850 ", text)
    assert "S.<29>&" in text and "... 11 more" in text


def test_the_page_stands_alone(tmp_path: Path) -> None:
    text = page(made_up(tmp_path))
    assert "<script" not in text and "http" not in text and "src=" not in text
    body = text[text.index("<body>") :].replace("</html>", "")
    root = ElementTree.fromstring(body.strip())
    assert len(root.findall(".//svg")) == 3
    assert "S.<29>&" in "".join(root.itertext())
    bars = root.findall(".//svg[1]/rect")
    assert bars and all(float(bar.get("height", "0")) > 0 for bar in bars)
    heads = [head.text for head in root.findall("h2")]
    assert heads[:3] == ["Messages per second", "Bytes per second", "Top subjects"]


def test_an_empty_stream_has_a_page(js_server: Server) -> None:
    create(js_server, "VOID")
    made = report(ReportOptions(servers=(js_server.url,), stream="VOID"), processes=1)
    assert made.found.total.messages == 0
    assert "no gaps" in tables(made)
    assert "<svg" not in page(made)


def test_an_archive_and_what_came_behind_it(js_server: Server, tmp_path: Path) -> None:
    create(js_server, "BOTH")
    publish(js_server, "BOTH", some_messages(1000, "BOTH"))
    archived(js_server, "BOTH", tmp_path, flush_rows=300)
    publish(js_server, "BOTH", some_messages(200, "BOTH"))
    api(js_server, "STREAM.PURGE.BOTH", {"seq": 901})
    options = ReportOptions(servers=(js_server.url,), stream="BOTH")
    cold = report(options, str(tmp_path), processes=1)
    live = report(options, processes=2)
    both = report(options, str(tmp_path), live=True, processes=2)
    assert [r.found.total.messages for r in (cold, live, both)] == [1000, 300, 1200]
    assert (both.first, both.last, both.source, both.found.missing) == (1, 1200, "both", 0)
    assert (live.first, live.last) == (901, 1200)


def test_the_command(tmp_path: Path) -> None:
    made_up(tmp_path)
    words = (str(tmp_path), "--stream", "S", "--processes", "1")
    file = tmp_path / "page.html"
    code, out, err = done(job("report", *words, "--json", "--html", str(file)))
    assert (code, err) == (0, "")
    found = json.loads(out)["found"]
    assert found["messages"] == 851 and found["gaps"] == [[300, 349]]
    assert sum(span["messages"] for span in found["times"]) == 851
    assert file.read_text().startswith("<!DOCTYPE html>")
    code, out, err = done(job("report", *words, "--html", str(tmp_path / "no" / "page.html")))
    assert (code, out) == (2, "") and "No such file" in err
    with pytest.raises(NatsError, match="no archive"):
        report(ReportOptions(stream="T"), str(tmp_path))


def test_the_only_stream_need_not_be_named(tmp_path: Path) -> None:
    made_up(tmp_path)
    assert report(ReportOptions(), str(tmp_path), processes=1).stream == "S"
    code, out, _ = done(job("report", str(tmp_path), "--processes", "1"))
    assert code == 0 and out.startswith("S (archive): sequences 1 to 901")
    place = Place(str(tmp_path))
    add(place, new_archive(place, "T"), [Row(1, NOON)], 1)
    with pytest.raises(OptionError, match=r"'stream' is missing: archived are S, T"):
        report(ReportOptions(), str(tmp_path))
    with pytest.raises(OptionError, match="'stream' is missing"):
        report(ReportOptions())


def test_axes_end_at_round_numbers() -> None:
    assert [nice(v) for v in (0, 1, 1.1, 2.3, 3, 7, 99, 100, 101)] == [
        1,
        1,
        2,
        2.5,
        5,
        10,
        100,
        100,
        200,
    ]
