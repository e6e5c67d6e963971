"""Proxies that are trusted: they sign the nonce of each connection that they pass on."""

from __future__ import annotations

import base64
import binascii

from jsserver.access.refusal import ProxyNotTrusted
from jsserver.text.identity import decode_public

_SIGNATURE_TEXT = 86
"""Characters of a signature: base64 for URLs, without padding."""


class Proxies:
    """Those of a configuration, by their public keys; where there are none no signature is looked
    at. From any thread."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = [(key, decode_public(key)[1]) for key in keys]
        if keys:
            from jsserver.text import nkeys

            nkeys.prepare()

    def looks_at(self, sig: str | None) -> bool:
        """Whether there is a signature to be checked."""
        return bool(sig and self._keys)

    def signer(self, sig: str | None, nonce: str) -> str:
        """The key of the proxy that signed a connection's nonce; "" where no proxy says anything.
        ProxyNotTrusted."""
        if not sig or not self._keys:
            return ""
        from jsserver.text.nkeys import verify

        raw = _decoded(sig)
        for key, public in self._keys:
            if nonce and verify(public, nonce.encode(), raw):
                return key
        raise ProxyNotTrusted


def _decoded(sig: str) -> bytes:
    """Empty where the text is no signature."""
    if len(sig) != _SIGNATURE_TEXT or not sig.isascii():
        return b""
    try:
        return base64.b64decode(sig + "==", b"-_", validate=True)
    except binascii.Error:
        return b""
