"""What a member of a simulated group has on disk, and what a power cut or damage leaves of it."""

import random
from typing import Any

from tests.cext.raft import peer_state

Entries = list[tuple[int, bytes]]
"""A state as the members of the simulation have one: index and data of all that was applied."""
Snapshot = tuple[int, int, bytes, Entries]
"""term, index, set of peers, state"""


class Disk:
    """The files of one group; `carry_out` is what a commit round does to them."""

    def __init__(self, peers: bytes) -> None:
        self.term = 0
        self.vote = b""
        self.records: dict[int, bytes] = {}
        self.snapshot: Snapshot = (0, 0, b"", [])
        self.peers = peers
        self.lost = False
        self.replaced = False
        """It is another disk, with nothing on it, and its member was not `lost` since."""
        self.full = False

    def carry_out(self, op: dict[str, Any]) -> None:
        match op["act"]:
            case "vote":
                self.term, self.vote = op["term"], op["peer"]
            case "store":
                self.records[op["index"]] = op["body"]
            case "cut":
                self.records = {i: r for i, r in self.records.items() if i <= op["index"]}
            case "install":
                self.snapshot = op["snapshot"]
                self.records = {}
            case "peers":
                self.peers = op["body"]
            case "lost" | "whole":
                self.lost = op["act"] == "lost"
                self.replaced = False

    def keep(self, snapshot: Snapshot) -> None:
        """A snapshot of what is applied takes the place of the log up to there."""
        self.snapshot = snapshot
        self.records = {i: r for i, r in self.records.items() if i > snapshot[1]}

    def knows(self) -> int:
        """How many members it names."""
        state = peer_state(self.peers)
        return len(state["peers"]) if state is not None else 0

    def has_log(self) -> bool:
        return bool(self.records or self.snapshot[1])

    def forgets(self) -> bool:
        """Whether it may lack what its member has promised."""
        return self.lost or self.replaced

    def begin_again(self) -> None:
        """A server that was removed and comes back has nothing of the group but its vote."""
        self.records = {}
        self.snapshot = (0, 0, b"", [])

    def cut_power(self, ops: list[dict[str, Any]], rng: random.Random) -> None:
        """Of a round that is not synced yet the log has a beginning; each other file has its part
        or not."""
        log = [op for op in ops if op["act"] in ("store", "cut", "install")]
        for op in log[: rng.randrange(len(log) + 1)]:
            self.carry_out(op)
        for op in ops:
            if op["act"] in ("vote", "peers", "lost", "whole") and rng.random() < 0.5:
                self.carry_out(op)

    def damage(self, rng: random.Random) -> None:
        """Something is found damaged at the next start and put aside: the member is lost. Or the
        disk is replaced, and nothing says so."""
        self.lost = True
        what = rng.choice(("log", "vote", "snapshot", "all", "disk"))
        if what == "log" and self.records:
            at = rng.choice(list(self.records))
            self.records = {i: r for i, r in self.records.items() if i < at}
        elif what == "vote":
            self.term, self.vote = 0, b""
        elif what == "snapshot":
            self.snapshot = (0, 0, b"", [])
            self.records = {}
        else:
            self.__init__(self.peers)  # type: ignore[misc]
            self.lost = what == "all"
            self.replaced = what == "disk"
