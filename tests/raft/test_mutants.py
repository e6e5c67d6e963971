"""Each rule that the raft layer keeps, broken in turn: the histories of a few seeds show it.

`RAFT_MUTANT_SEEDS` (20) says how many there may be, 0: nothing is built; `make soak` has 200.
"""

import os

import pytest

from tests.raft.mutants import MUTANTS, build, caught

SEEDS = int(os.environ.get("RAFT_MUTANT_SEEDS", "20"))

pytestmark = [
    pytest.mark.skipif(not SEEDS, reason="RAFT_MUTANT_SEEDS is 0"),
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def _built() -> None:
    build()


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("number", range(1, len(MUTANTS) + 1), ids=[m.rule for m in MUTANTS])
def test_a_broken_rule_is_seen(number: int) -> None:
    rule = MUTANTS[number - 1].rule
    assert caught(number, SEEDS), rule


@pytest.mark.usefixtures("_built")
def test_nothing_is_seen_where_no_rule_is_broken() -> None:
    assert caught(0, 4) == ""
