"""Python's search for garbage, kept from stopping the server: it looks at all objects there are."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

LONGEST_SECONDS = 0.02
"""Of a full search. Where one takes longer, no later one looks at what it found in use."""
MANY = 100_000
"""New objects, which a search takes some ten milliseconds to look at."""

_began = 0.0
_lock = Lock()
_pauses = 0
"""Those that have not ended."""


def begin() -> None:
    """Switches the search on. What a start made lives as long as the server, and is left out even
    once, as the first clients would wait for it; what of that is garbage is a few kilobytes."""
    gc.freeze()
    gc.callbacks.append(_watch)
    gc.enable()


@contextmanager
def paused(*, stays: bool = False) -> Iterator[None]:
    """There is no search meanwhile, in any thread: each would look at much of what is made here
    again and again. `stays`: what is made does, and where it is much none looks at it later."""
    global _pauses
    with _lock:
        _pauses += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if stays and gc.get_count()[0] > MANY:
                gc.freeze()
            if _pauses == 0:
                gc.enable()


def _watch(phase: str, info: dict[str, Any]) -> None:
    """What is left out is freed as ever when nobody refers to it; only what refers to itself in a
    circle stays. Of streams and consumers, which are most of what there is, nothing does."""
    global _began
    if info["generation"] < 2:
        return
    if phase == "start":
        _began = time.thread_time()
    elif time.thread_time() - _began > LONGEST_SECONDS:
        gc.freeze()
