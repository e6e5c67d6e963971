"""The sublist against a plain matcher, with insertions, removals, matches and gc in any order."""

import time
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from tests.cext.core import PyLook, PyMatch, PySublist

# Plain subscriptions; members of each group, and what they weigh.
Found = tuple[set[int], dict[bytes, set[int]], dict[bytes, int]]
Subs = dict[int, tuple[bytes, bytes, int]]


def matches(pattern: bytes, subject: bytes) -> bool:
    want, have = pattern.split(b"."), subject.split(b".")
    if b"" in have:
        return False
    for i, token in enumerate(want):
        if token == b">" and i == len(want) - 1:
            return len(have) > i
        if i >= len(have) or token not in (b"*", have[i]):
            return False
    return len(want) == len(have)


def expected(subs: Subs, subject: bytes) -> Found:
    plain: set[int] = set()
    groups: dict[bytes, set[int]] = {}
    weights: dict[bytes, int] = {}
    for number, (pattern, queue, weight) in subs.items():
        if matches(pattern, subject):
            if queue:
                groups.setdefault(queue, set()).add(number)
                weights[queue] = weights.get(queue, 0) + weight
            else:
                plain.add(number)
    return plain, groups, weights


def found(match: PyMatch) -> Found:
    """As sets, after checking that nothing is named twice."""
    plain, groups = match.read()
    names = [name for name, _ in groups]
    assert len(set(plain)) == len(plain)
    assert len(set(names)) == len(names), "one group a queue name"
    for _, members in groups:
        assert len(set(members)) == len(members) > 0
    return set(plain), {name: set(members) for name, members in groups}, match.weights()


def dotted(tokens: Iterable[bytes], size: int) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(list(tokens)), min_size=1, max_size=size).map(b".".join)


patterns = st.one_of(
    dotted([b"a", b"b", b"*", b"a*"], 4),
    dotted([b"a", b"b", b"*"], 3).map(lambda p: p + b".>"),
    st.just(b">"),
)
# Few, so that they come again and are cached; wildcards as literals and empty tokens among them.
subjects = st.one_of(
    dotted([b"a", b"b"], 3), dotted([b"a", b"b", b"*", b">", b"a*"], 5), dotted([b"a", b""], 3)
)
queues = st.sampled_from([b"", b"", b"q", b"r", b"a"])


class Look:
    """A look in pieces, and what it has to tell."""

    def __init__(self, look: PyLook, there: Iterable[int]) -> None:
        self.look = look
        self.there = set(there)
        self.told: list[int] = []
        self.ended: set[bytes] = set()
        """Subjects of what ended meanwhile."""


class SublistMachine(RuleBasedStateMachine):
    numbers = Bundle("numbers")

    def __init__(self) -> None:
        super().__init__()
        self.list = PySublist()
        self.subs: Subs = {}
        self.in_use: list[tuple[PyMatch, Found]] = []
        self.looks: list[Look] = []

    @rule(
        target=numbers,
        pattern=patterns,
        queue=queues,
        copies=st.integers(1, 9),
        weight=st.sampled_from([1, 1, 2, 2**32 - 1]),
    )
    def insert(self, pattern: bytes, queue: bytes, copies: int, weight: int) -> object:
        new = [self.list.insert(pattern, queue, weight) for _ in range(copies)]
        self.subs.update({n: (pattern, queue, weight) for n in new})
        return multiple(*new)

    @rule(number=consumes(numbers))
    def remove(self, number: int) -> None:
        self.list.remove(number)
        for look in self.looks:
            look.there.discard(number)
            look.ended.add(self.subs[number][0])
        del self.subs[number]

    @rule()
    def begin_a_look(self) -> None:
        self.looks.append(Look(self.list.look(), self.subs))

    @rule(room=st.integers(1, 30))
    def look_on(self, room: int) -> None:
        for look in self.looks:
            told = look.look.some(room)
            assert len(told) <= room
            assert set(told) <= set(self.subs), "what is told is there"
            twice = set(told) & set(look.told)
            assert {self.subs[number][0] for number in twice} <= look.ended
            look.told += told
            if look.look.done:
                assert look.there <= set(look.told)
        self.looks = [look for look in self.looks if not look.look.done]

    @rule(subject=subjects, times=st.integers(1, 3))
    def match(self, subject: bytes, times: int) -> None:
        for _ in range(times):
            want = expected(self.subs, subject)
            match = self.list.match(subject)
            assert found(match) == want
            self.in_use.append((match, want))

    @rule()
    def collect(self) -> None:
        for match, want in self.in_use:
            assert found(match) == want, "a result holds until it is collected"
        self.in_use.clear()
        self.list.gc()

    @invariant()
    def counts(self) -> None:
        assert self.list.stats()["subs"] == len(self.subs)
        assert sorted(self.list.each()) == sorted(self.subs)

    def teardown(self) -> None:
        self.collect()
        for number in self.subs:
            self.list.remove(number)
        self.list.gc()
        assert self.list.blocks == 0, "memory returns"


SublistMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSublist = SublistMachine.TestCase


def test_a_look_in_pieces_while_subscriptions_come_and_go() -> None:
    """Tables grow and shrink meanwhile, and subjects have more subscriptions than a piece."""
    lst = PySublist()
    stay = [lst.insert(b"s.%d" % i) for i in range(1000)]
    stay += [lst.insert(b"s.*.%d" % i, b"q") for i in range(1000)]
    stay += [lst.insert(b"same", b"q" if i % 2 else b"") for i in range(1000)]
    stay += [lst.insert(b"*.*.>") for _ in range(300)]
    look, told, others = lst.look(), [], []
    for turn in range(100_000):
        told += look.some(50)
        if look.done:
            break
        if turn < 40:
            others += [lst.insert(b"o.%d.%d" % (turn, i)) for i in range(200)]
            others += [lst.insert(b"o.%d.%d.>" % (turn, i)) for i in range(200)]
        else:
            for number in others[-400:]:
                lst.remove(number)
            del others[-400:]
        lst.gc()
    assert look.done
    assert len(told) == len(set(told))
    assert set(stay) <= set(told)


# ---- the cache -----------------------------------------------------------------------------------


def hits(lst: PySublist, subject: bytes) -> bool:
    before = lst.stats()["cache_hits"]
    lst.match(subject)
    lst.gc()
    return bool(lst.stats()["cache_hits"] > before)


def keep(lst: PySublist, subject: bytes) -> None:
    lst.match(subject)
    lst.match(subject)
    assert hits(lst, subject)


def test_a_subject_is_cached_when_it_comes_again() -> None:
    lst = PySublist()
    lst.insert(b"a.>")
    assert [hits(lst, b"a.b") for _ in range(4)] == [False, False, True, True]
    assert lst.stats()["cache"] == 1


def test_subjects_used_once_leave_no_allocation() -> None:
    lst = PySublist()
    lst.insert(b"_INBOX.>")
    lst.insert(b"_INBOX.*.x", b"q")
    lst.match(b"_INBOX.first.x")
    lst.gc()
    blocks = lst.blocks
    for i in range(5000):
        lst.match(b"_INBOX.%d.x" % i)
        lst.gc()
    assert lst.blocks == blocks
    assert lst.stats()["cache"] == 0


def test_a_result_that_nobody_looks_at_any_more_makes_room_for_the_next_one() -> None:
    lst = PySublist()
    first = lst.insert(b"_INBOX.*.>")
    second = lst.insert(b"_INBOX.*.x", b"q")
    outer = lst.match(b"_INBOX.outer.x")
    blocks = 0
    for i in range(100):
        inner = lst.match(b"_INBOX.%d.x" % i)
        assert inner.read() == ([first], [(b"q", [second])])
        lst.done(inner)
        blocks = blocks or lst.blocks
    assert lst.blocks == blocks
    assert outer.read() == ([first], [(b"q", [second])])
    lst.done(outer)
    # What was asked for meanwhile and not given back keeps its own, and so does what lies under it.
    left = lst.match(b"_INBOX.left.x")
    kept = lst.match(b"_INBOX.kept.x")
    lst.done(left)
    lst.match(b"_INBOX.other.x")
    assert left.read() == kept.read() == ([first], [(b"q", [second])])
    lst.gc()


