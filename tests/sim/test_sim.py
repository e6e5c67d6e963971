"""Histories of streams on a simulated disk, one a seed.

`SIM_SEEDS` (300) says how many, from `SIM_FIRST` (1) on; `SIM_SEED` repeats one.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sim.world import Wrong, run

SEEDS = int(os.environ.get("SIM_SEEDS", "300"))
FIRST = int(os.environ.get("SIM_FIRST", "1"))
LIAR_SEEDS = 20


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What cannot be written on a dead disk is no news."""
    logger = logging.getLogger("jsserver.consumers")
    logger.disabled = True
    yield
    logger.disabled = False


@pytest.mark.timeout(3600)
def test_nothing_acked_is_lost_and_nothing_comes_back() -> None:
    if "SIM_SEED" in os.environ:
        run(int(os.environ["SIM_SEED"]))
        return
    wrong = []
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            run(seed)
        except Wrong as found:
            wrong.append(str(found))
    assert not wrong, f"{len(wrong)} of {SEEDS} seeds:\n" + "\n".join(wrong[:10])


def test_a_disk_that_ignores_syncs_is_caught() -> None:
    caught = 0
    for seed in range(LIAR_SEEDS):
        try:
            run(seed, ignores_syncs=True)
        except Exception:
            caught += 1
    assert caught > 0


PRINT = "from tests.sim.world import run; print(run(7).trace())"


def test_a_seed_is_the_same_history_every_time() -> None:
    """In another process too: nothing of it hangs on an address, a clock or a hash."""
    once = subprocess.run(
        [sys.executable, "-c", PRINT], capture_output=True, text=True, timeout=60, check=True
    )
    assert once.stdout.strip() == run(7).trace()
