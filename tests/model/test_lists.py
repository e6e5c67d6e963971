"""Intrusive lists hold what Python's lists hold, from both ends, whatever comes and goes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cext.bytes import PyLists

MEMBERS = 6
MEMBER = st.integers(0, MEMBERS - 1)
WHICH = st.integers(0, 1)
STEP = st.one_of(
    st.tuples(st.sampled_from(["front", "back"]), WHICH, MEMBER),
    st.tuples(st.just("insert"), MEMBER, MEMBER),
    st.tuples(st.sampled_from(["drop", "remove"]), MEMBER, st.just(0)),
    st.tuples(st.sampled_from(["pop", "take"]), WHICH, st.just(0)),
    st.tuples(st.just("keep"), WHICH, st.sets(MEMBER)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_against_python_lists(steps) -> None:
    lists = PyLists(MEMBERS)
    model: list[list[int]] = [[], []]

    def home(member: int) -> list[int] | None:
        return next((held for held in model if member in held), None)

    for what, a, b in steps:
        if what in ("front", "back") and home(b) is None:
            (lists.push_front if what == "front" else lists.push_back)(a, b)
            model[a].insert(0 if what == "front" else len(model[a]), b)
        elif what == "insert" and home(b) is None and (held := home(a)) is not None:
            lists.insert(a, b)
            held.insert(held.index(a) + 1, b)
        elif what == "drop":
            held = home(a)
            assert lists.drop(a) == (held is not None)
            if held is not None:
                held.remove(a)
        elif what == "remove" and (held := home(a)) is not None:
            lists.remove(a)
            held.remove(a)
        elif what == "pop":
            assert lists.pop(a) == (model[a].pop(0) if model[a] else None)
        elif what == "take":
            lists.take(a)
            model[a] += model[1 - a]
            model[1 - a] = []
        elif what == "keep":
            assert lists.keep(a, b) == model[a]
            model[a] = [member for member in model[a] if member in b]
        for which in (0, 1):
            assert lists.forward(which) == model[which]
            assert lists.backward(which) == model[which][::-1]
        for member in range(MEMBERS):
            assert lists.linked(member) == (home(member) is not None)
