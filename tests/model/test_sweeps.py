"""Looks at every subject in pieces, between which messages come and go, against a dict."""

from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cext.store import PySearch, PyStore, PySweep
from tests.model.test_store import matches

Kind = Literal["next", "last", "count"]

MANY = 21_000
"""Subjects: more than the first piece looks at, and than one piece by number does."""
FEW = 1000
"""Messages that a purge leaves which makes the index of them anew."""
NUMBERS = st.integers(0, MANY + 50)
FILTERS = [(), ("k.*.e",), ("*.*.e", "k.7.>"), ("k.>",), ("k.*.x",), ("k.*.e", "n.*")]
CHANGES = st.one_of(
    st.tuples(st.just("append"), NUMBERS),
    st.tuples(st.just("remove"), st.integers(1, 2 * MANY)),
    st.tuples(st.just("purge"), NUMBERS),
    st.tuples(st.just("head"), st.integers(1, MANY)),
    st.tuples(st.just("all"), st.just(0)),
    st.tuples(st.just("step"), st.just(0)),
    st.tuples(st.just("step"), st.just(1)),
)


def subject_of(number: int) -> str:
    return f"k.{number}.e" if number < MANY else f"n.{number}"


class World:
    """A store with many subjects, and what it is to hold."""

    def __init__(self, again: int) -> None:
        self.store = PyStore(commit="manual")
        self.live: dict[int, str] = {}
        self.last = 0
        for n in range(MANY):
            self.append(n)
        for n in range(0, again * 7, 7):
            self.append(n % MANY)

    def append(self, number: int) -> None:
        self.last += 1
        assert self.store.append(subject_of(number), b"x") == self.last
        self.live[self.last] = subject_of(number)

    def change(self, kind: str, number: int) -> None:
        """Another than `all` and `step`."""
        if kind == "append":
            self.append(number)
        elif kind == "remove" and number in self.live:
            self.store.remove(number)
            del self.live[number]
        elif kind == "purge":
            self.store.purge(subject_of(number))
            self.live = {q: s for q, s in self.live.items() if s != subject_of(number)}
        elif kind == "head" and self.last - number > 1:
            self.store.purge((), seq=number)
            self.live = {q: s for q, s in self.live.items() if q >= number}

    def matching(self, patterns: tuple[str, ...]) -> list[int]:
        return [q for q, s in self.live.items() if any(matches(p, s) for p in patterns)]

    def counts(self, patterns: tuple[str, ...]) -> dict[str, int]:
        found: dict[str, int] = {}
        for subject in self.live.values():
            if not patterns or any(matches(p, subject) for p in patterns):
                found[subject] = found.get(subject, 0) + 1
        return found

    def lasts(self, patterns: tuple[str, ...], upto: int) -> list[int]:
        found: dict[str, int] = {}
        for seq, subject in self.live.items():
            if seq <= upto and (not patterns or any(matches(p, subject) for p in patterns)):
                found[subject] = seq
        return sorted(found.values())


@pytest.mark.parametrize("patterns", FILTERS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    changes=st.lists(CHANGES, min_size=4, max_size=60),
    again=st.integers(0, 3000),
    back=st.integers(0, 4000),
)
def test_the_answer_is_that_of_the_first_moment(
    patterns: tuple[str, ...], changes: list[tuple[str, int]], again: int, back: int
) -> None:
    world = World(again)
    upto = world.last - back
    counts, lasts = PySweep(world.store, patterns), PySweep(world.store, patterns, upto=upto)
    want_counts, want_lasts = world.counts(patterns), world.lasts(patterns, upto)
    more = [True, True]
    sweeps: list[PySweep[Any]] = [counts, lasts]
    emptied = [False, False]
    moments: list[list[object]] = [[want_counts], [want_lasts]]
    for kind, which in changes:
        if kind == "step":
            more[which] = more[which] and sweeps[which].step()
        elif kind == "all":
            world.store.purge()
            world.live = {}
            emptied = [e or m for e, m in zip(emptied, more, strict=True)]
        else:
            world.change(kind, which)
            if kind == "head" and len(world.live) <= FEW:
                for looks, of, now in zip(
                    more,
                    moments,
                    (world.counts(patterns), world.lasts(patterns, upto)),
                    strict=True,
                ):
                    of += [now] * looks
    # Of what was purged whole while they looked, or but for a few, they may tell as well as of the
    # beginning.
    assert counts.result() in ([{}] if emptied[0] else moments[0])
    found = lasts.result()
    assert found in moments[1] or (emptied[1] and found == [])
    world.store.close()


SEARCHED = [
    ("*.*.x",),
    ("k.*.e", "n.*"),
    ("n.*", "k.5.*"),
    ("*.*",),
    ("k.*.e",),
    ("k.9.>", "*.8.e"),
]


