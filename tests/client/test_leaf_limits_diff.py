"""Limits of subscriptions and payloads, of the server, an account or a user, as leaf nodes meet
them, at both servers."""

import base64

import pytest

from tests.client.leafs import Tree
from tests.client.test_leaf_refusals_diff import Dialled, both, loop_of
from tests.client.tokens import configured
from tests.jwts import Account, Operator, User
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

MOST = 4
SIZE = 100
OF_ACCOUNT = f"""
    accounts {{ A {{
        users: [ {{user: a, password: a}} ]
        limits {{ max_subs: {MOST}, max_payload: {SIZE} }}
    }} }}
"""
OF_SERVER = f"max_subscriptions: {MOST}, max_payload: {SIZE}"
LIMITS = {"server": OF_SERVER, "account": OF_ACCOUNT}
LOGIN = {"user": "a", "pass": "a"}


def message(size: int) -> bytes:
    return b"LMSG x %d\r\n" % size + b"." * size


TRIES = {
    "subscriptions": [b"LS+ s%d" % number for number in range(MOST + 2)],
    "groups": [b"LS+ s q%d 1" % number for number in range(MOST + 1)],
    "the same again": [b"LS+ s q 1", b"LS+ s q 2", b"LS+ s q 3", b"LS+ t", b"LS+ u", b"LS+ v"],
    "one for another": [b"LS+ s%d" % n for n in range(MOST)] + [b"LS- s1", b"LS+ other"],
    "a small message": [message(SIZE)],
    "a large message": [message(SIZE + 1)],
    "headers": [b"HMSG x 12 %d\r\nNATS/1.0\r\n\r\n" % (SIZE + 1) + b"." * (SIZE - 11)],
}


def tried(dialled: Dialled, lines: list[bytes]) -> list[bytes]:
    loop_of(dialled)
    dialled.say(*lines, b"PING")
    return [line for line in dialled.heard(b"PONG") if line.startswith((b"-ERR", b"PONG"))]


@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.parametrize("lines", TRIES)
def test_of_the_configuration(servers: Servers, lines: str, of: str) -> None:
    def run(tree: Tree) -> list[bytes]:
        dialled = Dialled(tree.port)
        dialled.connect(**(LOGIN if of == "account" else {}))
        return tried(dialled, TRIES[lines])

    ours, peers = both(servers, run, rest=LIMITS[of])
    assert ours == peers


@pytest.mark.parametrize("lines", ["subscriptions", "a large message"])
def test_of_a_token(servers: Servers, lines: str) -> None:
    operator = Operator()
    account = Account(operator, name="MAIN")
    user = User(account, subs=MOST, payload=SIZE)

    def run(tree: Tree) -> list[bytes]:
        dialled = Dialled(tree.port)
        sig = base64.b64encode(user.sign(dialled.info["nonce"].encode())).decode()
        dialled.connect(jwt=user.token, sig=sig, remote_account=None)
        return tried(dialled, TRIES[lines])

    rest = configured(operator, [account]).replace("server_name: one\n", "")
    ours, peers = both(servers, run, rest=rest)
    assert ours == peers and b"-ERR" in ours[0]
