"""Histories of groups, one a seed: nothing that was applied anywhere is lost or becomes another.

`RAFT_SEEDS` (8) says how many of each size, from `RAFT_FIRST` (1) on; `RAFT_SEED` repeats one.
"""

import os

import pytest

from tests.raft.promises import Broken
from tests.raft.world import history

SEEDS = int(os.environ.get("RAFT_SEEDS", "8"))
FIRST = int(os.environ.get("RAFT_FIRST", "1"))
REPEAT = (
    "RAFT_SEED={} .venv/bin/python -m pytest "
    "'tests/raft/test_histories.py::test_what_raft_promises_holds[{}]'"
)


@pytest.mark.parametrize("n", [3, 5])
def test_what_raft_promises_holds(n: int) -> None:
    only = os.environ.get("RAFT_SEED")
    for seed in [int(only)] if only else range(FIRST, FIRST + SEEDS):
        try:
            history(seed, n)
        except Broken as e:
            pytest.fail(f"seed {seed}: {e}\n{REPEAT.format(seed, n)}")
