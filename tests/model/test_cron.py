"""When a pattern is due, against the clocks of Python's time zones, second by second."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.cext.stream import pattern_due, zone_offset_at

SECOND = 10**9
ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"),
    *("America/Sao_Paulo", "Africa/Casablanca", "Pacific/Auckland", "America/St_Johns"),
)
NAMES = {
    4: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    5: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
RANGES = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
STARTS = st.integers(1_500_000_000, 2_500_000_000)


def due(pattern: str, base: int, zone: str | None = None) -> int | None:
    """In seconds; the base is never in the past."""
    found = pattern_due(pattern.encode(), None if zone is None else zone.encode(), base * SECOND, 0)
    return None if found is None else found[0] // SECOND


@st.composite
def fields(draw, at: int) -> tuple[str, frozenset[int], bool]:
    """A field's text, what it means, and whether any will do."""
    low, high = RANGES[at]
    kind = draw(st.integers(0, 5))
    if kind <= 1:
        return draw(st.sampled_from(["*", "?", "*/1"])), frozenset(range(low, high + 1)), True
    if kind == 2:
        step = draw(st.integers(2, 20))
        return f"*/{step}", frozenset(range(low, high + 1, step)), False
    texts, values = [], set()
    for _ in range(draw(st.integers(1, 3))):
        a = draw(st.integers(low, high))
        b = draw(st.integers(a, high))
        step = draw(st.integers(1, 5))
        first = NAMES[at][a - low].title() if at in NAMES and draw(st.booleans()) else str(a)
        form = draw(st.integers(0, 3))
        if form == 0:
            texts.append(first)
            values.add(a)
        elif form == 1:
            texts.append(f"{first}-{b}")
            values |= set(range(a, b + 1))
        elif form == 2:
            texts.append(f"{first}-{b}/{step}")
            values |= set(range(a, b + 1, step))
        else:
            texts.append(f"{first}/{step}")
            values |= set(range(a, high + 1, step))
    return ",".join(texts), frozenset(values), False


def fits(t: datetime, parsed: list[tuple[str, frozenset[int], bool]]) -> bool:
    month = t.day in parsed[3][1]
    week = t.isoweekday() % 7 in parsed[5][1]
    day = month and week if parsed[3][2] or parsed[5][2] else month or week
    return day and t.month in parsed[4][1] and t.hour in parsed[2][1] and t.minute in parsed[1][1]


