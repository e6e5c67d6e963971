"""A user's name that is a distinguished name, as RFC 4514 writes it and as it is taken."""

from pathlib import Path

import pytest

from jsserver.access.certificates import first_of
from jsserver.access.mapping import mapped_user, parse_dn
from tests.certificates import Authority


def parts(text: str) -> list[list[tuple[str, str]]]:
    return [sorted(rdn) for rdn in parse_dn(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"CN=a\,b", "a,b"),
        (r"CN=\ a\ ", " a "),
        (r"CN=a\2Cb", "a,b"),
        (r"CN=J\c3\bcrgen", "Jürgen"),
        (r"CN=a\2c", "a,"),
        ("CN= a b ", "a b"),
        ("CN=a\\", "a"),
    ],
)
def test_escapes(text: str, value: str) -> None:
    assert parts(text) == [[("CN", value)]]


@pytest.mark.parametrize("text", [r"CN=a\2", r"CN=a\2g", r"CN=a\g2b", r"CN=a\zz"])
def test_an_escape_is_a_sign_or_two_digits(text: str) -> None:
    with pytest.raises(ValueError, match="no two digits"):
        parse_dn(text)


def test_parts_and_their_pairs() -> None:
    assert parts("ou=b+cn=a, O=c") == [[("CN", "a"), ("OU", "b")], [("O", "c")]]
    assert parts("") == []


@pytest.mark.parametrize("text", ["a", "a,CN=b", "CN=a,b", "CN=#0401"])
def test_what_is_no_distinguished_name(text: str) -> None:
    with pytest.raises(ValueError):
        parse_dn(text)


def test_a_certificate_stands_for_none_but_those_there_are(tmp_path: Path) -> None:
    certificate = first_of(Authority(tmp_path).issue(subject="CN=a").cert.read_bytes())
    assert mapped_user(certificate, ["CN=b", "CN=a"]) == "CN=a"
    assert mapped_user(certificate, ["CN=b", "a", ""]) is None
