"""A timing wheel hands out every key at its tick, whatever comes and goes meanwhile."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cext.stream import TimingWheel

NEVER = (1 << 64) - 1
START = (1_700_000_000 * 10**9) >> 22
AHEAD = st.one_of(
    st.integers(0, 70), st.integers(0, 5000), st.integers(0, 1 << 20), st.integers(0, 1 << 40)
)
STEP = st.one_of(
    st.tuples(st.just("add"), AHEAD),
    st.tuples(st.just("advance"), AHEAD),
    st.tuples(st.just("again"), st.integers(0, 3)),
    st.tuples(st.just("forget"), st.integers(0, 50)),
)


def due(wheel: TimingWheel, upto: int, work: int) -> list[int]:
    found = []
    while True:
        rc, key = wheel.take(upto, work)
        if rc == 1:
            found.append(key)
        elif rc == 0:
            return found


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=60), st.integers(2, 40))
def test_against_a_list(steps: list[tuple[str, int]], work: int) -> None:
    wheel = TimingWheel(START)
    now = START
    pending: dict[int, int] = {}
    for key, (what, n) in enumerate(steps):
        if what == "add":
            wheel.add(key, now + n)
            pending[key] = now + n
        elif what == "again":
            wheel.again(now - n)
        elif what == "forget" and n in pending:
            wheel.unwanted.add(n)
        elif what == "advance":
            now += n
            found = due(wheel, now, work)
            wanted = {k for k, tick in pending.items() if tick <= now}
            assert len(found) == len(set(found))
            assert wanted - wheel.unwanted <= set(found) <= wanted
            for k in wanted:
                del pending[k]
            ahead = [tick for k, tick in pending.items() if k not in wheel.unwanted]
            assert now < wheel.next <= min(ahead, default=NEVER)
    assert len(pending.keys() - wheel.unwanted) <= len(wheel) <= len(pending)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 20), st.integers(1, 200))
def test_what_comes_first_leaves_first(ahead: int, n: int) -> None:
    wheel = TimingWheel(START)
    for key in range(n):
        wheel.add(key, START + ahead)
    assert due(wheel, START + ahead, 1_000_000) == list(range(n))
    assert (len(wheel), wheel.next) == (0, NEVER)


def test_what_is_late_comes_at_once() -> None:
    wheel = TimingWheel(START)
    wheel.add(1, START - 100)
    assert due(wheel, START, 10) == [1]


def test_a_clock_that_was_ahead_keeps_nothing_until_then() -> None:
    wheel = TimingWheel(START + 1_000_000)
    wheel.add(1, START + 5)
    assert wheel.next == START + 1_000_000
    wheel.again(START)
    assert due(wheel, START + 4, 1000) == []
    assert due(wheel, START + 5, 1000) == [1]
