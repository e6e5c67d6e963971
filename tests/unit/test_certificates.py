"""Certificates as they are written: values, their lengths, and times of two digits for a year."""

import pytest

from jsserver.access.certificates import (
    Tlv,
    _escaped,
    _must_staple,
    _responders,
    _time,
    oid,
    parse,
    read,
    subject_text,
)

UTC_TIME = 0x17


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"\x05\x00", b""),
        (b"\x04\x02hi", b"hi"),
        (b"\x04\x81\x00", b""),
        (b"\x04\x82\x00\x02hi", b"hi"),
        (b"\x04\x84\x00\x00\x00\x02hi", b"hi"),
    ],
)
def test_a_value_is_read_whole_or_refused(data: bytes, content: bytes) -> None:
    value, rest = read(data + b"rest")
    assert (value.content, rest) == (content, b"rest")
    assert read(data)[0].content == content
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="cut off"):
            read(data[:cut])


@pytest.mark.parametrize("data", [b"\x04\x80hi\x00\x00", b"\x04\x85\x00\x00\x00\x00\x02hi"])
def test_a_length_has_up_to_four_bytes(data: bytes) -> None:
    with pytest.raises(ValueError, match="a length is cut off"):
        read(data)


@pytest.mark.parametrize("content", [b"", b"\x2a\x86", b"\x86"])
def test_an_object_identifier_is_whole(content: bytes) -> None:
    assert oid(b"\x2a\x86\x48") == "1.2.840"
    with pytest.raises(ValueError, match="cut off"):
        oid(content)


@pytest.mark.parametrize(("text", "year"), [(b"500101000000Z", 1950), (b"491231235959Z", 2049)])
def test_years_of_two_digits_are_those_from_1950_on(text: bytes, year: int) -> None:
    assert _time(Tlv(UTC_TIME, text, b"")).year == year


def tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes([tag, len(content)]) + content


def test_responders_are_those_of_ocsp_at_a_url() -> None:
    ocsp, issuers = (tlv(0x06, bytes.fromhex("2b06010505073" + end)) for end in ("001", "002"))
    url = tlv(0x86, b"http://a")
    name = tlv(0x82, b"a")
    places = ((ocsp, url), (ocsp, name), (issuers, url), (issuers, name))
    assert _responders(tlv(0x30, *(tlv(0x30, *place) for place in places))) == ["http://a"]


@pytest.mark.parametrize("version", [b"", b"\xa0\x03\x02\x01\x02"])
def test_a_certificate_may_leave_out_its_version(version: bytes) -> None:
    """That of the first one is the default."""
    empty, time = tlv(0x30), tlv(UTC_TIME, b"301231235959Z")
    common_name = tlv(0x30, tlv(0x06, bytes.fromhex("550403")), tlv(0x0C, b"a"))
    subject = tlv(0x30, tlv(0x31, common_name))
    parts = tlv(0x02, b"\x01"), empty, empty, tlv(0x30, time, time), subject, empty
    made = parse(tlv(0x30, tlv(0x30, version, *parts)))
    assert subject_text(made.subject) == "CN=a"
    assert (made.ends.year, made.issuer) == (2030, [])


@pytest.mark.parametrize(
    ("features", "must"),
    [
        ([(0x02, b"\x05")], True),
        ([(0x02, b"\x11"), (0x02, b"\x05")], True),
        ([(0x02, b"\x11")], False),
        ([(0x04, b"\x05")], False),
        ([], False),
    ],
)
def test_a_certificate_may_need_a_stapled_response(
    features: list[tuple[int, bytes]], must: bool
) -> None:
    assert _must_staple(tlv(0x30, *(tlv(*each) for each in features))) is must


@pytest.mark.parametrize(
    ("text", "shown"),
    [(" ", "\\ "), ("a ", "a\\ "), (" a", "\\ a"), ("#a", "\\#a"), ("a,b", "a\\,b"), ("", "")],
)
def test_names_are_written_with_escapes(text: str, shown: str) -> None:
    assert _escaped(text) == shown
