"""Waiting for what happens in other threads and processes."""

import time
from collections.abc import Callable

import pytest


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Returns once the condition holds; AssertionError with `what` when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


def call_at_sleep(
    patch: pytest.MonkeyPatch, number: int, call: Callable[[], object]
) -> list[float]:
    """Nothing sleeps while it is patched; the number-th time.sleep calls. The seconds asked for."""
    asked: list[float] = []

    def sleep(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) == number:
            call()

    patch.setattr(time, "sleep", sleep)
    return asked
