"""How answers to requests for pages are compressed: as the asker says that it can read."""

from __future__ import annotations

import re

_ACCEPTS = re.compile(rb"\r\nAccept-Encoding:[ \t]*([^\r\n]*)")
_SAYS = b"NATS/1.0\r\nContent-Encoding: %b\r\n\r\n"


def encoded_for(request: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Headers and payload of an answer to a request with these headers: Snappy before gzip, and
    `identity` for a client that accepts neither."""
    found = _ACCEPTS.search(request)
    accepted = found[1].strip().lower() if found else b""
    if not accepted or not payload:
        return b"", payload
    if b"snappy" in accepted or b"s2" in accepted:
        from jsserver.cext.bytes import snappy

        return _SAYS % b"snappy", snappy(payload)
    if b"gzip" in accepted:
        import gzip  # few ask for it

        return _SAYS % b"gzip", gzip.compress(payload, 6, mtime=0)
    return _SAYS % b"identity", payload
