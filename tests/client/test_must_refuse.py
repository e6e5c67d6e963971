"""Who must not come in, case by case: both servers refuse with the same words for the same reason.

Who comes with a token is in test_must_refuse_tokens.py; what must not come through to whom, once
somebody is in, in test_must_not_pass.py.
"""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.raw import EOF, RawClient
from tests.client.refusals import (
    FAILURE,
    Pair,
    Say,
    both,
    by_key,
    by_token,
    closed_reason,
    is_refused,
    outcome,
    said_to,
    started,
)
from tests.client.tls import Site, TlsClient, page
from tests.jwts import Account, Operator, User
from tests.nkeys import Signer
from tests.servers import Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

# ---- users of the configuration

KEY, LIMITED_KEY, PROXY, STRANGER = Signer(), Signer(), Signer(), Signer()
USERS = f"""
server_name: one
websocket {{ port: -1, no_tls: true }}
proxies {{ trusted: [{{ key: {PROXY.public} }}] }}
authorization {{ users: [
    {{ user: a, password: x }}
    {{ user: hashed, password: "$2a$04$7ehVlFqw7huHMymb3w8NUO7qAOv/tlMOsDVpscJTt4fQs7K/Enomu" }}
    {{ nkey: {KEY.public} }}
    {{ user: tcp, password: x, allowed_connection_types: [STANDARD] }}
    {{ user: ws, password: x, allowed_connection_types: [WEBSOCKET] }}
    {{ user: leaf, password: x, allowed_connection_types: [LEAFNODE] }}
    {{ nkey: {LIMITED_KEY.public}, allowed_connection_types: [MQTT] }}
    {{ user: behind, password: x, proxy_required: true }}
] }}
"""


@pytest.fixture(scope="module")
def users(module_servers: Servers) -> Pair:
    return started(module_servers, USERS)


FIRST_WORDS = (
    b"PING\r\n",
    b"PONG\r\n",
    b"SUB a 1\r\n",
    b"SUB > 1\r\n",
    b"UNSUB 1\r\n",
    b"PUB a 0\r\n\r\n",
    b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"PUB $SYS.REQ.SERVER.PING 0\r\n\r\n",
)
"""Instead of CONNECT."""


@pytest.mark.parametrize("said", FIRST_WORDS)
@pytest.mark.parametrize("websocket", [False, True])
def test_who_does_not_say_who_it_is(users: Pair, said: bytes, websocket: bool) -> None:
    assert is_refused(both(users, said, websocket=websocket))


def signed(nonce: str) -> str:
    return PROXY.signature(nonce)


CREDENTIALS: dict[str, Say] = {
    "none": {},
    "of nobody": {"user": "nobody", "pass": "x"},
    "a name alone": {"user": "a"},
    "a password alone": {"pass": "x"},
    "a wrong password": {"user": "a", "pass": "y"},
    "the beginning of a password": {"user": "hashed", "pass": "secre"},
    "a password and more": {"user": "a", "pass": "xx"},
    "a password with NUL": {"user": "a", "pass": "x\0"},
    "a hash as a password": {
        "user": "hashed",
        "pass": "$2a$04$7ehVlFqw7huHMymb3w8NUO7qAOv/tlMOsDVpscJTt4fQs7K/Enomu",
    },
    "a long password": {"user": "hashed", "pass": "x" * 100},
    "a token": {"auth_token": "x"},
    "a name in capitals": {"user": "A", "pass": "x"},
    "null": {"user": None, "pass": None},
    "a token of operator mode": by_token(User(Account(Operator()))),
    "an account": {"user": "a", "pass": "x", "account": "A"},
    "a new account": {"user": "a", "pass": "x", "new_account": True},
    "a key without a signature": {"nkey": KEY.public},
    "a key with an empty signature": {"nkey": KEY.public, "sig": ""},
    "a key and a password": {"nkey": KEY.public, "user": "a", "pass": "x"},
    "a signature of another nonce": {"nkey": KEY.public, "sig": KEY.signature("AAAAAAAAAAAAAAA")},
    "a signature of nothing": {"nkey": KEY.public, "sig": KEY.signature("")},
    "a stranger's key": by_key(STRANGER),
    "a stranger's signature": lambda n: {"nkey": KEY.public, "sig": STRANGER.signature(n)},
    "a key that is none": lambda n: {"nkey": "U" * 56, "sig": KEY.signature(n)},
    "by WebSocket alone": {"user": "ws", "pass": "x"},
    "as a leafnode alone": {"user": "leaf", "pass": "x"},
    "by MQTT alone": by_key(LIMITED_KEY),
}


@pytest.mark.parametrize("case", CREDENTIALS)
def test_credentials(users: Pair, case: str) -> None:
    assert is_refused(both(users, CREDENTIALS[case]))


