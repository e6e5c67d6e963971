"""The blocks of a replicated stream are written behind its group's log: what was agreed on is shown
before they have it, and nothing of it is lost or there twice after a kill."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cext.stream import PyMember, TestEnv, put_change
from tests.unit.consumer_disk import until
from tests.unit.stream_replica import STARTED, Replica, stored
from tests.unit.stream_world import FILE, World, compiled, seqs

MS = 1_000_000
BEHIND = 50 * MS
DELETE = 3


class Behind(Replica):
    """A member on disk."""

    def __init__(self, directory: Path, **params: Any) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, **params)
        self.directory = directory

    def block(self) -> bytes:
        """What the file of the first block has."""
        file = self.directory / "msgs" / "1.blk"
        return file.read_bytes() if file.exists() else b""

    def end(self) -> None:
        self.stream.close(False)
        self.env.stop_commits()


def body(n: int) -> bytes:
    return b"<message %d>" % n


def entry(lseq: int, size: int = 0) -> bytes:
    said = {"kind": 1, "lseq": lseq, "ts": lseq + 1, "subject": b"s.a", "reply": b"ack"}
    return put_change(said | {"data": body(lseq) + bytes(size)})


def deleted(seq: int) -> bytes:
    return put_change({"kind": DELETE, "seq": seq, "stream": b"S"})


def test_what_is_agreed_on_is_shown_before_the_blocks_have_it(tmp_path: Path) -> None:
    here = Behind(tmp_path, republish=compiled("s.>", "again.>"))
    here.env.listen(b"again.>")
    here.env.listen(b"ack")
    here.consumer().begin()
    here.lead()
    here.stream.serve()
    here.pull(b"9")
    here.apply(entry(0), entry(1))
    sent = here.env.take()
    assert seqs([m for m in sent if m[0] == b"inbox"]) == [1, 2]
    assert [m[0] for m in sent if m[0] != b"inbox"] == [b"again.a", b"ack"] * 2
    assert body(1) not in here.block()
    assert here.stream.unsettled(2) == 0, "a reader waits for nothing"
    here.end()


def test_the_blocks_follow_in_time(tmp_path: Path) -> None:
    here = Behind(tmp_path)
    for lseq in range(20):
        here.apply(entry(lseq))
        here.env.advance(BEHIND // 25)
    assert here.block() == b""
    here.env.advance(BEHIND // 4)
    until(here, lambda: body(19) in here.block())
    here.apply(deleted(3))
    size = here.stream.changed_ticket()
    assert size, "a removal is written behind, too, or when somebody waits for it"
    here.stream.wait_durable()
    assert here.stream.changed_ticket() == 0
    here.end()


def test_the_blocks_follow_after_a_mebibyte(tmp_path: Path) -> None:
    here = Behind(tmp_path)
    for lseq in range(20):
        here.apply(entry(lseq, 60_000))
    until(here, lambda: body(16) in here.block())
    here.end()


def test_a_stop_writes_what_was_applied(tmp_path: Path) -> None:
    here = Behind(tmp_path)
    here.apply(*(entry(lseq) for lseq in range(5)))
    here.end()
    again = Behind(tmp_path)
    assert again.seqs() == [1, 2, 3, 4, 5]
    again.end()


@pytest.mark.parametrize("flushed", [0, 1, 4, 7])
def test_the_log_leads_on_from_what_a_kill_left(tmp_path: Path, flushed: int) -> None:
    entries = [*map(entry, range(4)), deleted(2), deleted(4), *map(entry, range(4, 6))]
    here = Behind(tmp_path / "here")
    here.apply(*entries[:flushed])
    here.stream.wait_durable()
    here.apply(*entries[flushed:])
    shutil.copytree(tmp_path / "here", tmp_path / "killed")
    here.end()
    again = Behind(tmp_path / "killed")
    assert len(again.seqs()) <= flushed
    again.apply(*entries)
    assert again.seqs() == [1, 3, 5, 6]
    assert again.member.refused == 0
    again.end()


def test_what_waited_for_the_disk_is_shown_once_a_group_goes_on(tmp_path: Path) -> None:
    """A stream of one server becomes one of several: no consumer passes over a message."""
    env = TestEnv(now=STARTED)
    env.start_commits(held=True)
    world = World(env, bytes(tmp_path), storage=FILE)
    (tmp_path / "C").mkdir()
    world.consumer(bytes(tmp_path / "C")).begin()
    world.pull(b"9")
    world.publish()
    world.publish()
    assert env.take() == []
    member = PyMember(env, world.stream)
    assert member.commit([(1, stored(2))]) == 0
    assert seqs([m for m in env.take() if m[0] == b"inbox"]) == [1, 2, 3]
    env.release_commits()
    world.stream.wait_durable()
    world.stream.close(False)
    env.stop_commits()
