"""Names that identify: public nkeys of servers, accounts and users, and hashes of names."""

import binascii
import os

from jsserver.cext.bytes import sha256

#: Prefix bytes of public keys, by what they identify (nkeys encoding).
PREFIX_ACCOUNT = 0
PREFIX_CLUSTER = 2 << 3
PREFIX_SERVER = 13 << 3
PREFIX_OPERATOR = 14 << 3
PREFIX_USER = 20 << 3
PREFIX_CURVE = 23 << 3
PREFIXES = (
    *(PREFIX_ACCOUNT, PREFIX_CLUSTER, PREFIX_SERVER, PREFIX_OPERATOR, PREFIX_USER, PREFIX_CURVE),
)

PUBLIC_TEXT = 56
"""Characters of a public key: 35 bytes, five bits each."""

BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
#: Those of base 32 as int() knows them.
_DIGITS = str.maketrans(BASE32, "0123456789abcdefghijklmnopqrstuv")
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def public_key(prefix: int) -> str:
    """A new 56-character public nkey: base32 of prefix, 32 random bytes and their CRC-16.

    Nothing signs with it yet, so there is no seed behind it.
    """
    return encode_public(prefix, os.urandom(32))


def encode_public(prefix: int, key: bytes) -> str:
    """The text of a public key of 32 bytes."""
    raw = bytes([prefix]) + key
    crc = binascii.crc_hqx(raw, 0)
    number = int.from_bytes(raw + crc.to_bytes(2, "little"), "big")
    # Not by base64, which takes a start some milliseconds.
    return "".join(BASE32[number >> shift & 31] for shift in range(275, -1, -5))


def decode_public(text: str) -> tuple[int, bytes]:
    """The prefix and the 32 bytes of a public key; ValueError says what is wrong with the text."""
    if len(text) != PUBLIC_TEXT:
        raise ValueError(f"a public nkey has {PUBLIC_TEXT} characters, not {len(text)}")
    if text.strip(BASE32):
        raise ValueError("a public nkey has characters of base 32 alone")
    raw = int(text.translate(_DIGITS), 32).to_bytes(35, "big")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("the checksum of the public nkey is wrong")
    if raw[0] not in PREFIXES:
        raise ValueError("the text is no public nkey")
    return raw[0], raw[1:-2]


def short_hash(name: str, digits: int = 8) -> str:
    """The first bytes of SHA-256 of a name as base-62 digits, as nats-server shortens names."""
    return "".join(BASE62[b % 62] for b in sha256(name.encode())[:digits])