@pytest.mark.parametrize("name", ["tcp", "leaf"])
def test_who_may_not_come_through_websocket(users: Pair, name: str) -> None:
    assert is_refused(both(users, {"user": name, "pass": "x"}, websocket=True))
    assert not is_refused(both(users, {"user": "ws", "pass": "x"}, websocket=True))


def test_who_is_let_in(users: Pair) -> None:
    """That these servers do not refuse everybody."""
    behind: Say = lambda n: {"user": "behind", "pass": "x", "proxy_sig": signed(n)}  # noqa: E731
    for say in ({"user": "a", "pass": "x"}, {"user": "tcp", "pass": "x"}, by_key(KEY), behind):
        assert both(users, say)[-1][0] == "PONG"


def test_a_signature_is_of_one_connection_alone(users: Pair) -> None:
    shown = []
    for server in users:
        with RawClient(server.port) as first:
            nonce = str(first.frame().json["nonce"])
            say = {"nkey": KEY.public, "sig": KEY.signature(nonce)}
            assert said_to(first, say, {})[-1].verb == "PONG"
            shown.append(outcome(server, say))
    assert shown[0] == shown[1] and is_refused(shown[0])


PROXIED: dict[str, tuple[Say, str]] = {
    "none where one is required": ({"user": "behind", "pass": "x"}, "Proxy Required"),
    "none, and a wrong password": ({"user": "behind", "pass": "y"}, "Proxy Required"),
    "an empty signature": ({"user": "behind", "pass": "x", "proxy_sig": ""}, "Proxy Required"),
    "null": ({"user": "behind", "pass": "x", "proxy_sig": None}, "Proxy Required"),
    "no signature": ({"user": "behind", "pass": "x", "proxy_sig": "x"}, "Proxy Not Trusted"),
    "of somebody who needs none": (
        {"user": "a", "pass": "x", "proxy_sig": "x"},
        "Proxy Not Trusted",
    ),
    "of nobody": ({"proxy_sig": "x"}, "Proxy Not Trusted"),
    "a stranger's": (
        lambda n: {"user": "behind", "pass": "x", "proxy_sig": STRANGER.signature(n)},
        "Proxy Not Trusted",
    ),
    "of another nonce": (
        {"user": "behind", "pass": "x", "proxy_sig": PROXY.signature("AAAAAAAAAAAAAAA")},
        "Proxy Not Trusted",
    ),
    "padded": (
        lambda n: {"user": "behind", "pass": "x", "proxy_sig": signed(n) + "=="},
        "Proxy Not Trusted",
    ),
    "good, and a wrong password": (
        lambda n: {"user": "behind", "pass": "y", "proxy_sig": signed(n)},
        FAILURE,
    ),
    "good, of nobody": (lambda n: {"proxy_sig": signed(n)}, FAILURE),
    "good, of a key": (lambda n: {"nkey": KEY.public, "proxy_sig": signed(n)}, FAILURE),
}


@pytest.mark.parametrize("case", PROXIED)
@pytest.mark.parametrize("websocket", [False, True])
def test_proxies(users: Pair, case: str, websocket: bool) -> None:
    say, reason = PROXIED[case]
    assert is_refused(both(users, say, websocket=websocket), reason)


# ---- certificates


@pytest.fixture(scope="module")
def certified(module_servers: Servers, site: Site) -> Pair:
    tls = site.config(f'ca_file: "{site.authority.cert}", verify_and_map: true')
    config = f"""{tls}
    websocket {{ port: -1, no_tls: true }}
    authorization {{ users: [
        {{ user: "CN=a" }}, {{ user: "CN=locked", password: x }}, {{ user: b, password: x }}
        {{ user: "CN=ws", allowed_connection_types: [WEBSOCKET] }}
    ] }}"""
    return started(module_servers, config)


OF_CERTIFICATES: dict[str, tuple[str, dict[str, str], bool]] = {
    "nobody's": ("CN=nobody", {}, False),
    "nobody's, with a user and password": ("CN=nobody", {"user": "b", "pass": "x"}, False),
    "mapped": ("CN=a", {}, True),
    "mapped, and another user": ("CN=a", {"user": "b"}, True),
    "mapped, and another user's password": ("CN=a", {"user": "b", "pass": "x"}, False),
    "mapped, and no password": ("CN=locked", {}, False),
    "mapped, and a wrong password": ("CN=locked", {"pass": "y"}, False),
    "mapped, and its password": ("CN=locked", {"pass": "x"}, True),
    "of who may only come through WebSocket": ("CN=ws", {}, False),
}


@pytest.mark.parametrize("case", OF_CERTIFICATES)
def test_certificates(certified: Pair, site: Site, case: str) -> None:
    subject, options, lets_in = OF_CERTIFICATES[case]
    issued = site.authority.issue(subject)
    shown = []
    for server in certified:
        with TlsClient(server.port, site.authority.client_context(issued)) as client:
            heard = said_to(client, options, client.info)
        found: list[Any] = [frame.shown() for frame in heard]
        if heard[-1].verb == EOF:
            found.append(closed_reason(server, int(client.info["client_id"])))
        shown.append(found)
    assert shown[0] == shown[1]
    assert shown[0][-1][0] == "PONG" if lets_in else is_refused(shown[0])


