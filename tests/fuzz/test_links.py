"""The lines of links are read the same however the input is cut, and noise harms nobody."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

links = pytest.importorskip("tests.cext.links", reason="the data plane is not built here")

DIALECTS = ("route", "account", "leaf", "gateway")
WORD = st.text("abcd.*>@$-", min_size=1, max_size=8).map(str.encode)
SIZE = st.one_of(st.integers(0, 40).map(lambda n: b"%d" % n), st.just(b"99999999999"), WORD)
VERB = st.sampled_from(
    [
        *(
            b"RMSG",
            b"HMSG",
            b"LMSG",
            b"RS+",
            b"RS-",
            b"LS+",
            b"LS-",
            b"A+",
            b"A-",
            b"PING",
            b"PONG",
        ),
        *(b"INFO", b"CONNECT", b"-ERR", b"+OK", b"RS", b"XMSG", b""),
    ]
)
FIELD = st.one_of(WORD, SIZE, st.sampled_from([b"+", b"|", b""]))
LINE = st.builds(
    lambda verb, fields, end, data: b" ".join([verb, *fields]) + end + data,
    VERB,
    st.lists(FIELD, max_size=8),
    st.sampled_from([b"\r\n", b"\n", b"", b" \r\n"]),
    st.one_of(
        st.just(b""), st.binary(max_size=40), st.binary(max_size=30).map(lambda d: d + b"\r\n")
    ),
)
NOISE = st.one_of(st.binary(max_size=200), st.lists(LINE, max_size=6).map(b"".join))


def fed(dialect: str, pieces: list[bytes]) -> list[Any]:
    """All operations up to the first that is none; of that what is wrong with it."""
    parser = links.PyLinkParser(dialect, max_line=300, max_payload=1000)
    found: list[Any] = []
    left = b""
    for piece in pieces:
        left += piece
        while left:
            one = parser.parse(left)
            if one == "more":
                assert parser.need == 0 or parser.need > len(left)
                break
            found.append(one)
            if isinstance(one, str):
                return found
            assert 0 < one["size"] <= len(left)
            left = left[one["size"] :]
    return found


@given(st.sampled_from(DIALECTS), NOISE, st.lists(st.integers(0, 10_000), max_size=8))
@example("route", b"RMSG A a 2\r\nxyz\r\n", [12, 13, 14])
@example("account", b"HMSG a + b c d 1 3\r\nxyz\r\nRS+ a q 4\r\n", [5, 18, 20])
@example("leaf", b"LS+ " + b"x" * 400, [3, 200, 310])
def test_cuts_change_nothing(dialect: str, data: bytes, places: list[int]) -> None:
    whole = fed(dialect, [data])
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    assert fed(dialect, [data[a:b] for a, b in itertools.pairwise(edges)]) == whole
    assert fed(dialect, [data[n : n + 1] for n in range(len(data))]) == whole


@given(st.binary(max_size=60), st.integers(0, 12))
def test_ack_replies(noise: bytes, dots: int) -> None:
    """Split or left alone; whatever it is, nothing is lost."""
    reply = b"$JS.ACK." + b"a." * dots + noise
    split = links.ack_subject(reply)
    if split is not None:
        assert b"@".join(split) == reply
        assert split[0].count(b".") >= 8
