"""After a start the first publish with an id waits until those of the window are read, in turns."""

import pytest

from tests.unit.consumer_disk import Disk, until
from tests.unit.stream_world import SECOND, World, headers

MANY = 2200
"""Messages, each with an id: more than are read in one turn."""


@pytest.fixture
def disk(tmp_path):
    d = Disk(tmp_path / "data")
    w = d.open(consumers=())
    for n in range(MANY):
        w.env.inject(b"s.a", b"x", b"", headers(Nats_Msg_Id=str(n)))
    d.close(w)
    yield d
    for w in list(d.worlds):
        d.close(w)


def send(w: World, reply: bytes, number: int | None = None) -> None:
    """A publish, with an id or without, and no turn after it."""
    header = b"" if number is None else headers(Nats_Msg_Id=str(number))
    w.env.inject(b"s.a", b"late", reply, header, run=False)


def answers(w: World, count: int) -> list[tuple[bytes, str]]:
    until(w, lambda: len(w.env.sent) == count)
    return [(m[0], m[4].decode()) for m in w.env.take()]


def dup(seq: int) -> str:
    return f'{{"stream":"S","seq":{seq},"duplicate": true}}'


def ack(seq: int) -> str:
    return f'{{"stream":"S","seq":{seq}}}'


def test_publishes_go_on_in_their_order(disk: Disk) -> None:
    w = disk.open(consumers=())
    send(w, b"r0")
    send(w, b"r1", 2000)
    send(w, b"r2")
    send(w, b"r3", MANY)
    send(w, b"r4", 0)
    assert w.stream.state().messages == MANY + 1
    w.env.run(1)
    send(w, b"r5", MANY)
    assert w.stream.state().messages == MANY + 1
    assert answers(w, 6) == [
        (b"r0", ack(MANY + 1)),
        (b"r1", dup(2001)),
        (b"r2", ack(MANY + 2)),
        (b"r3", ack(MANY + 3)),
        (b"r4", dup(1)),
        (b"r5", dup(MANY + 3)),
    ]
    send(w, b"r6", 7)
    assert answers(w, 1) == [(b"r6", dup(8))]


def test_more_than_a_turn_has_wait(disk: Disk) -> None:
    w = disk.open(consumers=())
    for n in range(1000):
        send(w, b"", n + MANY - 500)
    until(w, lambda: w.stream.state().messages == MANY + 500)
    send(w, b"end", MANY + 499)
    assert answers(w, 1) == [(b"end", dup(MANY + 500))]


def test_what_changes_meanwhile(disk: Disk) -> None:
    w = disk.open(consumers=())
    send(w, b"r1", 2000)
    w.env.run(1)
    w.stream.purge(b"s.other", 0, 0)
    assert w.stream.delete(1, False)
    send(w, b"r2", 0)
    w.stream.purge(None, MANY + 1, 0)
    found = answers(w, 2)
    assert found[1] == (b"r2", dup(1))
    assert [reply for reply, _ in found] == [b"r1", b"r2"]


def test_what_is_old_is_not_known(disk: Disk) -> None:
    disk.now += 121 * SECOND
    w = disk.open(consumers=())
    send(w, b"r1", 2000)
    assert answers(w, 1) == [(b"r1", ack(MANY + 1))]


@pytest.mark.parametrize("delete", [False, True])
def test_an_end_meanwhile(disk: Disk, delete: bool) -> None:
    w = disk.open(consumers=())
    send(w, b"r1", 2000)
    send(w, b"r2", MANY)
    if delete:
        w.stream.close(True)
        w.env.run()
        return
    disk.close(w)
    again = disk.open(consumers=())
    assert again.stream.state().messages == MANY + 1
    send(again, b"r3", MANY)
    assert answers(again, 1) == [(b"r3", dup(MANY + 1))]


def test_what_a_consumer_pushes_keeps_its_subject(disk: Disk) -> None:
    w = disk.open(consumers=())
    other = World(w.env, name=b"T", subjects=(b"t.>",))
    other.consumer(deliver_subject=b"s.pushed", ack_policy="none")
    w.env.listen(b"s.pushed")
    w.env.inject(b"t.a", b"x", b"", headers(Nats_Msg_Id="pushed"), run=False)
    for _ in range(4):
        w.env.run(1)
    until(w, lambda: w.stream.state().messages == MANY + 1)
    assert w.stream.get(MANY + 1).subject == b"t.a"
