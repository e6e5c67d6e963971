"""One member of a group in a directory, what a leader sends it, and what it has said."""

import random
from typing import Any

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
SIZES = (10, 10, 10, 400, 3000)


class Life:
    def __init__(self, machine: Machine, path: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.log: list[tuple[int, bytes]] = []  # the leader's: terms and data
        self.promised: dict[int, tuple[int, bytes]] = {}  # what the member confirmed of it
        self.vote = (0, b"")
        self.term = 1
        self.begin(machine)

    def begin(self, machine: Machine) -> None:
        self.machine = machine
        self.d = Directory(machine, self.path, GROUP, A, ALL)
        self.hear(self.d.call("applied", self.d.found["snapshot"]))

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
                    for index in range(1, r["index"] + 1):
                        self.promised[index] = self.log[index - 1]
                elif r is not None and a["reply"] == 3:
                    self.catch_up(r["index"], a["index"])

    def message(self, index: int, lterm: int = 0) -> bytes:
        before = self.log[index - 2][0] if index > 1 else 0
        term, data = self.log[index - 1]
        return write_append_entry(
            B, term, max(0, index - 3), before, index - 1, [(NORMAL, data)], lterm
        )

    def catch_up(self, after: int, inbox: int) -> None:
        """A leader that has a state up to some index, and only records behind it."""
        first = after + 1
        if self.random.random() < 0.5:
            first = len(self.log) - self.random.randrange(3)
            term = self.log[first - 1][0]
            entries = [(SNAPSHOT, b"state at %d" % first), (PEER_STATE, ALL)]
            state = write_append_entry(B, self.term, first, term, first, entries)
            self.hear(self.d.call("append", state, b"inbox", inbox))
            first += 1
        for index in range(first, len(self.log) + 1):
            self.hear(self.d.call("append", self.message(index, self.term), b"inbox", inbox))

    def data(self) -> bytes:
        return b"%d." % self.random.getrandbits(60) * self.random.choice(SIZES)

    def others(self, at: int) -> None:
        """Another leader has something else from there on."""
        for index in [i for i in self.promised if i >= at]:
            del self.promised[index]
        self.log[at - 1 :] = [(self.term, self.data())]

    def step(self) -> None:
        s = self.d.state()
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3:
                for _ in range(self.random.choice((1, 1, 1, 30))):
                    if len(self.log) <= s["last"]:
                        self.log.append((self.term, self.data()))
                    at = min(len(self.log), self.d.state()["last"] + 1)
                    self.hear(self.d.call("append", self.message(at), b"inbox"))
            case 4 if s["last"] > s["commit"] + 1:
                self.term = max(self.term, s["term"]) + 1
                at = self.random.randrange(s["commit"] + 1, s["last"] + 1)
                self.others(at)
                self.hear(self.d.call("append", self.message(at), b"inbox"))
            case 5:
                self.term = max(self.term, s["term"]) + 1
                ask = write_vote_request(self.term, 10**9, 10**9, C)
                self.hear(self.d.call("vote_request", ask, b"votes"))
            case 6 if s["commit"] > s["first"] and s["stored"] >= s["commit"]:
                m = append_entry(self.d.load(s["commit"]) or b"")
                if m is not None:
                    self.d.snapshot(m["term"], s["commit"], ALL, b"state at %d" % s["commit"])
            case 7:
                # It has missed messages, and asks for them.
                self.log += [(self.term, self.data()) for _ in range(5)]
                self.hear(self.d.call("append", self.message(len(self.log)), b"inbox"))
            case 8:
                self.machine.write()
                self.hear(self.d.call("look"))
            case _:
                self.machine.commit()
                self.hear(self.d.call("look"))

    def check(self, d: Directory, vote_file: bytes) -> None:
        """What another start has."""
        s = d.state()
        assert s["term"] >= self.vote[0], "a term that was told"
        if s["term"] == self.vote[0] and self.vote[1]:
            assert vote_file[8:] == self.vote[1], "a vote that was told"
        for index, (term, data) in self.promised.items():
            if index < s["first"]:
                assert d.found["snapshot"] >= index, "a record that was confirmed, or a state"
                continue
            m = append_entry(d.load(index) or b"")
            assert m is not None, f"{index} was confirmed"
            assert (m["term"], m["entries"]) == (term, [(NORMAL, data)]), f"{index}"
        for at in range(s["first"], s["last"] + 1):
            assert append_entry(d.load(at) or b"") is not None

    def follow(self) -> None:
        """What the member has is what the next leader had, confirmed or not."""
        s = self.d.state()
        self.log[s["last"] :] = []
        for at in range(s["first"], s["last"] + 1):
            m = append_entry(self.d.load(at) or b"")
            assert m is not None
            self.log[at - 1 : at] = [(m["term"], m["entries"][0][1])]
