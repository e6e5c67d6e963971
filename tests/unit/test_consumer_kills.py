"""What a consumer noted just before its server was killed holds after the kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.consumer_disk import Disk, settled
from tests.unit.stream_world import SECOND, seqs

ACK_WAIT = 30 * SECOND


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    d = Disk(tmp_path / "data")
    yield d
    for w in list(d.worlds):
        d.close(w)


@pytest.mark.parametrize("word", [b"+WPI", b'-NAK {"delay":40000000000}'])
def test_a_later_deadline_survives_a_kill(disk: Disk, word: bytes) -> None:
    """A kill brings no redelivery to a client that still works on the message."""
    w = disk.open(consumers=({"ack_wait": ACK_WAIT},))
    w.fill(2)
    got = w.pull(b"2")
    w.env.advance(20 * SECOND)
    w.ack(got[0], word)
    settled(w)
    again = disk.open(disk.killed(w, "killed"), consumers=({"ack_wait": ACK_WAIT},))
    again.env.advance(15 * SECOND)
    assert 1 not in seqs(again.pull(b"9"))  # which goes on waiting
    again.env.advance(30 * SECOND)
    assert 1 in seqs(again.env.take())


def test_what_was_given_up_is_given_up_after_a_kill(disk: Disk) -> None:
    consumers = ({"ack_wait": SECOND, "max_deliver": 1},)
    w = disk.open(consumers=consumers)
    w.fill(1)
    assert seqs(w.pull(b"1")) == [1]
    w.env.advance(2 * SECOND)
    w.pull(b"1")
    before = w.handles[0].state()
    assert before.num_ack_pending == 0
    settled(w)
    again = disk.open(disk.killed(w, "killed"), consumers=consumers)
    after = again.handles[0].state()
    assert (after.num_ack_pending, after.floor_stream) == (0, before.floor_stream)
    again.env.advance(10 * SECOND)
    assert seqs(again.pull(b"9")) == [2]  # which came to settle it
