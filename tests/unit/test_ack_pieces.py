"""An ack of very many messages takes them out in turns: what happens between two of them."""

import json

import pytest

from tests.unit.stream_world import (
    ACK_ALL,
    INTEREST,
    SECOND,
    WORKQUEUE,
    World,
    seqs,
    status,
    tokens,
)

MANY = 3000
NEXT = b"$JS.API.CONSUMER.MSG.NEXT.S.C"


class Acked(World):
    """A stream of which one consumer, that acks all, has had every message."""

    def __init__(self, retention: int = INTEREST, **given: object) -> None:
        super().__init__(retention=retention)
        self.handle = self.consumer(ack_policy=ACK_ALL, max_ack_pending=-1, **given)
        for _ in range(MANY):
            self.env.inject(b"s.a", b"x")
        self.got = self.pull(b"%d" % MANY)
        assert seqs(self.got) == list(range(1, MANY + 1))

    def ack_later(self, seq: int, reply: bytes = b"", body: bytes = b"") -> None:
        """Its first turn, and no other."""
        self.env.take()
        self.env.inject(self.got[seq - 1][2], body, reply, run=False)

    def left(self) -> tuple[int, int]:
        """Messages, and those that wait for an ack."""
        return self.stream.state().messages, self.handle.state().num_ack_pending


@pytest.mark.parametrize("retention", [INTEREST, WORKQUEUE])
def test_each_turn_is_an_ack_of_its_own_and_the_answer_comes_with_the_last(retention: int) -> None:
    world = Acked(retention)
    world.ack_later(MANY - 1, b"inbox")
    messages, waiting = world.left()
    assert 0 < messages == waiting < MANY
    assert world.handle.state().floor_stream == MANY - messages
    assert world.env.take() == []
    world.env.inject(b"s.a", b"late", run=False)
    world.env.run()
    assert [m[0] for m in world.env.take() if m[0] == b"inbox"] == [b"inbox"]
    assert world.left() == (2, 1)
    assert world.handle.state().floor_stream == MANY - 1
    assert seqs(world.pull()) == [MANY + 1]


def test_acks_of_others_meanwhile() -> None:
    world = Acked()
    world.ack_later(2000, b"inbox")
    world.env.inject(world.got[1500 - 1][2], b"", b"inbox", run=False)  # which is acked already
    world.env.inject(world.got[2500 - 1][2], b"", b"inbox", run=False)
    world.env.inject(world.got[1600 - 1][2], b"-NAK", b"", run=False)
    assert world.env.take() == []
    world.env.run()
    assert [m[0] for m in world.env.take()] == [b"inbox"] * 3
    assert world.left() == (500, 500)
    world.env.advance(31 * SECOND)
    again = world.pull(b"1")
    assert tokens(again[0])[:2] == (2, 2501)


def test_what_is_acked_is_not_delivered_again_though_its_time_is_over() -> None:
    world = Acked(max_deliver=1)
    world.env.listen(b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    world.env.inject(NEXT, json.dumps({"batch": 9, "expires": 90 * SECOND}).encode(), b"inbox")
    world.ack_later(MANY)
    world.env.advance(31 * SECOND)
    assert seqs(world.env.take()) == []
    assert world.env.events == []
    assert world.left() == (0, 0)


def test_deletes_and_purges_meanwhile() -> None:
    world = Acked()
    world.ack_later(2900, b"inbox")
    world.stream.delete(2899, False)
    world.stream.delete(2901, False)
    world.stream.purge(None, 2000, 0)
    world.env.run()
    assert [m[0] for m in world.env.take()] == [b"inbox"]
    assert world.left() == (99, 99)
    world.ack_later(2950, b"inbox")
    world.stream.purge(None, 0, 0)
    world.env.run()
    assert [m[0] for m in world.env.take()] == [b"inbox"]
    assert world.left() == (0, 0)


def test_the_consumer_is_deleted_meanwhile() -> None:
    world = Acked(WORKQUEUE)
    world.ack_later(2900)
    world.handle.close(True)
    world.env.run()
    assert world.stream.state().messages == 100
    world.consumer(ack_policy=ACK_ALL)
    assert seqs(world.pull(b"1")) == [2901]


def test_the_stream_is_deleted_meanwhile() -> None:
    world = Acked()
    world.env.inject(NEXT, json.dumps({"expires": SECOND}).encode(), b"inbox")
    world.ack_later(2900, b"inbox")
    world.stream.close(True)
    world.env.run()
    assert [status(m) for m in world.env.take()] == ["409 Consumer Deleted"]
