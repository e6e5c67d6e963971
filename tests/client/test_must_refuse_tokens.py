"""Who must not come in by a token, case by case: both servers refuse with the same words for the
same reason.
"""

import time
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT
from tests.client.raw import EOF
from tests.client.refusals import (
    FAILURE,
    Pair,
    Say,
    both,
    by_token,
    closed_reason,
    is_refused,
    outcome,
    started,
)
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

pytestmark = pytest.mark.usefixtures("peer_present")

NOW = int(time.time())
PROXY = Signer()


def signed(nonce: str) -> str:
    return PROXY.signature(nonce)


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
REVOKING = Account(OPERATOR, revocations={"*": NOW - 500, REVOKED.public: NOW + 100_000})
NO_BEARERS = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "disallow_bearer": True})
FULL = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "conn": 0})
FOREIGN, UNKNOWN = Account(FOREIGN_OPERATOR), Account(OPERATOR)
EXPIRED, NOT_YET, SELF_MADE = Account(OPERATOR), Account(OPERATOR), Account(OPERATOR)
EXPIRED.token, NOT_YET.token = EXPIRED.made(exp=NOW - 10), NOT_YET.made(nbf=NOW + 100_000)
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
    "to come": by_token(User(MAIN, claims={"nbf": NOW + 100_000})),
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
    later = token(REVOKING, REVOKED.public, "user", UNLIMITED, iat=NOW + 100_001)
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


def test_who_comes_by_a_trusted_proxy(operated: Pair) -> None:
    say: Say = lambda n: {**by_token(BEHIND)(n), "proxy_sig": signed(n)}  # type: ignore[operator]  # noqa: E731
    assert both(operated, say)[-1][0] == "PONG"


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
    "the user": ({"revocations": {"USER": NOW + 100_000}}, "Credentials Revoked"),
    "everybody": ({"revocations": {"*": NOW + 100_000}}, "Credentials Revoked"),
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
