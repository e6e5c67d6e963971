"""The configuration language: values, places, errors, variables, includes and the digest."""

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsserver.cext.language import MAX_NESTING, Malformed, Tree, Value
from jsserver.config import ConfigError
from jsserver.config.parser import digest, parse_bytes, parse_file


def parse_text(text: str, file: str = "", environment: Mapping[str, str] | None = None) -> Value:
    return parse_bytes(text.encode("utf-8", "surrogateescape"), file, environment)


def parse(text: str, **environment: str) -> Any:
    return parse_text(text, "x.conf", environment).plain()


def error(text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_text(text, "x.conf", environment)
    return str(caught.value)


VALUES = [
    # assignment and ends of values
    ("a = 1", {"a": 1}),
    ("a: 1", {"a": 1}),
    ("a 1", {"a": 1}),
    ("a\n5", {"a": 5}),
    ("a 1; b 2, c 3", {"a": 1, "b": 2, "c": 3}),
    ("a=1\r\nb=x\r\n", {"a": 1, "b": "x"}),
    ("a=1\na=2", {"a": 2}),
    ("a=", {"a": ""}),
    ("a==1", {"a": "=1"}),
    ("a = {b=1}\na = {c=2}", {"a": {"c": 2}}),
    ("a { b { c 1 } }", {"a": {"b": {"c": 1}}}),
    # JSON form and stray closing braces
    ('{"a": 1, "b": {"c": [1, 2 ]}}', {"a": 1, "b": {"c": [1, 2]}}),
    ("{a=1}\nb=2", {"a": 1, "b": 2}),
    ("{{a=1}}", {"a": 1}),
    ("a=1}", {"a": 1}),
    ("a=1\n}", {"a": 1}),
    ("", {}),
    ("# nothing\n// at all\n", {}),
    # keys
    ('"a b" = 1', {"a b": 1}),
    ("'a'=1", {"a": 1}),
    ("a.b-c=1", {"a.b-c": 1}),
    ("é=1", {"é": 1}),
    # comments
    ("a=1 # c\nb=2 // c", {"a": 1, "b": 2}),
    ("a=x#y\nb=x//y", {"a": "x#y", "b": "x//y"}),
    ("a=[ # c\n x // c\n y ]", {"a": ["x", "y"]}),
    # booleans
    ("a=true,b=YES,c=on", {"a": True, "b": True, "c": True}),
    ("a=false,b=No,c=OFF", {"a": False, "b": False, "c": False}),
    ('a="true",b=truer', {"a": "true", "b": "truer"}),
    # integers
    ("a=-7", {"a": -7}),
    ("a=1k,b=1K,c=2m,d=1g,e=1t", {"a": 1000, "b": 1000, "c": 2 * 10**6, "d": 10**9, "e": 10**12}),
    ("a=1kb,b=1Ki,c=1KiB,d=64MB", {"a": 1024, "b": 1024, "c": 1024, "d": 64 << 20}),
    ("a=1p,b=1e,c=1eb", {"a": 10**15, "b": 10**18, "c": 1 << 60}),
    ("a=9223372036854775807", {"a": (1 << 63) - 1}),
    ("a=007", {"a": 7}),
    # floats and datetimes
    ("a=1.5,b=-0.25", {"a": 1.5, "b": -0.25}),
    ("a=2016-05-04T18:53:41Z", {"a": datetime(2016, 5, 4, 18, 53, 41, tzinfo=UTC)}),
    # strings
    ("a='raw\\n'", {"a": "raw\\n"}),
    (r'a="e\n\t\r\"\\\x41"', {"a": 'e\n\t\r"\\A'}),
    (r'a="\xc3\xa9"', {"a": "é"}),
    ('a="two\nlines"', {"a": "two\nlines"}),
    ("a=(\n one\n two)\n)\nb=1", {"a": "\n one\n two)\n", "b": 1}),
    ("a=_INBOX.>,b=$2a$11$abc", {"a": "_INBOX.>", "b": "$2a$11$abc"}),
    ("a=x$y,b=x=y,c=x\"y", {"a": "x$y", "b": "x=y", "c": 'x"y'}),
    ("a=127.0.0.1:4222,b=0.0.0.0:-1", {"a": "127.0.0.1:4222", "b": "0.0.0.0:-1"}),
    ("a=10ms,b=30s,c=1h,d=12abc", {"a": "10ms", "b": "30s", "c": "1h", "d": "12abc"}),
    # arrays
    ("a=[]", {"a": []}),
    ("a=[1, 2 ]", {"a": [1, 2]}),
    ("a=[\n1\n2\n]", {"a": [1, 2]}),
    ("a=[x,y,]", {"a": ["x", "y"]}),
    ("a=[{b 1}, {c 2}]", {"a": [{"b": 1}, {"c": 2}]}),
    ("a=[[x],[y]]", {"a": [["x"], ["y"]]}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_values(text: str, expected: dict[str, Any]) -> None:
    assert parse(text) == expected


LINE = "Parse error on line {}: '{}'"
QUOTES = " (a value that begins like a number is read as one: put quotes around a text)"
TOP_END = "Expected a top-level value to end with a new line, comment or EOF, but got '{}' instead."
ARRAY_END = (
    'Expected an array value terminator "," or an array terminator "]", but got \'{}\' instead.'
)
MAP_END = 'Expected a map value terminator "," or a map terminator "}}", but got \'{}\' instead.'

ERRORS = [
    ("a", "config is invalid (x.conf:1:1)"),
    ("a=1\nbcd", "config is invalid (x.conf:2:4)"),
    ("foo=bar baz", LINE.format(1, TOP_END.format("b"))),
    ("=1", LINE.format(1, "Unexpected key separator '='")),
    ("a=\n", LINE.format(2, "Expected value but found new line")),
    ("a=2m30s", LINE.format(1, TOP_END.format("3")) + QUOTES),
    ("a=1.5m", LINE.format(1, TOP_END.format("m")) + QUOTES),
    ("a=[1,2]", LINE.format(1, ARRAY_END.format("\0"))),
    ("a=[x,,y]", LINE.format(1, "Unexpected array value terminator ','.")),
    ("a={b=1 c=2}", LINE.format(1, MAP_END.format("c"))),
    ("a={\nb=1\n", LINE.format(3, "Unexpected EOF processing map.")),
    ("a={b", LINE.format(1, "Unexpected EOF processing map key.")),
    ("a={]}", LINE.format(1, "Unexpected array end ']' processing map.")),
    ("a={b=,}", LINE.format(1, 'Unexpected map value terminator ",".')),
    ('a="x', LINE.format(1, "Unexpected EOF.")),
    ("a=(x", LINE.format(1, "Unexpected EOF processing block.")),
    (r'a="\x4"', LINE.format(1, r"""Expected two hexadecimal digits after '\x', but got '4"'""")),
    ("a=-x", LINE.format(1, "Expected a digit but got 'x'.")),
    ("a=.5", LINE.format(1, "Floats must start with a digit")),
    ("a=1.x", LINE.format(1, "Floats must have a digit after the '.', but got 'x' instead.")),
    (
        "a=2016-05-04",
        LINE.format(1, "Expected 'T' in ISO8601 datetime, but found '\0' instead."),
    ),
    ("a=12-3", LINE.format(1, "All ISO8601 dates must be in full Zulu form.")),
    (
        "a=2016-13-04T18:53:41Z",
        "expected Zulu formatted DateTime, but got '2016-13-04T18:53:41Z'",
    ),
    ("a=9223372036854775808", "integer '9223372036854775808' is out of the range"),
    ("a=1kbb", "integer '1kbb' has an unknown suffix"),
    ("a=x\0y", LINE.format(1, "A NUL byte is not allowed")),
    ("include\nx", LINE.format(2, "Expected include value but found new line")),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_errors(text: str, message: str) -> None:
    assert error(text) == message


def test_an_open_array_at_the_end_is_an_error() -> None:
    assert error("a=[x, #y\n'") == "config is invalid (x.conf:2:2)"


def test_nesting_is_bounded() -> None:
    deepest = MAX_NESTING - 1
    assert parse("a=" + "[" * deepest + "x" + "]" * deepest)["a"]
    assert "nested deeper than" in error("a=" + "[" * 100_000)
    assert "nested deeper than" in error("a {" * 100_000)


@settings(deadline=None)
@given(st.text(alphabet=" \n\t={}[](),;:'\"\\#/$ax1.-k\0é", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        digest(parse_text(text, "x.conf", {}))
    except ConfigError as problem:
        assert str(problem)


def test_places_are_those_of_keys_and_of_items() -> None:
    root = parse_text('a=1\n  "bb" = [x,\n y ]\nc { d 1 }', "x.conf")
    assert root.data["a"].place == "x.conf:1:0"
    assert root.data["bb"].place == "x.conf:2:4"
    assert [item.place for item in root.data["bb"].data] == ["x.conf:2:11", "x.conf:3:2"]
    assert root.data["c"].data["d"].place == "x.conf:4:5"


def test_places_behind_text_of_several_lines() -> None:
    text = 'a="x\ny\\tz\n"\nb=(\n1\n)\nc=[d,\n"e\\n\nf", g\n]'
    root = parse_text(text, "f").data
    assert [root[key].place for key in "abc"] == ["f:1:0", "f:4:1", "f:7:1"]
    assert [item.place for item in root["c"].data] == ["f:7:4", "f:9:2", "f:9:5"]


def test_columns_count_bytes() -> None:
    assert parse_text("\né=1;b=2", "f").data["b"].place == "f:2:6"


# Variables.


def test_variables_are_looked_for_outwards_and_must_come_before() -> None:
    assert parse("X=foo\na={X=bar,b=$X},c=$X") == {
        "X": "foo",
        "a": {"X": "bar", "b": "bar"},
        "c": "foo",
    }
    assert error("a=$X\nX=1") == "variable reference for 'X' on line 1 can not be found"
    assert error("a={X=1}\nb=$X") == "variable reference for 'X' on line 2 can not be found"


def test_a_variable_keeps_its_type_and_its_key_is_marked() -> None:
    root = parse_text("X={y=1}\nZ=1\na=$X", "x.conf", {})
    assert root.plain()["a"] == {"y": 1}
    assert root.data["X"].used
    assert not root.data["Z"].used


def test_a_quoted_variable_is_text() -> None:
    assert parse("X=1\na=\"$X\",b='$X'") == {"X": 1, "a": "$X", "b": "$X"}


def test_environment_is_parsed_as_a_value() -> None:
    assert parse("a=$P", P="4222") == {"a": 4222}
    assert parse("a=$P", P="[x, y ]") == {"a": ["x", "y"]}
    assert parse("a=$P", P='"4222"') == {"a": "4222"}
    assert parse("a=$P", P="$Q", Q="true") == {"a": True}
    assert parse("P=1\na=$P", P="2") == {"P": 1, "a": 1}


def test_environment_errors() -> None:
    assert error("a=$P", P="x y").startswith(
        "variable reference for 'P' on line 1 could not be parsed: Parse error on line 1"
    )
    assert error("a=$P", P="$Q", Q="$P").endswith("variable reference cycle for 'P'")


# Includes.


def test_includes_are_found_beside_the_including_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.conf").write_text("x=1\ninclude 'c.conf'\n")
    (tmp_path / "sub" / "c.conf").write_text("y=2")
    main = tmp_path / "a.conf"
    main.write_text("x=0\ninclude sub/b.conf\nm={include /sub/c.conf}")
    root = parse_file(str(main))
    assert root.plain() == {"x": 1, "y": 2, "m": {"y": 2}}
    assert root.data["y"].place == f"{tmp_path}/sub/c.conf:1:0"


def test_include_errors(tmp_path: Path) -> None:
    main = tmp_path / "a.conf"
    main.write_text("include nope.conf")
    with pytest.raises(ConfigError) as caught:
        parse_file(str(main))
    assert str(caught.value) == (
        f"error parsing include file 'nope.conf', open {tmp_path}/nope.conf: "
        "no such file or directory"
    )
    main.write_text("include a.conf")
    with pytest.raises(ConfigError, match="files include each other"):
        parse_file(str(main))
    main.write_text("include .")
    with pytest.raises(ConfigError, match="is a directory"):
        parse_file(str(main))


def test_variables_do_not_reach_into_included_files(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("a=$X")
    main = tmp_path / "a.conf"
    main.write_text("X=1\ninclude b.conf")
    with pytest.raises(ConfigError, match="variable reference for 'X' on line 1 can not be found"):
        parse_file(str(main), {})


def test_a_text_that_has_ended_stays_so() -> None:
    tree = Tree(b"a=1k", "x.conf")
    assert tree.advance() == ("integer", "1k")
    tree.set(1000)
    assert (tree.advance(), tree.advance()) == (None, None)
    wrong = Tree(b"=", "x.conf")
    for _ in range(2):
        with pytest.raises(Malformed):
            wrong.advance()


# Long texts.


def test_another_thread_goes_on_while_a_long_text_is_read() -> None:
    text = "a=[\n" + "x\n" * 2_000_000 + "]"
    reader = threading.Thread(target=lambda: digest(parse_text(text, "x.conf")))
    reader.start()
    turns = 0
    while reader.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20


def test_lines_are_counted_once_however_long_they_are() -> None:
    text = "a=[" + "x ," * 1_000_000 + "]"
    began = time.process_time()
    root = parse_text(text, "x.conf")
    assert root.data["a"].data[-1].place == f"x.conf:1:{len(text) - 4}"
    assert time.process_time() - began < 20


# The digest.


def test_digest() -> None:
    assert digest(parse_text("port: 1234\n")) == (
        "sha256:035281d976e2bf6fd4a769fc1b3154e850af924a6e7d050fd748767bb706e0f6"
    )
    assert digest(parse_text("b=2;a=1")) == digest(parse_text('{"a": 1, "b": 2}'))
    assert digest(parse_text("a=1.0")) == digest(parse_text("a=1"))
    assert digest(parse_text("a='<&>'")) != digest(parse_text("a='<&'"))


def test_maps_that_variables_nest_too_deeply_are_refused() -> None:
    lines = [f"m{i} = {{ x: $m{i - 1} }}" for i in range(1, 20_000)]
    root = parse_text("m0 = {}\n" + "\n".join(lines), "x.conf", {})
    with pytest.raises(ConfigError, match="variables nest maps and arrays too deeply"):
        digest(root)


@pytest.mark.parametrize(
    "text", ["a=0.00000001", "a=100000000000000000000000.5", "a=-0.0", 'a="\\xff"', 'a="\\x01"']
)
def test_digest_of_odd_values_is_stable(text: str) -> None:
    assert digest(parse_text(text)) == digest(parse_text(text))


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    main = tmp_path / "a.conf"
    main.write_bytes(b"a=\xff\n")
    root = parse_file(str(main))
    assert root.data["a"].data == "\udcff"
    assert digest(root).startswith("sha256:")
