"""Who must not come in, case by case: both servers refuse with the same words for the same reason.

What must not come through to whom, once somebody is in, is in test_must_not_pass.py.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT
from tests.client.raw import EOF, RawClient
from tests.client.refusals import (
    FAILURE,
    Say,
    by_key,
    by_token,
    closed_reason,
    is_refused,
    outcome,
    said_to,
)
from tests.client.tls import Site, TlsClient
from tests.client.tokens import Client, configured
from tests.jwts import (
    ACCOUNT_LIMITS,
    HEADER,
    UNLIMITED,
    Account,
    Operator,
    User,
    chunk,
    claims,
    sealed,
    token,
)
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

NOW = int(time.time())
Pair = list[Server]


def started(servers: Servers, config: str, **options: Any) -> Pair:
    return [
        start(config=config, monitor=True, **options)
        for start in (servers.under_test, servers.peer)
    ]


def both(pair: Pair, say: Say, **how: Any) -> list[Any]:
    """What both say alike to the same client."""
    ours, theirs = (outcome(server, say, **how) for server in pair)
    assert ours == theirs
    return ours


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
    for say in ({"user": "a", "pass": "x"}, {"user": "tcp", "pass": "x"}, by_key(KEY)):
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


# ---- tokens

OPERATOR, FOREIGN_OPERATOR = Operator(), Operator()
SIGNING, ROLE, PROXY_ROLE = (Signer(PREFIX_ACCOUNT) for _ in range(3))
MAIN = Account(
    OPERATOR,
    signing_keys=[
        SIGNING.public,
        {"kind": "user_scope", "key": ROLE.public, "role": "r", "template": UNLIMITED},
    ],
)
REVOKED = User(MAIN)
REVOKING = Account(OPERATOR, revocations={"*": NOW - 500, REVOKED.public: NOW + 1000})
NO_BEARERS = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "disallow_bearer": True})
FULL = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "conn": 0})
FOREIGN, UNKNOWN = Account(FOREIGN_OPERATOR), Account(OPERATOR)
EXPIRED, NOT_YET, SELF_MADE = Account(OPERATOR), Account(OPERATOR), Account(OPERATOR)
EXPIRED.token, NOT_YET.token = EXPIRED.made(exp=NOW - 10), NOT_YET.made(nbf=NOW + 1000)
SELF_MADE.token = SELF_MADE.made(SELF_MADE)
ACCOUNTS = [MAIN, REVOKING, NO_BEARERS, FULL, FOREIGN, EXPIRED, NOT_YET, SELF_MADE]


@pytest.fixture(scope="module")
def operated(module_servers: Servers) -> Pair:
    more = ["websocket { port: -1, no_tls: true }", "proxy_protocol: true"]
    more.append(f"proxies {{ trusted: [{{ key: {PROXY.public} }}] }}")
    return started(module_servers, configured(OPERATOR, ACCOUNTS, *more))


def held(text: str) -> Say:
    """Somebody with this token and the key of `MAIN`'s first user."""
    return by_token(text, HOLDER)


HOLDER = User(MAIN)


def made(
    signer: Signer, kind: str = "user", header: dict[str, str] | None = None, **top: Any
) -> str:
    body = {**UNLIMITED, **top.pop("nats", {})}
    said = claims(signer, str(top.pop("sub", HOLDER.public)), kind, body, **top)
    return sealed(said, signer.sign, header)


def spliced(head: str, body: str, signature: str) -> str:
    """Parts of three tokens."""
    return ".".join(t.split(".")[i] for i, t in enumerate((head, body, signature)))


