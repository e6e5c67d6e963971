"""Subject rules against the definition of a match, on all small patterns."""

import itertools

import pytest

from jsserver.api import subjects
from jsserver.api.subjects import PatternIndex

TOKENS = ("a", "b", "*")
PATTERNS = [
    ".".join(tokens) for n in (1, 2, 3) for tokens in itertools.product(TOKENS, repeat=n)
] + [".".join((*tokens, ">")) for n in (0, 1, 2) for tokens in itertools.product(TOKENS, repeat=n)]
LITERALS = [".".join(tokens) for n in (1, 2, 3, 4) for tokens in itertools.product("abc", repeat=n)]


def matches(pattern: str, literal: str) -> bool:
    want, have = pattern.split("."), literal.split(".")
    if want[-1] == ">":
        if len(have) < len(want):
            return False
        want, have = want[:-1], have[: len(want) - 1]
    return len(want) == len(have) and all(w in ("*", h) for w, h in zip(want, have, strict=True))


MATCHED = {p: {s for s in LITERALS if matches(p, s)} for p in PATTERNS}


def test_covers_and_overlap_agree_with_matching() -> None:
    for a, b in itertools.product(PATTERNS, repeat=2):
        assert subjects.covers(a, b) == (MATCHED[a] >= MATCHED[b]), (a, b)
        assert subjects.overlap(a, b) == bool(MATCHED[a] & MATCHED[b]), (a, b)


def test_index_finds_exactly_what_overlaps() -> None:
    index: PatternIndex[str] = PatternIndex()
    for pattern in PATTERNS:
        index.add(pattern, pattern)
    for pattern in PATTERNS:
        want = sorted(p for p in PATTERNS if subjects.overlap(p, pattern))
        assert sorted(index.overlapping(pattern)) == want


def test_index_forgets_what_is_removed() -> None:
    index: PatternIndex[int] = PatternIndex()
    index.add("a.*", 1)
    index.add("a.*", 2)
    index.add("a.b.c", 3)
    index.remove("a.*", 1)
    assert list(index.overlapping("a.b")) == [2]
    index.remove("a.*", 2)
    index.remove("a.b.c", 3)
    assert list(index.overlapping(">")) == []
    with pytest.raises((KeyError, ValueError)):
        index.remove("a.*", 1)


@pytest.mark.parametrize("subject", ["a", "a.b", "*", ">", "a.>", "a.*.b", "a>", "$JS.API", "é.b"])
def test_valid(subject: str) -> None:
    assert subjects.is_valid(subject)


@pytest.mark.parametrize(
    "subject", ["", ".", "a.", ".a", "a..b", ">.a", "a b", "a\t", "a.>.b", "\f"]
)
def test_invalid(subject: str) -> None:
    assert not subjects.is_valid(subject)
