"""From a client's certificate to a user: what `verify_and_map` looks for, in its order.

A name of RFC 822, of DNS, a URI, then the subject: as a distinguished name that a user's name is
the text of (RFC 4514), whatever the order of its parts, and as Go writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jsserver.access.certificates import SHORT, Certificate, subject_text

_DC = "0.9.2342.19200300.100.1.25"
_KNOWN = {**SHORT, _DC: "DC"}
_ESCAPED = ' "#+,;<=>\\'

Pair = tuple[str, str]
Dn = list[frozenset[Pair]]
"""A distinguished name: for each part its kinds, in capitals, with their values."""


def parse_dn(text: str) -> Dn:
    """The distinguished name that a text stands for; ValueError where it stands for none."""
    return [frozenset(pairs) for pairs in _parse(text)]


def _parse(text: str) -> list[list[Pair]]:
    rdns: list[list[Pair]] = []
    pairs: list[Pair] = []
    kind, buffer, trailing = "", bytearray(), 0

    def taken() -> str:
        nonlocal trailing
        made = buffer[: len(buffer) - trailing].decode("utf-8", "replace")
        buffer.clear()
        trailing = 0
        return made

    data = text.encode("utf-8", "surrogateescape")
    at = 0
    while at < len(data):
        char = chr(data[at])
        at += 1
        if char == "\\":
            trailing = 0
            if at < len(data) and chr(data[at]) in _ESCAPED:
                buffer.append(data[at])
                at += 1
            elif at < len(data):
                digits = data[at : at + 2]
                if len(digits) < 2 or not all(chr(d) in "0123456789abcdefABCDEF" for d in digits):
                    raise ValueError("an escaped character is no two digits")
                buffer.append(int(digits, 16))
                at += 2
        elif char == "=":
            kind = taken()
            if data[at : at + 1] == b"#":
                raise ValueError("values in BER are not supported")
        elif char in ",+":
            if not kind:
                raise ValueError("a part has no kind")
            pairs.append((kind.upper(), taken()))
            kind = ""
            if char == ",":
                rdns.append(pairs)
                pairs = []
        elif char != " " or buffer:
            trailing = trailing + 1 if char == " " else 0
            buffer.append(data[at - 1])
    if buffer:
        if not kind:
            raise ValueError("the last part has no kind")
        pairs.append((kind.upper(), taken()))
        rdns.append(pairs)
    return rdns


def _subject_dn(certificate: Certificate) -> Dn | None:
    """None where it has parts that no user's name can stand for."""
    dn = []
    for rdn in reversed(certificate.subject):
        pairs = []
        for attribute in rdn:
            kind = _KNOWN.get(attribute.oid)
            if kind is None or attribute.text is None:
                return None
            pairs.append((kind, attribute.text))
        if pairs:
            dn.append(frozenset(pairs))
    return dn


def _by_dn(names: Iterable[str], subject: Dn) -> Iterator[str]:
    """First the user with the same parts in the same order, then those in another one."""
    reordered = []
    wanted = sorted(sorted(rdn) for rdn in subject)
    for name in names:
        try:
            dn = parse_dn(name)
        except ValueError:
            continue
        if dn == subject:
            yield name
        elif sorted(sorted(rdn) for rdn in dn) == wanted:
            reordered.append(name)
    yield from reordered


def mapped_user(certificate: Certificate, names: Iterable[str]) -> str | None:
    """The user among `names`, those that may come so, whom a certificate stands for."""
    names = dict.fromkeys(names)
    for name in (*certificate.emails, *certificate.dns_names, *certificate.uris):
        if name in names:
            return name
    subject = _subject_dn(certificate)
    if subject is not None:
        for name in _by_dn(names, subject):
            return name
    text = subject_text(certificate.subject, others=False)
    parts = [a for rdn in certificate.subject for a in rdn if a.oid == _DC and a.text is not None]
    domain = ",".join(f"DC={a.text}" for a in parts)
    for name in ([f"{text},{domain}"] if domain else []) + [text]:
        if name and name in names:
            return name
    return None
