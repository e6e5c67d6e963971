"""A group's directory after a kill at any moment: what was said before is there."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cext.raft import (
    append_entry,
    append_response,
    vote_response,
    write_append_entry,
    write_peer_state,
    write_vote_request,
)
from tests.cext.raftlog import Directory, Machine

GROUP, A, B, C = b"S-R3F-GROUPAAA", b"memberAA", b"memberBB", b"memberCC"
ALL = write_peer_state(3, [A, B, C])
NORMAL, PEER_STATE, SNAPSHOT = 0, 2, 6


class Life:
    """One member, what a leader sends it, and what it has said."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.machine = Machine()
        self.d = Directory(self.machine, path, GROUP, A, ALL)
        self.term = 1
        self.log: list[tuple[int, bytes]] = []  # the leader's: terms and messages
        self.confirmed = (0, 0)
        self.vote = (0, b"")

    def hear(self, actions: list[dict[str, Any]]) -> None:
        for a in actions:
            if a["act"] == "install" or a["act"] == "commit":
                self.hear(self.d.call("applied", a["index"]))
            elif a["act"] == "send" and a["to"] == b"votes":
                v = vote_response(a["body"])
                if v is not None and v["granted"]:
                    self.vote = (v["term"], C)
            elif a["act"] == "send":
                r = append_response(a["body"])
                if r is not None and r["success"]:
                    self.confirmed = (r["term"], r["index"])

    def message(self, index: int) -> bytes:
        before = self.log[index - 2][0] if index > 1 else 0
        term, data = self.log[index - 1]
        commit = max(0, index - 3)
        return write_append_entry(B, term, commit, before, index - 1, [(NORMAL, data)])

    def step(self) -> None:
        s = self.d.state()
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3:
                self.log = self.log[: max(s["last"], s["commit"])]
                if len(self.log) == s["last"]:
                    self.log.append((self.term, b"%d" % self.random.getrandbits(60)))
                    self.hear(self.d.call("append", self.message(len(self.log)), b"inbox"))
            case 4 if s["last"] > s["commit"] + 1:  # another leader has something else there
                self.term = s["term"] + 1
                at = self.random.randrange(s["commit"] + 1, s["last"] + 1)
                self.log = [*self.log[: at - 1], (self.term, b"of another leader")]
                self.hear(self.d.call("append", self.message(at), b"inbox"))
            case 5:
                self.term = s["term"] + 1
                ask = write_vote_request(self.term, 10**9, 10**9, C)
                self.hear(self.d.call("vote_request", ask, b"votes"))
            case 6 if s["commit"] > s["first"] and s["stored"] >= s["commit"]:
                m = append_entry(self.d.load(s["commit"]) or b"")
                if m is not None:
                    self.d.snapshot(m["term"], s["commit"], ALL, b"state at %d" % s["commit"])
            case 7:
                self.machine.write()
                self.hear(self.d.call("look"))
            case _:
                self.machine.commit()
                self.hear(self.d.call("look"))

    def end(self, copy: Path) -> None:
        """What another start finds now."""
        shutil.copytree(self.path, copy)
        machine = Machine()
        d = Directory(machine, copy, GROUP, A, ALL)
        s = d.state()
        assert (d.found["lost"], d.found["aside"]) == (False, 0)
        assert s["term"] >= self.vote[0]
        if s["term"] == self.vote[0] and self.vote[1]:
            assert not d.call("vote_request", write_vote_request(s["term"], 1, 1, B), b"votes") or (
                (copy / "tav.idx").read_bytes()[8:] == self.vote[1]
            )
        term, index = self.confirmed
        if term == self.term or s["term"] == term:  # no other leader has cut it off since
            assert s["last"] >= index
        for at in range(s["first"], s["last"] + 1):
            assert append_entry(d.load(at) or b"") is not None
        d.close()
        shutil.rmtree(copy)


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_was_said_is_there_whenever_it_ends(tmp_path: Path, seed: int) -> None:
    (tmp_path / "group").mkdir()
    life = Life(tmp_path / "group", seed)
    for n in range(120):
        life.step()
        if n % 3 == 0:
            life.end(tmp_path / "copy")
    assert life.confirmed[1] or life.vote[0]
    life.d.close()
