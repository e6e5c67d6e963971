"""Names that identify, and signatures that prove them."""

import base64
import binascii
from collections.abc import Callable

import pytest

from jsserver.text import nuid
from jsserver.text.identity import (
    PREFIX_CURVE,
    PREFIX_SERVER,
    PREFIX_USER,
    PREFIXES,
    decode_public,
    encode_public,
    public_key,
)
from jsserver.text.nkeys import decode_signature, verify
from tests.nkeys import Signer


def test_a_public_key_is_base32_of_its_prefix_32_bytes_and_their_checksum() -> None:
    for prefix, letter in ((PREFIX_SERVER, "N"), (PREFIX_CURVE, "X")):
        key = public_key(prefix)
        raw = base64.b32decode(key)
        assert (len(key), len(raw), key[0], raw[0]) == (56, 35, letter, prefix)
        assert binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") == raw[-2:]


def test_a_public_key_is_read_back() -> None:
    for prefix in PREFIXES:
        key = bytes(range(32))
        assert decode_public(encode_public(prefix, key)) == (prefix, key)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text.lower(),
        lambda text: text[:-1] + "1",
        lambda text: text[:9] + ("A" if text[9] != "A" else "B") + text[10:],
        lambda text: "S" + text[1:],
        lambda text: text[:20] + "\N{LATIN CAPITAL LETTER A WITH DIAERESIS}" + text[21:],
        lambda text: text[:-1] + "\n",
    ],
)
def test_a_text_that_is_no_public_key(change: Callable[[str], str]) -> None:
    with pytest.raises(ValueError, match="public nkey"):
        decode_public(change(public_key(PREFIX_USER)))


def test_a_checksum_alone_does_not_make_a_public_key() -> None:
    with pytest.raises(ValueError, match="no public nkey"):
        decode_public(encode_public(18 << 3, bytes(32)))


def test_a_signature_is_of_the_data_by_the_key() -> None:
    signer, other = Signer(), Signer()
    signature = signer.sign(b"nonce")
    assert verify(signer.raw, b"nonce", signature)
    assert not verify(signer.raw, b"another", signature)
    assert not verify(other.raw, b"nonce", signature)
    assert not verify(signer.raw, b"nonce", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not verify(signer.raw, b"nonce", b"")
    assert not verify(b"\xff" * 32, b"nonce", signature)
    assert not verify(b"short", b"nonce", signature)


def test_signatures_come_in_both_forms_of_base64() -> None:
    raw = b"\xfb\xff" * 32
    for text in (
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        base64.b64encode(raw).decode(),
    ):
        assert decode_signature(text) == raw
    short = base64.b64encode(raw[:-1]).decode()
    for text in ("", "!", "A" * 85, "A" * 1000, "\N{SNOWMAN}" * 86, short):
        assert decode_signature(str(text)) == b""


def test_an_id_says_nothing_of_the_next_one() -> None:
    """Transfers and events have such ids: who hears one must not find others by counting on."""
    ids = [nuid.new() for _ in range(1000)]
    assert {len(i) for i in ids} == {22}
    assert set("".join(ids)) == set(nuid.ALPHABET)
    assert len({i[:8] for i in ids}) == len({i[-8:] for i in ids}) == 1000
