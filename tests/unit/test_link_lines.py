"""What servers say to each other, read line by line."""

import pytest

from tests.cext.links import PyLinkParser, ack_subject

READ = [
    ("route", b"RS+ A foo\r\n", {"kind": "interest", "account": b"A", "subject": b"foo"}),
    (
        "route",
        b"RS+ A foo q 3\r\n",
        {"kind": "interest", "account": b"A", "subject": b"foo", "queue": b"q", "weight": 3},
    ),
    (
        "route",
        b"RS- A foo q\r\n",
        {"kind": "no interest", "account": b"A", "subject": b"foo", "queue": b"q"},
    ),
    (
        "account",
        b"RS+ foo q 3\r\n",
        {"kind": "interest", "subject": b"foo", "queue": b"q", "weight": 3},
    ),
    (
        "route",
        b"LS+ far A foo\r\n",
        {"kind": "interest", "origin": b"far", "account": b"A", "subject": b"foo"},
    ),
    ("account", b"LS- far foo\r\n", {"kind": "no interest", "origin": b"far", "subject": b"foo"}),
    ("leaf", b"LS+ foo.*\r\n", {"kind": "interest", "subject": b"foo.*"}),
    (
        "route",
        b"RMSG A foo 5\r\nhello\r\n",
        {"kind": "message", "account": b"A", "subject": b"foo", "data": b"hello"},
    ),
    (
        "route",
        b"RMSG A foo back 5\r\nhello\r\n",
        {"kind": "message", "account": b"A", "subject": b"foo", "reply": b"back", "data": b"hello"},
    ),
    (
        "route",
        b"RMSG A foo + back q1 q2 5\r\nhello\r\n",
        {
            "kind": "message",
            "account": b"A",
            "subject": b"foo",
            "reply": b"back",
            "queues": [b"q1", b"q2"],
            "data": b"hello",
        },
    ),
    (
        "account",
        b"RMSG foo | q1 0\r\n\r\n",
        {"kind": "message", "subject": b"foo", "queues": [b"q1"]},
    ),
    (
        "route",
        b"HMSG A foo | q 4 6\r\nheadto\r\n",
        {
            "kind": "message",
            "account": b"A",
            "subject": b"foo",
            "queues": [b"q"],
            "header": b"head",
            "data": b"to",
        },
    ),
    (
        "route",
        b"LMSG far A foo 0 2\r\nhi\r\n",
        {"kind": "message", "origin": b"far", "account": b"A", "subject": b"foo", "data": b"hi"},
    ),
    ("leaf", b"LMSG foo 2\r\nhi\r\n", {"kind": "message", "subject": b"foo", "data": b"hi"}),
    (
        "leaf",
        b"HMSG foo re 4 6\r\nheadto\r\n",
        {"kind": "message", "subject": b"foo", "reply": b"re", "header": b"head", "data": b"to"},
    ),
    ("gateway", b"A- X\r\n", {"kind": "no account", "account": b"X"}),
    (
        "gateway",
        b"RS+ A s q 1\r\n",
        {"kind": "interest", "account": b"A", "subject": b"s", "queue": b"q", "weight": 1},
    ),
    ("leaf", b"PING\r\n", {"kind": "ping"}),
    ("leaf", b'INFO {"a":1} \r\n', {"kind": "info", "args": b'{"a":1} '}),
    ("route", b"-ERR 'no'\r\n", {"kind": "err", "args": b"'no'"}),
]


@pytest.mark.parametrize(("dialect", "text", "wanted"), READ)
def test_an_operation_whole_and_in_pieces(
    dialect: str, text: bytes, wanted: dict[str, object]
) -> None:
    parser = PyLinkParser(dialect)
    for n in range(1, len(text)):
        assert parser.parse(text[:n]) == "more"
    found = parser.parse(text + b"PING\r\n")
    assert found.pop("size") == len(text)
    if "args" not in wanted:
        found.pop("args", None)
    assert found == wanted
    assert parser.parse(b"PING\r\n")["kind"] == "ping"


@pytest.mark.parametrize(
    ("dialect", "text", "result"),
    [
        ("leaf", b"RS+ A foo\r\n", "unknown"),
        ("route", b"A+ X\r\n", "unknown"),
        ("gateway", b"LMSG o A foo 0 2\r\nhi\r\n", "unknown"),
        ("route", b"RMSGA foo 5\r\n", "unknown"),
        ("route", b"RS+ A\r\n", "arguments"),
        ("route", b"RS+ A foo q\r\n", "arguments"),
        ("route", b"RS+ A foo q x\r\n", "arguments"),
        ("route", b"RS+ A foo q 1 2\r\n", "arguments"),
        ("route", b"RMSG A foo re more 5\r\nhello\r\n", "arguments"),
        ("route", b"RMSG A foo + 5\r\nhello\r\n", "arguments"),
        ("route", b"RMSG A 5\r\nhello\r\n", "arguments"),
        ("route", b"HMSG A foo 6 5\r\nhello\r\n", "arguments"),
        ("route", b"RMSG A foo -1\r\n", "arguments"),
        ("route", b"RMSG A foo 9999999999\r\n", "arguments"),
        ("route", b"RMSG A foo 5\r\nhelloXX", "unknown"),
        ("leaf", b"LS+ " + b"x" * 70000, "long"),
        ("leaf", b"LS+ " + b"x" * 70000 + b"\r\n", "long"),
        ("gateway", b"A+ \r\n", "arguments"),
    ],
)
def test_what_is_none(dialect: str, text: bytes, result: str) -> None:
    assert PyLinkParser(dialect).parse(text) == result


def test_a_payload_is_refused_by_its_size() -> None:
    parser = PyLinkParser("route", max_payload=10)
    assert parser.parse(b"RMSG A foo 11\r\n") == "payload"
    assert parser.need == 11


def test_how_many_bytes_are_needed() -> None:
    parser = PyLinkParser("route")
    assert parser.parse(b"RMSG A foo 11\r\nhel") == "more"
    assert parser.need == len(b"RMSG A foo 11\r\n") + 11 + 2


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        (b"$JS.ACK.S.C.1.1.1.17.0@s.one", (b"$JS.ACK.S.C.1.1.1.17.0", b"s.one")),
        (b"$JS.ACK.S@x.C.1.1.1.17.0@s@y", (b"$JS.ACK.S@x.C.1.1.1.17.0", b"s@y")),
        (b"$JS.ACK.D.hash.A.S.C.1.1.1.17.0@s", (b"$JS.ACK.D.hash.A.S.C.1.1.1.17.0", b"s")),
        (b"$JS.ACK.S.C.1.1.1.17.0", None),
        (b"$JS.ACK.S@x.C", None),
        (b"_INBOX.a@b", None),
        (b"", None),
    ],
)
def test_the_subject_behind_an_ack_reply(reply: bytes, wanted: object) -> None:
    assert ack_subject(reply) == wanted
