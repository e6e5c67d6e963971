"""Plays a scenario: commands to members of a group, and what each asks of its driver, as text."""

from collections.abc import Callable
from typing import Any

from tests.cext.raft import (
    Group,
    Refused,
    append_entry,
    append_response,
    peer_state,
    vote_request,
    vote_response,
    write_append_entry,
    write_peer_state,
)

MILLISECOND = 1_000_000
KINDS = {0: "normal", 2: "peers", 3: "add", 4: "remove", 5: "transfer", 6: "snapshot"}
SNAPSHOT, PEER_STATE = 6, 2


def shown(kind: int, data: bytes) -> str:
    if kind == PEER_STATE:
        state = peer_state(data)
        assert state is not None
        names = " ".join(p.rstrip(b"\0").decode() for p in state["peers"])
        return f"peers({state['size']}: {names})"
    return f"{KINDS[kind]}({data.rstrip(bytes(1)).decode()})"


def entry_text(body: bytes) -> str:
    m = append_entry(body)
    assert m is not None
    entries = " ".join(shown(kind, data) for kind, data in m["entries"]) or "heartbeat"
    of_leader = f" by a leader of {m['lterm']}" if m["lterm"] else ""
    places = f"after {m['pterm']}/{m['pindex']} commit {m['commit']}"
    return f"append of {m['leader'].decode()}, term {m['term']}{of_leader}, {places}: {entries}"


def reply_text(to: bytes, body: bytes) -> str:
    if to.startswith(b"votes"):
        v = vote_response(body)
        assert v is not None
        return f"vote, term {v['term']}: {'granted' if v['granted'] else 'refused'}" + (
            ", empty" if v["empty"] else ""
        )
    if to.startswith(b"catch"):
        return entry_text(body)
    a = append_response(body)
    assert a is not None
    return f"{'has' if a['success'] else 'lacks what follows'} {a['term']}/{a['index']}"