NONE = made(MAIN, header={**HEADER, "alg": "none"})
OLD = made(MAIN, header={**HEADER, "alg": "ed25519"})
TOKENS: dict[str, Say] = {
    "none": {},
    "an empty one": {"jwt": "", "sig": "x"},
    "a password": {"user": "a", "pass": "x"},
    "some text": held("x.y.z"),
    "two chunks": held("a.b"),
    "a changed payload": held(
        spliced(HOLDER.token, made(MAIN, nats={"pub": {"allow": [">"]}}), HOLDER.token)
    ),
    "a changed signature": held(HOLDER.token[:-4] + "AAAA"),
    "no signature of the token": held(HOLDER.token.rpartition(".")[0] + "."),
    "alg none": held(NONE),
    "alg none, not signed": held(NONE.rpartition(".")[0] + "."),
    "alg none over another's signature": held(spliced(NONE, HOLDER.token, HOLDER.token)),
    "alg of version 1 over another's signature": held(spliced(OLD, HOLDER.token, HOLDER.token)),
    "alg HS256": held(made(MAIN, header={**HEADER, "alg": "HS256"})),
    "typ none": held(made(MAIN, header={"typ": "none", "alg": "ed25519-nkey"})),
    "no header": held(f"{chunk(b'{}')}.{HOLDER.token.partition('.')[2]}"),
    "signed by a user": held(made(User(MAIN))),
    "signed by itself": held(made(HOLDER)),
    "signed by the operator": held(made(OPERATOR)),
    "signed by an unknown account": by_token(User(UNKNOWN)),
    "signed by a foreign operator's account": by_token(User(FOREIGN)),
    "of a self-made account": by_token(User(SELF_MADE)),
    "of an expired account": by_token(User(EXPIRED)),
    "of an account to come": by_token(User(NOT_YET)),
    "in another account's name": by_token(User(MAIN, REVOKING, **UNLIMITED)),
    "by an unknown key in its name": by_token(User(MAIN, Signer(PREFIX_ACCOUNT), **UNLIMITED)),
    "expired": by_token(User(MAIN, claims={"exp": NOW - 10})),
    "expired long ago": by_token(User(MAIN, claims={"exp": 1})),
    "to come": by_token(User(MAIN, claims={"nbf": NOW + 1000})),
    "an account's": by_token(MAIN.token, MAIN),
    "an operator's": by_token(OPERATOR.token, OPERATOR),
    "an activation": by_token(token(MAIN, MAIN.public, "activation", {"subject": "a"}), MAIN),
    "an authorization response": held(made(MAIN, "authorization_response")),
    "of an unknown type": held(made(MAIN, "something")),
    "of a newer version": held(made(MAIN, nats={"version": 3})),
    "of a role, with permissions": by_token(User(MAIN, ROLE, pub={"allow": [">"]})),
    "of a role, with limits": by_token(User(MAIN, ROLE, **UNLIMITED)),
    "of a role, as a bearer": by_token(User(MAIN, ROLE, bearer_token=True)),
    "of a role, with networks": by_token(User(MAIN, ROLE, src=["127.0.0.0/8"])),
    "without a signature": {"jwt": HOLDER.token},
    "with a signature of another nonce": {"jwt": HOLDER.token, "sig": HOLDER.signature("x")},
    "with a stranger's signature": by_token(HOLDER, User(MAIN)),
    "a bearer where none may be": by_token(User(NO_BEARERS, bearer_token=True)),
    "revoked": by_token(token(REVOKING, REVOKED.public, "user", UNLIMITED), REVOKED),
    "revoked with all": by_token(User(REVOKING, claims={"iat": NOW - 501})),
    "by WebSocket alone": by_token(User(MAIN, allowed_connection_types=["WEBSOCKET"])),
    "as a leafnode alone": by_token(User(MAIN, allowed_connection_types=["LEAFNODE"])),
    "in unknown ways alone": by_token(User(MAIN, allowed_connection_types=["PIGEON"])),
    "from elsewhere": by_token(User(MAIN, src=["10.0.0.0/8", "::1/128"])),
    "from a network that is none": by_token(User(MAIN, src=["127.0.0.1"])),
    "at another time": by_token(User(MAIN, times=[{"start": "00:00:00", "end": "00:00:00"}])),
    "at a time that is none": by_token(User(MAIN, times=[{"start": "25:00:00", "end": "x"}])),
    "in a zone that is none": by_token(User(MAIN, times_location="Atlantis/City")),
    "with a bad subject": by_token(User(MAIN, sub={"allow": ["a b c"]})),
}


