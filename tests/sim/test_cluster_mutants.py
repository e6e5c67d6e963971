"""Rules that keep a cluster whole, each broken in turn: some history notices it.

`CLUSTER_MUTANT_SEEDS` (0: nothing is built): how many seeds to try; `make soak` tries 200.
"""

import os

import pytest

from tests.sim.cluster_mutants import MUTANTS, build, caught

SEEDS = int(os.environ.get("CLUSTER_MUTANT_SEEDS", "0"))
UNSEEN = (
    "entries of former terms are not committed by counting",
    "a log lets go what a snapshot stands for when that is on disk",
    "a log begins behind what the stream's store has on disk",
    "a stream's leader has applied all that its log has",
    "members become the same as a leader that one of them took messages from",
)
"""Rules whose breach no 200 histories are known to notice. `tests/raft` notices those of the Raft
layer, `test_cluster_catchup.py` the last one."""

pytestmark = pytest.mark.skipif(not SEEDS, reason="CLUSTER_MUTANT_SEEDS is 0")


@pytest.fixture(scope="module")
def _built() -> None:
    build()


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("number", range(1, len(MUTANTS) + 1), ids=[m.rule for m in MUTANTS])
def test_a_broken_rule_is_seen(number: int) -> None:
    rule = MUTANTS[number - 1].rule
    if rule in UNSEEN:
        pytest.skip("no history is known to meet it")
    assert caught(number, SEEDS), rule


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_built")
def test_nothing_is_seen_where_no_rule_is_broken() -> None:
    assert caught(0, 20) == ""