@pytest.mark.parametrize("name", ["CN=a", "CN=ws", "CN=locked", "b"])
def test_an_empty_password_is_no_certificate(certified: Pair, name: str) -> None:
    """Whom a certificate stands for at one listener is nobody at another without any."""
    found = both(certified, {"user": name}, websocket=True)
    assert is_refused(found) or name == "CN=ws"
    assert is_refused(both(certified, {"user": name, "pass": ""}, websocket=True)) == is_refused(
        found
    )


def test_no_certificate(certified: Pair, site: Site) -> None:
    for server in certified:
        with pytest.raises(OSError), TlsClient(server.port, site.authority.client_context()) as c:
            c.tls.recv(1)
            raise ConnectionResetError  # the end came with the alert
        server.wait_log("TLS handshake error")


# ---- time


@pytest.mark.alone
def test_an_unknown_name_takes_as_long_as_a_wrong_password(servers: Servers) -> None:
    users = """
    { user: a, password: "$2a$11$qOS5B1dvVd0tz5UxxdSxuuZb/F3o9F0sPzFPDsDmqYdQX1Yj91jnG" }
    { user: plain, password: x }
    """
    server = servers.under_test(config=f"authorization {{ users: [{users}] }}", monitor=True)

    def took(name: str) -> float:
        began = time.monotonic()
        assert is_refused(outcome(server, {"user": name, "pass": "y"}))
        return time.monotonic() - began

    for _ in range(8):
        known, unknown = (min(took(name) for _ in range(3)) for name in ("a", "nobody"))
        if 0.6 < known / unknown < 1.6:
            return
    pytest.fail(f"{known:.3f} s for a known name, {unknown:.3f} s for an unknown one")


def test_proxies_where_nothing_has_to_be_proven(servers: Servers) -> None:
    """Who signs in vain is refused even then; everybody else goes on as without."""
    pair = started(servers, f"proxies {{ trusted: [{{ key: {PROXY.public} }}] }}")
    for server in pair:
        with RawClient(server.port) as client:
            assert "auth_required" not in client.frame().json
    for said in FIRST_WORDS[:1]:
        assert both(pair, said)[-1][0] == "PONG"
    for say in ({}, {"user": "a", "pass": "x"}, lambda n: {"proxy_sig": signed(n)}):
        assert both(pair, say)[-1][0] == "PONG"
    assert is_refused(both(pair, {"proxy_sig": "x"}), "Proxy Not Trusted")


WRONG_BLOCKS = (
    "proxies: x",
    "proxies { trusted: x }",
    "proxies { trusted: [x] }",
    "proxies { trusted: [{ key: x }] }",
    "proxies { trusted: [{ public_key: 5 }] }",
    "proxies { trusted: [{}] }",
    f"proxies {{ trusted: [{{ key: {PROXY.public}, more: x }}] }}",
    "proxies { more: x }",
)


@pytest.mark.parametrize("block", WRONG_BLOCKS, ids=range(len(WRONG_BLOCKS)))
def test_blocks_that_are_refused(servers: Servers, block: str) -> None:
    shown = []
    for start in (servers.under_test, servers.peer):
        with pytest.raises(Exception) as failure:
            start(config=block)
        # Ours says more where a value is of another kind.
        lines = re.sub(r" \(an? .* is wanted here\)", "", str(failure.value)).splitlines()
        words = [line.partition("server.conf:")[2].partition(": ")[2] for line in lines]
        shown.append([line for line in words if line] or lines[-1].rpartition("nats-server: ")[2])
    assert shown[0] == shown[1]


@pytest.fixture
def pages(users: Pair) -> Iterator[list[Any]]:
    clients = []
    for server in users:
        client = RawClient(server.port)
        info = client.frame().json
        say: Say = lambda n: {"user": "behind", "pass": "x", "proxy_sig": signed(n)}  # noqa: E731
        assert said_to(client, say, info)[-1].verb == "PONG"
        clients.append(client)
    yield [page(server, "/connz") for server in users] + [page(server, "/varz") for server in users]
    for client in clients:
        client.close()


def test_monitoring_names_proxies(pages: list[Any]) -> None:
    ours, theirs, our_varz, their_varz = pages
    for found in (ours, theirs):
        assert found["connections"][-1]["proxy"] == {"key": PROXY.public}
    assert our_varz["proxies"] == their_varz["proxies"]


def test_nothing_is_left_of_who_was_refused(users: Pair) -> None:
    server = users[0]
    for _ in range(100):
        with RawClient(server.port) as client:
            client.frame()
            client.send(b'CONNECT {"user":"a","pass":"y"}\r\n')
    wait_until(lambda: page(server, "/connz")["num_connections"] == 0, "all are gone")
