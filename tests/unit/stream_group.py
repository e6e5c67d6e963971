"""Streams of one group in environments of their own, and the log that they agree on."""

from typing import Any

from tests.cext.stream import PyMember, TestEnv
from tests.unit.stream_world import SECOND, World

STARTED = 1_700_000_000 * SECOND


class Member(World):
    """A stream that follows until it leads."""

    def __init__(self, consumers: tuple[tuple[bytes, bytes], ...] = (), **params: Any) -> None:
        super().__init__(TestEnv(now=STARTED), active=False, **params)
        self.env.listen(b"ack.>")
        self.consumers = [self.consumer(name=name, filters=(wanted,)) for name, wanted in consumers]
        self.member = PyMember(self.env, self.stream)
        self.member.recovered()
        self.applied = 0

    def answers(self) -> list[tuple[bytes, bytes]]:
        return [(m[0], m[4]) for m in self.env.take() if m[0].startswith(b"ack.")]

    def contents(self) -> tuple[Any, ...]:
        state = self.stream.state()
        found = [self.stream.get(seq) for seq in range(state.first_seq, state.last_seq + 1)]
        return state, found, self.member.refused, self.member.applied(self.applied)


class Group:
    """Three of them. What the leader proposes is in the log when `agree` says so."""

    def __init__(self, **params: Any) -> None:
        self.members = [Member(**params) for _ in range(3)]
        self.log: list[tuple[int, bytes | None]] = []
        self.round = 0
        """Of the last question whether the leader still leads, which `confirm` answers."""
        self.lead(0)

    def lead(self, number: int) -> None:
        """A member that has applied everything; another one leads no more."""
        for member in self.members:
            self.catch_up(member)
        for member in self.members:
            member.member.follow()
        self.log.append((len(self.log) + 1, None))
        for member in self.members:
            self.catch_up(member)
        self.leader = self.members[number]
        self.leader.member.lead()

    def publish(self, subject: bytes, data: bytes = b"", header: bytes = b"", n: int = 0) -> None:
        """Its answer goes to `ack.n`."""
        self.leader.env.inject(subject, data, b"ack.%d" % n if n else b"", header)

    def agree(self, apply: int = 1 << 30) -> list[bytes]:
        """What is proposed comes into the log, and the leader applies so many. The new entries."""
        new = self.leader.member.proposals()
        for entry in new:
            self.log.append((len(self.log) + 1, entry))
        if self.leader.member.asks():
            self.round += not new
            self.leader.member.asked(len(self.log), 0 if new else self.round)
        self.catch_up(self.leader, apply)
        self.leader.member.confirmed(self.leader.applied, 0)
        return new

    def confirm(self) -> None:
        """A quorum confirms that the leader still leads."""
        self.agree(0)
        self.leader.member.confirmed(self.leader.applied, self.round)

    def catch_up(self, member: Member, most: int = 1 << 30) -> None:
        todo = self.log[member.applied : member.applied + most]
        assert member.member.commit(todo) == 0
        member.applied += len(todo)

    def settle(self) -> None:
        """Until nothing is proposed any more, all have applied it, and no answer waits."""
        while self.agree():
            pass
        self.confirm()
        for member in self.members:
            self.catch_up(member)

    def advance(self, ns: int) -> None:
        for member in self.members:
            member.env.advance(ns)