class Play:
    """Members by their names; messages wait for `deliver`, what is to be on disk for `sync`."""

    def __init__(self) -> None:
        self.now = 0
        self.groups: dict[str, Group] = {}
        self.logs: dict[str, dict[int, bytes]] = {}
        self.rounds: dict[str, list[dict[str, Any]]] = {}
        self.mail: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        self.doubles: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
        self.snapshots: dict[str, tuple[int, int]] = {}
        self.lacking: set[str] = set()
        self.lost: set[str] = set()
        self.peers = b""
        self.lines: list[str] = []

    def run(self, line: str) -> str:
        command, *words = line.split()
        self.lines = []
        do: Callable[..., None] = getattr(self, f"do_{command}")
        try:
            do(*words)
        except Refused as e:
            self.lines.append(f"refused: {e}")
        return "".join(f"{text}\n" for text in self.lines)

    # ---- commands

    def do_members(self, *names: str) -> None:
        """Members of a new group."""
        self.peers = write_peer_state(len(names), [name.encode() for name in names])
        for name in names:
            self.do_start(name, "fresh")

    def do_start(self, name: str, *how: str) -> None:
        """A member that has nothing on disk."""
        state = peer_state(self.peers)
        assert state is not None
        peers = [p.rstrip(b"\0") for p in state["peers"]]
        self.groups[name] = Group(
            *(name.encode(), peers),
            now=self.now,
            seed=ord(name),
            managed=True,
            fresh="fresh" in how,
            lost="lost" in how,
        )
        self.logs[name], self.rounds[name], self.mail[name] = {}, [], []

    def do_restart(self, *names: str) -> None:
        """These members lose power, and start with what is on disk; nothing of it is shown."""
        kept = list(self.lines)
        for name in names:
            for op in self.rounds[name]:
                if op["act"] == "store":
                    self.logs[name].pop(op["index"], None)
            s = self.groups[name].state()
            state = peer_state(self.peers)
            assert state is not None
            peers = [p.rstrip(b"\0") for p in state["peers"]]
            group = self.groups[name] = Group(
                *(name.encode(), peers),
                now=self.now,
                term=s["term"],
                vote=s["vote"],
                lost=name in self.lost,
            )
            for _, record in sorted(self.logs[name].items()):
                assert group.replay(record)
            self.rounds[name], self.mail[name] = [], []
            self.drain(name)
        self.lines = kept

    def do_elapse(self, time: str, *names: str) -> None:
        """Time goes by, in ms; these members notice."""
        self.now += int(time) * MILLISECOND
        for name in names:
            self.groups[name].tick(self.now)
            self.groups[name].turn_end()
            self.drain(name)

    def do_campaign(self, name: str) -> None:
        """It asks for votes."""
        self.groups[name].campaign()
        self.do_elapse("800", name)

    def do_choose(self, *names: str) -> None:
        """It is to lead a new group first; of several any is."""
        for name in names:
            self.groups[name].choose(alone=len(names) == 1)

    def do_see(self, name: str, others: str, *led: str) -> None:
        """It sees so many others, and whether one of them is `led`."""
        self.groups[name].seen(self.now, int(others), bool(led))
        self.drain(name)

    def do_sync(self, *names: str) -> None:
        """What these members are to have on disk is there."""
        for name in names:
            ops, self.rounds[name] = self.rounds[name], []
            for op in ops:
                if op["act"] == "vote":
                    self.groups[name].voted(op["term"], op["peer"])
                elif op["act"] == "lost":
                    self.lost.add(name)
                    self.groups[name].marked()
                else:
                    generation = op["count"] if op["act"] == "install" else op["term"]
                    self.groups[name].stored(generation, op["index"])
            self.drain(name)

    def do_deliver(self, name: str) -> None:
        """Messages that wait for a member arrive."""
        mail, self.mail[name] = self.mail[name], []
        group = self.groups[name]
        for to, reply, body in mail:
            kind = to.partition(b".")[0]
            if kind == b"ask":
                group.vote_request(body, reply)
            elif kind == b"all":
                group.append(body, reply, 0)
            elif kind == b"votes":
                group.vote_response(body)
            elif kind == b"responses":
                group.response(body, reply)
            elif kind == b"round":
                group.response(body, reply, int(to.split(b".")[1]))
            else:
                group.append(body, reply, int(to.split(b".")[1]))
            self.drain(name)

    def do_drop(self, *names: str) -> None:
        """Messages that wait for these members are lost."""
        for name in names:
            self.mail[name] = []

    def do_double(self, name: str) -> None:
        """Messages that wait for a member come again with `late`."""
        self.doubles[name] = list(self.mail[name])

    def do_late(self, name: str) -> None:
        """Late doubles arrive at a member."""
        self.mail[name] += self.doubles[name]
        self.do_deliver(name)

    def do_settle(self, *names: str) -> None:
        """These members sync and hear each other until nothing is left; nothing of it is shown."""
        kept = list(self.lines)
        while any(self.rounds[n] or self.mail[n] for n in names):
            self.do_sync(*names)
            for name in names:
                self.do_deliver(name)
                self.groups[name].turn_end()
                self.drain(name)
        self.lines = kept

    def do_propose(self, name: str, *texts: str) -> None:
        group = self.groups[name]
        for text in texts:
            group.propose(group.state()["term"], text.encode())
        group.turn_end()
        self.drain(name)

    def do_ask(self, name: str) -> None:
        """It asks whether it still leads."""
        number = self.groups[name].ask()
        self.say(name, f"asks by round {number}" if number < 1 << 63 else "does not lead")
        self.groups[name].turn_end()
        self.drain(name)

    def do_add(self, name: str, peer: str) -> None:
        self.groups[name].add_peer(peer.encode())
        self.drain(name)

    def do_remove(self, name: str, peer: str) -> None:
        self.groups[name].remove_peer(peer.encode())
        self.drain(name)

    def do_assign(self, name: str, *peers: str) -> None:
        """These are to be the members."""
        self.groups[name].assign([peer.encode() for peer in peers])
        self.groups[name].turn_end()
        self.drain(name)

    def do_state_entry(self, name: str, text: str) -> None:
        """A leader's state goes into the log."""
        self.groups[name].propose_state(text.encode())
        self.drain(name)

    def do_hand(self, name: str, peer: str) -> None:
        self.groups[name].hand_over(peer.encode())
        self.drain(name)

    def do_gone(self, name: str, peer: str) -> None:
        self.groups[name].gone(peer.encode())
        self.drain(name)

    def do_fail(self, name: str) -> None:
        self.groups[name].fail()
        self.drain(name)

    def do_lack(self, *names: str) -> None:
        """These members lack state that only a leader can send: they apply nothing more."""
        self.lacking |= set(names)

    def do_snapshot(self, name: str) -> None:
        """All that is applied leaves the log."""
        s = self.groups[name].state()
        m = append_entry(self.logs[name][s["applied"]])
        assert m is not None
        self.snapshots[name] = (m["term"], s["applied"])
        self.groups[name].snapshotted(m["term"], s["applied"])
        self.logs[name] = {i: r for i, r in self.logs[name].items() if i > s["applied"]}

    def do_state(self, *names: str) -> None:
        for name in names or self.groups:
            s = self.groups[name].state()
            log = f"log {s['first']}-{s['last']} on disk to {s['stored']}"
            size = f"{s['quorum']} of {s['size']}"
            leads = f" leader {s['leader'].decode()}" if s["leader"] else ""
            lost = ", lost" if s["lost"] else ""
            self.lines.append(
                f"{name}: {s['role']}{leads}, term {s['term']}, {log}, commit {s['commit']},"
                f" {size}{lost}"
            )

    # ---- what a member asks of its driver

    def drain(self, name: str) -> None:
        while actions := self.groups[name].actions():
            for a in actions:
                getattr(self, f"act_{a['act']}")(name, a)

    def say(self, name: str, text: str) -> None:
        self.lines.append(f"{name}: {text}")

    def act_vote(self, name: str, a: dict[str, Any]) -> None:
        self.rounds[name].append(a)
        self.say(
            name,
            f"keeps vote: term {a['term']}" + (f" for {a['peer'].decode()}" if a["peer"] else ""),
        )

    def act_store(self, name: str, a: dict[str, Any]) -> None:
        self.rounds[name].append(a)
        self.logs[name][a["index"]] = a["body"]
        self.say(name, f"stores {a['index']}")

    def act_cut(self, name: str, a: dict[str, Any]) -> None:
        self.rounds[name].append(a)
        self.logs[name] = {i: r for i, r in self.logs[name].items() if i <= a["index"]}
        self.say(name, f"cuts the log off behind {a['index']}")

    def act_install(self, name: str, a: dict[str, Any]) -> None:
        self.rounds[name].append(a)
        self.logs[name] = {}
        self.say(name, f"installs the state at {a['term']}/{a['index']}")
        self.groups[name].applied(a["index"])

    def act_send(self, name: str, a: dict[str, Any]) -> None:
        own = name.encode()
        numbered = b".%d.%b" % (a["index"], own)
        reply = {"": b"", "catch up": b"catch" + numbered, "round": b"round" + numbered}.get(
            a["reply"], a["reply"].encode() + b"." + own
        )
        if a["what"] == "reply":
            to = a["to"].rpartition(b".")[2].decode()
            self.mail[to].append((a["to"], reply, a["body"]))
            self.say(name, f"to {to}: {reply_text(a['to'], a['body'])}")
            return
        asks = a["what"] == "vote request"
        for other in self.groups:
            if other != name:
                self.mail[other].append((b"ask" if asks else b"all", reply, a["body"]))
        if asks:
            q = vote_request(a["body"])
            assert q is not None
            self.say(
                name,
                f"to all: vote for me, term {q['term']}, log to {q['last_term']}/{q['last_index']}",
            )
        else:
            self.say(name, f"to all: {entry_text(a['body'])}")

    def act_commit(self, name: str, a: dict[str, Any]) -> None:
        if name in self.lacking:
            return
        self.say(name, f"applies up to {a['index']}")
        self.groups[name].applied(a["index"])

    def act_record(self, name: str, a: dict[str, Any]) -> None:
        m = append_entry(self.logs[name][a["index"]])
        assert m is not None
        places = (m["leader"], m["term"], m["commit"], m["pterm"], m["pindex"])
        body = write_append_entry(*places, m["entries"], a["term"])
        self.send_catch_up(name, a, body)
        self.groups[name].sent(a["peer"], a["index"], len(body))

    def act_state(self, name: str, a: dict[str, Any]) -> None:
        term, index = self.snapshots[name]
        s = self.groups[name].state()
        peers = write_peer_state(s["size"], [p[0] for p in self.groups[name].peers()])
        entries = [(SNAPSHOT, b"state at %d" % index), (PEER_STATE, peers)]
        body = write_append_entry(name.encode(), s["term"], s["commit"], term, index, entries, 0)
        self.send_catch_up(name, a, body)

    def send_catch_up(self, name: str, a: dict[str, Any], body: bytes) -> None:
        to = a["to"].rpartition(b".")[2].decode()
        self.mail[to].append((a["to"], b"responses." + name.encode(), body))
        self.say(name, f"to {to}, catching up: {entry_text(body)}")

    def act_role(self, name: str, a: dict[str, Any]) -> None:
        leader = a["peer"].decode() or "nobody known"
        self.say(name, f"is {self.groups[name].role()} in term {a['term']}, leader: {leader}")

    def act_peers(self, name: str, a: dict[str, Any]) -> None:
        self.say(name, f"keeps {shown(PEER_STATE, a['body'])}")

    def act_lost(self, name: str, a: dict[str, Any]) -> None:
        self.rounds[name].append(a)
        self.say(name, "keeps that it may have lost something")

    def act_whole(self, name: str, a: dict[str, Any]) -> None:
        self.lost.discard(name)
        self.say(name, "has all again")

    def act_confirmed(self, name: str, a: dict[str, Any]) -> None:
        self.say(name, f"still leads, by round {self.groups[name].state()['confirmed']}")

    def act_diverged(self, name: str, a: dict[str, Any]) -> None:
        self.say(
            name, f"has another entry at {a['index']} than {a['peer'].decode()}, and committed"
        )
