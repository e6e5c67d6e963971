"""What the control plane reads of certificates: whom they name, their key's digest, when they end.

X.509 (RFC 5280) in DER (X.690), as far as that. Whatever is not as it should be is a ValueError:
certificates of clients were checked by OpenSSL before, but only for what it asks of them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsserver.config.options import Options, Tls

_SEQUENCE, _SET, _OID, _OCTETS, _BOOLEAN, _INTEGER = 0x30, 0x31, 0x06, 0x04, 0x01, 0x02
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_EMAIL, _DNS, _URI = 0x81, 0x82, 0x86
_ALT_NAMES = "2.5.29.17"
_AUTHORITY_ACCESS, _OCSP = "1.3.6.1.5.5.7.1.1", "1.3.6.1.5.5.7.48.1"
_TLS_FEATURES, _STATUS_REQUEST = "1.3.6.1.5.5.7.1.24", b"\x05"
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x12: "ascii"}
_ENCODINGS |= {0x1E: "utf-16-be", 0x1C: "utf-32-be", 0x1A: "ascii"}
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")

SHORT = {
    "2.5.4.6": "C",
    "2.5.4.8": "ST",
    "2.5.4.7": "L",
    "2.5.4.9": "STREET",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
}
"""Attributes that Go writes by name in a subject, in this order; it writes others by number."""
SINGLE = ("CN", "SERIALNUMBER")
"""Those of which it keeps the last one."""


class Tlv(NamedTuple):
    """A value of DER: its tag, its contents, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def read(data: bytes) -> tuple[Tlv, bytes]:
    """The value that data begins with, and what follows it."""
    if len(data) < 2:
        raise ValueError("a value is cut off")
    tag, first = data[0], data[1]
    if tag & 0x1F == 0x1F:
        raise ValueError("tags of several bytes are not used in certificates")
    at, size = 2, first
    if first & 0x80:
        count = first & 0x7F
        if not 1 <= count <= 4 or len(data) < 2 + count:
            raise ValueError("a length is cut off")
        at, size = 2 + count, int.from_bytes(data[2 : 2 + count], "big")
    if len(data) < at + size:
        raise ValueError("a value is cut off")
    return Tlv(tag, data[at : at + size], data[: at + size]), data[at + size :]


def read_all(data: bytes) -> list[Tlv]:
    """The values that data consists of."""
    values = []
    while data:
        value, data = read(data)
        values.append(value)
    return values


def _expect(value: Tlv, tag: int) -> bytes:
    if value.tag != tag:
        raise ValueError(f"a value has tag {value.tag:#x} instead of {tag:#x}")
    return value.content


def oid(content: bytes) -> str:
    """An object identifier in dots."""
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs or arc:
        raise ValueError("an object identifier is cut off")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - first * 40, *arcs[1:]]))


class Attribute(NamedTuple):
    """One part of a distinguished name: what it is, by number, and its text (None: it has none);
    `raw` is its value in DER."""

    oid: str
    text: str | None
    raw: bytes


Rdn = list[Attribute]


def _name(value: Tlv) -> list[Rdn]:
    rdns = []
    for rdn in read_all(_expect(value, _SEQUENCE)):
        attributes = []
        for attribute in read_all(_expect(rdn, _SET)):
            kind, text = read_all(_expect(attribute, _SEQUENCE))
            encoding = _ENCODINGS.get(text.tag)
            shown = None if encoding is None else text.content.decode(encoding)
            attributes.append(Attribute(oid(_expect(kind, _OID)), shown, text.whole))
        rdns.append(attributes)
    return rdns


class Certificate(NamedTuple):
    """What is read of a certificate. Digests are SHA-256 in hex; `ends` is in UTC. `responders` are
    the URLs where OCSP tells of it; `must_staple`: its handshakes have to (RFC 7633)."""

    der: bytes
    subject: list[Rdn]
    issuer: list[Rdn]
    ends: datetime
    key_digest: str
    digest: str
    emails: list[str]
    dns_names: list[str]
    uris: list[str]
    responders: list[str]
    must_staple: bool


def _time(value: Tlv) -> datetime:
    text = value.content.decode("ascii")
    if value.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif value.tag != _GENERALIZED_TIME:
        raise ValueError("a time has an unknown form")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _extensions(value: Tlv | None) -> dict[str, bytes]:
    """What each extension says, by its number."""
    if value is None:
        return {}
    found: dict[str, bytes] = {}
    (listed,) = read_all(value.content)
    for extension in read_all(_expect(listed, _SEQUENCE)):
        parts = read_all(_expect(extension, _SEQUENCE))
        kind, content = (part for part in parts if part.tag != _BOOLEAN)
        found.setdefault(oid(_expect(kind, _OID)), _expect(content, _OCTETS))
    return found


def _sequence(data: bytes | None) -> list[Tlv]:
    if data is None:
        return []
    (whole,) = read_all(data)
    return read_all(_expect(whole, _SEQUENCE))


