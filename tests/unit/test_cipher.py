"""The ciphers of encrypted stores, by published vectors and by another implementation."""

import hashlib
import hmac
import os

import nacl.bindings
import pytest

from jsserver.cext import cipher
from jsserver.cext.cipher import AES, CHACHA

LADIES = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future,"
    b" sunscreen would be it."
)
KEY = bytes(range(0x80, 0xA0))
NONCE = bytes(range(0x40, 0x58))
#: draft-irtf-cfrg-xchacha-03, A.3.1: the text stands behind the first 64 bytes of the keystream.
XCHACHA = bytes.fromhex(
    "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39"
    "ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
    "21f9664c97637da9768812f615c68b13b52e"
)


def test_xchacha20() -> None:
    assert cipher.crypt_file(CHACHA, KEY, NONCE, 64, LADIES) == XCHACHA


def test_aes_in_counter_mode() -> None:
    """NIST SP 800-38A, F.5.5."""
    key = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
    plain = (
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
    )
    sealed = (
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
    )
    counter = bytes(range(0xF0, 0x100))
    found = cipher.crypt_file(AES, bytes.fromhex(key), counter, 0, bytes.fromhex(plain))
    assert found.hex() == sealed


def test_sealed_as_libsodium_seals() -> None:
    """RFC 8439 with nonces of 24 bytes; no additional data, as in nats-server's files."""
    for size in (0, 1, 63, 64, 65, 5000):
        data = os.urandom(size)
        sealed = cipher.seal(CHACHA, KEY, data)
        nonce, body = sealed[:24], sealed[24:]
        opened = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(body, None, nonce, KEY)
        assert opened == data
        theirs = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(data, None, nonce, KEY)
        assert theirs == body


@pytest.mark.parametrize("kind", [CHACHA, AES])
def test_what_is_sealed_opens_with_its_key_alone(kind: int) -> None:
    data = os.urandom(300)
    sealed = cipher.seal(kind, KEY, data)
    assert len(sealed) == cipher.NONCES[kind] + len(data) + cipher.TAG_BYTES
    assert cipher.unseal(kind, KEY, sealed) == data
    assert cipher.seal(kind, KEY, data)[: cipher.NONCES[kind]] != sealed[: cipher.NONCES[kind]]
    assert cipher.unseal(kind, bytes(32), sealed) is None
    for at in (0, cipher.NONCES[kind], len(sealed) - 1):
        changed = bytearray(sealed)
        changed[at] ^= 1
        assert cipher.unseal(kind, KEY, bytes(changed)) is None
    for size in (0, 10, cipher.NONCES[kind] + cipher.TAG_BYTES - 1, len(sealed) - 1):
        assert cipher.unseal(kind, KEY, sealed[:size]) is None


@pytest.mark.parametrize("kind", [CHACHA, AES])
def test_any_part_of_a_file_is_encrypted_by_itself(kind: int) -> None:
    data = os.urandom(1000)
    nonce = b"\xff" * cipher.NONCES[kind]  # the counter runs over
    whole = cipher.crypt_file(kind, KEY, nonce, 0, data)
    assert whole != data
    assert cipher.crypt_file(kind, KEY, nonce, 0, whole) == data
    for at in (0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 500, 999, 1000):
        for end in (at, at + 1, at + 64, 1000):
            part = cipher.crypt_file(kind, KEY, nonce, at, data[at:end])
            assert part == whole[at:end]


def test_keys_are_derived_as_hmac_does() -> None:
    for secret in (b"", b"s", b"x" * 200):
        found = cipher.derive(secret, b"$G", b"ORDERS:7")
        assert found == hmac.digest(secret, b"$GORDERS:7", hashlib.sha256)


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="another size"):
        cipher.seal(AES, b"short", b"")
    with pytest.raises(ValueError, match="another size"):
        cipher.crypt_file(CHACHA, KEY, bytes(16), 0, b"")
    with pytest.raises(ValueError, match="no such cipher"):
        cipher.crypt_file(3, KEY, bytes(16), 0, b"")
