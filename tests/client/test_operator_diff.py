"""Operator mode: who is let in by a token and what for, the same said to both servers."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT
from tests.client.raw import EOF, RawClient
from tests.client.tokens import Client, both, configured, is_in
from tests.jwts import (
    ACCOUNT_LIMITS,
    HEADER,
    UNLIMITED,
    Account,
    Operator,
    User,
    claims,
    sealed,
    token,
)
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

NOW = int(time.time())
OPERATOR = Operator()
#: Keys that sign users of the account.
KEY, ROLE, OWN_ROLE = (Signer(PREFIX_ACCOUNT) for _ in range(3))


def scope(key: Signer, **template: object) -> dict[str, object]:
    return {"kind": "user_scope", "key": key.public, "role": "r", "template": template}


MAIN = Account(
    OPERATOR,
    name="MAIN",
    tags=["region:eu", "region:us"],
    signing_keys=[
        KEY.public,
        scope(
            ROLE,
            **{**UNLIMITED, "payload": 100, "subs": 3},
            pub={"allow": ["{{name()}}.>", "{{tag(team)}}.{{account-tag(region)}}", "{{tag(no)}}"]},
            sub={"allow": ["_INBOX.{{subject()}}", "{{account-name()}}"], "deny": ["x"]},
        ),
        scope(OWN_ROLE, **UNLIMITED, sub={"deny": ["{{tag(no)}}"]}),
    ],
)
OLD = User(MAIN, claims={"iat": NOW - 1000})
GONE = User(MAIN)
REVOKING = Account(OPERATOR, revocations={"*": NOW - 500, GONE.public: NOW + 100_000})
NO_BEARER = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "disallow_bearer": True})
SMALL = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "conn": 1, "subs": 2, "payload": 50})
DEFAULTS = Account(
    OPERATOR, default_permissions={"pub": {"allow": ["ok"]}, "sub": {"deny": ["no.>"]}}
)
SIGNED = Account(OPERATOR.signing, name="SIGNED")
FOREIGN = Account(Operator())
SELF_MADE = Account(OPERATOR)
SELF_MADE.token = SELF_MADE.made(SELF_MADE)
OVER = Account(OPERATOR)
OVER.token = OVER.made(exp=NOW - 10)
NOT_YET = Account(OPERATOR)
NOT_YET.token = NOT_YET.made(nbf=NOW + 100_000)
UNKNOWN = Account(OPERATOR)
ACCOUNTS = [MAIN, REVOKING, NO_BEARER, SMALL, DEFAULTS, SIGNED, FOREIGN, SELF_MADE, OVER, NOT_YET]


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    config = configured(OPERATOR, ACCOUNTS)
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=config, monitor=True) for start in starts]


def brought(text: str, by: User | None = None) -> User:
    """A user with this token."""
    user = by or User(MAIN)
    user.token = text
    return user


def unsigned_header(alg: str) -> User:
    user = User(MAIN)
    made = claims(MAIN, user.public, "user", UNLIMITED)
    return brought(sealed(made, MAIN.sign, {**HEADER, "alg": alg}), user)


def swapped_header(alg: str) -> User:
    """Another header over claims and signature as they were."""
    user = User(MAIN)
    other = unsigned_header(alg)
    _, body, signature = user.token.split(".")
    return brought(f"{other.token.split('.')[0]}.{body}.{signature}", user)


def changed() -> User:
    user = User(MAIN)
    head, _, signature = user.token.split(".")
    body = User(MAIN, pub={"allow": [">"]}).token.split(".")[1]
    return brought(f"{head}.{body}.{signature}", user)


def bearer(**nats: Any) -> User:
    return User(MAIN, bearer_token=True, **nats)


def old_user(**nats: object) -> User:
    """A user whose token is of version 1."""
    user = User(MAIN)
    made: dict[str, object] = {"iss": MAIN.public, "sub": user.public, "iat": NOW, "type": "user"}
    header = {"typ": "jwt", "alg": "ed25519"}
    return brought(sealed({**made, "nats": nats}, MAIN.sign, header, old=True), user)


HOUR = time.strftime("%H:%M:%S", time.localtime(NOW + 3600))
BEFORE = time.strftime("%H:%M:%S", time.localtime(NOW - 3600))
DAY = [{"start": BEFORE, "end": HOUR}]
LONG_BEFORE = time.strftime("%H:%M:%S", time.localtime(NOW - 7200))

LET_IN = {
    "a user": User(MAIN),
    "of a signing key": User(MAIN, KEY, **UNLIMITED),
    "of a role": User(MAIN, ROLE, {"name": "me"}, tags=["team:blue"]),
    "of a signing key of the operator": User(SIGNED),
    "of the system": User(OPERATOR.sys),
    "a bearer": bearer(),
    "of another account with revocations": User(REVOKING),
    "who expires later": User(MAIN, claims={"exp": NOW + 100_000}),
    "from here": User(MAIN, src=["10.0.0.0/8", "127.0.0.0/8"]),
    "from here as a text": User(MAIN, src="10.0.0.0/8,127.0.0.1/32"),
    "at this time": User(MAIN, times=[{"start": BEFORE, "end": HOUR}]),
    "over midnight": User(MAIN, times=[{"start": BEFORE, "end": LONG_BEFORE}]),
    "by TCP": User(MAIN, allowed_connection_types=["WEBSOCKET", "standard", "PIGEON"]),
    "of version 1": old_user(),
    "with permissions": User(MAIN, pub={"allow": ["a"]}),
    "with default permissions": User(DEFAULTS),
    "with a small payload": User(MAIN, payload=10),
}
REFUSED = {
    "nothing": None,
    "no token": brought(""),
    "some text": brought("x"),
    "a changed payload": changed(),
    "alg none": unsigned_header("none"),
    "alg HS256": unsigned_header("HS256"),
    "alg swapped to none": swapped_header("none"),
    "alg swapped to version 1": swapped_header("ed25519"),
    "alg swapped in letters": swapped_header("ED25519-NKEY"),
    "signed by a user": brought(token(User(MAIN), User(MAIN).public, "user", UNLIMITED)),
    "signed by the operator": brought(token(OPERATOR, User(MAIN).public, "user", UNLIMITED)),
    "signed by nobody": User(UNKNOWN),
    "of another operator's account": User(FOREIGN),
    "of a self-made account": User(SELF_MADE),
    "of an expired account": User(OVER),
    "of an account to come": User(NOT_YET),
    "in another's name": User(MAIN, Signer(PREFIX_ACCOUNT), **UNLIMITED),
    "expired": User(MAIN, claims={"exp": NOW - 10}),
    "to come": User(MAIN, claims={"nbf": NOW + 100_000}),
    "an account's token": brought(MAIN.token),
    "an operator's token": brought(OPERATOR.token),
    "an activation": brought(token(MAIN, MAIN.public, "activation", {"subject": "a"})),
    "of a role, with permissions": User(MAIN, ROLE, sub={"allow": [">"]}),
    "of a role, with limits": User(MAIN, ROLE, **UNLIMITED),
    "of a role without its tag": User(MAIN, OWN_ROLE),
    "a bearer where none may be": User(NO_BEARER, bearer_token=True),
    "revoked with all": User(REVOKING, claims={"iat": NOW - 1000}),
    "revoked": brought(token(REVOKING, GONE.public, "user", UNLIMITED), GONE),
    "by WebSocket alone": User(MAIN, allowed_connection_types=["WEBSOCKET"]),
    "as a leaf alone": User(MAIN, allowed_connection_types=["LEAFNODE"]),
    "in unknown ways alone": User(MAIN, allowed_connection_types=["PIGEON"]),
    "from elsewhere": User(MAIN, src=["10.0.0.0/8"]),
    "from a strange network": User(MAIN, src=["10.0.0.0"]),
    "at another time": User(MAIN, times=[{"start": LONG_BEFORE, "end": BEFORE}]),
    "at a strange time": User(MAIN, times=[{"start": "1", "end": "2"}]),
    "in a strange zone": User(MAIN, times_location="Atlantis/City"),
    "through a proxy alone": User(MAIN, proxy_required=True),
    "a newer version": brought(token(MAIN, GONE.public, "user", {"version": 3})),
    "with a bad subject": User(MAIN, pub={"allow": ["a b c"]}),
    "who may subscribe to nothing": User(MAIN, claims={}, subs=0),
}


@pytest.mark.parametrize("who", LET_IN)
def test_who_is_let_in(pair: list[Server], who: str) -> None:
    assert is_in(both(pair, LET_IN[who]))


@pytest.mark.parametrize("who", [w for w in REFUSED if w != "who may subscribe to nothing"])
def test_who_is_refused(pair: list[Server], who: str) -> None:
    assert not is_in(both(pair, REFUSED[who]))


def test_without_a_limit_of_subscriptions_nobody_stays(pair: list[Server]) -> None:
    for server in pair:
        with Client(server, REFUSED["who may subscribe to nothing"]) as client:
            said = [*client.said, *client.until(EOF)]
            assert [f.line for f in said if f.verb == "-ERR"] == [
                b"-ERR 'maximum subscriptions exceeded'"
            ]


SIGNATURES: dict[str, dict[str, object]] = {
    "none": {"sig": ""},
    "null": {"sig": None},
    "of something else": {"sig": LET_IN["a user"].signature("x")},
    "no base64": {"sig": "!"},
    "too short": {"sig": "AAAA"},
    "and a nkey of another": {"nkey": User(MAIN).public},
    "and a name": {"user": "somebody", "pass": "x"},
    "and a token": {"auth_token": "x"},
    "and an account": {"account": MAIN.public},
}


@pytest.mark.parametrize("which", SIGNATURES)
def test_signatures(pair: list[Server], which: str) -> None:
    both(pair, LET_IN["a user"], **SIGNATURES[which])


def test_a_bearer_signs_nothing(pair: list[Server]) -> None:
    assert is_in(both(pair, LET_IN["a bearer"], sig=""))


def test_a_signature_is_of_one_connection_alone(pair: list[Server]) -> None:
    user = User(MAIN)
    for server in pair:
        with RawClient(server.port) as first:
            nonce = str(first.frame().json["nonce"])
        with Client(server, user, sig=user.signature(nonce)) as second:
            assert [frame.verb for frame in second.said] == ["-ERR", EOF]


@pytest.mark.parametrize("verb", ["PING", "SUB a 1", "PUB a 0\r\n", "FOO", "CONNECT {}"])
def test_what_comes_before_connect(pair: list[Server], verb: str) -> None:
    shown = []
    for server in pair:
        with RawClient(server.port) as client:
            client.frame()
            client.send(verb.encode() + b"\r\n")
            shown.append([frame.shown() for frame in client.until(EOF)])
    assert shown[0] == shown[1]


def talked(pair: list[Server], user: User, *lines: bytes) -> list[object]:
    """What both say alike to a user that is let in."""
    shown = []
    for server in pair:
        with Client(server, user) as client:
            said: list[object] = []
            for line in lines:
                client.send(line)
                said += [frame.shown() for frame in client.sync()]
            shown.append(said)
    assert shown[0] == shown[1]
    return shown[0]


def test_roles(pair: list[Server]) -> None:
    user = User(MAIN, ROLE, {"name": "me"}, tags=["team:blue", "team:red"])
    inbox = f"SUB _INBOX.{user.public} 1\r\n".encode()
    talked(
        pair,
        user,
        b"PUB me.x 0\r\n\r\nPUB you.x 0\r\n\r\nPUB blue.eu 0\r\n\r\nPUB red.us 0\r\n\r\n",
        b"PUB green.eu 0\r\n\r\nPUB blue.asia 0\r\n\r\n",
        inbox + b"SUB MAIN 2\r\nSUB x 3\r\nSUB other 4\r\n",
        b"SUB MAIN 5\r\nSUB MAIN 6\r\n",
    )
    shown = []
    for server in pair:
        with Client(server, user) as client:
            client.send(b"PUB me.x 101\r\n" + b"x" * 101 + b"\r\n")
            shown.append([frame.shown() for frame in client.until(EOF)])
    assert shown[0] == shown[1]


def test_permissions_of_users(pair: list[Server]) -> None:
    user = User(
        MAIN,
        pub={"allow": ["a.>", "q"], "deny": ["a.no"]},
        sub={"allow": ["a.*", "w q"], "deny": ["a.b"]},
        resp={"max": 1, "ttl": 10**9},
    )
    talked(
        pair,
        user,
        b"PUB a.x 0\r\n\r\nPUB a.no 0\r\n\r\nPUB b 0\r\n\r\n",
        b"SUB a.x 1\r\nSUB a.b 2\r\nSUB w q 3\r\nSUB w r 4\r\n",
        b"PUB a.x reply 1\r\nx\r\n",
        b"PUB reply 0\r\n\r\nPUB reply 0\r\n\r\n",
    )
    talked(pair, User(MAIN, resp={"max": 0, "ttl": 0}), b"PUB a 0\r\n\r\nSUB a 1\r\n")
    talked(
        pair,
        User(MAIN, pub={"deny": ["a"]}, resp={}),
        b"SUB b 1\r\nPUB b 0\r\n\r\nPUB a 0\r\n\r\nPUB c 0\r\n\r\n",
    )


def test_default_permissions(pair: list[Server]) -> None:
    lines = b"PUB ok 0\r\n\r\nPUB b 0\r\n\r\nSUB no.a 1\r\nSUB yes 2\r\n"
    talked(pair, User(DEFAULTS), lines)
    talked(pair, User(DEFAULTS, pub={"allow": ["b"]}), lines)


def test_limits(pair: list[Server]) -> None:
    for user in (User(SMALL), User(SMALL, subs=1, payload=10), User(SMALL, subs=5, payload=500)):
        for server in pair:
            wait_until_nobody(server, SMALL)
        talked(
            pair,
            user,
            b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n",
            b"PUB a 10\r\n0123456789\r\n",
        )
        for server in pair:
            wait_until_nobody(server, SMALL)
        shown = []
        for server in pair:
            with Client(server, user) as one, Client(server, User(SMALL)) as two:
                assert one.said[-1].verb == "INFO"
                one.send(b"PUB a 51\r\n" + b"x" * 51 + b"\r\n")
                shown.append([two.shown(), *(f.shown() for f in one.until(EOF))])
        assert shown[0] == shown[1]


def wait_until_nobody(server: Server, account: Account) -> None:
    def gone() -> bool:
        import urllib.request

        url = f"{server.monitor_url}/connz?acc={account.public}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(json.load(answer)["num_connections"] == 0)

    wait_until(gone, "connections that were closed are gone")


@pytest.mark.parametrize("who", ["a user", "of a role", "with permissions", "of the system"])
def test_who_am_i(pair: list[Server], who: str) -> None:
    user = LET_IN[who]
    assert user is not None
    shown = []
    for server in pair:
        with Client(server, user) as client:
            answer = client.who_am_i(f"_INBOX.{user.public}")
            shown.append(json.loads(answer.payload)["data"] if answer.payload else answer)
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    "seconds, times",
    [(5000, []), (1 << 33, []), (5000, DAY), (1 << 33, DAY), (None, DAY)],
)
def test_who_am_i_by_name_and_how_long(
    pair: list[Server], seconds: int | None, times: list[dict[str, str]]
) -> None:
    ends = 0 if seconds is None else NOW + seconds
    user = User(MAIN, claims={"name": "bob", "exp": ends}, times=times)
    shown, left = [], []
    for server in pair:
        with Client(server, user) as client:
            data = json.loads(client.who_am_i("_INBOX.me").payload)["data"]
            left.append(data.pop("expires") / 1e9)
            shown.append((list(data), data))
    assert shown[0] == shown[1]
    assert shown[0][1]["user_name"] == "bob"
    assert left[0] == pytest.approx(left[1], abs=5)


def test_expiry_while_connected(pair: list[Server]) -> None:
    shown, late = [], []
    for server in pair:
        ends = int(time.time()) + 2
        user = User(MAIN, claims={"exp": ends})
        with Client(server, user) as client:
            shown.append([frame.shown() for frame in client.until(EOF)])
        late.append(time.time() - ends)
    assert shown[0] == shown[1] and len(shown[0]) == 2
    assert min(late) >= 0


def test_the_end_of_a_time_window(pair: list[Server]) -> None:
    shown = []
    for server in pair:
        end = time.strftime("%H:%M:%S", time.localtime(time.time() + 2))
        user = User(MAIN, times=[{"start": BEFORE, "end": end}], claims={"exp": NOW + 9999})
        with Client(server, user) as client:
            shown.append([frame.shown() for frame in client.until(EOF)])
    assert shown[0] == shown[1] and len(shown[0]) == 2


def test_an_account_that_expires(servers: Servers) -> None:
    account = Account(OPERATOR)
    user = User(account)
    shown = []
    for start in (servers.under_test, servers.peer):
        account.token = account.made(exp=int(time.time()) + 4)
        server = start(config=configured(OPERATOR, [account]))
        with Client(server, user) as client:
            shown.append([frame.shown() for frame in client.until(EOF)])
        with Client(server, user) as client:
            shown[-1] += [frame.shown() for frame in client.said]
    assert shown[0] == shown[1]


@pytest.fixture(scope="module")
def logged(module_servers: Servers) -> Iterator[list[Server]]:
    config = configured(OPERATOR, ACCOUNTS)
    yield [module_servers.under_test(config=config), module_servers.peer(config=config)]


def test_the_log(logged: list[Server]) -> None:
    logs = []
    for server in logged:
        with Client(server, LET_IN["with permissions"]) as client:
            client.send(b"PUB no 0\r\n\r\n")
            client.sync()
        with Client(server, LET_IN["with permissions"], user="me") as client:
            client.send(b"PUB no 0\r\n\r\n")
            client.sync()
        for options in ({}, {"user": "me"}, {"nkey": "U"}):
            Client(server, REFUSED["expired"], **options).close()

        def lines() -> list[str]:
            text = re.sub(r"127\.0\.0\.1:\d+ - cid:\d+", "CLIENT", server.log())  # noqa: B023
            found = [re.sub(r"^\[\d+\] \S+ \S+ ", "", line) for line in text.splitlines()]
            start = found.index("[INF] Server is ready")
            skipped = (
                *("Name:", "ID:", "Version:", "Git:", "jsserver:"),
                *("configuration", "Listening", "Starting"),
            )
            head = [line for line in found[:start] if not any(s in line for s in skipped)]
            return sorted(head) + found[start:]

        wait_until(lambda: sum("[ERR]" in line for line in lines()) >= 5, "what both say")
        logs.append(lines())
    assert logs[0] == logs[1]
