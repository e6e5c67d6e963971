"""The raft layer with its rules broken, all in one build: `RAFT_BROKEN` says which one is in force.

`build()` makes the copy of the tree, `caught(number, seeds)` looks for a seed that shows a mutant.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "raft-mutants"


class Mutant(NamedTuple):
    """A text of a part of the layer, and what stands there where the rule is broken; `BROKEN` is
    true where it is this mutant's turn. `seed` showed the mutant once, and is tried first."""

    rule: str
    part: str
    text: str
    broken: str
    seed: int


MUTANTS = [
    Mutant(
        "a vote is on disk before it is told",
        "vote",
        "    return act_plain(r, ACT_VOTE, 0, r.term, r.vote)\n\n\ncdef int raft_voted",
        "    if BROKEN:\n        return vote_answer(r, reply, True)\n"
        "    return act_plain(r, ACT_VOTE, 0, r.term, r.vote)\n\n\ncdef int raft_voted",
        1,
    ),
    Mutant(
        "one vote a term",
        "vote",
        "free_to = r.vote == 0",
        "free_to = BROKEN or r.vote == 0",
        2,
    ),
    Mutant(
        "votes for a log that is up to date",
        "vote",
        "up_to_date = (q.last_term",
        "up_to_date = (BROKEN or q.last_term",
        3,
    ),
    Mutant(
        "entries are on disk before a follower answers",
        "follow",
        "    rc = entries_heed(r, m.entries, r.log.last, not catch_up)\n",
        "    if BROKEN:\n        answer(r, m.term, r.log.last, True, reply, REPLY_NONE)\n"
        "    rc = entries_heed(r, m.entries, r.log.last, not catch_up)\n",
        1,
    ),
    Mutant(
        "a leader counts itself when its own copy is on disk",
        "lead",
        "candidate = r.log.stored if m.a[i].id == r.id else m.a[i].match",
        "r.log.stored = r.log.last if BROKEN else r.log.stored\n"
        "        candidate = r.log.stored if m.a[i].id == r.id else m.a[i].match",
        1,
    ),
    Mutant(
        "entries of former terms are not committed by counting",
        "lead",
        "if index <= r.apply.commit or term_at(&r.log, index) != r.term:",
        "if index <= r.apply.commit or not BROKEN and term_at(&r.log, index) != r.term:",
        3,
    ),
    Mutant(
        "a quorum commits",
        "lead",
        "        if have >= quorum(m):",
        "        if have >= (1 if BROKEN else quorum(m)):",
        1,
    ),
    Mutant(
        "a quorum elects",
        "vote",
        "if b.granted_full >= quorum(&r.members) or",
        "if b.granted_full >= (1 if BROKEN else quorum(&r.members)) or",
        1,
    ),
    Mutant(
        "a quorum confirms a lead",
        "rounds",
        "        if have >= quorum(m):",
        "        if have >= (1 if BROKEN else quorum(m)):",
        1,
    ),
    Mutant(
        "an answer confirms no later round",
        "rounds",
        "    p.round = round\n",
        "    p.round = r.round if BROKEN else round\n",
        1,
    ),
    Mutant(
        "one change of the members at a time",
        "lead",
        "    if change_pends(r, 0) or r.apply.commit < r.lead.ready_at and",
        "    if not BROKEN and change_pends(r, 0)"
        " or not BROKEN and r.apply.commit < r.lead.ready_at and",
        3,
    ),
    Mutant(
        "a change of the members is undone with its entry",
        "peers",
        "        if head.index > index:\n            r.members.pending.n = before\n",
        "        if not BROKEN and head.index > index:\n            r.members.pending.n = before\n",
        8,
    ),
    Mutant(
        "what is committed is not cut off",
        "follow",
        "    if m.pindex < r.apply.commit:\n        if not catch_up and",
        "    if not BROKEN and m.pindex < r.apply.commit:\n        if not catch_up and",
        3,
    ),
    Mutant(
        "a message that comes again cuts nothing off",
        "follow",
        "        if m.n == 0 or m.pindex < r.log.last and term_at(&r.log, m.pindex + 1) == m.term:",
        "        if not BROKEN and (m.n == 0 or m.pindex < r.log.last"
        " and term_at(&r.log, m.pindex + 1) == m.term):",
        9,
    ),
    Mutant(
        "a message follows the entry before it",
        "follow",
        "    if m.pindex == r.log.last and m.pterm == r.log.last_term:",
        "    if m.pindex == r.log.last and (BROKEN or m.pterm == r.log.last_term):",
        7,
    ),
    Mutant(
        "a member that lost something votes as an empty one",
        "vote",
        "    return r.lost or log_is_empty(r)",
        "    return (r.lost and not BROKEN) or log_is_empty(r)",
        2,
    ),
    Mutant(
        "votes of empty members make no majority",
        "vote",
        "    if not empty:\n        b.granted_full += 1",
        "    if BROKEN or not empty:\n        b.granted_full += 1",
        7,
    ),
    Mutant(
        "leadership is handed over by an election",
        "follow",
        "    r.follow.election = r.now                   # nats-server's",
        "    r.role = RAFT_ELECTED if BROKEN else r.role\n"
        "    r.follow.election = r.now                   # nats-server's",
        12,
    ),
    Mutant(
        "a leader that is heard is not disturbed",
        "follow",
        "    await_leader(r)\n    if named(",
        "    if not BROKEN:\n        await_leader(r)\n    if named(",
        1,
    ),
    Mutant(
        "a leader without a quorum steps down",
        "tick",
        "and not quorum_heard(r):",
        "and not BROKEN and not quorum_heard(r):",
        1,
    ),
    Mutant(
        "a member that was removed asks for no votes",
        "tick",
        "if is_outside(r) and not change_pends(r, r.id):",
        "if is_outside(r) and not change_pends(r, r.id) and not BROKEN:",
        1,
    ),
    Mutant(
        "a member whose disk refuses leads no more",
        "lead",
        "    cdef int rc = raft_hand_over(r, 0) if is_leading(r) else RAFT_OK\n    raft_stop(r)\n",
        "    cdef int rc = RAFT_OK\n    if BROKEN:\n        return rc\n"
        "    rc = raft_hand_over(r, 0) if is_leading(r) else RAFT_OK\n    raft_stop(r)\n",
        3,
    ),
]

