"""The times of day that a token's user may be there, and when it has to leave."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from jsserver.access.operator import Place, admission_of
from jsserver.access.refusal import Refused
from jsserver.jwt.claims import TimeRange, User, UserBody

PLACE = Place("A", None, None)
DAY = "2026-03-11"
"""No clock is changed on it."""


def stays(clock: str, *windows: str, zone: str = "Europe/Berlin", day: str = DAY) -> float | None:
    """For how many seconds somebody may stay who comes at this time; None: not at all."""
    times = [TimeRange(*window.split("-")) for window in windows]
    user = User(nats=UserBody(times=times, times_location=zone))
    moment = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=ZoneInfo(zone))
    try:
        return admission_of(user, PLACE, moment.timestamp()).lasts
    except Refused:
        return None


@pytest.mark.parametrize(
    ("clock", "window", "seconds"),
    [
        ("13:00:00", "11:00:00-22:00:00", 9 * 3600),
        ("10:59:59", "11:00:00-22:00:00", None),
        ("11:00:00", "11:00:00-22:00:00", None),
        ("11:00:01", "11:00:00-22:00:00", 11 * 3600 - 1),
        ("21:59:59", "11:00:00-22:00:00", 1),
        ("22:00:00", "11:00:00-22:00:00", None),
        ("23:30:00", "22:00:00-06:00:00", 6.5 * 3600),
        ("22:00:00", "22:00:00-06:00:00", None),
        ("00:00:00", "22:00:00-06:00:00", 6 * 3600),
        ("05:00:00", "22:00:00-06:00:00", 3600),
        ("06:00:00", "22:00:00-06:00:00", None),
        ("12:00:00", "22:00:00-06:00:00", None),
        ("12:00:00", "00:00:00-00:00:00", None),
        ("12:00:00", "12:00:01-12:00:00", None),
        ("12:00:02", "12:00:01-12:00:00", 24 * 3600 - 2),
        ("23:59:59", "23:59:58-00:00:00", 1),
    ],
)
def test_windows(clock: str, window: str, seconds: float | None) -> None:
    assert stays(clock, window) == seconds


def test_the_longest_of_several_counts() -> None:
    windows = ("08:00:00-10:00:00", "09:00:00-12:00:00", "20:00:00-09:31:00")
    assert stays("09:30:00", *windows) == 2.5 * 3600
    assert stays("21:00:00", *windows) == 12.5 * 3600 + 60
    assert stays("12:30:00", *windows) is None


def test_zones_have_their_own_midnight() -> None:
    assert stays("00:30:00", "23:00:00-01:00:00", zone="Pacific/Kiritimati") == 1800
    assert stays("00:30:00", "23:00:00-01:00:00", zone="America/New_York") == 1800


@pytest.mark.parametrize(
    ("day", "hours"),
    [("2026-03-28", 7), ("2026-03-29", 8), ("2026-10-24", 9)],
    ids=["an hour less", "no change any more", "an hour more"],
)
def test_nights_in_which_the_clock_is_changed(day: str, hours: int) -> None:
    """Who comes at ten in the evening and may stay until six."""
    assert stays("22:00:01", "22:00:00-06:00:00", day=day) == hours * 3600 - 1
