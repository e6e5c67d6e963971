"""A member of a stream's Raft group, of whose consumers others have groups, too."""

from pathlib import Path
from typing import Any

from tests.cext.consumer import open_joined
from tests.cext.stream import PyMember, TestEnv, put_change
from tests.unit.stream_world import FILE, MEMORY, SECOND, World, consumer_params

MESSAGE, RELEASE = 1, 4
STARTED = 1_700_000_000 * SECOND


def stored(lseq: int) -> bytes:
    """The entry of a message."""
    said = {"kind": MESSAGE, "lseq": lseq, "ts": STARTED + lseq + 1, "subject": b"s.a"}
    return put_change(said | {"data": b"%d" % lseq})


class Replica(World):
    """A stream that its group changes; consumers join groups of their own."""

    def __init__(self, directory: Path | None = None, **params: Any) -> None:
        env = TestEnv(now=STARTED)
        if directory:
            env.start_commits()
        path = bytes(directory) if directory else None
        storage = {"storage": FILE if directory else MEMORY}
        super().__init__(env, path, active=False, **(storage | params))
        self.member = PyMember(env, self.stream)
        self.index = 0

    def apply(self, *entries: bytes) -> None:
        for entry in entries:
            self.index += 1
            assert self.member.commit([(self.index, entry)]) == 0
        self.env.run()

    def store(self, n: int) -> None:
        """So many messages."""
        last = self.stream.state().last_seq
        self.apply(*(stored(lseq) for lseq in range(last, last + n)))
        self.stream.wait_durable()  # nobody sees it before
        self.env.run()

    def lead(self) -> None:
        self.member.recovered()
        self.member.lead()
        self.member.proposals()

    def joined(self, state: bytes = b"", **params: Any) -> Any:
        return open_joined(self.stream, consumer_params(**params), None, True, state)

    def released(self) -> list[int]:
        """Messages that it proposed to remove, which is agreed on."""
        entries = self.member.proposals()
        self.apply(*entries)
        found = [put_change({"kind": RELEASE, "seq": n, "stream": b"S"}) for n in range(1, 99)]
        return [found.index(entry) + 1 for entry in entries]

    def seqs(self) -> list[int]:
        state = self.stream.state()
        found = map(self.stream.get, range(state.first_seq, state.last_seq + 1))
        return [m.seq for m in found if m is not None]
