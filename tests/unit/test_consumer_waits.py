"""A time for an ack, or a backoff, that is changed while much is pending."""

import random
from typing import Any

import pytest

from tests.seeds import seed_of
from tests.unit.stream_world import MS, SECOND, World, consumer_params, seqs

MANY = 7000
"""More than are looked at in one turn."""
SOON = 100
"""Nanoseconds that it takes until all have come that are due at once, a thousand at a time."""
WAITS: list[dict[str, Any]] = [
    {"ack_wait": 20 * SECOND},
    {"ack_wait": 5 * SECOND},
    {"ack_wait": 8 * SECOND, "backoff": (8 * SECOND, 2 * SECOND, 30 * SECOND)},
    {"ack_wait": 3 * SECOND, "backoff": (3 * SECOND, 11 * SECOND)},
    {"ack_wait": SECOND, "backoff": (SECOND, 9 * SECOND, 4 * SECOND)},
]


def params(waits):
    return consumer_params(max_ack_pending=-1, **waits)


def wait_of(waits, deliveries):
    steps = waits.get("backoff", (waits["ack_wait"],))
    return steps[min(deliveries, len(steps)) - 1]


def test_a_backoff_that_is_changed_goes_through_what_is_pending_in_turns():
    world = World()
    c = world.consumer(max_ack_pending=-1, **WAITS[2])
    world.fill(MANY)
    world.pull(b"%d" % MANY)
    c.update(params(WAITS[4]))
    turns = 0
    while world.env.run(1):
        turns += 1
    assert turns > 1  # others have theirs between
    world.pull(b"%d" % MANY)
    world.env.advance(SECOND - 1)
    assert world.env.take() == []
    world.env.advance(SOON)
    assert sorted(seqs(world.env.take())) == [*range(1, MANY + 1)]


def test_what_is_acked_before_its_turn_comes_leaves_the_rest_in_it():
    world = World()
    c = world.consumer(max_ack_pending=-1, **WAITS[2])
    world.fill(MANY)
    got = world.pull(b"%d" % MANY)
    c.update(params(WAITS[4]))
    for message in got[1000:5000]:
        world.env.inject(message[2], b"", run=False)
    world.pull(b"%d" % MANY)
    world.env.advance(SECOND + SOON)
    assert sorted(seqs(world.env.take())) == [*range(1, 1001), *range(5001, MANY + 1)]


@pytest.mark.parametrize("end", ["ack all", "delete", "reset"])
def test_a_consumer_may_end_while_its_deadlines_move(end):
    world = World()
    c = world.consumer(max_ack_pending=-1, **WAITS[2])
    world.fill(MANY)
    got = world.pull(b"%d" % MANY)
    c.update(params(WAITS[4]))
    if end == "ack all":
        for message in got:
            world.env.inject(message[2], b"", run=False)
    elif end == "delete":
        c.close(True)
    else:
        c.reset(0)
    world.env.advance(20 * SECOND)
    if end != "delete":
        assert c.state().num_ack_pending == 0


@pytest.mark.parametrize("round", range(6))
def test_each_message_is_due_by_the_last_change(round):
    """Acks, delays and further changes come at any time."""
    rng = random.Random(seed_of("WAITS_SEED") * 1000 + round)
    world, waits = World(), WAITS[round % len(WAITS)]
    c = world.consumer(max_ack_pending=-1, **waits)
    world.fill(MANY)
    due: dict[int, int] = {}
    times: dict[int, int] = {}
    replies: dict[int, bytes] = {}
    now = world.env.mono

    def came():
        for message in world.env.take():
            if message[2].startswith(b"$JS.ACK."):
                seq = seqs([message])[0]
                times[seq] = times.get(seq, 0) + 1
                assert world.env.mono + SOON >= due.get(seq, 0), "it came too early"
                due[seq] = world.env.mono + wait_of(waits, times[seq])
                replies[seq] = message[2]

    world.env.inject(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"1000000", b"inbox")
    came()
    assert len(due) == MANY
    for _ in range(60):
        act = rng.choice(["ack", "delay", "change", "change", "turn", "turn", "time"])
        if act in ("ack", "delay"):
            for seq in rng.sample(sorted(due), min(len(due), rng.choice([1, 30, 400]))):
                body = b"" if act == "ack" else b"-NAK 7s"
                world.env.inject(replies[seq], body, run=False)
                if act == "delay":
                    due[seq] = world.env.mono + 7 * SECOND
                else:
                    del due[seq]
        elif act == "change":
            before, waits = waits, rng.choice(WAITS)
            c.update(params(waits))
            for seq in due:
                due[seq] += wait_of(waits, times[seq]) - wait_of(before, times[seq])
        elif act == "turn":
            world.env.run(rng.choice([1, 2]))
            came()
        else:
            end = world.env.mono + rng.choice([0, 1, 300 * MS, SECOND, 3 * SECOND])
            while due and min(due.values()) <= end:
                before = world.env.mono
                world.env.advance(max(min(due.values()) - before, 1))
                came()
                assert world.env.mono < end + SOON, f"{min(due)} does not come"
            world.env.advance(max(end - world.env.mono, 0))
            came()
    assert world.env.mono > now


def test_waits_of_centuries_that_come_and_go_leave_other_deadlines_as_they_are():
    world = World()
    c = world.consumer(ack_wait=SECOND)
    world.fill(2)
    long = 1 << 62
    for _ in range(9):
        c.update(consumer_params(backoff=(long,), ack_wait=long))
        c.update(consumer_params(ack_wait=long))
        c.update(consumer_params(ack_wait=SECOND))
    never, soon = world.pull(b"2")
    world.ack(never, b'-NAK {"delay": %d}' % long)
    world.ack(soon, b'-NAK {"delay": %d}' % (2 * SECOND))
    world.pull(b"9")
    world.env.advance(2 * SECOND)
    assert seqs(world.env.take()) == [2]
