"""Request bodies: what is accepted, what is refused, and with which words."""

from typing import Any

import msgspec
import pytest

from jsserver.wire import decode
from jsserver.wire.errors import ApiError
from jsserver.wire.types import (
    ConsumerCreateRequest,
    ConsumerPauseRequest,
    MessageGetRequest,
    StoredConsumer,
    StreamConfigRequest,
)


def parse(body: bytes, kind: Any = StreamConfigRequest, strict: bool = True) -> Any:
    return decode.parse(body, kind, strict)


@pytest.mark.parametrize("body", [b"", b"  \n", b"null", b"{}"])
def test_nothing_is_an_empty_request(body: bytes) -> None:
    assert parse(body) == StreamConfigRequest()


def test_keys_in_any_case_and_the_last_one_counts() -> None:
    got = parse(b'{"NAME":"A","Max_Msgs":5,"nAmE":"B","Pedantic":true}')
    assert (got.name, got.max_msgs, got.pedantic) == ("B", 5, True)


def test_null_leaves_the_default_at_every_depth() -> None:
    body = b'{"name":"S","subjects":null,"max_age":null,"placement":null,"consumer_limits":null}'
    assert parse(body) == StreamConfigRequest(name="S")
    got = parse(b'{"config":{"opt_start_time":null,"backoff":null}}', ConsumerCreateRequest)
    assert got == ConsumerCreateRequest()


def test_metadata_keys_keep_their_case() -> None:
    assert parse(b'{"metadata":{"A":"1","a":"2"}}').metadata == {"A": "1", "a": "2"}


def test_minus_zero_is_a_signed_zero() -> None:
    got = parse(b'{"max_msgs":-0,"name":"-0","first_seq":10}')
    assert (got.max_msgs, type(got.max_msgs), got.name, got.first_seq) == (0, int, "-0", 10)


def test_fields_that_differ_only_in_case_are_told_apart() -> None:
    got = parse(b'{"Created":"2024-01-01T00:00:00Z","Name":"X","name":"y"}', StoredConsumer)
    assert (got.Name, got.name) == ("X", "y")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "unexpected EOF"),
        (b'{"name"', "unexpected EOF"),
        (b"x", "invalid character (byte 0)"),
        (b'{"name":"S"} x', "trailing characters (byte 14)"),
        (b"[]", "json: cannot unmarshal array into request of type object"),
        (b'{"bogus":1}', 'json: unknown field "bogus"'),
        (b'{"placement":{"x":1}}', 'json: unknown field "x"'),
        (b'{"name":5}', "json: cannot unmarshal number 5 into field name of type string"),
        (b'{"max_msgs":"x"}', "json: cannot unmarshal string into field max_msgs of type int64"),
        (
            b'{"max_msgs":1.5}',
            "json: cannot unmarshal number 1.5 into field max_msgs of type int64",
        ),
        (
            b'{"first_seq":-0}',
            "json: cannot unmarshal number -0 into field first_seq of type uint64",
        ),
        (b'{"no_ack":1}', "json: cannot unmarshal number 1 into field no_ack of type bool"),
        (
            b'{"max_age":"24h"}',
            "json: cannot unmarshal string into field max_age of type time.Duration",
        ),
        (
            b'{"placement":{"cluster":true}}',
            "json: cannot unmarshal bool into field placement.cluster of type string",
        ),
        (b'{"retention":"foo"}', r'can not unmarshal "\"foo\""'),
        (b'{"retention":5}', 'can not unmarshal "5"'),
        (b'{"compression":"zip"}', "unknown compression algorithm"),
        (b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_refused(body: bytes, text: str) -> None:
    with pytest.raises(decode.Unreadable) as caught:
        parse(body)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("max_msgs", -(1 << 63), (1 << 63) - 1),
        ("max_msg_size", -(1 << 31), (1 << 31) - 1),
        ("first_seq", 0, (1 << 64) - 1),
    ],
)
def test_numbers_must_fit_their_type(field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert getattr(parse(b'{"%s":%d}' % (field.encode(), value)), field) == value
    for value in (low - 1, high + 1):
        with pytest.raises(decode.Unreadable, match=f"cannot unmarshal number {value}"):
            parse(b'{"%s":%d}' % (field.encode(), value))


def test_lenient_mode_ignores_unknown_keys_but_not_wrong_types() -> None:
    assert parse(b'{"name":"S","bogus":[1]}', strict=False).name == "S"
    with pytest.raises(decode.Unreadable):
        parse(b'{"name":5}', strict=False)


def test_texts_that_are_no_utf8_are_repaired() -> None:
    assert parse(b'{"description":"a\xffb"}').description == "a\ufffdb"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2024-05-04T18:53:41.120+02:00", "2024-05-04T18:53:41.12+02:00"),
        ("2024-05-04T18:53:41.000Z", "2024-05-04T18:53:41Z"),
        ("2024-05-04T18:53:41.1234567891Z", "2024-05-04T18:53:41.123456789Z"),
        ("2024-05-04T18:53:41+00:00", "2024-05-04T18:53:41Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_times_keep_their_zone(given: str, kept: str) -> None:
    got = parse(b'{"pause_until":"%s"}' % given.encode(), ConsumerPauseRequest)
    assert got.pause_until == kept


@pytest.mark.parametrize("body", [b'{"start_time":"x"}', b'{"start_time":5}'])
def test_what_is_no_time_is_refused(body: bytes) -> None:
    with pytest.raises(decode.Unreadable, match="field start_time"):
        parse(body, MessageGetRequest)


def test_decode_raises_the_api_error() -> None:
    with pytest.raises(ApiError) as caught:
        decode.decode(b"{", StreamConfigRequest, True)
    assert caught.value.body.err_code == 10025
    assert caught.value.body.description == "invalid JSON: unexpected EOF"


@pytest.mark.parametrize("body", [b"", b"{}", b"{ }", b" {\n}"])
def test_empty_bodies(body: bytes) -> None:
    assert decode.is_empty(body)


@pytest.mark.parametrize("body", [b" ", b"null", b"[]", b"x", b'{"a":1}', b"{"])
def test_bodies_that_are_not_empty(body: bytes) -> None:
    assert not decode.is_empty(body)


def test_written_form_leaves_defaults_out_and_keeps_what_is_always_there() -> None:
    request = parse(b'{"name":"S","retention":"limits","max_msgs":0,"no_ack":false}')
    written = msgspec.json.encode(request)
    assert b'"retention":"limits","max_consumers":0,"max_msgs":0' in written
    assert b"no_ack" not in written and b"description" not in written