def test_a_literal_coming_or_going_drops_only_its_own_subject() -> None:
    lst = PySublist()
    lst.insert(b"*")
    keep(lst, b"a")
    keep(lst, b"b")
    number = lst.insert(b"a")
    assert hits(lst, b"b") and not hits(lst, b"a")
    assert hits(lst, b"a"), "it is kept again at once"
    lst.remove(number)
    lst.gc()
    assert hits(lst, b"b") and not hits(lst, b"a")
    assert len(lst.match(b"a").read()[0]) == 1


def test_a_wildcard_coming_or_going_makes_results_stale() -> None:
    lst = PySublist()
    lst.insert(b"a")
    for change in (
        lambda: lst.insert(b"x.*"),
        lambda: lst.insert(b">"),
        lambda: lst.remove(lst.insert(b"*")),
    ):
        keep(lst, b"a")
        change()
        assert lst.stats()["cache"] == 0
        assert not hits(lst, b"a")
        assert hits(lst, b"a")


def test_results_survive_what_happens_while_they_are_in_use() -> None:
    lst = PySublist()
    numbers = [lst.insert(b"a") for _ in range(5)]
    keep(lst, b"a")
    cached = lst.match(b"a")
    lst.remove(numbers[0])
    second = lst.match(b"a")
    lst.remove(numbers[1])
    third = lst.match(b"a")
    assert cached.closed() == numbers[:2]
    assert second.closed() == numbers[1:2]
    assert third.closed() == []
    assert set(third.read()[0]) == set(numbers[2:])


def test_the_cache_is_bounded_in_entries() -> None:
    lst = PySublist()
    lst.insert(b">")
    for i in range(20000):
        for _ in range(2):
            lst.match(b"s.%d" % i)
        lst.gc()
    assert 1024 <= lst.stats()["cache"] <= 4096
    hot = [b"s.%d" % i for i in range(100)]
    for _ in range(3):
        for subject in hot:
            lst.match(subject)
            lst.match(subject)
        lst.gc()
    before = lst.stats()["cache_hits"]
    for subject in hot:
        lst.match(subject)
    assert lst.stats()["cache_hits"] - before >= 95


def test_the_cache_is_bounded_in_bytes() -> None:
    lst = PySublist()
    for _ in range(20000):
        lst.insert(b"wide.>")
    for i in range(200):
        for _ in range(2):
            assert len(lst.match(b"wide.%d" % i).read()[0]) == 20000
        lst.gc()
    assert 4 << 20 < lst.cached_bytes <= 8 << 20
    for _ in range(60000):
        lst.insert(b"wide.>")
    for _ in range(3):
        assert len(lst.match(b"wide.0").read()[0]) == 80000
        lst.gc()
    assert lst.stats()["cache"] == 0, "too large to keep"


def test_long_subjects_count_as_bytes_of_the_cache() -> None:
    lst = PySublist()
    lst.insert(b">")
    long = b"x" * 60000
    for i in range(500):
        lst.match(long + b"%d" % i)
        lst.match(long + b"%d" % i)
        lst.gc()
    assert 4 << 20 < lst.cached_bytes <= 8 << 20


# ---- size ----------------------------------------------------------------------------------------


def test_removal_does_not_depend_on_the_number_of_subscriptions_beside_it() -> None:
    lst = PySublist()
    numbers = [lst.insert(b"one.subject", b"q" if i % 2 else b"") for i in range(200_000)]
    for n in numbers:  # quadratic work would not end within the test's time
        lst.remove(n)
    lst.gc()
    assert lst.blocks == 0


