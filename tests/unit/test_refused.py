"""Refused requests in the log: each line once in a while, and not too many of them."""

import pytest

from jsserver.api import refused
from jsserver.api.refused import LINES_MAX, PERIOD, RefusedRequests
from jsserver.wire import errcodes


def test_the_log_has_so_many_lines_in_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(refused, "time", type("Clock", (), {"monotonic": lambda: now}))
    requests = RefusedRequests()

    def told(*numbers: int) -> list[str]:
        caplog.clear()
        for n in numbers:
            requests.seen("A", b"s.%d" % n, errcodes.INVALID_JSON(err="why"))
        return [record.getMessage() for record in caplog.records]

    def line(n: int) -> str:
        return f"Invalid JetStream request 'A > s.{n}': why"

    many = range(LINES_MAX + 5)
    assert told(1, 1, 2) == [line(1), line(2)]
    assert told(*many) == [line(n) for n in many if n not in (1, 2)][: LINES_MAX - 2]
    now += PERIOD / 2
    assert told(1, 99) == []
    now += PERIOD / 2
    assert told(1, 2) == [f"{line(1)} (and 6 other requests before)", line(2)]
