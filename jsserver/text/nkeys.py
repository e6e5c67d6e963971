"""Signatures of nkeys (Ed25519), by which users and tokens prove who they are, and boxes of xkeys.

PyNaCl is loaded with the first signature, or by `prepare`: most servers check none.
"""

from __future__ import annotations

import base64
import binascii

from jsserver.text.identity import PREFIX_CURVE, decode_public, encode_public

__all__ = ["BoxPair", "SigningPair", "decode_public", "decode_signature", "prepare", "verify"]

SIGNATURE_BYTES = 64
_BOX_VERSION = b"xkv1"
_BOX_NONCE = 24
_SIGNATURE_TEXT = 88
"""Characters of a signature at most, padded."""


def prepare() -> None:
    """Loads what signatures need, so that the first one does not wait for it."""
    import nacl.signing  # noqa: F401


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


class SigningPair:
    """A new key that signs; `public` is its text."""

    def __init__(self, prefix: int) -> None:
        from nacl.signing import SigningKey

        self._key = SigningKey.generate()
        self.public = encode_public(prefix, bytes(self._key.verify_key))

    def sign(self, data: bytes) -> bytes:
        """The signature of the data."""
        return bytes(self._key.sign(data).signature)


class BoxPair:
    """A new key that seals for one reader and opens what that one sealed (X25519, XSalsa20,
    Poly1305; the version and the nonce stand before the box); `public` is its text."""

    def __init__(self) -> None:
        from nacl.public import PrivateKey

        self._key = PrivateKey.generate()
        self.public = encode_public(PREFIX_CURVE, bytes(self._key.public_key))

    def seal(self, data: bytes, reader: bytes) -> bytes:
        """The data for the holder of the key of these 32 bytes; ValueError where it is no key."""
        from nacl.exceptions import CryptoError
        from nacl.public import Box, PublicKey

        try:
            return _BOX_VERSION + bytes(Box(self._key, PublicKey(reader)).encrypt(data))
        except CryptoError as error:
            raise ValueError(str(error)) from None

    def open(self, sealed: bytes, writer: bytes) -> bytes:
        """What the holder of the key of these 32 bytes sealed; ValueError."""
        from nacl.exceptions import CryptoError
        from nacl.public import Box, PublicKey

        if not sealed.startswith(_BOX_VERSION) or len(sealed) < len(_BOX_VERSION) + _BOX_NONCE:
            raise ValueError("it is not sealed as xkeys seal")
        try:
            return bytes(Box(self._key, PublicKey(writer)).decrypt(sealed[len(_BOX_VERSION) :]))
        except CryptoError as error:
            raise ValueError(str(error)) from None
