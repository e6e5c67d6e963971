"""Whatever bytes come from a responder: an answer says what was signed, or is refused."""

import os
import random
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.certificates import Authority
from tests.ocsp import Responder

tls = pytest.importorskip("jsserver.cext.tls", reason="the data plane is not built here")
ocsp = pytest.importorskip("jsserver.access.ocsp", reason="the data plane is not built here")

FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "5"))
pytestmark = pytest.mark.timeout(FUZZ_SECONDS + 300)


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a few things wrong."""
    broken = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 3])):
        at = rng.randrange(len(broken) or 1)
        broken = broken or bytearray(1)
        match rng.randrange(5):
            case 0:
                broken[at] ^= 1 << rng.randrange(8)
            case 1:
                del broken[at : at + rng.choice([1, 2, 20])]
            case 2:
                broken[at:at] = rng.randbytes(rng.choice([1, 2, 20]))
            case 3:
                broken[at] = rng.choice([0x30, 0x82, 0x84, 0x80, 0xFF, 0, 0x0A, 0xA0, 0xA2])
            case 4:
                broken = broken[: at + 1]
    return bytes(broken)


def test_broken_answers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("CN=client")
    der, issuer = (
        made.public_bytes(serialization.Encoding.DER) for made in (issued.made, authority.made)
    )
    with Responder(authority) as responder:
        answers = []
        for status in (ocsp.GOOD, ocsp.REVOKED, ocsp.UNKNOWN):
            for ends in (None, 3600.0):
                for signer in (None, authority.issue("CN=answers", answers=True)):
                    responder.otherwise, responder.ends = ocsp.STATUSES[status], ends
                    responder.signer = signer
                    answers.append((status, responder.made(issued.made.serial_number)))
    end = time.monotonic() + FUZZ_SECONDS
    read = seed = 0
    while time.monotonic() < end:
        seed += 1
        rng = random.Random(seed)
        status, raw = rng.choice(answers)
        try:
            found = ocsp.read_answer(spoilt(raw, rng), der, issuer)
        except tls.OcspError as error:
            assert str(error)
            continue
        assert found.status == status, seed
        read += 1
    print(f"{seed} answers, of which {read} are as good as before")
    assert read < seed / 2


def test_broken_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("CN=client", responder="http://127.0.0.1:1", must_staple=True)
    der, issuer = (
        made.public_bytes(serialization.Encoding.DER) for made in (issued.made, authority.made)
    )
    from jsserver.access.certificates import parse

    end = time.monotonic() + FUZZ_SECONDS / 2
    seed = 0
    while time.monotonic() < end:
        seed += 1
        broken = spoilt(der, random.Random(seed))
        for use in (parse, lambda text: tls.ocsp_request(text, issuer)):
            try:
                use(broken)
            except (ValueError, RecursionError) as error:
                assert str(error)
    print(f"{seed} certificates")
