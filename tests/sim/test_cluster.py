"""Random histories of whole clusters: every acked message is on every replica, once.

`CLUSTER_SEEDS` (60): how many seeds of each kind, beginning with `CLUSTER_FIRST` (1);
`CLUSTER_SEED` repeats a single one. Long runs print their progress.
"""

import os
import subprocess
import sys

import pytest

from tests.sim.cluster import history
from tests.sim.cluster_kinds import KINDS
from tests.sim.notes import Wrong
from tests.sim.seeds import play

FIRST = int(os.environ.get("CLUSTER_FIRST", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("CLUSTER_SEEDS", "60")))
TEST = "tests/sim/test_cluster.py::test_what_is_acked_is_on_every_replica"
LIAR_SEEDS = 20


@pytest.mark.timeout(36000)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_acked_is_on_every_replica(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    play("CLUSTER_SEED", SEEDS, history, kind, TEST, capfd)


def test_disks_that_ignore_syncs_are_caught() -> None:
    for seed in range(1, LIAR_SEEDS + 1):
        try:
            history(seed, "three", ignores_syncs=True)
        except Wrong:
            return
    pytest.fail(f"{LIAR_SEEDS} histories without syncs were right")


PRINT = "from tests.sim.cluster import history; print(history(7, {!r}).trace())"


def test_a_seed_is_the_same_history_every_time() -> None:
    """In another process, too: no address, clock or hash has any influence."""
    once = subprocess.run(
        [sys.executable, "-c", PRINT.format("three")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert once.stdout.strip() == history(7, "three").trace()
