"""One server of a simulated group: the group while it runs, its disk, and what it applied."""

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cext.raft import (
    Group,
    Refused,
    append_entry,
    append_response,
    peer_state,
    write_append_entry,
)
from tests.raft.disk import Disk, Entries
from tests.raft.promises import Broken, check_members

if TYPE_CHECKING:
    from tests.raft.world import World

NORMAL, PEER_STATE, SNAPSHOT = 0, 2, 6


def encode_state(state: Entries) -> bytes:
    return b"".join(struct.pack("<QI", i, len(data)) + data for i, data in state)


def decode_state(body: bytes) -> Entries:
    out, at = [], 0
    while at < len(body):
        index, n = struct.unpack_from("<QI", body, at)
        out.append((index, body[at + 12 : at + 12 + n]))
        at += 12 + n
    return out


@dataclass
class Asked:
    """A leader's question whether it still leads, and what was so when it asked."""

    round: int
    term: int
    last_term: int
    """The last term that had a leader."""
    applied: int
    """The last index that any member had applied, and so the group had committed."""


class Member:
    """Drives a group as a server does: actions in their order, and what has to be on disk in
    commit rounds, one at a time."""

    def __init__(self, world: "World", name: bytes, peers: bytes) -> None:
        self.world = world
        self.name = name
        self.disk = Disk(peers)
        self.group: Group | None = None
        self.life = 0
        self.round: list[dict[str, Any]] = []
        self.syncing: list[dict[str, Any]] = []
        self.state: Entries = []
        self.log: dict[int, bytes] = {}
        self.base = peers
        self.applied = 0
        self.leads = False
        self.asked: list[Asked] = []
        self.answered: dict[bytes, int] = {}
        """The last round that each other member has answered in this life."""

    # ---- its life

    def start(self) -> None:
        d = self.disk
        term, index, peers, state = d.snapshot
        self.life += 1
        self.round, self.syncing, self.asked, self.answered = [], [], [], {}
        self.base = peers or d.peers
        known = peer_state(self.base)
        assert known is not None
        self.group = Group(
            *(self.name, known["peers"]),
            now=self.world.now,
            size=known["size"],
            seed=self.world.random.getrandbits(60),
            term=d.term,
            vote=d.vote,
            snapshot_term=term,
            snapshot_index=index,
            managed=self.world.managed,
            lost=d.lost,
            fresh=not (d.term or d.has_log() or d.lost),
        )
        self.state = list(state)
        self.applied = index
        self.log = {}
        while (at := index + len(self.log) + 1) in d.records:
            if not self.group.replay(d.records[at]):
                break
            self.log[at] = d.records[at]
        d.records = dict(self.log)
        self.group.applied(index)
        self.drain()

    def kill(self) -> None:
        """What was written stays."""
        for op in self.syncing:
            self.disk.carry_out(op)
        self.stop()

    def stop(self) -> None:
        self.group = None
        self.leads = False

    def cut_power(self) -> None:
        self.disk.cut_power(self.syncing, self.world.random)
        self.stop()

    def call(self, name: str, *args: Any) -> None:
        if self.group is None:
            return
        with contextlib.suppress(Refused):
            getattr(self.group, name)(*args)
        self.drain()

    def ask(self, last_term: int, applied: int) -> None:
        """Asks whether this member still leads."""
        assert self.group is not None
        term = self.group.state()["term"]
        self.asked.append(Asked(self.group.ask(), term, last_term, applied))
        self.drain()

    def heard(self, round_: int, body: bytes) -> None:
        """An answer in the inbox of a round."""
        r = append_response(body)
        assert r is not None
        if r["success"]:
            self.answered[r["peer"]] = max(round_, self.answered.get(r["peer"], 0))

    def drain(self) -> None:
        while self.group is not None and (actions := self.group.actions()):
            for a in actions:
                if self.group is not None:
                    self.act(a)
            if self.group is not None and any(a["act"] == "cut" for a in actions):
                check_members(self)
        if self.group is not None:
            self.sync()
            self.world.look(self)

    # ---- its disk

    def later(self, delay: int, do: Callable[[], None]) -> None:
        """After a delay, if the same life goes on."""
        life = self.life

        def run() -> None:
            if self.group is not None and self.life == life:
                do()

        self.world.at(self.world.now + delay, run)

    def sync(self) -> None:
        if self.syncing or not self.round:
            return
        self.syncing, self.round = self.round, []
        delay = self.world.sync_time()
        self.later(delay, self.synced)
        votes = any(op["act"] == "vote" for op in self.syncing)
        if not self.world.peace and self.world.random.random() < (0.05 if votes else 0.0002):
            self.world.blink(self, self.world.random.randrange(delay))

    def synced(self) -> None:
        if self.disk.full:
            self.syncing = []
            self.call("fail")
            return
        ops, self.syncing = self.syncing, []
        for op in ops:
            self.disk.carry_out(op)
        votes = [op for op in ops if op["act"] == "vote"]
        logs = [op for op in ops if op["act"] in ("store", "cut", "install")]
        if votes:
            self.call("voted", votes[-1]["term"], votes[-1]["peer"])
        if any(op["act"] == "lost" for op in ops):
            self.call("marked")
        if logs:
            last = logs[-1]
            generation = last["count"] if last["act"] == "install" else last["term"]
            self.call("stored", generation, last["index"])
        self.drain()

    # ---- what its group asks of it

    def act(self, a: dict[str, Any]) -> None:
        match a["act"]:
            case "store":
                if self.group is not None and self.group.role() in ("elected", "leader"):
                    self.world.promises.proposed(self, a)
                self.log[a["index"]] = a["body"]
                self.round.append(a)
            case "cut":
                self.world.promises.cut(self, a["index"])
                self.log = {i: r for i, r in self.log.items() if i <= a["index"]}
                self.round.append(a)
            case "peers":
                self.base = a["body"]
                self.round.append(a)
            case "vote" | "lost" | "whole":
                self.round.append(a)
            case "send":
                self.world.send(self, a)
            case "commit":
                self.committed(a["index"])
            case "install":
                self.install(a)
            case "record":
                self.send_record(a)
            case "state":
                self.send_state(a)
            case "diverged":
                raise Broken(f"{self.name!r} has another entry at {a['index']}, committed")

    def install(self, a: dict[str, Any]) -> None:
        self.state = decode_state(a["body"])
        if a["index"] < self.applied:
            raise Broken(f"{self.name!r} is sent back from {self.applied} to {a['index']}")
        self.applied = a["index"]
        self.log = {}
        peers = self.round[-1]["body"] if self.round and self.round[-1]["act"] == "peers" else b""
        self.round.append(a | {"snapshot": (a["term"], a["index"], peers, list(self.state))})
        self.world.check_state(self)
        assert self.group is not None
        self.group.applied(a["index"])

    def send_record(self, a: dict[str, Any]) -> None:
        assert self.group is not None
        record = self.log.get(a["index"])
        if record is None:
            self.group.sent(a["peer"], a["index"], 0)
            return
        m = append_entry(record)
        assert m is not None
        places = (m["leader"], m["term"], m["commit"], m["pterm"], m["pindex"])
        body = write_append_entry(*places, m["entries"], a["term"])
        self.world.deliver(self, a["to"], b"R." + self.name, body)
        self.group.sent(a["peer"], a["index"], len(body))

    def send_state(self, a: dict[str, Any]) -> None:
        assert self.group is not None
        term, index, peers, state = self.disk.snapshot
        now = self.group.state()
        entries = [(SNAPSHOT, encode_state(state)), (PEER_STATE, peers)]
        body = write_append_entry(self.name, now["term"], now["commit"], term, index, entries, 0)
        self.world.deliver(self, a["to"], b"R." + self.name, body)

    def committed(self, index: int) -> None:
        """What is committed is applied, in some histories later."""
        assert self.group is not None
        if index in self.log and self.group.role() in ("elected", "leader"):
            last = append_entry(self.log[index])
            assert last is not None
            self.world.promises.committed(self, index, last["term"])
        delay = self.world.apply_time()
        if delay == 0:
            self.apply_to(index)
            return

        def apply() -> None:
            self.apply_to(index)
            self.drain()

        self.later(delay, apply)

    def apply_to(self, index: int) -> None:
        assert self.group is not None
        if index <= self.applied:
            return
        while self.applied < index:
            record = self.log.get(self.applied + 1)
            if record is None:
                raise Broken(f"{self.name!r} is to apply {self.applied + 1}, which it has not")
            m = append_entry(record)
            assert m is not None
            self.applied += 1
            for kind, data in m["entries"]:
                if kind == NORMAL:
                    self.state.append((self.applied, data))
            self.world.check_applied(self, self.applied, m)
        self.group.applied(self.applied)

    def snapshot(self) -> None:
        """The state replaces the log up to what is applied and on disk."""
        if self.group is None or self.round or self.syncing:
            return
        s = self.group.state()
        if not self.disk.snapshot[1] < self.applied <= s["stored"]:
            return
        m = append_entry(self.log[self.applied])
        assert m is not None
        self.disk.keep((m["term"], self.applied, self.disk.peers, list(self.state)))
        self.log = {i: r for i, r in self.log.items() if i > self.applied}
        self.call("snapshotted", m["term"], self.applied)
