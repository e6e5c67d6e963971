"""Long removals are done in pieces: what happens between two of them."""

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cext.store import PyStore
from tests.cext.stream import PurgeInPieces, TestEnv
from tests.unit.stream_world import ALL, WORKQUEUE, World

if TYPE_CHECKING:
    from tests.cext.stream import Change

MANY = 5000


def subjects_of(world: World) -> list[bytes]:
    state = world.stream.state()
    found = (world.stream.get(seq) for seq in range(state.first_seq, state.last_seq + 1))
    return [message.subject for message in found if message is not None]


def filled(**params: object) -> World:
    """A stream of `MANY` messages, by turns of `s.a` and `s.b.<n>`."""
    world = World(**params)
    for n in range(MANY):
        world.env.inject(b"s.a" if n % 2 == 0 else b"s.b.%d" % n, b"x")
    return world


def finish(*purges: PurgeInPieces) -> int:
    steps = 0
    while any([purge.step() for purge in purges]):
        steps += 1
    return steps


def test_a_purge_is_of_what_is_there_when_it_begins() -> None:
    world = filled()
    purge = PurgeInPieces(world.stream, b"s.b.*")
    while purge.step():
        assert b"seq" in world.publish(b"s.b.1", b"late").encode()
        world.publish(b"s.a", b"late")
    late = world.stream.state().last_seq - MANY
    assert late >= 4
    assert purge.gone == MANY // 2
    assert subjects_of(world) == [b"s.a"] * (MANY // 2) + [b"s.b.1", b"s.a"] * (late // 2)


@pytest.mark.parametrize("pattern", [None, b">", b"s.>", b"s.*", b"s.a"])
@pytest.mark.parametrize("keep", [0, 1, 700, 2300, 2499, 2500, 2501, 4999, 5000, 6000])
def test_what_a_purge_keeps_are_the_newest_of_its_begin(pattern: bytes | None, keep: int) -> None:
    world = filled()
    matching = [n for n in range(1, MANY + 1) if pattern in (None, b">", b"s.>") or n % 2]
    purge = PurgeInPieces(world.stream, pattern, keep=keep)
    while purge.step():
        world.publish(b"s.a", b"late")
    gone = set(matching[: max(0, len(matching) - keep)])
    assert purge.gone == len(gone)
    kept = [n for n in range(1, MANY + 1) if world.stream.get(n) is not None]
    assert kept == [n for n in range(1, MANY + 1) if n not in gone]


@pytest.mark.parametrize("seq", [1, 2, 1500, MANY, MANY + 1, MANY + 900])
@pytest.mark.parametrize("pattern", [None, b"s.a", b"s.b.>"])
def test_a_purge_up_to_a_sequence(pattern: bytes | None, seq: int) -> None:
    world = filled()
    kept = [
        n
        for n in range(1, MANY + 1)
        if n >= seq or (pattern is not None and (n % 2 == 1) != (pattern == b"s.a"))
    ]
    purge = PurgeInPieces(world.stream, pattern, seq)
    finish(purge)
    assert purge.gone == MANY - len(kept)
    assert [n for n in range(1, MANY + 1) if world.stream.get(n) is not None] == kept
    last = world.stream.state().last_seq
    assert last == (max(MANY, seq - 1) if pattern is None and seq > MANY else MANY)


def test_purges_side_by_side_and_deletes_between() -> None:
    world = filled()
    first = PurgeInPieces(world.stream, b"s.b.*")
    second = PurgeInPieces(world.stream, b"s.>", keep=10)
    random.seed(3)
    deleted = 0
    while first.step() | second.step():
        deleted += world.stream.delete(random.randint(1, MANY - 20), False)
    assert first.gone + second.gone + deleted == MANY - 10 + sum(
        1 for n in range(MANY - 9, MANY + 1) if n % 2 == 0
    )
    assert subjects_of(world) == [b"s.a"] * 5


def test_a_purge_of_everything_between_two_pieces() -> None:
    world = filled()
    purge = PurgeInPieces(world.stream, b"s.b.*")
    world.stream.purge(None, 0, 0)
    for _ in range(3):
        world.publish(b"s.b.1")
    finish(purge)
    assert purge.gone < MANY // 2
    assert subjects_of(world) == [b"s.b.1"] * 3


@pytest.mark.parametrize("asked", [(b"s.b.*", 0, 0), (b"s.>", 0, 1500), (None, 3200, 0)])
def test_the_pieces_are_changes_that_make_the_same_stream(
    asked: tuple[bytes | None, int, int],
) -> None:
    world = World(max_msgs=MANY)
    changes: list[Change] = []
    world.env.record(world.stream, changes)
    for n in range(MANY):
        world.env.inject(b"s.a" if n % 2 == 0 else b"s.b.%d" % n, b"x")
    purge = PurgeInPieces(world.stream, *asked)
    while purge.step():
        for n in range(300):  # the limit takes some away meanwhile
            world.env.inject(b"s.b.%d" % n, b"late")
    env = TestEnv()
    again = World(env, active=False, max_msgs=MANY)
    for change in changes:
        env.apply(again.stream, change)
    assert subjects_of(again) == subjects_of(world)
    assert again.stream.state()[:5] == world.stream.state()[:5]


@pytest.mark.parametrize("pattern", [b"s.b.*", None])
def test_consumers_go_on_behind_what_a_purge_took(pattern: bytes | None) -> None:
    world = filled(retention=WORKQUEUE)
    handle = world.consumer(deliver_policy=ALL, max_ack_pending=5000)
    held = world.pull(b'{"batch":100,"no_wait":true}')
    purge = PurgeInPieces(world.stream, pattern, 0 if pattern else 4001)
    got = []
    while purge.step():
        got += world.pull(b'{"batch":1,"no_wait":true}')
        if held:
            world.ack(held.pop(0), b"+ACK")
    left = len(subjects_of(world))
    info = handle.state()
    assert info.num_pending + info.num_ack_pending == left
    rest = world.pull(b'{"batch":5000,"no_wait":true}')
    world.env.run()
    rest += world.env.take()
    info = handle.state()
    assert info.num_pending == 0
    assert info.num_ack_pending == left


# ---- limits ---------------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PyStore:
    return PyStore(tmp_path if request.param == "file" else None)


def fill(store: PyStore, count: int = MANY) -> None:
    for n in range(count):
        store.append(f"k.{n % 1000}", b"x")


def test_lower_limits_go_into_force_in_pieces(store: PyStore) -> None:
    fill(store)
    store.update(whole=False, max_msgs_per=2)
    before = store.state()["msgs"]
    steps = 0
    while store.trim():
        left = store.state()["msgs"]
        assert 0 <= before - left <= 1100
        before = left
        steps += 1
    assert steps >= 2
    assert store.state()["msgs"] == 2000
    assert store.state()["first_seq"] == MANY - 2000 + 1
    store.close()


def test_what_subjects_have_too_much_of_costs_no_other_its_only_message(store: PyStore) -> None:
    """Both limits are lowered, and publishes come between the pieces."""
    store.append("only", b"x")
    fill(store)
    store.update(whole=False, max_msgs_per=1, max_msgs=1002)
    while store.trim():
        store.append("k.7", b"late")
    assert store.state()["msgs"] == 1001
    assert store.last_of("only") == 1
    store.close()


def test_a_stream_that_is_written_to_comes_within_its_limits(store: PyStore) -> None:
    """As many are published as a piece removes."""
    fill(store)
    store.update(whole=False, max_msgs=100)
    steps = 0
    while store.trim():
        fill(store, 1000)
        steps += 1
    assert steps <= 10
    assert store.state()["msgs"] == 100
    store.close()


def test_limits_that_change_again_between_two_pieces(store: PyStore) -> None:
    fill(store)
    store.update(whole=False, max_msgs_per=1)
    store.trim()
    store.update(max_msgs_per=3)
    assert store.state()["msgs"] <= 3000
    assert not store.trim()
    fill(store)
    assert store.state()["msgs"] == 3000
    store.close()


def test_a_store_that_ends_between_two_pieces_comes_back_within_its_limits(tmp_path: Path) -> None:
    store = PyStore(tmp_path)
    fill(store)
    store.update(whole=False, max_msgs_per=1)
    store.trim()
    store.close()
    store = PyStore(tmp_path, max_msgs_per=1)
    assert store.state()["msgs"] == 1000
    assert store.state()["first_seq"] == MANY - 999
    store.close()
