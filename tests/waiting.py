"""Waiting for what happens in other threads and processes."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Returns once the condition holds; AssertionError with `what` when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)
