"""What the token of an account says of its users: who is revoked, and from where they may come."""

import pytest

from jsserver.access.operator import Tenant, check_source
from jsserver.access.refusal import Refused
from jsserver.jwt import claims as c
from jsserver.jwt.tokens import decode_as
from tests.jwts import Account, Operator

ISSUED = 1_700_000_000


@pytest.mark.parametrize("whom", ["U", "*"])
@pytest.mark.parametrize(("after", "revoked"), [(-1, False), (0, True), (1, True)])
def test_a_revocation_is_of_tokens_up_to_its_time(whom: str, after: int, revoked: bool) -> None:
    token = Account(Operator()).made(revocations={whom: ISSUED + after})
    tenant = Tenant(decode_as(token, c.Account), token, strict=False)
    assert tenant.revoked("U", ISSUED) is revoked
    assert tenant.revoked("V", ISSUED) is (revoked and whom == "*")


@pytest.mark.parametrize(
    ("network", "host", "inside"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "11.1.2.3", False),
        ("::ffff:0:0/96", "11.1.2.3", True),
        ("::/0", "11.1.2.3", False),
        ("::/0", "::1", True),
        ("nonsense", "11.1.2.3", False),
    ],
)
def test_users_come_from_networks(network: str, host: str, inside: bool) -> None:
    limits = c.UserLimits(src=[network])
    if inside:
        check_source(limits, host)
    else:
        with pytest.raises(Refused, match="Bad src Ip"):
            check_source(limits, host)