@settings(max_examples=150, deadline=None)
@given(st.tuples(*(fields(at) for at in range(6))), STARTS, st.sampled_from(ZONES))
def test_against_the_clock(parsed, base: int, zone: str) -> None:
    pattern = " ".join(text for text, _, _ in parsed)
    found = due(pattern, base, zone)
    seconds = sorted(parsed[0][1])
    clock = ZoneInfo(zone)
    # By minutes, whose seconds all look alike: offsets are whole minutes.
    for minute in range((base + 1) // 60, (base + 1) // 60 + 3 * 1440):
        if fits(datetime.fromtimestamp(minute * 60, clock), list(parsed)):
            later = [minute * 60 + s for s in seconds if minute * 60 + s > base]
            if later:
                assert found == later[0]
                return
    assert found is None or found >= ((base + 1) // 60 + 3 * 1440) * 60
    if found is not None:
        t = datetime.fromtimestamp(found, clock)
        assert fits(t, list(parsed)) and t.second in parsed[0][1]


@settings(max_examples=300, deadline=None)
@given(st.integers(-2_000_000_000, 8_000_000_000), st.sampled_from(ZONES))
def test_offsets(t: int, zone: str) -> None:
    wanted = datetime.fromtimestamp(t, ZoneInfo(zone)).utcoffset()
    assert wanted is not None
    found = zone_offset_at(zone.encode(), t)
    assert found is not None
    offset, until = found
    assert offset == wanted.total_seconds()
    assert until > t
    assume(until < 8_000_000_000)
    before = datetime.fromtimestamp(until - 1, ZoneInfo(zone)).utcoffset()
    assert before == wanted


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("@yearly", datetime(2026, 1, 1)),
        ("@annually", datetime(2026, 1, 1)),
        ("@monthly", datetime(2025, 3, 1)),
        ("@weekly", datetime(2025, 2, 23)),
        ("@daily", datetime(2025, 2, 18)),
        ("@midnight", datetime(2025, 2, 18)),
        ("@hourly", datetime(2025, 2, 17, 14)),
        ("0 0 0 29 2 *", datetime(2028, 2, 29)),
        ("0 0 0 31 * *", datetime(2025, 3, 31)),
        ("59 59 23 31 DEC ?", datetime(2025, 12, 31, 23, 59, 59)),
        ("  5\t*  * * *   *  ", datetime(2025, 2, 17, 13, 0, 5)),
        ("0 30 9 * * mon-fri", datetime(2025, 2, 18, 9, 30)),
        ("0 0 0 1,15 * Sun", datetime(2025, 2, 23)),
        ("+5 05 *-3 * * *", datetime(2025, 2, 17, 13, 5, 5)),
        (",5,,6, * * * * *", datetime(2025, 2, 17, 13, 0, 5)),
        ("@at 2030-01-01T00:00:00+01:00", datetime(2029, 12, 31, 23)),
        ("@every 1h30m", datetime(2025, 2, 17, 14, 30, 1)),
        ("@every 1.5s", datetime(2025, 2, 17, 13, 0, 2)),
    ],
)
def test_words_and_forms(pattern: str, wanted: datetime) -> None:
    base = int(datetime(2025, 2, 17, 13, 0, 1, tzinfo=UTC).timestamp())
    assert due(pattern, base) == int(wanted.replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "x", "@", "@at", "@at ", "@at x", "@at 2025-02-30T00:00:00Z", "@every", "@every 1"),
        *("@every 999ms", "@every -5s", "@every 0", "@Yearly", "@daily ", "* * * * *"),
        *("* * * * * * *", "60 * * * * *", "* 60 * * * *", "* * 24 * * *", "* * * 0 * *"),
        *("* * * 32 * *", "* * * * 0 *", "* * * * 13 *", "* * * * * 7", "-1 * * * * *"),
        *("5-1 * * * * *", "*/0 * * * * *", "1/2/3 * * * * *", "1-2-3 * * * * *", "a * * * * *"),
        *("jan * * * * *", "* * * * sun *", "* * * * * jan", "1- * * * * *", "-5 * * * * *"),
        *(", * * * * *", "0 0 0 30 2 *", "0 0 0 31 4,6,9,11 *", "*5 * * * * *", "1.5 * * * * *"),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    assert due(pattern, 1_700_000_000) is None


def test_hours_that_are_left_out_and_shown_twice() -> None:
    spring = int(datetime(2025, 3, 30, 0, tzinfo=UTC).timestamp())
    assert due("0 30 2 * * *", spring, "Europe/Berlin") == int(
        datetime(2025, 3, 31, 0, 30, tzinfo=UTC).timestamp()
    )
    autumn = datetime(2025, 10, 26, 0, tzinfo=UTC)
    first = due("0 30 2 * * *", int(autumn.timestamp()), "Europe/Berlin")
    assert first == int((autumn + timedelta(minutes=30)).timestamp())
    assert due("0 30 2 * * *", first, "Europe/Berlin") == first + 3600


def test_what_was_missed_is_made_up_for_once() -> None:
    start, now = 1_700_000_000, 1_700_010_007
    found = pattern_due(b"@every 1m", None, start * SECOND, now * SECOND)
    assert found == ((now + 60) * SECOND, True)
    found = pattern_due(b"0 * * * * *", None, start * SECOND, now * SECOND)
    assert found == (1_700_010_060 // 60 * 60 * SECOND, True)
    found = pattern_due(b"@at 2020-01-01T00:00:00Z", None, start * SECOND, now * SECOND)
    assert found is not None and found[1] is False and found[0] < start * SECOND


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Nowhere",
        "europe/berlin",
        "Europe",
        "../etc/passwd",
        "/etc/localtime",
        "Europe/../UTC",
        "a" * 99,
    ],
)
def test_what_is_no_zone(zone: str) -> None:
    assert due("0 * * * * *", 1_700_000_000, zone) is None
    assert due("0 * * * * *", 1_700_000_000, "Local") is not None


@pytest.mark.parametrize("pattern", ["@every 5s", "@at 2030-01-01T00:00:00Z"])
def test_a_zone_is_for_cron_alone(pattern: str) -> None:
    assert due(pattern, 1_700_000_000, "UTC") is None
