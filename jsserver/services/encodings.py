"""Compresses answers to requests for monitoring pages in a way that the requester accepts."""

from __future__ import annotations

import re

_ACCEPTS = re.compile(rb"\r\nAccept-Encoding:[ \t]*([^\r\n]*)")
_SAYS = b"NATS/1.0\r\nContent-Encoding: %b\r\n\r\n"


def encoded_for(request: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Headers and payload of an answer, by the request's headers: Snappy rather than gzip, and
    uncompressed (`identity`) for a requester that accepts neither."""
    found = _ACCEPTS.search(request)
    accepted = found[1].strip().lower() if found else b""
    if not accepted or not payload:
        return b"", payload
    if b"snappy" in accepted or b"s2" in accepted:
        from jsserver.cext.bytes import snappy

        return _SAYS % b"snappy", snappy(payload)
    if b"gzip" in accepted:
        import gzip  # rarely needed

        return _SAYS % b"gzip", gzip.compress(payload, 6, mtime=0)
    return _SAYS % b"identity", payload
