"""Names that identify a server: its nkey-shaped id, its curve key, the hash of its name."""

import binascii
import os

from jsserver.cext.bytes import sha256

#: Prefix bytes of public keys, by what they identify (nkeys encoding).
PREFIX_SERVER = 13 << 3
PREFIX_CURVE = 23 << 3

BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def public_key(prefix: int) -> str:
    """A new 56-character public nkey: base32 of prefix, 32 random bytes and their CRC-16.

    Nothing signs with it yet, so there is no seed behind it.
    """
    raw = bytes([prefix]) + os.urandom(32)
    crc = binascii.crc_hqx(raw, 0)
    number = int.from_bytes(raw + crc.to_bytes(2, "little"), "big")
    # Not by base64, which takes a start some milliseconds.
    return "".join(BASE32[number >> shift & 31] for shift in range(275, -1, -5))


def short_hash(name: str, digits: int = 8) -> str:
    """The first bytes of SHA-256 of a name as base-62 digits, as nats-server shortens names."""
    return "".join(BASE62[b % 62] for b in sha256(name.encode())[:digits])
