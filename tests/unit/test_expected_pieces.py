"""A publish that expects the last sequence on a pattern: where that takes long it is looked for in
turns, and the publishes of the stream go on in their order."""

import pytest

from tests.unit.stream_world import World, headers, stream_params

MANY = 30_000
NONE = "s.*.none"


@pytest.fixture(scope="module")
def filled() -> World:
    """A stream of many subjects, in none of which the pattern is found soon."""
    world = World()
    for n in range(MANY):
        world.env.inject(b"s.%d.e" % n, b"x")
    world.env.run()
    world.env.take()
    return world


def expect(world: World, reply: bytes, pattern: str, seq: int, more: str = "") -> None:
    """A publish, and no turn after it."""
    lines = {
        "Nats_Expected_Last_Subject_Sequence": seq,
        "Nats_Expected_Last_Subject_Sequence_Subject": pattern,
    }
    header = headers(**lines)[:-2] + more.encode() + b"\r\n"
    world.env.inject(b"s.late", b"late", reply, header, run=False)


def plain(world: World, reply: bytes, subject: bytes = b"s.late") -> None:
    world.env.inject(subject, b"late", reply, b"", run=False)


def turns(world: World) -> tuple[int, list[tuple[bytes, str]]]:
    """How many turns it takes until nobody has more to do, and who is answered what."""
    count = 0
    answered = []
    while world.env.run(1):
        count += 1
    answered = [(m[0], m[4].decode()) for m in world.env.take()]
    return count, answered


def ack(seq: int) -> str:
    return f'{{"stream":"S","seq":{seq}}}'


def wrong(seq: int) -> str:
    return f"wrong last sequence: {seq}"


def test_publishes_behind_it_wait_for_it(filled: World) -> None:
    last = filled.stream.state().last_seq
    expect(filled, b"r1", NONE, 0)
    plain(filled, b"r2")
    expect(filled, b"r3", NONE, 7)
    plain(filled, b"r4")
    assert filled.env.take() == []
    count, answered = turns(filled)
    assert count >= 3
    assert [reply for reply, _ in answered] == [b"r1", b"r2", b"r3", b"r4"]
    assert [text for _, text in answered[:2]] == [ack(last + 1), ack(last + 2)]
    assert wrong(0) in answered[2][1]
    assert answered[3][1] == ack(last + 3)
    plain(filled, b"r5")
    assert turns(filled) == (0, [(b"r5", ack(last + 4))])


def test_what_comes_meanwhile_counts(filled: World) -> None:
    """What is waited for may go; publishes before it were there."""
    plain(filled, b"", b"s.x.none")
    seq = filled.stream.state().last_seq
    for n in range(300):
        plain(filled, b"", b"s.%d.e" % n)
    expect(filled, b"r1", NONE, seq)
    expect(filled, b"r2", NONE, 0)
    filled.env.run(1)
    assert filled.stream.delete(seq, False)
    _, answered = turns(filled)
    assert wrong(0) in answered[0][1]
    assert answered[1][1] == ack(seq + 301)


def test_what_is_found_soon_is_answered_at_once(filled: World) -> None:
    plain(filled, b"", b"s.y.soon")
    seq = filled.stream.state().last_seq
    expect(filled, b"r1", "s.*.soon", seq)
    assert turns(filled) == (0, [(b"r1", ack(seq + 1))])


def test_headers_that_are_stored_changed(filled: World) -> None:
    seq = filled.stream.state().last_seq
    expect(filled, b"r1", NONE, 0, "Nats-Request-Info: me\r\nA: b\r\n")
    assert turns(filled)[1] == [(b"r1", ack(seq + 1))]
    assert b"A: b\r\n" in filled.message(seq + 1).headers
    assert b"Request-Info" not in filled.message(seq + 1).headers


@pytest.mark.parametrize("how", ["purge", "update"])
def test_who_waits_goes_on_when_the_stream_changes(how: str) -> None:
    world = World()
    for n in range(MANY):
        world.env.inject(b"s.%d.e" % n, b"x")
    world.env.run()
    world.env.take()
    expect(world, b"r1", NONE, 0)
    plain(world, b"r2")
    world.env.run(1)
    if how == "purge":
        world.stream.purge(None, 0, 0)
        turns_, answered = turns(world)
        assert turns_ > 0
    else:
        world.stream.update(stream_params(max_msgs=10 * MANY))
        answered = [(m[0], m[4].decode()) for m in world.env.take()]
    assert answered == [(b"r1", ack(MANY + 1)), (b"r2", ack(MANY + 2))]
