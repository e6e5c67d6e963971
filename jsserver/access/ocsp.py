"""Asks OCSP responders about certificates (RFC 6960), and reads what they answer."""

from __future__ import annotations

import base64
import calendar
import re
import time
from typing import NamedTuple
from urllib.parse import quote

from jsserver.access.fetch import fetch
from jsserver.cext.tls import OcspError, ocsp_answer
from jsserver.text.goformat import SECOND

GOOD, REVOKED, UNKNOWN = range(3)
STATUSES = ("good", "revoked", "unknown")
ANSWER_MAX = 64 << 10
"""Bytes of an answer."""
_TIME = re.compile(rb"(\d{14})(?:\.\d+)?Z")


class Answer(NamedTuple):
    """What a responder says of a certificate, from when to when; times in ns since the epoch, 0 for
    no end. `raw` is all of it, in DER."""

    raw: bytes
    status: int
    begins: int
    ends: int


def _time(text: bytes) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise OcspError("a time of the answer has an unknown form")
    try:
        return calendar.timegm(time.strptime(found[1].decode(), "%Y%m%d%H%M%S")) * SECOND
    except ValueError:
        raise OcspError("a time of the answer is none") from None


def read_answer(raw: bytes, certificate: bytes, issuer: bytes) -> Answer:
    """An answer about a certificate, all in DER; OcspError where it is none, or nobody may have
    said so. Whether it is the time for it is not looked at."""
    status, begins, ends = ocsp_answer(raw, certificate, issuer)
    return Answer(raw, status, _time(begins), _time(ends) if ends else 0)


async def post(url: str, request: bytes, seconds: float) -> bytes:
    """What a responder answers to a request; OSError or ValueError."""
    url = url.removesuffix("/")
    return _body(
        "POST",
        *await fetch(url, seconds, ANSWER_MAX, body=request, kind="application/ocsp-request"),
    )


async def get(url: str, request: bytes, seconds: float) -> bytes:
    """The same for responders, and caches before them, that know GET only (RFC 6960, A.1)."""
    text = quote(base64.b64encode(request).decode(), safe="")
    return _body("GET", *await fetch(f"{url.removesuffix('/')}/{text}", seconds, ANSWER_MAX))


def _body(method: str, status: int, body: bytes) -> bytes:
    if status != 200:
        raise ValueError(f"non-ok http status on {method} request: {status}")
    return body
