"""What the token of an account says of its users: who is revoked, and from where they may come."""

import pytest

from jsserver.access.clients import Connect
from jsserver.access.operator import OperatorMode, Tenant, check_source, permissions_of
from jsserver.access.proxies import Proxies
from jsserver.access.refusal import Refused
from jsserver.config.options import DEFAULT_RESPONSE_TTL, Operators, ResponsePermission
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
        ("2001:db8::/112", "2001:db8::1", True),
        ("2001:db8::/112", "2001:db8::1:1", False),
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


@pytest.mark.parametrize(
    ("most", "life", "shown"),
    [
        (0, 0, ResponsePermission(max=1, ttl=DEFAULT_RESPONSE_TTL)),
        (5, 7, ResponsePermission(max=5, ttl=7)),
        (-1, -1, ResponsePermission(max=-1, ttl=-1)),
    ],
)
def test_leave_to_answer(most: int, life: int, shown: ResponsePermission) -> None:
    made = permissions_of(c.Permissions(resp=c.Responses(max=most, ttl=life)))
    assert made is not None and made.responses == shown
    assert made.publish is not None and made.publish.allow == []


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "^Authentication requires a user JWT$"),
        ("eyJ", "^User JWT not valid: "),
        (Operator().token, "^User JWT not valid: "),
    ],
)
def test_why_no_user_is_in_what_a_client_brings(token: str, said: str) -> None:
    mode = OperatorMode(Operators(), "", Proxies([]))
    with pytest.raises(Refused, match=said):
        mode.user(Connect(jwt=token), "")
