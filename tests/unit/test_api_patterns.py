"""Many patterns at once against the rules of two, and the bounds of what they may cost."""

import itertools
import random

import pytest

from jsserver.assets import patterns
from jsserver.assets.patterns import PatternIndex
from jsserver.cext import bytes as cext
from jsserver.cext.bytes import subject_covers, subjects_overlap
from jsserver.wire.errors import ApiError

TOKENS = ("a", "b", "*")
PATTERNS = [
    ".".join(tokens) for n in (1, 2, 3) for tokens in itertools.product(TOKENS, repeat=n)
] + [".".join((*tokens, ">")) for n in (0, 1, 2) for tokens in itertools.product(TOKENS, repeat=n)]


def any_pattern(random: random.Random) -> str:
    tokens = [random.choice("ab*c") for _ in range(random.randint(1, 4))]
    if random.random() < 0.2:
        tokens.append(">")
    if random.random() < 0.03:
        tokens.insert(random.randrange(len(tokens)), random.choice(["", ">", "a b"]))
    return ".".join(tokens)


def crossing(i: int) -> str:
    """Patterns of which all but the last token meet each other's."""
    return "a." + ".".join("*" if i >> bit & 1 else "x" for bit in range(12)) + f".{i}"


@pytest.mark.parametrize("seed", range(20))
def test_the_first_overlap_and_the_first_that_is_covered(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        some = [any_pattern(chance) for _ in range(chance.randint(1, 8))]
        end = chance.randint(0, len(some))
        whole = [at for at, pattern in enumerate(some) if "" not in pattern.split(".")]
        pairs = [(a, b) for a in whole for b in whole if a < min(b, end)]
        overlap = next((p for p in pairs if subjects_overlap(some[p[0]], some[p[1]])), None)
        assert patterns.first_overlap(some, end) == overlap, (some, end)
        covered = [
            a
            for a in whole
            if a < end and any(subject_covers(some[b], some[a]) for b in whole if a != b)
        ]
        assert patterns.first_covered(some, end) == next(iter(covered), None), (some, end)


def test_an_index_finds_exactly_what_overlaps() -> None:
    for claimed in PATTERNS:
        index = PatternIndex()
        index.add([claimed])
        for pattern in PATTERNS:
            assert index.meets([pattern]) == subjects_overlap(claimed, pattern)


def test_an_index_that_changes() -> None:
    chance = random.Random(1)
    index = PatternIndex()
    claimed: list[str] = []
    for _ in range(5000):
        if claimed and chance.random() < 0.5:
            index.remove([claimed.pop(chance.randrange(len(claimed)))])
        else:
            claimed.append(any_pattern(chance))
            index.add(claimed[-1:])
        pattern = any_pattern(chance)
        if "" not in pattern.split("."):
            there = [one for one in claimed if "" not in one.split(".")]
            assert index.meets([pattern]) == any(subjects_overlap(pattern, one) for one in there)


def test_an_index_leaves_out_what_the_owner_claims() -> None:
    index = PatternIndex()
    index.add(["a.*", "b"])
    index.add(["c"])
    assert not index.meets(["a.b"], ["a.*", "b"])
    assert index.meets(["a.b", "c"], ["a.*", "b"])
    assert index.meets(["a.b"])
    assert not index.meets(["b", "d"], ["b"]) and index.meets(["d", "c"], ["b"])
    index.remove(["a.*", "b"])
    index.remove(["c"])
    assert not index.meets([">"])
    with pytest.raises(KeyError):
        index.remove(["a.*"])


def test_patterns_that_only_differ_behind_their_wildcards_are_compared() -> None:
    some = [crossing(i) for i in range(2000)]
    assert patterns.first_overlap(some, len(some)) is None
    assert patterns.first_covered(some, len(some)) is None
    assert patterns.first_overlap([*some, "a.>"], len(some)) == (0, len(some))


def test_what_takes_too_long_is_refused() -> None:
    some = [crossing(i) for i in range(2000)]
    with pytest.raises(cext.SearchLimit):
        cext.first_overlap(some, len(some), 100_000)
    with pytest.raises(cext.SearchLimit):
        cext.first_covered(some, len(some), 100_000)
    index = PatternIndex()
    index.add(some)
    with pytest.raises(ApiError, match="too many wildcards"):
        index.meets([crossing(i + 4096) for i in range(4096)])
    assert index.meets(["a.>"])
    patterns.check_tokens(["a"] * patterns.MOST_TOKENS)
    with pytest.raises(ApiError, match="more than 262144 tokens"):
        patterns.check_tokens(["a.b"] * (patterns.MOST_TOKENS // 2) + ["c"])


def test_a_pattern_with_very_many_tokens() -> None:
    long = ".".join("x" * 100_000)
    assert patterns.first_overlap([long, f"{long}.y", ">"], 1) == (0, 2)
    index = PatternIndex()
    index.add([long])
    assert index.meets([long]) and not index.meets([f"{long}.y"])
    index.remove([long])
    assert not index.meets([">"])


def test_the_first_that_covers() -> None:
    chance = random.Random(2)
    for _ in range(2000):
        some = [any_pattern(chance) for _ in range(chance.randint(1, 8))]
        index = cext.PatternIndex()
        index.add(some)
        pattern = any_pattern(chance)
        covering = [at for at, one in enumerate(some) if subject_covers(one, pattern)]
        if all("" not in one.split(".") for one in [*some, pattern]):
            assert index.first_covering(pattern) == next(iter(covering), None), (some, pattern)