@pytest.mark.parametrize("patterns", SEARCHED)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(CHANGES, min_size=4, max_size=60), start=st.integers(1, MANY))
def test_searches_in_pieces_answer_as_it_is_at_their_end(
    patterns: tuple[str, ...], changes: list[tuple[str, int]], start: int
) -> None:
    world = World(0)
    searches = {
        kind: PySearch(world.store, kind, patterns, start) for kind in ("next", "last", "count")
    }
    more = dict.fromkeys(searches, True)
    gone = 0
    """Of what was counted."""

    def compare(kind: str) -> None:
        there = world.matching(patterns)
        later = [q for q in there if q >= start]
        wanted = {
            "next": later[0] if later else 0,
            "last": there[-1] if there else 0,
            "count": len(later) + gone,
        }
        assert searches[kind].found == wanted[kind], kind

    for kind, which in [*changes, *[("step", 0)] * 100]:
        before = world.matching(patterns) if more["count"] and kind in ("all", "remove") else []
        if kind == "step":
            for name, search in searches.items():
                if more[name]:
                    more[name] = search.step()
                    if not more[name]:
                        compare(name)
        elif kind == "all":
            world.store.purge()
            world.live = {}
        elif kind not in ("purge", "head"):
            world.change(kind, which)
        counted = range(start, searches["count"].at)
        gone += sum(q in counted and q not in world.live for q in before)
    assert not any(more.values())
    world.store.close()


def test_looks_that_nobody_waits_for_and_those_of_a_store_that_is_closed() -> None:
    world = World(0)
    sweeps: list[PySweep[Any]]
    sweeps = [PySweep(world.store), PySweep(world.store, upto=world.last), PySweep(world.store)]
    assert sweeps[0].step()
    del sweeps[0]
    world.append(1)
    assert sweeps[0].result() == list(range(1, MANY + 1))
    world.store.close()
    with pytest.raises(RuntimeError, match="closed"):
        sweeps[1].step()


def test_a_look_begins_again_where_the_end_is_cut_off() -> None:
    world = World(0)
    counts, lasts = PySweep(world.store), PySweep(world.store, upto=world.last)
    assert counts.step()
    assert lasts.step()
    world.store.truncate(20_000)
    assert counts.result() == {subject_of(n): 1 for n in range(20_000)}
    assert lasts.result() == list(range(1, 20_001))
    world.store.close()


def test_more_than_asked_for_ends_the_look() -> None:
    world = World(0)
    assert len(PySweep(world.store, upto=world.last, most=10).result()) > 10
    assert PySweep(world.store, ("k.5.*",), upto=world.last, most=10).result() == [6]
    world.store.close()


@pytest.mark.parametrize("pattern", ["k.1*", "k.1>", "k.12.e*", "*.1*", "k.2*.e"])
def test_loose_patterns_match_the_same_by_number(pattern: str) -> None:
    """A last token `x*` stands for what begins with x: nine tenths are looked at by number."""
    small = PyStore(commit="manual")
    world = World(0)
    for n in range(0, MANY, 10):
        small.append(subject_of(n))
        world.store.append(f"{subject_of(n)}.deep")
        small.append(f"{subject_of(n)}.deep")
    want = PySweep(small, (pattern,), loose=True).result()
    found = PySweep(world.store, (pattern, "nothing.else"), loose=True).result()
    assert want.items() <= found.items()
    assert {s for s in found if s.removesuffix(".deep").endswith("0.e")} == set(want)
    small.close()
    world.store.close()


def test_long_ways_past_other_messages_are_gone_in_pieces() -> None:
    """Each slot is looked at, 262,144 a piece."""
    store = PyStore(commit="manual")
    for n in range(5000):
        store.append(f"rare.{n}")
    store.append_many("noise.#", 600_000, 10, 0)
    store.append("rare.5000")
    last = 605_001
    cases: list[tuple[Kind, int, int]]
    cases = [("next", 5001, last), ("count", 2, 5000), ("last", 1, last)]
    for kind, start, found in cases:
        search = PySearch(store, kind, ("rare.*", "nothing"), start)
        steps = 1
        while search.step():
            steps += 1
        assert search.found == found
        assert kind == "last" or steps > 2
    store.remove(last)
    search = PySearch(store, "last", ("rare.*", "nothing"))
    steps = 0
    while search.step():
        steps += 1
        if steps == 3:
            store.append("rare.7")
    assert (search.found, steps > 2) == (last + 1, True)
    store.close()


def test_the_heap_of_a_sparse_filter_is_made_in_pieces() -> None:
    """Two thousand subjects a piece; what comes and goes between two of them counts."""
    store = PyStore(commit="manual")
    many = 20_000
    for n in range(many):
        store.append(f"rare.{n}")
    store.append_many("noise.#", 2_000_000, 10, 0)
    last = store.append("rare.5")
    search = PySearch(store, "next", ("rare.*", "nothing"), many + 1)
    while search.step():  # as long as it looks at every message
        at = search.at
        if at == search_at(search, at):
            break
    steps = 0
    store.remove(last)
    while search.step():
        steps += 1
        if steps == 4:
            store.append("rare.born")
            store.append("rare.7")
            store.remove(last + 1)
    assert (search.found, steps >= many // 2048) == (last + 2, True)
    store.close()


def search_at(search: PySearch, at: int) -> int:
    """Where it stands after another piece."""
    search.step()
    return search.at
