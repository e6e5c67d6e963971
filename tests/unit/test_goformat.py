"""The Go text forms: durations, quoting, times, JSON escapes."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver.text import goformat as go


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (1_100_000, "1.1ms"),
        (2 * go.SECOND, "2s"),
        (2_500_000_000, "2.5s"),
        (go.MINUTE, "1m0s"),
        (5 * go.MINUTE + 1, "5m0.000000001s"),
        (go.HOUR, "1h0m0s"),
        (26 * go.HOUR + go.MINUTE + 30 * go.SECOND, "26h1m30s"),
        (-2_500_000, "-2.5ms"),
        (-go.HOUR, "-1h0m0s"),
        (150_959_137, "150.959137ms"),
    ],
)
def test_duration_text(ns: int, text: str) -> None:
    assert go.duration(ns) == text


@settings(deadline=None)
@given(st.integers(-go.MAX_DURATION, go.MAX_DURATION))
def test_duration_text_parses_back(ns: int) -> None:
    assert go.parse_duration(go.duration(ns)) == ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("+0", 0),
        ("1.5h", 90 * go.MINUTE),
        ("2h45m", 165 * go.MINUTE),
        (".5s", 500_000_000),
        ("1.s", go.SECOND),
        ("-1ms", -1_000_000),
        ("300us", 300_000),
        ("1h1h", 2 * go.HOUR),
    ],
)
def test_parse_duration(text: str, ns: int) -> None:
    assert go.parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("5", 'time: missing unit in duration "5"'),
        ("2x", 'time: unknown unit "x" in duration "2x"'),
        ("1s ", 'time: unknown unit "s " in duration "1s "'),
        (".s", 'time: invalid duration ".s"'),
        ("é", 'time: invalid duration "\\xc3\\xa9"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
    ],
)
def test_parse_duration_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        go.parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("abc", '"abc"'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("\r\n\t\x00\x7f", '"\\r\\n\\t\\x00\\x7f"'),
        ("é☺", '"é☺"'),
        ("\u00a0\u2028", '"\\u00a0\\u2028"'),
        ("\U000e0001", '"\\U000e0001"'),
        (b"\xff\x01ok", '"\\xff\\x01ok"'),
    ],
)
def test_quote(text: str | bytes, quoted: str) -> None:
    assert go.quote(text) == quoted


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_462_388_021_120_000_000, "2016-05-04T18:53:41.12Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-62_135_596_800 * go.SECOND, go.ZERO_TIME),
    ],
)
def test_times(ns: int, text: str) -> None:
    assert go.rfc3339_nano(ns) == text
    assert go.parse_rfc3339(text) == ns


def test_time_with_offset() -> None:
    assert go.parse_rfc3339("1970-01-01T02:00:00.5+02:00") == 500_000_000
    assert go.parse_rfc3339("1969-12-31T23:30:00-00:30") == 0


def test_times_that_64_bits_cannot_tell() -> None:
    for text in ("0000-02-29T00:00:00Z", "0001-01-01T00:00:00Z", "1677-09-21T00:12:43Z"):
        assert go.rfc3339_nano(go.parse_rfc3339(text)) == text
        assert go.instant(text) == go.EARLIEST
    for text in ("9999-12-31T23:59:59.5Z", "2262-04-11T23:47:17Z"):
        assert go.rfc3339_nano(go.parse_rfc3339(text)) == text
        assert go.instant(text) == go.LATEST
    assert go.instant("1970-01-01T00:00:01,5Z") == 1_500_000_000
    beyond = go.parse_rfc3339("9999-12-31T23:59:59-23:59")
    assert go.rfc3339_nano(beyond) == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(
    "text",
    ["", "now", "1970-01-01", "1970-01-01 00:00:00Z", "1970-13-01T00:00:00Z", "1970-01-01T00:00:00",
     "1970-01-01T00:00:00.Z", "1970-01-01T00:00:00+0200", "1970-01-01T24:00:00Z"],
)  # fmt: skip
def test_bad_times(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        go.parse_rfc3339(text)


def test_escape_json() -> None:
    raw = '{"a":"<b>&\u2028\u2029 é"}'.encode()
    assert go.escape_json(raw) == '{"a":"\\u003cb\\u003e\\u0026\\u2028\\u2029 é"}'.encode()


def test_uptime_and_sizes() -> None:
    assert go.uptime(5 * go.SECOND + 1) == "5s"
    assert go.uptime(125 * go.SECOND) == "2m5s"
    assert go.uptime(27 * go.HOUR + 125 * go.SECOND) == "1d3h2m5s"
    assert go.uptime(367 * 24 * go.HOUR) == "1y2d0h0m0s"
    assert go.byte_size(1023) == "1023 B"
    assert go.byte_size(1024) == "1.00 KB"
    assert go.byte_size(18_962_282_905) == "17.66 GB"


def test_a_json_string_is_what_msgspec_and_escape_json_make() -> None:
    text = "".join(map(chr, (*range(0x300), *range(0x2000, 0x2100), 0x1F600)))
    assert go.json_string(text).encode() == go.escape_json(msgspec.json.encode(text))


def test_bytes_in_json() -> None:
    for raw, text in (
        (b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "aé€😀"),
        (b"\xe2\x82a", "\ufffd\ufffda"),
        (b"\xf0\x9f\x98.\x82", "\ufffd\ufffd\ufffd.\ufffd"),
        (b"\xed\xa0\x80", "\ufffd" * 3),
        (b"", ""),
    ):
        assert go.json_text(raw) == text
