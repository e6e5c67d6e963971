"""A group's directory after a kill at any moment: what was said before is there."""

import shutil
from pathlib import Path

import pytest

from tests.cext.raftlog import Directory, Machine
from tests.raft.lives import ALL, GROUP, A, Life


def look(life: Life, copy: Path) -> None:
    """What another start finds now."""
    shutil.copytree(life.path, copy)
    vote = copy / "tav.idx"
    d = Directory(Machine(), copy, GROUP, A, ALL)
    assert (d.found["lost"], d.found["aside"]) == (False, 0)
    life.check(d, vote.read_bytes() if vote.exists() else b"")
    d.close()
    shutil.rmtree(copy)


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_was_said_is_there_whenever_it_ends(tmp_path: Path, seed: int) -> None:
    (tmp_path / "group").mkdir()
    life = Life(Machine(), tmp_path / "group", seed)
    for n in range(120):
        life.step()
        if n % 3 == 0:
            look(life, tmp_path / "copy")
    assert life.promised or life.vote[0]
    life.d.close()
