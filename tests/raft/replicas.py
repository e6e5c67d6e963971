"""Members of a consumer's Raft group in one process: each with an environment, a stream and groups
of its own. What one says to the others the test carries."""

import shutil
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsserver.cext.groups import RaftGroups
from jsserver.cext.replicas import ConsumerReplica, open_consumer_replica
from tests.cext.stream import TestAccount
from tests.unit.consumer_states import State, read_state
from tests.unit.stream_replica import Replica
from tests.unit.stream_world import MS, consumer_params

NAMES = (b"memberN1", b"memberN2", b"memberN3")
GROUP = b"C-R3F-group123"
REPLICA_EVENT = 10
ROLE, RESET, FAILED = 1, 2, 3


class Member:
    """A server: its stream has what the test stores there."""

    def __init__(self, cluster: "Members", name: bytes, folder: Path) -> None:
        self.cluster = cluster
        self.name = name
        self.folder = folder
        self.replica = Replica(**cluster.stream)
        self.env = self.replica.env
        self.env.start_commits()
        self.groups = RaftGroups(self.env, TestAccount())
        self.thread = threading.Thread(target=self.groups.run, daemon=True)
        self.thread.start()
        self.consumer: ConsumerReplica | None = None
        self.got: list[Any] = []  # what clients of this server were sent
        self.news: list[tuple[int, bytes, int]] = []
        folder.mkdir(exist_ok=True)

    def open(self, state: bytes = b"") -> "Member":
        ids = b"".join(NAMES)
        self.consumer = open_consumer_replica(
            self.groups,
            self.replica.stream,
            consumer_params(**self.cluster.consumer),
            None,
            group_directory=self.folder,
            name=GROUP,
            id=self.name,
            peers=struct.pack("<II", len(NAMES), len(NAMES)) + ids + b"\0\0",
            standing=0,
            memory=self.cluster.memory,
            state=state,
        )
        return self

    def close(self) -> None:
        assert self.consumer is not None
        self.consumer.close(False)
        self.groups.end()
        self.thread.join()
        self.groups.close()
        self.replica.stream.close(False)
        self.env.stop_commits()

    def one(self) -> ConsumerReplica:
        assert self.consumer is not None
        return self.consumer

    def leads(self) -> bool:
        return self.one().leads()

    def state(self) -> State:
        return read_state(self.one().handle.encode_state())

    def step(self) -> list[Any]:
        """What it says to other members."""
        self.env.poll()
        self.env.advance(5 * MS)
        said = self.env.take()
        self.got += [m for m in said if not m[0].startswith(b"$NRG.")]
        for kind, texts, numbers in self.env.events:
            if kind == REPLICA_EVENT:
                self.news.append((numbers[1], texts[0], numbers[2]))
        self.env.events.clear()
        return [m for m in said if m[0].startswith(b"$NRG.")]

    def seqs(self) -> list[int]:
        """Of the messages that it delivered since the last call."""
        found = [int(m[2].split(b".")[5]) for m in self.got if m[2].startswith(b"$JS.ACK.")]
        self.got = [m for m in self.got if not m[2].startswith(b"$JS.ACK.")]
        return found


class Members:
    """Three of them, which hear each other."""

    def __init__(
        self, folder: Path, *, memory: bool = False, stream: Any = None, **consumer: Any
    ) -> None:
        self.folder = folder
        self.memory = memory
        self.stream = stream or {}
        self.consumer = {"max_waiting": 10} | consumer
        self.members: list[Member] = []
        self.starts = 0

    def start(self, messages: int = 0, state: bytes = b"") -> "Members":
        for name in NAMES:
            self.members.append(self.started(name, messages, state))
        self.choose()
        self.until(lambda: self.members[0].leads())
        return self

    def choose(self) -> None:
        """The first member asks for votes as soon as it has looked around."""
        self.members[0].env.listen(b"$NRG.V." + GROUP)
        self.members[0].env.listen(b"$NRG.V." + GROUP)
        self.members[0].one().choose()

    def started(self, name: bytes, messages: int, state: bytes = b"") -> Member:
        member = Member(self, name, self.folder / name.decode())
        if messages:
            member.replica.store(messages)
        return member.open(state)

    def stop_all(self) -> None:
        for member in self.members:
            member.close()

    def restart(self, member: Member, messages: int) -> Member:
        """Killed, and started with what its disk had then."""
        self.starts += 1
        copy = self.folder / f"{member.name.decode()}-{self.starts}"
        while not copied(member.folder, copy):
            pass
        self.members.remove(member)
        member.close()
        again = Member(self, member.name, copy)
        if messages:
            again.replica.store(messages)
        self.members.append(again.open())
        return again

    def back(self, member: Member, messages: int) -> Member:
        """That was stopped before, from the directory that it left."""
        return self.back_as(member.name, messages)

    def back_as(self, name: bytes, messages: int) -> Member:
        self.members.append(self.started(name, messages))
        return self.members[-1]

    def stop_one(self, member: Member) -> None:
        self.members.remove(member)
        member.close()

    def turn(self) -> None:
        for member in list(self.members):
            for dest, _, reply, header, data in member.step():
                for other in self.members:
                    if other is not member:
                        other.env.inject(dest, data, reply, header, route=True)

    def until(self, condition: Callable[[], object], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited for {seconds} s"
            self.turn()
            time.sleep(0.0005)  # others have the processor

    def turns(self, n: int) -> None:
        for _ in range(n):
            self.turn()
            time.sleep(0.0005)  # others have the processor

    def leader(self) -> Member:
        self.until(lambda: any(member.leads() for member in self.members))
        return next(member for member in self.members if member.leads())

    def agree(self) -> State:
        """All members have applied all, and stand alike: where."""

        def settled() -> bool:
            states = [member.one().state() for member in self.members]
            return len({(s.commit, s.applied, s.last) for s in states}) == 1

        self.until(settled)
        states = [member.state() for member in self.members]
        assert all(state.near(states[0]) for state in states), states
        return states[0]

    def pull(self, body: bytes = b"1") -> None:
        self.leader().env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", body, b"inbox")

    def ack(self, member: Member, message: Any, body: bytes = b"", reply: bytes = b"") -> None:
        member.env.inject(message[2], body, reply)


def copied(folder: Path, to: Path) -> bool:
    """Whether nothing was renamed meanwhile."""
    try:
        shutil.copytree(folder, to)
    except shutil.Error:
        shutil.rmtree(to)
        return False
    return True
