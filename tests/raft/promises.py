"""What members say to each other, held against their disks: a rule that is broken shows at once.

A history in which a broken rule loses something may need several faults in the right order; that
the rule is broken is visible before.
"""

from typing import TYPE_CHECKING, Any

from tests.cext.raft import append_entry, append_response, peer_state, vote_request, vote_response

if TYPE_CHECKING:
    from tests.raft.member import Member

ADD_PEER, REMOVE_PEER = 3, 4


class Broken(AssertionError):
    """A promise of Raft that did not hold."""


class Promises:
    """What each member has said so far."""

    def __init__(self) -> None:
        self.votes: dict[tuple[bytes, int], bytes] = {}
        self.confirmed: dict[bytes, tuple[int, int]] = {}

    def forget(self, name: bytes) -> None:
        """A damaged disk keeps no promise; its member counts as lost."""
        self.votes = {key: who for key, who in self.votes.items() if key[0] != name}
        self.confirmed.pop(name, None)

    # ---- what is said

    def said(self, member: "Member", a: dict[str, Any]) -> None:
        if a["what"] == "vote request":
            q = vote_request(a["body"])
            assert q is not None
            self.check_inside(member)
            self.voted(member, q["term"], member.name)
        elif a["to"][:1] == b"V":
            v = vote_response(a["body"])
            assert v is not None
            if v["granted"]:
                assert member.group is not None
                if member.group.state()["lost"] and not v["empty"]:
                    raise Broken(f"{member.name!r} lost something and has a full vote")
                self.voted(member, v["term"], a["to"][-8:])
        elif a["to"][:1] in (b"R", b"N"):
            r = append_response(a["body"])
            assert r is not None
            if r["success"] and r["index"]:
                self.stored(member, r["term"], r["index"])

    def voted(self, member: "Member", term: int, candidate: bytes) -> None:
        d = member.disk
        if (d.term, d.vote) != (term, candidate) and d.term <= term:
            raise Broken(f"{member.name!r} tells of a vote in term {term} that is not on its disk")
        if d.forgets():
            return
        before = self.votes.setdefault((member.name, term), candidate)
        if before != candidate:
            raise Broken(f"{member.name!r} votes for {before!r} and {candidate!r} in term {term}")

    def stored(self, member: "Member", term: int, index: int) -> None:
        if not has(member, term, index):
            raise Broken(f"{member.name!r} confirms {term}/{index}, which is not on its disk")
        self.confirmed[member.name] = max((term, index), self.confirmed.get(member.name, (0, 0)))

    def check_inside(self, member: "Member") -> None:
        assert member.group is not None
        known = members_by_log(member)
        base = peer_state(member.base)
        if base is not None and member.name in base["peers"]:
            return  # its removal is not committed
        if member.name not in known and len(known) >= member.group.state()["size"]:
            raise Broken(f"{member.name!r} was removed and asks for votes")

    # ---- what is done

    def proposed(self, leader: "Member", a: dict[str, Any]) -> None:
        """A leader changes its members by one at a time."""
        assert leader.group is not None
        commit = leader.group.state()["commit"]
        records = [r for i, r in leader.log.items() if commit < i < a["index"]]
        if changes(a["body"]) and any(changes(r) for r in records):
            raise Broken(f"{leader.name!r} changes its members twice at once")

    def cut(self, member: "Member", index: int) -> None:
        """What a leader may have counted stays as long as its term lasts."""
        assert member.group is not None
        term, upto = self.confirmed.get(member.name, (0, 0))
        if not member.disk.forgets() and term == member.group.state()["term"] and index < upto:
            raise Broken(f"{member.name!r} takes back {term}/{upto}, which it confirmed")

    def led(self, leader: "Member", round_: int) -> None:
        """A leader is confirmed by the answers of a quorum, to the round that asked or a later."""
        assert leader.group is not None
        peers = [p[0] for p in leader.group.peers()]
        have = sum(p == leader.name or leader.answered.get(p, 0) >= round_ for p in peers)
        if have < leader.group.state()["quorum"]:
            raise Broken(f"{leader.name!r} is confirmed by round {round_}, which {have} answered")

    def committed(self, leader: "Member", index: int, term: int) -> None:
        """A leader commits an entry of its own term, that a quorum has on disk."""
        assert leader.group is not None
        s = leader.group.state()
        if term != s["term"]:
            raise Broken(f"{leader.name!r} commits {term}/{index} by counting, in term {s['term']}")
        members = leader.world.members
        peers = [members[p[0]] for p in leader.group.peers() if p[0] in members]
        have = sum(m.disk.forgets() or has(m, term, index) for m in peers)
        if have < s["quorum"]:
            raise Broken(f"{leader.name!r} commits {term}/{index}, which {have} have on disk")


def has(member: "Member", term: int, index: int) -> bool:
    """Whether its disk has that entry, as a record or inside the snapshot."""
    if member.disk.snapshot[1] >= index:
        return True
    m = append_entry(member.disk.records.get(index, b""))
    return m is not None and m["term"] == term


def changes(record: bytes) -> list[tuple[int, bytes]]:
    """Who is added and removed by a record."""
    m = append_entry(record)
    assert m is not None
    return [entry for entry in m["entries"] if entry[0] in (ADD_PEER, REMOVE_PEER)]


def members_by_log(member: "Member") -> set[bytes]:
    """The set that is committed, and on top of that what the log adds and removes."""
    assert member.group is not None
    base = peer_state(member.base)
    assert base is not None
    known = set(base["peers"])
    commit = member.group.state()["commit"]
    for index in sorted(i for i in member.log if i > commit):
        for kind, data in changes(member.log[index]):
            if kind == ADD_PEER:
                known.add(data)
            else:
                known.discard(data)
    return known


def check_members(member: "Member") -> None:
    """A member knows those that its log names, and nobody else."""
    assert member.group is not None
    known = {p[0] for p in member.group.peers()}
    if known != members_by_log(member):
        raise Broken(f"{member.name!r} knows {sorted(known)}, its log {members_by_log(member)}")
