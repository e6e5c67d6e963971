"""Subjects and headers, against plain definitions of what they mean."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.cext.bytes as tb
from jsserver.cext import bytes as jb


def naive_matches(pattern: str, subject: str) -> bool:
    want, have = pattern.split("."), subject.split(".")
    if "" in have:
        return False
    for i, token in enumerate(want):
        if token == ">" and i == len(want) - 1:
            return len(have) > i
        if i >= len(have) or token not in ("*", have[i]):
            return False
    return len(want) == len(have)


tokens = st.sampled_from(["a", "b", "*", ">", "a*", "*b", ">>", "", "ab"])
subjects = st.lists(tokens, min_size=1, max_size=5).map(".".join)


@given(subjects, subjects)
def test_matching(pattern: str, subject: str) -> None:
    assert jb.subject_matches(pattern, subject) == naive_matches(pattern, subject)


@pytest.mark.parametrize(
    ("pattern", "subject", "want"),
    [
        ("foo.*", "foo.*", True),  # a published wildcard is a literal
        ("foo.>", "foo.*", True),
        ("foo.bar", "foo.*", False),
        (">", "foo..bar", False),  # nothing matches an empty token
        (">", "", False),
        ("*", "", False),
        ("", "", False),
        ("foo*", "foo*", True),
        ("foo*", "foox", False),
        ("foo.>", "foo", False),
        ("foo.>", "foo.", False),
        ("foo.>.bar", "foo.x.bar", False),  # only a last > is a wildcard
        ("foo.>.bar", "foo.>.bar", True),
        (b"\xff.*", b"\xff.\x00", True),
    ],
)
def test_matching_examples(pattern: str | bytes, subject: str | bytes, want: bool) -> None:
    assert jb.subject_matches(pattern, subject) is want


@given(subjects)
def test_validity_and_literalness(subject: str) -> None:
    parts = subject.split(".")
    valid = "" not in parts and ">" not in parts[:-1]
    assert jb.subject_is_valid(subject) == valid
    assert jb.subject_is_literal(subject) == (not {"*", ">"} & set(parts))


@pytest.mark.parametrize("subject", ["a", "a.b", "*", ">", "a.>", "a.*.b", "a>", "$JS.API", "é.b"])
def test_valid(subject: str) -> None:
    assert jb.subject_is_valid(subject)


@pytest.mark.parametrize(
    "subject", ["", ".", "a.", ".a", "a..b", ">.a", "a b", "a\t", "a.>.b", "\f"]
)
def test_invalid(subject: str) -> None:
    assert not jb.subject_is_valid(subject)


@pytest.mark.parametrize("blank", [" ", "\t", "\r", "\n", "\f"])
def test_blanks_are_not_valid(blank: str) -> None:
    assert not jb.subject_is_valid(f"a.b{blank}c")
    assert not jb.subject_is_valid(blank)


LITERALS = [".".join(p) for n in range(1, 5) for p in itertools.product("abc", repeat=n)]
# Two letters, three tokens at most: the third letter and fourth token are "anything else".
TOKENS = ("a", "b", "*")
PATTERNS = [".".join(p) for n in (1, 2, 3) for p in itertools.product(TOKENS, repeat=n)]
PATTERNS += [".".join((*p, ">")) for n in (0, 1, 2) for p in itertools.product(TOKENS, repeat=n)]


def test_cover_and_overlap_mean_sets_of_literals() -> None:
    matched = {p: {s for s in LITERALS if naive_matches(p, s)} for p in PATTERNS}
    for a, b in itertools.product(PATTERNS, repeat=2):
        assert jb.subject_covers(a, b) == (matched[b] <= matched[a]), (a, b)
        assert jb.subjects_overlap(a, b) == bool(matched[a] & matched[b]), (a, b)


def test_long_subjects() -> None:
    many = ".".join(["t"] * 32768)
    assert jb.subject_matches(">", many)
    assert jb.subject_matches(".".join(["*"] * 32768), many)
    assert not jb.subject_matches(".".join(["*"] * 32767), many)
    assert jb.subject_is_valid(many)


BLOCK = (
    b"NATS/1.0\r\nX-Nats-Msg-Id: no\r\nnats-msg-id: no\r\nNats-Msg-Id:   one two \r\n"
    b"Nats-Msg-Id: second\r\nEmpty:\r\nBlank:  \r\nBare: a\rb\nBare2: c\r\nTab:\tx\r\n\r\n"
)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Nats-Msg-Id", b"one two "),
        ("Empty", b""),
        ("Blank", b""),
        ("Bare", b"a\rb\nBare2: c"),
        ("Bare2", None),  # follows a lone line feed
        ("Tab", b"\tx"),
        ("Nats-Msg-I", None),
        ("Msg-Id", None),
        ("NATS/1.0", None),
        ("Missing", None),
    ],
)
def test_header_lookup(name: str, want: bytes | None) -> None:
    assert tb.header_get(BLOCK, name) == want


@given(st.binary(max_size=60).map(lambda b: b.replace(b"\x01", b"\r\n").replace(b"\x02", b"A:")))
def test_header_lookup_in_garbage(block: bytes) -> None:
    at = block.find(b"\r\nA:")
    got = tb.header_get(block, "A")
    if at < 0:
        assert got is None
    else:
        assert got == block[at + 4 :].lstrip(b" ").split(b"\r\n")[0]


@pytest.mark.parametrize("cut", range(len(BLOCK)))
def test_header_lookup_in_cut_blocks(cut: int) -> None:
    got = tb.header_get(BLOCK[:cut], "Nats-Msg-Id")
    assert got is None or b"one two \r".startswith(got)
