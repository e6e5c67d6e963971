"""The request for WebSocket that a leaf node sends to its hub, and the judgement of the answer."""

from __future__ import annotations

import base64
import posixpath
import secrets
from typing import NamedTuple

from jsserver.text.http import BadRequest, read_answer, websocket_accept, words

from .leafmodel import Address, Remote

NO_CONTEXT = (b"server_no_context_takeover", b"client_no_context_takeover")
_DEFLATE = b"permessage-deflate"
_INVALID = "invalid websocket connection"
_NO_MASKING = b"nats-no-masking"


class Agreed(NamedTuple):
    """What both sides have agreed on."""

    deflate: bool
    """Whether messages may be compressed."""
    masks: bool
    """Whether this server masks its frames."""


class Upgrade:
    """One request, for a connection to an address of a hub."""

    def __init__(self, remote: Remote, address: Address) -> None:
        self._key = base64.b64encode(secrets.token_bytes(16))
        self._deflate, self._no_masking = remote.deflate, remote.no_masking
        self.trouble = ""
        """Why the answer was refused; "": it was not."""
        host = f"[{address.host}]" if ":" in address.host else address.host
        path = posixpath.join("/", address.path.lstrip("/"), "leafnode")
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}:{address.port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        if self._deflate:
            offer = b"; ".join((_DEFLATE, *NO_CONTEXT)).decode()
            lines.append(f"Sec-WebSocket-Extensions: {offer}")
        if self._no_masking:
            lines.append("Nats-No-Masking: true")
        self.request = "\r\n".join([*lines, "", ""]).encode()

    def judge(self, raw: bytes) -> Agreed:
        """`raw`: the head of the hub's answer. ValueError: no WebSocket."""
        try:
            status, headers = read_answer(raw.rstrip(b"\r\n"))
        except BadRequest as error:
            raise ValueError(f"{_INVALID}: {error}") from None
        if status != 101:
            raise ValueError(f"{_INVALID}: the answer has status {status}")
        upgrade, connection = (words(headers.get(k, [])) for k in (b"upgrade", b"connection"))
        accept = headers.get(b"sec-websocket-accept", [])
        if (
            b"websocket" not in upgrade
            or b"upgrade" not in connection
            or accept != [websocket_accept(self._key)]
        ):
            raise ValueError(_INVALID)
        agreed = b",".join(headers.get(b"sec-websocket-extensions", []))
        parts = [part.strip(b" \t").lower() for part in agreed.replace(b",", b";").split(b";")]
        deflate = self._deflate and _DEFLATE in parts
        if deflate and not all(word in parts for word in NO_CONTEXT):
            raise ValueError("compression negotiation error")
        masks = not self._no_masking or headers.get(_NO_MASKING) != [b"true"]
        return Agreed(deflate=deflate, masks=masks)
