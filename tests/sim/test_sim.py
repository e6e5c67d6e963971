"""Histories of streams on a simulated disk, one a seed, of each kind of world.

`SIM_SEEDS` (40) says how many of each, from `SIM_FIRST` (1) on; `SIM_SEED` repeats one. A run of
minutes says from time to time how far it is.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sim.kinds import KINDS
from tests.sim.notes import Wrong
from tests.sim.seeds import play
from tests.sim.world import run

FIRST = int(os.environ.get("SIM_FIRST", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("SIM_SEEDS", "40")))
TEST = "tests/sim/test_sim.py::test_nothing_acked_is_lost_and_nothing_comes_back"
LIAR_SEEDS = 20
FOUND = [
    ("batches", 2844),  # a power cut took back a purge that a kill had left unsynced
    ("synced", 7100222),  # a sector was torn in a payload, which looks like damage
    ("synced", 5003582),
    ("synced", 5000987),  # two bytes of a record were in the sector that is missing
    ("synced", 30003),  # the sync that follows one that failed says so once more
    ("lazy batches", 509998),  # a limit took at once what a cut brought back
    ("lazy threads", 3000101),  # a failed sync took back what was acked
    ("lazy threads", 3501009),  # what came back stood where a later message had been, unsynced
    ("lazy threads", 403298),  # a store was noted for the next sync while another was of it
    ("lazy threads", 402050),  # a start could not use the sidecar of the block that it appended to
    ("batches, threads", 404244),  # a group that went took the purge before it along
    ("threads", 709501),  # a rollup of a group that was torn was finished by a later start
    ("batches, threads", 701501),  # so was one before a batch that went
    ("batches, threads", 722840),  # what closed an idle group was missing with a batch's beginning
    ("threads", 3200241),  # a second cut, in the start, forgot which sectors the first had torn
    ("threads", 727358),  # a hole in a compacted block swallowed the next blocks
    ("threads", 725072),  # the block that named the first sequence left before a damaged one
    ("lazy batches", 720099),  # a checkpoint came back that a killed server had removed
    ("threads", 7700330),  # a limit took the oldest for a message whose deletes before it were torn
    ("lazy threads", 902981),  # a later start finished a rollup of a first group that was torn
    ("lazy batches", 750722),  # what an age took was not synced before another age was in force
    ("lazy batches", 811305),  # a stop did not sync what it had written itself
    ("turnover", 3007411),  # what a block that is gone had was taken for lost with a torn erasure
]
"""These began no start again: such a seed is another history with that."""
FOUND_AGAIN = [
    ("turnover", 75),  # the beginning of a block's first record was put aside as a damaged block
    ("turnover", 77),  # the block before that one said that another follows
    ("threads", 71),  # what a block without any message says of sequences was taken for lost
    ("lazy threads", 9),  # a block told later starts of others that a start had cut off
    ("synced", 390),  # a start went on behind what may have been acked, the next one before it
    ("threads", 171),  # likewise
    ("turnover", 187),  # likewise
    ("lazy batches", 52),  # sequences that a start left out were not left out by the next
    ("synced", 1740),  # an empty file behind a block with a damaged end moved the last sequence
    ("threads", 461),  # likewise
    ("threads", 1885),  # likewise
    ("threads", 1748),  # the last block with bytes was compacted, and nothing named what it had had
    ("threads", 1780),  # likewise
    ("turnover, threads", 141),  # likewise
    ("turnover, threads", 187),  # likewise
    ("turnover, threads", 200),  # likewise
    ("turnover, threads", 297),  # likewise, on a disk without a power cut
    ("turnover, threads", 218),  # a kill broke off an erasure, whose tombstone a later block had
    ("threads", 1691),  # a floor passed over what the start before had removed behind a rollup
    ("lazy threads", 465),  # likewise
    ("turnover, threads", 59),  # the marker of a start named less than what stood before it
    ("journal, threads", 30054),  # a segment that could not be opened passed for an empty one
    ("journal, turnover, threads", 74000014),  # what closes a block was in the other segment
    ("encrypted, turnover", 94000138),  # a few zeros at the end of ciphertext passed for damage
    ("encrypted", 278),  # a second start took a torn record for a message, which a marker denied
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What cannot be written on a dead disk is no news."""
    logger = logging.getLogger("jsserver.consumers")
    logger.disabled = True
    yield
    logger.disabled = False


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acked_is_lost_and_nothing_comes_back(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    play("SIM_SEED", SEEDS, run, kind, TEST, capfd)


@pytest.mark.parametrize("kind, seed", FOUND)
def test_what_was_wrong_once_is_right(kind: str, seed: int) -> None:
    run(seed, kind, again=False)


@pytest.mark.parametrize("kind, seed", FOUND_AGAIN)
def test_what_several_starts_showed_is_right(kind: str, seed: int) -> None:
    run(seed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_ignores_syncs_is_caught(kind: str) -> None:
    for seed in range(LIAR_SEEDS):
        try:
            run(seed, kind, ignores_syncs=True)
        except Wrong:
            return
    pytest.fail(f"{LIAR_SEEDS} histories without syncs were right")


PRINT = "from tests.sim.world import run; print(run(7, {!r}).trace())"


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_the_same_history_every_time(kind: str) -> None:
    """In another process too: nothing of it hangs on an address, a clock or a hash."""
    once = subprocess.run(
        [sys.executable, "-c", PRINT.format(kind)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert once.stdout.strip() == run(7, kind).trace()
