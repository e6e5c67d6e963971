"""Nkeys of tests: who signs, as clients do."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jsserver.text.identity import PREFIX_USER, encode_public


class Signer:
    """A key pair; `public` is its text."""

    def __init__(self, prefix: int = PREFIX_USER) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.raw = self._key.public_key().public_bytes_raw()
        self.public = encode_public(prefix, self.raw)

    @property
    def secret(self) -> bytes:
        """The 32 bytes of a seed."""
        return self._key.private_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def signature(self, nonce: str) -> str:
        """As CONNECT has it."""
        return base64.urlsafe_b64encode(self.sign(nonce.encode())).decode().rstrip("=")