def test_many_queue_names_on_one_subject() -> None:
    lst = PySublist()
    n = 50_000
    numbers = [lst.insert(b"jobs.*", b"group-%d" % i) for i in range(n)]
    _, groups = lst.match(b"jobs.new").read()
    assert dict(groups) == {b"group-%d" % i: [numbers[i]] for i in range(n)}
    for number in numbers:
        lst.remove(number)
    lst.gc()
    assert lst.blocks == 0


def test_subjects_of_many_tokens() -> None:
    lst = PySublist()
    deep = b".".join([b"t"] * 32768)
    stars = b".".join([b"*"] * 32768)
    numbers = [lst.insert(p) for p in (deep, stars, b">", b"t.*.>", stars + b".*", b"t.t")]
    assert set(lst.match(deep).read()[0]) == set(numbers[:4])
    assert set(lst.match(stars).read()[0]) == {numbers[1], numbers[2]}
    for number in numbers:
        lst.remove(number)
    lst.gc()
    assert lst.blocks == 0


def test_patterns_whose_nodes_double_at_every_token() -> None:
    lst = PySublist()
    depth = 10
    numbers = {
        lst.insert(b".".join(b"*" if n >> i & 1 else b"t" for i in range(depth)))
        for n in range(2**depth)
    }
    assert set(lst.match(b".".join([b"t"] * depth)).read()[0]) == numbers
    assert lst.match(b".".join([b"t"] * (depth + 1))).read() == ([], [])


def test_a_long_token_costs_once_what_it_is_long() -> None:
    """Of many nodes that could go on with it, none reads all of it again."""
    lst = PySublist()
    depth = 13
    for n in range(2**depth):
        parted = b".".join(b"*" if n >> i & 1 else b"t" for i in range(depth))
        lst.insert(parted + b".other")
    stem = b".".join([b"t"] * depth)
    took = []
    for token in (b"x", b"x" * 60_000):
        start = time.process_time()
        for n in range(20):
            assert lst.match(stem + b".%d%s" % (n, token)).read() == ([], [])
            lst.gc()
        took.append(time.process_time() - start)
    assert took[1] < 10 * took[0], "read by each node it costs a hundred times as much"


def test_patterns_with_a_literal_beside_each_star() -> None:
    """As many nodes that part, one below the other, as a line of the protocol has room for."""
    lst = PySublist()
    depth = 2000
    numbers = [lst.insert(b"*." * stars + b"t") for stars in range(depth)]
    all_stars = lst.insert(b".".join([b"*"] * depth))
    assert set(lst.match(b".".join([b"t"] * depth)).read()[0]) == {numbers[-1], all_stars}
    assert set(lst.match(b".".join([b"x"] * depth)).read()[0]) == {all_stars}


@pytest.mark.parametrize("kind", [b"literal.%d", b"wild.%d.*", b"wild.%d.>", b"%d.*.x.*.y"])
def test_memory_returns(kind: bytes) -> None:
    lst = PySublist()
    stays = lst.insert(b"keep.*")
    blocks = lst.blocks
    numbers = [lst.insert(kind % i, b"q%d" % i if i % 3 == 0 else b"") for i in range(20_000)]
    assert lst.blocks >= blocks + 20_000
    for number in numbers:
        lst.remove(number)
    lst.gc()
    assert lst.blocks == blocks
    assert lst.match(b"keep.x").read() == ([stays], [])
    lst.remove(stays)
    lst.gc()
    assert lst.blocks == 0


def test_statistics() -> None:
    lst = PySublist()
    for i in range(3):
        lst.insert(b"a")
        lst.insert(b"a", b"q")
        lst.insert(b"b", b"q%d" % i)
    last = lst.insert(b"c")
    for subject in (b"a", b"b"):
        keep(lst, subject)
    lst.remove(last)
    stats = lst.stats()
    assert stats["inserts"] == 10 and stats["removes"] == 1 and stats["subs"] == 9
    assert stats["matches"] == 6 and stats["cache_hits"] == 2
    assert stats["max_fanout"] == 4 and stats["avg_fanout"] == 3.5
