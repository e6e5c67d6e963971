"""The index of patterns against the rule of overlap, on all small patterns."""

import itertools

import pytest

from jsserver.assets.patterns import PatternIndex
from jsserver.cext.bytes import subjects_overlap

TOKENS = ("a", "b", "*")
PATTERNS = [
    ".".join(tokens) for n in (1, 2, 3) for tokens in itertools.product(TOKENS, repeat=n)
] + [".".join((*tokens, ">")) for n in (0, 1, 2) for tokens in itertools.product(TOKENS, repeat=n)]


def test_index_finds_exactly_what_overlaps() -> None:
    index: PatternIndex[str] = PatternIndex()
    for pattern in PATTERNS:
        index.add(pattern, pattern)
    for pattern in PATTERNS:
        want = sorted(p for p in PATTERNS if subjects_overlap(p, pattern))
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
