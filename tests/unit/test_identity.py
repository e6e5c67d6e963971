"""The names that identify a server."""

import base64
import binascii

from jsserver.text.identity import PREFIX_CURVE, PREFIX_SERVER, public_key


def test_a_public_key_is_base32_of_its_prefix_32_bytes_and_their_checksum() -> None:
    for prefix, letter in ((PREFIX_SERVER, "N"), (PREFIX_CURVE, "X")):
        key = public_key(prefix)
        raw = base64.b32decode(key)
        assert (len(key), len(raw), key[0], raw[0]) == (56, 35, letter, prefix)
        assert binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") == raw[-2:]
