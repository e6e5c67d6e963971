"""What is pending is counted in turns, between which messages come and go, against a dict."""

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.test_store import matches
from tests.unit.stream_world import LAST, LAST_PER_SUBJECT, World, consumer_params, seqs, tokens

MANY = 18_000
"""Subjects: more than are looked at in one turn."""
CHANGES = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, MANY + 20)),
    st.tuples(st.just("delete"), st.integers(1, MANY)),
    st.tuples(st.just("purge"), st.integers(0, MANY)),
    st.tuples(st.just("turn"), st.just(0)),
    st.tuples(st.just("turn"), st.just(0)),
)


def subject_of(number: int) -> bytes:
    return b"s.k.%d.e" % number if number < MANY else b"s.n.%d" % number


class Counted(World):
    """A stream with many subjects, and what it is to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, bytes] = {}
        self.last = 0
        for n in range(MANY):
            self.add(n)

    def add(self, number: int) -> None:
        self.env.inject(subject_of(number), b"x", run=False)
        self.last += 1
        self.live[self.last] = subject_of(number)

    def forget(self) -> None:
        """After so many new subjects a filter finds out again what it matches; a purge counts."""
        for n in range(4200):
            self.env.inject(b"s.z.%d" % n, b"x", run=False)
            self.last += 1
            self.live[self.last] = b"s.z.%d" % n
        self.change("purge", 3)

    def change(self, kind: str, number: int) -> None:
        if kind == "publish":
            self.add(number)
        elif kind == "delete":
            assert self.stream.delete(number, False) == (self.live.pop(number, None) is not None)
        elif kind == "purge":
            self.stream.purge(subject_of(number), 0, 0)
            self.live = {q: s for q, s in self.live.items() if s != subject_of(number)}
        else:
            self.env.run(1)

    def matching(self, patterns: tuple[bytes, ...]) -> list[int]:
        return [
            q
            for q, s in self.live.items()
            if any(matches(p.decode(), s.decode()) for p in patterns)
        ]


@pytest.mark.parametrize(
    "patterns", [(b"s.k.*.e",), (b"s.*.*.e", b"s.n.*"), (b"s.*.*.e", b"s.k.7.*")]
)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(CHANGES, min_size=2, max_size=40), again=st.booleans())
def test_what_is_pending_is_as_if_counted_at_once(
    patterns: tuple[bytes, ...], changes: list[tuple[str, int]], again: bool
) -> None:
    world = Counted()
    handle = world.consumer(filters=(b"s.other",) if again else patterns)
    if again:
        handle.update(consumer_params(filters=patterns))
    assert handle.state().num_pending == len(world.matching(patterns))
    world.forget()
    assert handle.counting()
    for kind, number in changes:
        world.change(kind, number)
    there = world.matching(patterns)
    assert handle.state().num_pending == len(there)
    taken = world.pull(b"3")
    assert seqs(taken) == there[:3]
    assert [tokens(m)[4] for m in taken] == [len(there) - n for n in range(1, len(taken) + 1)]


def test_nothing_is_delivered_before_it_is_counted() -> None:
    world = Counted()
    handle = world.consumer(filters=(b"s.k.*.e",))
    handle.update(consumer_params(filters=(b"s.*.*.e", b"s.n.*")))
    world.forget()
    assert handle.counting()
    pulled = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
    world.env.take()
    for _ in range(3):
        world.env.inject(b"s.other", b"x", run=False)
    world.env.inject(pulled, b"1", b"inbox", run=False)
    (message,) = world.env.take() if world.env.run() else []
    assert tokens(message)[4] == MANY - 2
    assert not handle.counting()


@pytest.mark.parametrize("policy", [LAST, LAST_PER_SUBJECT])
def test_a_start_by_last_messages_is_of_one_moment(policy: int) -> None:
    """Another thread publishes while the consumer is made."""
    patterns = (b"s.k.*.e", b"s.n.*")
    world = Counted()
    before = world.last
    opened = []
    maker = threading.Thread(
        target=lambda: opened.append(
            world.consumer(filters=patterns, deliver_policy=policy, max_ack_pending=-1)
        )
    )
    maker.start()
    number = 0
    while maker.is_alive() or number < 50:
        world.add((number * 977) % (MANY + 20))
        number += 1
    maker.join()
    found = seqs(world.pull(b"%d" % world.last))
    assert opened[0].state().num_pending == 0

    def expected(last: int) -> list[int]:
        if policy == LAST:
            return list(range(last, world.last + 1))
        newest = {s: q for q, s in world.live.items() if q <= last}
        return sorted(newest.values()) + list(range(last + 1, world.last + 1))

    assert any(found == expected(last) for last in range(before, world.last + 1))
    world.stream.close(True)


def test_a_stream_is_deleted_while_a_consumer_is_made() -> None:
    for _ in range(5):
        world = Counted()
        maker = threading.Thread(
            target=lambda world=world: world.consumer(
                filters=(b"s.*.*.e",), deliver_policy=LAST_PER_SUBJECT
            )
        )
        maker.start()
        world.stream.close(True)
        maker.join(30)
        assert not maker.is_alive()