def _alt_names(data: bytes | None) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {_EMAIL: [], _DNS: [], _URI: []}
    for name in _sequence(data):
        if name.tag in names:
            names[name.tag].append(name.content.decode("ascii"))
    return names


def _responders(data: bytes | None) -> list[str]:
    found = []
    for access in _sequence(data):
        method, place = read_all(_expect(access, _SEQUENCE))
        if oid(_expect(method, _OID)) == _OCSP and place.tag == _URI:
            found.append(place.content.decode("ascii"))
    return found


def _must_staple(data: bytes | None) -> bool:
    features = _sequence(data)
    return any(f.tag == _INTEGER and f.content == _STATUS_REQUEST for f in features)


def parse(der: bytes) -> Certificate:
    """A certificate; ValueError where it is none."""
    whole, _ = read(der)
    body, _ = read(_expect(whole, _SEQUENCE))
    parts = read_all(_expect(body, _SEQUENCE))
    if parts and parts[0].tag == _VERSION:
        del parts[0]
    if len(parts) < 6:
        raise ValueError("parts of the certificate are missing")
    _, ends = read_all(_expect(parts[3], _SEQUENCE))
    extensions = _extensions(next((p for p in parts[6:] if p.tag == _EXTENSIONS), None))
    names = _alt_names(extensions.get(_ALT_NAMES))
    return Certificate(
        der=whole.whole,
        subject=_name(parts[4]),
        issuer=_name(parts[2]),
        ends=_time(ends),
        key_digest=hashlib.sha256(parts[5].whole).hexdigest(),
        digest=hashlib.sha256(whole.whole).hexdigest(),
        emails=names[_EMAIL],
        dns_names=names[_DNS],
        uris=names[_URI],
        responders=_responders(extensions.get(_AUTHORITY_ACCESS)),
        must_staple=_must_staple(extensions.get(_TLS_FEATURES)),
    )


def first_of(pem: bytes) -> Certificate:
    """The first certificate of a file; ValueError where there is none, or it cannot be read."""
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("there is no certificate")
    return parse(base64.b64decode(found[1]))


def certificate_ends(tls: Tls) -> str:
    """When the first certificate of a listener does, in RFC 3339; "" where that cannot be read."""
    try:
        with open(tls.certificates[0][0], "rb") as f:
            return first_of(f.read()).ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OSError, ValueError):
        return ""


def to_staple(options: Options) -> Iterator[tuple[str, Tls]]:
    """The files of certificates that are to be shown with an OCSP response."""
    if options.ocsp.mode == "never":
        return
    for tls in filter(None, (options.tls, options.websocket.tls)):
        for file, _ in tls.certificates:
            if options.ocsp.mode == "always" or has_to_be_stapled(file):
                yield file, tls


def has_to_be_stapled(file: str) -> bool:
    """Whether the first certificate of a file says so."""
    try:
        with open(file, "rb") as f:
            return first_of(f.read()).must_staple
    except (OSError, ValueError):
        return False


# ---- what the data plane says of a connection


class Secured(NamedTuple):
    """The TLS of a connection: `version` as 1.3, the cipher suite by its standard name, whether the
    handshake came first, and the peer's certificates, its own first."""

    version: str
    cipher_suite: str
    first: bool
    certificates: list[Certificate]


def read_secured(text: bytes) -> Secured | None:
    """None without TLS. A certificate that cannot be read is left out, with those behind it."""
    if not text:
        return None
    version, suite, first, der = text.split(b"\n", 3)
    certificates = []
    while der:
        try:
            value, der = read(der)
            certificates.append(parse(value.whole))
        except ValueError:
            break
    number = version.decode().removeprefix("TLSv")
    return Secured(number, suite.decode(), first == b"1", certificates)


# ---- a subject's text


def _escaped(text: str) -> str:
    shown = "".join(f"\\{c}" if c in ',+"\\<>;' else c for c in text)
    if shown.startswith((" ", "#")):
        shown = "\\" + shown
    if len(text) > 1 and text.endswith(" "):
        shown = shown[:-1] + "\\ "
    return shown


def _shown(attribute: Attribute) -> str:
    name = SHORT.get(attribute.oid)
    if name is None:
        return f"{attribute.oid}=#{attribute.raw.hex()}"
    return f"{name}={_escaped(attribute.text or '')}"


def subject_text(subject: list[Rdn], others: bool = True) -> str:
    """As Go writes a name (RFC 2253, the last part first): sorted by what the parts are, several of
    a kind together, and behind them, if they are wanted, the others."""
    parts = [attribute for rdn in subject for attribute in rdn]
    rdns = [[a] for a in parts if a.oid not in SHORT] if others else []
    for number, name in SHORT.items():
        same = [a for a in parts if a.oid == number and a.text is not None]
        if name in SINGLE:
            same = [a for a in same[-1:] if a.text]
        if same:
            rdns.append(same)
    return ",".join("+".join(map(_shown, rdn)) for rdn in reversed(rdns))
