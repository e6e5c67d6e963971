"""Scenario files: commands, and below `----` what came of each.

`RAFT_REWRITE=1` writes what comes of them now.
"""

import os
from pathlib import Path

import pytest

from tests.raft.play import Play

FILES = sorted(Path(__file__).parent.glob("scenarios/*.txt"))
REWRITE = os.environ.get("RAFT_REWRITE", "") not in ("", "0")


def played(text: str) -> str:
    """The file as it has to be: comments and commands as they stand, with what comes of them."""
    play = Play()
    out = []
    for block in text.strip().split("\n\n"):
        given = block.partition("\n----")[0].splitlines()
        out.append("\n".join(given))
        commands = [line for line in given if line and not line.startswith("#")]
        if commands:
            out[-1] += "\n----\n" + "".join(play.run(line) for line in commands)
            out[-1] = out[-1].rstrip("\n")
    return "\n\n".join(out) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_written_down(path: Path) -> None:
    text = path.read_text()
    now = played(text)
    if REWRITE:
        path.write_text(now)
    assert now == text
