"""Who is behind a request that came from another server, by its headers."""

import re
from typing import TypeVar

import msgspec

LINE = re.compile(rb"^Nats-Request-Info:[ \t]*(.*?)\r$", re.IGNORECASE | re.MULTILINE)

T = TypeVar("T")


def requester(headers: bytes, kind: type[T]) -> T | None:
    """What the server of the client says of it; None: nothing that can be read."""
    found = LINE.search(headers)
    try:
        return msgspec.json.decode(found[1] if found else b"", type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None
