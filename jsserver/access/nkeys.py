"""Signatures of nkeys: Ed25519, by which users and tokens prove who they are.

PyNaCl is loaded with the first signature: most servers check none.
"""

from __future__ import annotations

import base64
import binascii

from jsserver.text.identity import decode_public

__all__ = ["decode_public", "decode_signature", "verify"]

SIGNATURE_BYTES = 64
_SIGNATURE_TEXT = 88
"""Characters of a signature at most, padded."""


def decode_signature(text: str) -> bytes:
    """A signature as CONNECT has it: base64 for URLs without padding, or the standard form;
    empty where it is neither."""
    if len(text) > _SIGNATURE_TEXT or not text.isascii():
        return b""
    for altchars, padded in ((b"-_", text + "=" * (-len(text) % 4)), (b"+/", text)):
        try:
            raw = base64.b64decode(padded, altchars, validate=True)
        except binascii.Error:
            continue
        if len(raw) == SIGNATURE_BYTES:
            return raw
    return b""


def verify(public: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the holder of the key of these 32 bytes signed the data."""
    from nacl.exceptions import CryptoError
    from nacl.signing import VerifyKey

    try:
        VerifyKey(public).verify(data, signature)
    except (CryptoError, ValueError):  # such as a signature that is too short
        return False
    return True