@pytest.mark.parametrize("case", TOKENS)
def test_tokens(operated: Pair, case: str) -> None:
    assert is_refused(both(operated, TOKENS[case]))


def test_tokens_that_let_in(operated: Pair) -> None:
    """That these servers do not refuse everybody, and who was revoked before is in."""
    for user in (
        HOLDER,
        User(MAIN, ROLE),
        User(MAIN, SIGNING, **UNLIMITED),
        User(MAIN, bearer_token=True),
        User(REVOKING, claims={"iat": NOW - 499}),
        User(MAIN, src=["127.0.0.0/8"]),
    ):
        assert both(operated, by_token(user))[-1][0] == "PONG"
    later = token(REVOKING, REVOKED.public, "user", UNLIMITED, iat=NOW + 1001)
    assert both(operated, by_token(later, REVOKED))[-1][0] == "PONG"


def test_an_account_that_takes_nobody(operated: Pair) -> None:
    found = both(operated, by_token(User(FULL)))
    assert found[0][1] == b"-ERR 'maximum account active connections exceeded'"
    assert found[-1] == "Maximum Account Connections Exceeded"


@pytest.mark.parametrize("types", [["STANDARD"], ["LEAFNODE"], ["MQTT", "IN_PROCESS"]])
def test_tokens_through_websocket(operated: Pair, types: list[str]) -> None:
    user = User(MAIN, allowed_connection_types=types)
    assert is_refused(both(operated, by_token(user), websocket=True))


HEADERS = {
    "another network": b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 4222\r\n",
    "another protocol": b"PROXY TCP6 2001:db8::1 2001:db8::2 56325 4222\r\n",
    "a mapped address": b"PROXY TCP6 ::ffff:192.0.2.1 ::1 5 4222\r\n",
}


@pytest.mark.parametrize("case", HEADERS)
def test_networks_are_those_of_the_real_client(operated: Pair, case: str) -> None:
    header = HEADERS[case]
    assert is_refused(both(operated, by_token(User(MAIN, src=["127.0.0.0/8"])), before=header))
    inside = by_token(User(MAIN, src=["192.0.2.0/24", "2001:db8::/32"]))
    assert both(operated, inside, before=header)[-1][0] == "PONG"
    assert is_refused(both(operated, inside))


BEHIND = User(MAIN, proxy_required=True)
OF_TOKENS: dict[str, tuple[Say, str]] = {
    "none": (by_token(BEHIND), "Proxy Required"),
    "no signature": (by_token(BEHIND, proxy_sig="x"), "Proxy Not Trusted"),
    "of who needs none": (by_token(HOLDER, proxy_sig="x"), "Proxy Not Trusted"),
    "of nobody": ({"proxy_sig": "x"}, "Proxy Not Trusted"),
    "good, of nobody": (lambda n: {"proxy_sig": signed(n)}, FAILURE),
    "the user's own": (
        lambda n: {**by_token(BEHIND)(n), "proxy_sig": BEHIND.signature(n)},  # type: ignore[operator]
        "Proxy Not Trusted",
    ),
    "good, without the user's": (lambda n: {"jwt": BEHIND.token, "proxy_sig": signed(n)}, FAILURE),
}


@pytest.mark.parametrize("case", OF_TOKENS)
def test_proxies_of_tokens(operated: Pair, case: str) -> None:
    say, reason = OF_TOKENS[case]
    assert is_refused(both(operated, say), reason)


def test_who_comes_by_a_trusted_proxy(users: Pair, operated: Pair) -> None:
    for pair, say in (
        (users, lambda n: {"user": "behind", "pass": "x", "proxy_sig": signed(n)}),
        (operated, lambda n: {**by_token(BEHIND)(n), "proxy_sig": signed(n)}),  # type: ignore[operator]
    ):
        assert both(pair, say)[-1][0] == "PONG"


