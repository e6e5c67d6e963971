"""Keys of encrypted stores: what a server's key gives for each file, and what a key file holds.

A key file is a seed, sealed with the key that the server's key and the file's context give. The
context of a stream is its name, of its block N `STREAM:N`, of its consumer C `STREAM.C`. With the
seed blocks are encrypted byte by byte, and other files sealed as a whole. All is as nats-server
does it."""

from __future__ import annotations

import os

from jsserver.cext.cipher import (
    KEY_BYTES,
    KINDS,
    NONCES,
    TAG_BYTES,
    EncryptedFiles,
    crypt_file,
    derive,
    seal,
    unseal,
)

SHEET, SHEET_CHECK = b"\xffjsE", 8
"""How a sheet begins that is encrypted, and the size of what its key is known by."""
KEY_FILE_SIZES = {NONCES[kind] + KEY_BYTES + TAG_BYTES: kind for kind in KINDS.values()}
"""The size of a key file says which cipher it is of."""


class Seed:
    """What a key file holds: the key of a file, and the nonce that the seed was sealed with, which
    a block's keystream begins with too."""

    __slots__ = ("_key", "_kind", "_nonce")

    def __init__(self, kind: int, key: bytes, nonce: bytes) -> None:
        self._kind, self._key, self._nonce = kind, key, nonce

    @property
    def kind(self) -> int:
        """The cipher."""
        return self._kind

    def seal(self, data: bytes) -> bytes:
        """Seals what is kept as a whole, with a nonce of its own in front."""
        return seal(self._kind, self._key, data)

    def unseal(self, sealed: bytes) -> bytes | None:
        """What was sealed as a whole; None: with another seed, or it was changed since."""
        return unseal(self._kind, self._key, sealed)

    def decrypt(self, block: bytes) -> bytes:
        """The plain bytes of a whole block. Nothing shows whether they were changed."""
        return crypt_file(self._kind, self._key, self._nonce, 0, block)

    def encrypt(self, plain: bytes) -> bytes:
        """The bytes of a whole block, of which this seed is the first and only use."""
        return crypt_file(self._kind, self._key, self._nonce, 0, plain)


def _parts(account: str, context: str) -> tuple[bytes, bytes]:
    return account.encode("utf-8", "surrogateescape"), context.encode("utf-8", "surrogateescape")


class Keys:
    """A server's key, the one that it had before (b"": none), and the cipher of what is new."""

    def __init__(self, secret: bytes, before: bytes = b"", cipher: str = "chacha") -> None:
        self._secret, self._before = secret, before
        self._kind = KINDS[cipher]

    def files(self) -> EncryptedFiles:
        """What reaches the files of streams with these keys."""
        return EncryptedFiles(self._kind, self._secret, self._before)

    def like(self, key_file: bytes) -> Keys:
        """These keys, by the cipher that a key file is of."""
        made = Keys(self._secret, self._before)
        made._kind = KEY_FILE_SIZES.get(len(key_file), self._kind)
        return made

    def new(self, account: str, context: str) -> tuple[Seed, bytes]:
        """A new seed, and the bytes of its key file."""
        key = os.urandom(KEY_BYTES)
        key_file = seal(self._kind, derive(self._secret, *_parts(account, context)), key)
        return Seed(self._kind, key, key_file[: NONCES[self._kind]]), key_file

    def is_current(self, account: str, context: str, key_file: bytes) -> bool:
        """Whether a key file is as one that is made now would be."""
        found = _seed(self._secret, account, context, key_file)
        return found is not None and found.kind == self._kind

    def seed(self, account: str, context: str, key_file: bytes) -> Seed | None:
        """What these bytes of a key file hold; None: the server has other keys, or they were
        changed."""
        found = _seed(self._secret, account, context, key_file)
        if found is None and self._before:
            found = _seed(self._before, account, context, key_file)
        return found

    def sheet(self, account: str, stream: str, sealed: bytes) -> bytes | None:
        """What a sheet of a stream holds (`cext/cipher/model.pxi`); None: the server has other
        keys, or what stands in front of it was changed."""
        kind = sealed[len(SHEET)] if len(sealed) > len(SHEET) else 0
        if kind not in NONCES:
            return None
        at = len(SHEET) + 1 + NONCES[kind]
        nonce, end = sealed[len(SHEET) + 1 : at], at + SHEET_CHECK
        for secret in (self._secret, self._before):
            key = derive(secret, *_parts(account, f"{stream}/sheets"))
            if derive(key, nonce, b"check")[:SHEET_CHECK] == sealed[at:end]:
                return crypt_file(kind, key, nonce, 0, sealed[end:])
        return None

    def seal_note(self, body: bytes) -> bytes:
        """A small file of jsserver's own, which has no key file."""
        return seal(self._kind, derive(self._secret, b"", b"/notes"), body)

    def open_note(self, sealed: bytes, current: bool = False) -> bytes | None:
        """What such a file holds; None: the server has other keys, it was changed, or, of `current`
        ones, it is not as one that is written now."""
        kinds = [self._kind] if current else list(KINDS.values())
        for secret in [self._secret] if current else [self._secret, self._before]:
            key = derive(secret, b"", b"/notes")
            for kind in kinds:
                body = unseal(kind, key, sealed)
                if body is not None:
                    return body
        return None


def _seed(secret: bytes, account: str, context: str, key_file: bytes) -> Seed | None:
    kind = KEY_FILE_SIZES.get(len(key_file))
    if kind is None:
        return None
    key = unseal(kind, derive(secret, *_parts(account, context)), key_file)
    return None if key is None else Seed(kind, key, key_file[: NONCES[kind]])
