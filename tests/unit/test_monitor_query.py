"""Parameters of monitoring pages: what they decode to, and the texts for what is wrong."""

from collections.abc import Callable

import pytest

from jsserver.monitor.query import BadParameter, Paging, Query


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", True),
        ("a=t", True),
        ("a=T", True),
        ("a=TRUE", True),
        ("a=true", True),
        ("a=True", True),
        ("a=0", False),
        ("a=f", False),
        ("a=False", False),
        ("a=", False),
        ("", False),
        ("a", False),
        ("b=1", False),
        ("a=1&a=0", True),
        ("a=1;b=2", False),
        ("a=%zz&b=1", False),
        ("%61=%31", True),
    ],
)
def test_flag(text: str, value: bool) -> None:
    assert Query(text).flag("a") is value


@pytest.mark.parametrize(
    ("read", "text", "error"),
    [
        (lambda q: q.flag("a"), "a=yes", "boolean for 'a': strconv.ParseBool: parsing \"yes\""),
        (lambda q: q.flag("a"), "a=tRUE", "boolean for 'a': strconv.ParseBool: parsing \"tRUE\""),
        (lambda q: q.integer("n"), "n=x", "int for 'n': strconv.Atoi: parsing \"x\""),
        (lambda q: q.integer("n"), "n=1_0", "int for 'n': strconv.Atoi: parsing \"1_0\""),
        (lambda q: q.integer("n"), "n=+5", "int for 'n': strconv.Atoi: parsing \" 5\""),
        (lambda q: q.integer("n"), "n=%D9%A1", "int for 'n': strconv.Atoi: parsing \"\u0661\""),
        (lambda q: q.unsigned("n"), "n=-1", "uint64 for 'n': strconv.ParseUint: parsing \"-1\""),
        (lambda q: q.unsigned("n"), "n=%2b1", "uint64 for 'n': strconv.ParseUint: parsing \"+1\""),
        (
            lambda q: q.flag("a"),
            "a=%e9%00%0a%22%c3%a9%3C",
            'boolean for \'a\': strconv.ParseBool: parsing "\\xe9\\x00\\n\\"\u00e9<"',
        ),
    ],
)
def test_what_is_no_value_is_quoted_in_the_error(
    read: Callable[[Query], object], text: str, error: str
) -> None:
    with pytest.raises(BadParameter) as caught:
        read(Query(text))
    assert str(caught.value) == f"Error decoding {error}: invalid syntax"


def test_numbers_out_of_range() -> None:
    for text in ("9223372036854775808", "-9223372036854775809", "9" * 5000):
        with pytest.raises(BadParameter, match=r"strconv.Atoi: parsing .*: value out of range"):
            Query(f"n={text}").integer("n")
    with pytest.raises(BadParameter, match=r"ParseUint: parsing .*: value out of range"):
        Query("n=18446744073709551616").unsigned("n")
    assert Query("n=9223372036854775807").integer("n") == 2**63 - 1
    assert Query("n=%2b000000000000000000000000000007").integer("n") == 7
    assert Query("n=18446744073709551615").unsigned("n") == 2**64 - 1


def test_detail_is_more_than_true() -> None:
    assert Query("subs=DeTail").flag_or_detail("subs") == (True, True)
    assert Query("subs=1").flag_or_detail("subs") == (True, False)
    assert Query("").flag_or_detail("subs") == (False, False)


def test_choice() -> None:
    choices = {"open": 1, "closed": 2}
    assert Query("state=CLOSED").choice("state", choices, 1) == 2
    assert Query("state=").choice("state", choices, 1) == 1
    with pytest.raises(BadParameter, match=r"^Error decoding state for shut$"):
        Query("state=shut").choice("state", choices, 1)


def test_paging() -> None:
    rows = list(range(3000))
    assert Paging.read(Query("")).cut(rows) == rows[:1024]
    assert Paging.read(Query("offset=-4&limit=-1")).cut(rows) == rows[:1024]
    assert Paging.read(Query("offset=2999&limit=5")).cut(rows) == [2999]
    assert Paging.read(Query("offset=4000&limit=5")).cut(rows) == []
