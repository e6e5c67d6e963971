"""Mutants of clusters: each breaks one rule in a copy of the tree. `RAFT_BROKEN` is the number of
the mutant in force.

`build()` makes the copy, `caught(number, seeds)` looks for a history that notices a mutant. The
mutants of the Raft layer come from `tests/raft/mutants.py`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.raft import mutants as raft
from tests.sim.cluster_kinds import KINDS

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "cluster-mutants"
LAYERS = ("raft", "raftlog", "replicas")


class Mutant(NamedTuple):
    """As a Mutant of the Raft layer, with its layer."""

    rule: str
    layer: str
    part: str
    text: str
    broken: str
    kinds: tuple[str, ...] = tuple(KINDS)
    """The kinds of clusters whose histories may show the mutant."""


OF_RAFT = (
    "a vote is on disk before it is told",
    "one vote a term",
    "votes for a log that is up to date",
    "entries are on disk before a follower answers",
    "a leader counts itself when its own copy is on disk",
    "entries of former terms are not committed by counting",
    "a quorum commits",
    "a quorum elects",
    "what is committed is not cut off",
    "a message follows the entry before it",
    "votes of empty members make no majority",
)
KINDS_OF = {
    "one vote a term": ("five",),
    "votes of empty members make no majority": ("damage",),
}
MUTANTS = [
    *(
        Mutant(m.rule, "raft", m.part, m.text, m.broken, KINDS_OF.get(m.rule, tuple(KINDS)))
        for m in raft.MUTANTS
        if m.rule in OF_RAFT
    ),
    Mutant(
        "the file of a vote is synced",
        "raftlog",
        "files",
        "    if d.fd >= 0:\n        d.error = min(f.datasync(f.ctx, d.fd), 0)\n",
        "    if d.fd >= 0 and not BROKEN:\n        d.error = min(f.datasync(f.ctx, d.fd), 0)\n",
    ),
    Mutant(
        "a log lets go what a snapshot stands for when that is on disk",
        "raftlog",
        "log",
        "    files_due(log, FILE_SNAPSHOT)\n    return RAFT_OK\n\n\ncdef int raftlog_snapshot_file",
        "    files_due(log, FILE_SNAPSHOT)\n    if BROKEN:\n"
        "        store_purge(log.store, NULL, s.index + 1, 0)\n"
        "    return RAFT_OK\n\n\ncdef int raftlog_snapshot_file",
    ),
    Mutant(
        "a log is on disk before it is told",
        "raftlog",
        "log",
        "    m.ticket = store_ticket(log.store)\n",
        "    if BROKEN:\n        return raft_stored(log.raft, generation, index)\n"
        "    m.ticket = store_ticket(log.store)\n",
    ),
    Mutant(
        "a log begins behind what the stream's store has on disk",
        "replicas",
        "keep",
        "    if r.state_index and store_durable_ticket(r.s.store) >= r.state_ticket:",
        "    if r.state_index and (BROKEN or store_durable_ticket(r.s.store) >= r.state_ticket):",
    ),
    Mutant(
        "a stream's leader has applied all that its log has",
        "replicas",
        "stream",
        "now.role == RAFT_LEADER and now.last == r.given:",
        "now.role == RAFT_LEADER and (BROKEN or now.last == r.given):",
    ),
    Mutant(
        "a member that is behind takes what its leader has before it goes on",
        "replicas",
        "catchup",
        "        if rc == ST_OK and has_all(c):\n            return ST_OK\n",
        "        if rc == ST_OK and (BROKEN or has_all(c)):\n            return ST_OK\n",
    ),
    Mutant(
        "members become the same as a leader that one of them took messages from",
        "replicas",
        "serving",
        "    if x.holes and ",
        "    if not BROKEN and x.holes and ",
        ("limits",),
    ),
    Mutant(
        "damage costs a member nothing that its leader has",
        "replicas",
        "catchup",
        "    return seq if seq <= head.last else 0\n",
        "    return seq if seq <= head.last and not BROKEN else 0\n",
        ("damage",),
    ),
]

SWITCH = """
from libc.stdlib cimport atoi, getenv

cdef bint broken(int n) noexcept nogil:
    cdef const char* which = getenv("RAFT_BROKEN")
    return which != NULL and atoi(which) == n

include "{}/model.pxi"
"""
"""Replaces the include of a layer's first part."""


def copy_tree() -> None:
    """Copies the tree; extensions of layers without mutants are linked, not built again."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    built = shutil.ignore_patterns("*.c", "*.so", "*.pyx", "__pycache__")
    for folder in ("cext", "tests/cext", "tests/raft", "tests/sim", "tests/unit"):
        shutil.copytree(ROOT / folder, TREE / folder, ignore=built)
        for path in (ROOT / folder).glob("*.so"):
            (TREE / folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "jsserver", TREE / "jsserver", ignore=shutil.ignore_patterns("cext"))
    (TREE / "jsserver" / "cext").symlink_to("../cext")
    (TREE / "packaging").mkdir()
    for name in ("setup.py", "packaging/extensions.py"):
        shutil.copy(ROOT / name, TREE / name)
    for path in (ROOT / "tests").glob("*.py"):
        shutil.copy(path, TREE / "tests" / path.name)
    for layer in LAYERS:
        shutil.copy(ROOT / "cext" / f"{layer}.pyx", TREE / "cext" / f"{layer}.pyx")
        for path in (TREE / "cext").glob(f"{layer}.*.so"):
            path.unlink()


def build() -> None:
    """Builds the copy with all mutants in it."""
    copy_tree()
    for number, mutant in enumerate(MUTANTS, 1):
        path = TREE / "cext" / mutant.layer / f"{mutant.part}.pxi"
        text = path.read_text()
        if text.count(mutant.text) != 1:
            raise ValueError(f"{path.name} has {text.count(mutant.text)} times {mutant.text!r}")
        broken = mutant.broken.replace("BROKEN", f"broken({number})")
        path.write_text(text.replace(mutant.text, broken))
    for layer in LAYERS:
        source = TREE / "cext" / f"{layer}.pyx"
        include = f'include "{layer}/model.pxi"\n'
        source.write_text(source.read_text().replace(include, SWITCH.format(layer)))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    env = {**os.environ, "PYTHONPATH": str(TREE)}
    subprocess.run(command, cwd=TREE, env=env, check=True, capture_output=True)


def caught(number: int, seeds: int) -> str:
    """How a history notices a mutant (0: no mutant), with its seed; "": no history of so many seeds
    does."""
    kinds = MUTANTS[number - 1].kinds if number else tuple(KINDS)
    code = (
        "import sys\nfrom tests.sim.cluster import history\n"
        f"kinds = {kinds}\nfor seed in range(1, {seeds} + 1):\n"
        "    try:\n        history(seed, kinds[seed % len(kinds)])\n"
        "    except Exception as e:\n        sys.exit(str(e).partition('\\n')[0])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(TREE), "RAFT_BROKEN": str(number)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TREE, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    return done.stderr.strip().rpartition("\n")[2] or f"ended by {done.returncode}"