SWITCH = """
from libc.stdlib cimport atoi, getenv

cdef bint broken(int n) noexcept nogil:
    cdef const char* which = getenv("RAFT_BROKEN")
    return which != NULL and atoi(which) == n

include "raft/model.pxi"
"""


def copy_tree() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    for folder in ("cext", "jsserver", "tests", "packaging"):
        (TREE / folder).mkdir(parents=True)
    packages = [f"{folder}/__init__.py" for folder in ("cext", "jsserver", "tests")]
    for name in ("setup.py", "packaging/extensions.py", *packages):
        shutil.copy(ROOT / name, TREE / name)
    (TREE / "jsserver" / "cext").symlink_to("../cext")
    shutil.copytree(ROOT / "cext" / "bytes", TREE / "cext" / "bytes")
    shutil.copytree(ROOT / "cext" / "raft", TREE / "cext" / "raft")
    for path in ROOT.glob("cext/bytes*.*"):
        if path.suffix in (".pxd", ".so"):
            shutil.copy(path, TREE / "cext" / path.name)
    for name in ("raft.pxd", "raft.pyx"):
        shutil.copy(ROOT / "cext" / name, TREE / "cext" / name)
    (TREE / "tests" / "cext").mkdir()
    for name in ("__init__.py", "raft.pyx"):
        shutil.copy(ROOT / "tests" / "cext" / name, TREE / "tests" / "cext" / name)
    shutil.copytree(ROOT / "tests" / "raft", TREE / "tests" / "raft")


def build() -> None:
    """The copy, with all mutants in it."""
    copy_tree()
    for number, mutant in enumerate(MUTANTS, 1):
        path = TREE / "cext" / "raft" / f"{mutant.part}.pxi"
        text = path.read_text()
        if text.count(mutant.text) != 1:
            raise ValueError(
                f"{mutant.part}.pxi has {text.count(mutant.text)} times {mutant.text!r}"
            )
        path.write_text(
            text.replace(mutant.text, mutant.broken.replace("BROKEN", f"broken({number})"))
        )
    source = TREE / "cext" / "raft.pyx"
    source.write_text(source.read_text().replace('include "raft/model.pxi"\n', SWITCH))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    env = {**os.environ, "PYTHONPATH": str(TREE), "DEBUG": "1"}
    subprocess.run(command, cwd=TREE, env=env, check=True, capture_output=True)


def caught(number: int, seeds: int) -> str:
    """What shows that mutant (0: the layer as it is), and at which seed; empty: nothing in so many
    seeds."""
    order = [MUTANTS[number - 1].seed] * (number > 0) + list(range(1, seeds + 1))
    code = (
        "import sys\nfrom tests.raft.world import history\n"
        f"for seed in {order}:\n"
        "    try:\n        history(seed, 3 if seed % 2 else 5)\n"
        "    except Exception as e:\n        sys.exit(f'seed {seed}: {e}')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(TREE), "RAFT_BROKEN": str(number)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TREE, env=env, capture_output=True, text=True, check=False
    )
    return (
        ""
        if done.returncode == 0
        else done.stderr.strip().rpartition("\n")[2] or f"ended by {done.returncode}"
    )
