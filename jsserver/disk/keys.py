"""Keys of encrypted stores: what a server's key gives for each file, and what a key file holds.

A key file is a seed, sealed with the key that the server's key and the file's context give. The
context of a stream is its name, of its block N `STREAM:N`, of its consumer C `STREAM.C`. With the
seed blocks are encrypted byte by byte, and other files sealed as a whole. All is as nats-server
does it."""

from __future__ import annotations

from jsserver.cext.cipher import KEY_BYTES, KINDS, NONCES, TAG_BYTES, crypt_file, derive, unseal

KEY_FILE_SIZES = {NONCES[kind] + KEY_BYTES + TAG_BYTES: kind for kind in KINDS.values()}
"""The size of a key file says which cipher it is of."""


class Seed:
    """What a key file holds: the key of a file, and the nonce that the seed was sealed with, which
    a block's keystream begins with too."""

    __slots__ = ("_key", "_kind", "_nonce")

    def __init__(self, kind: int, key: bytes, nonce: bytes) -> None:
        self._kind, self._key, self._nonce = kind, key, nonce

    def unseal(self, sealed: bytes) -> bytes | None:
        """What was sealed as a whole; None: with another seed, or it was changed since."""
        return unseal(self._kind, self._key, sealed)

    def decrypt(self, block: bytes) -> bytes:
        """The plain bytes of a whole block. Nothing shows whether they were changed."""
        return crypt_file(self._kind, self._key, self._nonce, 0, block)


class Keys:
    """A server's key."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seed(self, account: str, context: str, key_file: bytes) -> Seed | None:
        """What these bytes of a key file hold; None: the server has another key, or they were
        changed."""
        kind = KEY_FILE_SIZES.get(len(key_file))
        if kind is None:
            return None
        info, text = (part.encode("utf-8", "surrogateescape") for part in (account, context))
        key = unseal(kind, derive(self._secret, info, text), key_file)
        return None if key is None else Seed(kind, key, key_file[: NONCES[kind]])
