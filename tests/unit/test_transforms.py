"""What transforms make of subjects, as nats-server 2.14.5 answered for the same mappings."""

import time

import pytest

from jsserver.text.transforms import (
    Transform,
    TransformError,
    parse,
    parse_mapping,
    reverse,
    with_places,
    with_wildcards,
)

CASES = [
    ("a", "b", "a", "b"),
    ("a.*", "b.$1", "a.x", "b.x"),
    ("a.*", "$1.b", "a.x", "x.b"),
    ("a.*.*", "b.$2.c.{{Wildcard( 1 )}}", "a.x.y", "b.y.c.x"),
    ("a.*", "b.$x.$", "a.x", "b.$x.$"),
    ("a.*", "b.$0", "a.x", "b.a"),
    ("a.*", "b.{{wildcard(-1)}}", "a.x", "b.a"),
    ("a.>", "b.>", "a.x.y", "b.x.y"),
    ("a.*.>", "b.$1.>", "a.x.y.z", "b.x.y.z"),
    (">", "p.>", "x.y", "p.x.y"),
    ("a.>", "b.$0.>", "a.x", "b.a.x"),
    ("a.*", "b.{{partition(0,1)}}", "a.x", "b.0"),
    ("a.*", "b.{{partition(10,1)}}", "a.x", "b.5"),
    ("a.*.*", "b.{{partition(1000,1,2)}}", "a.x.y", "b.802"),
    ("a.*.*", "b.{{partition(1000,2,1)}}", "a.x.y", "b.444"),
    ("a.*", "b.{{partition(-1,1)}}", "a.x", "b.4245442695"),
    ("a.*", "b.{{partition(1000)}}", "a.x", "b.786"),
    ("a.*", "b.{{splitFromLeft(1,2)}}", "a.abcd", "b.ab.cd"),
    ("a.*", "b.{{splitFromLeft(1,4)}}", "a.abcd", "b.abcd"),
    ("a.*", "b.{{splitFromLeft(1,-1)}}", "a.abcd", "b.abcd"),
    ("a.*", "b.{{splitFromRight(1,1)}}", "a.abcd", "b.abc.d"),
    ("a.*", "b.{{SliceFromLeft(1,2)}}", "a.abcde", "b.ab.cd.e"),
    ("a.*", "b.{{SliceFromLeft(1,2)}}", "a.abcd", "b.ab.cd"),
    ("a.*", "b.{{SliceFromRight(1,2)}}", "a.abcde", "b.a.bc.de"),
    ("a.*", "b.{{SliceFromRight(1,2)}}", "a.ab", "b.ab"),
    ("a.*", "b.{{split(1,-)}}", "a.x-y-z", "b.x.y.z"),
    ("a.*", "b.{{split(1,-)}}", "a.-x--y-", "b.x.y"),
    ("a.*", "b.{{split(1,--)}}", "a.x--y-z", "b.x.y-z"),
    ("a.*", "b.{{split(1,)}}.c", "a.xyé", "b.x.y.é.c"),
    ("a.*", "b.{{split(1,-)}}", "a.x", "b.x"),
    ("a.*", "b.{{random(1)}}", "a.x", "b.0"),
    ("a.*", "b.{{random(0)}}", "a.x", "b.0"),
]


def made(transform: Transform | None, subject: str) -> str:
    assert transform is not None
    made = transform.compiled()(subject)
    assert made is not None
    return made.decode()


@pytest.mark.parametrize(("source", "destination", "subject", "want"), CASES)
def test_what_becomes_of_a_subject(source: str, destination: str, subject: str, want: str) -> None:
    assert made(parse_mapping(source, destination), subject) == want


def test_left_and_right() -> None:
    for destination, want in (("{{left(1,2)}}", "ab"), ("{{right(1,2)}}", "cd")):
        assert made(parse("a.*", destination), "a.abcd") == want
        assert made(parse("a.*", destination), "a.a") == "a"
        with pytest.raises(TransformError, match="unknown function"):
            parse_mapping("a.*", destination)


def test_random_numbers_are_below_their_bound() -> None:
    assert {made(parse("a.*", "{{random(3)}}"), "a.x") for _ in range(200)} == {"0", "1", "2"}


def test_long_subjects_are_whole() -> None:
    tokens = [f"token{i}" for i in range(2000)]
    assert made(parse(">", "p.>"), ".".join(tokens)) == ".".join(["p", *tokens])
    sliced = made(parse("a.*", "{{sliceFromLeft(1,1)}}"), "a." + "x" * 5000)
    assert sliced == ".".join("x" * 5000)


def test_subjects_that_are_not_transformed() -> None:
    transform = parse("a.*.>", "b.$1.>")
    assert transform is not None
    compiled = transform.compiled()
    for subject in ("a", "a.x", "b.x.y", "a.x.", "a..y", "a.x.*", "a.*.x", "a.x.>", ""):
        assert compiled(subject) is None, subject
    assert compiled("a.x.y>") == b"b.x.y>"


def test_what_becomes_too_long() -> None:
    transform = parse("a.*", ".".join(["$1"] * 250))
    assert transform is not None
    assert len(transform.compiled()("a." + "x" * 256) or b"") == 64_249
    with pytest.raises(OverflowError):
        transform.compiled()("a." + "x" * 262)
    with pytest.raises(TransformError, match="more than 256"):
        parse("a.*", ".".join(["$1"] * 257))
    with pytest.raises(TransformError, match="more than 256"):
        parse("a.*", f"{{{{partition(5,{','.join('1' * 1025)})}}}}")


def test_calls_are_read_in_time_of_their_length() -> None:
    began = time.monotonic()
    for filler in ("{{wildcard(", "{{wildcard()", "{{ ", "{{wildcard(\n", ")", ") "):
        with pytest.raises(TransformError, match="unknown function"):
            parse("a.*", "{{" + filler * 50_000 + "x}}")
    assert time.monotonic() - began < 5


def test_many_tokens() -> None:
    for count in (63, 64, 65, 255, 256):
        tokens = [f"t{i}" for i in range(count)]
        source = ".".join("*" * count)
        backwards = ".".join(f"${count - i}" for i in range(count))
        assert made(parse(source, backwards), ".".join(tokens)) == ".".join(tokens[::-1])
        hashed = made(parse(source, f"{{{{partition(1000,{count},1)}}}}"), ".".join(tokens))
        assert hashed == made(parse("*.*", "{{partition(1000,2,1)}}"), f"t0.t{count - 1}")
        rest = made(parse(f"{source}.>", "r.>"), ".".join([*tokens, "x", "y"]))
        assert rest == "r.x.y"


def test_reversible_transforms() -> None:
    for source, destination, why in (
        ("a.*", "b.{{partition(2,1)}}", "only mapping function allowed for import"),
        ("a.*.*", "b.$1", "not using all"),
        ("a.*", "b.$2", "out of range"),
        ("a.*", "b.>", "invalid subject"),
    ):
        with pytest.raises(TransformError, match=why):
            parse(source, destination, reversible=True)
    there = parse("a.*.*", "b.$2.$1", reversible=True)
    assert made(there, "a.x.y") == "b.y.x"
    assert there is not None
    assert made(reverse(there), "b.y.x") == "a.x.y"
    assert with_places("a.*.*.>") == "a.$1.$2.>"
    assert with_wildcards("a.$2.{{wildcard(1)}}.$x.>") == "a.*.*.$x.>"
