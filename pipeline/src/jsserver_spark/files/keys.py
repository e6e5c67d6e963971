"""Opens what nats-server encrypted: sealed keys, metadata and blocks, with the server's key.

https://docs.nats.io/running-a-nats-service/nats_admin/jetstream_admin/encryption_at_rest
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from jsserver_spark.errors import NatsError, OptionError

_SEED = 32
_TAG = 16
_CHACHA_NONCE = 24
_AES_NONCE = 16
_WORD = 0xFFFFFFFF


def server_key(path: str) -> bytes:
    """The server's encryption key out of a file that holds nothing else. OptionError."""
    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise OptionError(f"option 'encryptionKeyFile': {path}: {error.strerror}") from None
    if not key:
        raise OptionError(f"option 'encryptionKeyFile': {path} is empty")
    return key


@dataclass(frozen=True)
class Seed:
    """What a key file holds: the key of a file or of metadata, and the nonce it was sealed with."""

    key: bytes
    nonce: bytes

    @property
    def chacha(self) -> bool:
        return len(self.nonce) == _CHACHA_NONCE

    def open(self, sealed: bytes, what: str) -> bytes:
        """Metadata: a nonce and what was sealed with it. NatsError names `what`."""
        at = len(self.nonce)
        return _open(self.key, sealed[:at], sealed[at:], what)

    def decrypt(self, block: memoryview) -> None:
        """A block's bytes, where they lie."""
        if self.chacha:
            key, nonce = _subkey(self.key, self.nonce)
            cipher: Cipher[None] = Cipher(algorithms.ChaCha20(key, bytes(8) + nonce), None)
            cipher.decryptor().update_into(block, block)
        else:
            stream = Cipher(algorithms.AES(self.key), modes.CTR(self.nonce))
            stream.decryptor().update_into(block, block)


class Keys:
    """The keys of one account's streams."""

    def __init__(self, secret: bytes, account: str) -> None:
        self._secret = secret
        self._account = account

    def seed(self, key_file: Path, context: str) -> Seed:
        """What a key file holds, sealed for `context`: the stream's name, "NAME:N" for block N.

        FileNotFoundError, or NatsError when the server's key does not open it.
        """
        sealed = key_file.read_bytes()
        for nonce in (_CHACHA_NONCE, _AES_NONCE):
            if len(sealed) == nonce + _SEED + _TAG:
                break
        else:
            raise NatsError(f"{key_file} is damaged: it has {len(sealed)} bytes")
        derived = hmac.new(
            self._secret, self._account.encode() + context.encode(), hashlib.sha256
        ).digest()
        what = f"{key_file} (see the options encryptionKeyFile and account)"
        return Seed(_open(derived, sealed[:nonce], sealed[nonce:], what), sealed[:nonce])


def _open(key: bytes, nonce: bytes, sealed: bytes, what: str) -> bytes:
    try:
        if len(nonce) == _CHACHA_NONCE:
            subkey, rest = _subkey(key, nonce)
            return ChaCha20Poly1305(subkey).decrypt(bytes(4) + rest, sealed, None)
        return AESGCM(key).decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError):
        raise NatsError(f"the encryption key does not open {what}") from None


def _subkey(key: bytes, nonce: bytes) -> tuple[bytes, bytes]:
    """XChaCha20 as ChaCha20: HChaCha20's key, and the 8 bytes of the nonce that are left.

    https://datatracker.ietf.org/doc/html/draft-irtf-cfrg-xchacha-03
    """
    state = list(struct.unpack("<16I", b"expand 32-byte k" + key + nonce[:16]))
    for _ in range(10):
        for a, b, c, d in (
            (0, 4, 8, 12),
            (1, 5, 9, 13),
            (2, 6, 10, 14),
            (3, 7, 11, 15),
            (0, 5, 10, 15),
            (1, 6, 11, 12),
            (2, 7, 8, 13),
            (3, 4, 9, 14),
        ):
            for left, right in ((16, 12), (8, 7)):
                state[a] = (state[a] + state[b]) & _WORD
                state[d] = _turned(state[d] ^ state[a], left)
                state[c] = (state[c] + state[d]) & _WORD
                state[b] = _turned(state[b] ^ state[c], right)
    return struct.pack("<8I", *state[:4], *state[12:]), nonce[16:]


def _turned(word: int, by: int) -> int:
    return ((word << by) | (word >> (32 - by))) & _WORD
