"""Damaged files: the store serves what is intact, reports what is not and deletes nothing.

`make soak` runs the long form: DAMAGE_FLIPS=3000.
"""

import os
import random
from pathlib import Path

import pytest

from tests.seeds import seed_of

from . import damage

FLIPS = int(os.environ.get("DAMAGE_FLIPS", "250"))
SEED = seed_of("DAMAGE_SEED")
LIMIT = 60 + FLIPS / 10


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, damage.World]:
    work = tmp_path_factory.mktemp("damage")
    return work, damage.build(work)


@pytest.mark.timeout(LIMIT + 60)
def test_flipped_bits(world: tuple[Path, damage.World]) -> None:
    work, facts = world
    print("seed", SEED)
    cases = list(damage.flips(work, random.Random(SEED), FLIPS))
    assert not damage.run_apart(work, cases, facts, LIMIT)


@pytest.mark.timeout(LIMIT + 60)
def test_flipped_bits_of_compressed_blocks(world: tuple[Path, damage.World]) -> None:
    work, facts = world
    print("seed", SEED)
    cases = list(damage.flips(work, random.Random(SEED), FLIPS, packed=True))
    assert not damage.run_apart(work, cases, facts, LIMIT)


@pytest.mark.timeout(LIMIT + 60)
def test_heads_of_caches(world: tuple[Path, damage.World]) -> None:
    work, facts = world
    cases = list(damage.aimed(work, 1 if FLIPS >= 1000 else 13))
    assert not damage.run_apart(work, cases, facts, LIMIT)


@pytest.mark.timeout(LIMIT + 60)
def test_files_cut_emptied_missing_zeroed_swapped(world: tuple[Path, damage.World]) -> None:
    work, facts = world
    print("seed", SEED)
    cases = list(damage.torn(work, random.Random(SEED)))
    assert not damage.run_apart(work, cases, facts, LIMIT)
