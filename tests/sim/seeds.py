"""Plays histories of many seeds, and says which of them are wrong."""

import gc
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.sim.notes import Wrong

PROGRESS = 30.0
"""Seconds between two lines that say how far a run is."""


def play(
    name: str,
    seeds: Sequence[int],
    history: Callable[[int, str], Any],
    kind: str,
    test: str,
    capfd: Any,
) -> None:
    """Plays a history of this kind for each seed; or, where the environment has a seed in `name`,
    that alone. `test`: where it is in the suite, for the line that repeats a history."""
    if name in os.environ:
        history(int(os.environ[name]), kind)
        return
    wrong: list[str] = []
    told = time.monotonic()
    gc.freeze()  # so that to collect a world means to look at that world alone
    try:
        for at, seed in enumerate(seeds):
            if time.monotonic() - told > PROGRESS:
                told = time.monotonic()
                with capfd.disabled():
                    print(f"\n{kind}: {at} of {len(seeds)} seeds, {len(wrong)} wrong; at {seed}")
            try:
                history(seed, kind)
            except Wrong as found:
                repeat = f"{name}={seed} .venv/bin/python -m pytest '{test}[{kind}]'"
                wrong.append(f"{found}\n  repeat: {repeat}")
                with capfd.disabled():
                    print(f"\n{wrong[-1]}")
            gc.collect()  # a world is a circle of objects that hold 25 MB
    finally:
        gc.unfreeze()
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(seeds)} seeds:\n" + "\n".join(wrong[:10]))