def test_a_role_behind_a_proxy(servers: Servers) -> None:
    """nats-server looks at the token alone, which in a role says nothing."""
    template = {**UNLIMITED, "proxy_required": True}
    scope = {"kind": "user_scope", "key": PROXY_ROLE.public, "role": "r", "template": template}
    account = Account(OPERATOR, signing_keys=[scope])
    proxies = f"proxies {{ trusted: [{{ key: {PROXY.public} }}] }}"
    server = servers.under_test(config=configured(OPERATOR, [account], proxies), monitor=True)
    say = by_token(User(account, PROXY_ROLE))
    assert is_refused(outcome(server, say), "Proxy Required")
    passed = outcome(server, lambda n: {**say(n), "proxy_sig": signed(n)})  # type: ignore[operator]
    assert passed[-1][0] == "PONG"


# ---- keys that are taken back while their users are there


def update(server: Server, text: str) -> None:
    with Client(server, User(OPERATOR.sys)) as asker:
        asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(text)}\r\n".encode())
        asker.send(text.encode() + b"\r\n")
        assert b"jwt updated" in asker.message().payload


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "the signing key": ({"signing_keys": []}, "Authentication Failure"),
    "what the key's role may": (
        {
            "signing_keys": [
                {"kind": "user_scope", "key": SIGNING.public, "role": "r", "template": {"subs": 1}}
            ]
        },
        "Authentication Failure",
    ),
    "the user": ({"revocations": {"USER": NOW + 1000}}, "Credentials Revoked"),
    "everybody": ({"revocations": {"*": NOW + 1000}}, "Credentials Revoked"),
    "bearers": ({"limits": {**ACCOUNT_LIMITS, "disallow_bearer": True}}, "Authentication Failure"),
    "room": ({"limits": {**ACCOUNT_LIMITS, "conn": 0}}, "Maximum Account Connections Exceeded"),
}


@pytest.fixture(scope="module")
def changing(module_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    pair = []
    for at, start in enumerate((module_servers.under_test, module_servers.peer)):
        folder = tmp_path_factory.mktemp(f"jwt{at}")
        config = configured(OPERATOR, []).replace(
            "resolver: MEMORY", f"resolver: {{ type: full, dir: '{folder}' }}"
        )
        pair.append(start(config=config, monitor=True))
    return pair


@pytest.mark.parametrize("case", CHANGES)
def test_what_is_taken_back_while_somebody_is_there(changing: Pair, case: str) -> None:
    more, reason = CHANGES[case]
    account = Account(OPERATOR, signing_keys=[SIGNING.public])
    account.token = account.made(iat=NOW - 100)
    user = User(account, SIGNING, **UNLIMITED, bearer_token=case == "bearers")
    if "revocations" in more:
        revoked = {k.replace("USER", user.public): v for k, v in more["revocations"].items()}
        more = {"revocations": revoked}
    shown = []
    for server in changing:
        update(server, account.token)
        with Client(server, user) as client:
            cid = client.said[-1].json["client_id"]
            update(server, account.made(iat=NOW - 50, **more))
            heard = [frame.shown() for frame in client.until(EOF)]
        found = [heard, closed_reason(server, int(cid)), outcome(server, by_token(user))]
        assert found[1] == reason
        shown.append(found)
    assert shown[0] == shown[1]


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

    for _ in range(3):
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


@pytest.mark.parametrize("block", WRONG_BLOCKS)
def test_blocks_that_are_refused(servers: Servers, block: str) -> None:
    shown = []
    for start in (servers.under_test, servers.peer):
        with pytest.raises(Exception) as failure:
            start(config=block)
        lines = str(failure.value).splitlines()
        words = [line.partition("server.conf:")[2].partition(": ")[2] for line in lines]
        shown.append([line for line in words if line] or lines[-1].rpartition("nats-server: ")[2])
    assert shown[0] == shown[1]


@pytest.fixture
def pages(users: Pair) -> Iterator[list[Any]]:
    from tests.client.tls import page

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
    from tests.client.tls import page

    server = users[0]
    for _ in range(100):
        with RawClient(server.port) as client:
            client.frame()
            client.send(b'CONNECT {"user":"a","pass":"y"}\r\n')
    wait_until(lambda: page(server, "/connz")["num_connections"] == 0, "all are gone")
