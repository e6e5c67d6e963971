"""Auth callouts: what they are asked, and what their answers make of it; of both servers alike."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nacl.public import Box, PrivateKey, PublicKey

from jsserver.jwt.claims import Other
from jsserver.jwt.tokens import decode_as
from jsserver.text.identity import (
    PREFIX_ACCOUNT,
    PREFIX_CURVE,
    PREFIX_SERVER,
    decode_public,
    encode_public,
)
from tests.client.raw import EOF, RawClient, TimedOut
from tests.client.refusals import FAILURE, Say, by_token, is_refused, outcome
from tests.client.tls import Site, TlsClient
from tests.client.tokens import Client, configured, told
from tests.jwts import UNLIMITED, Account, Operator, User, token
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

ISSUER, STRANGER = Signer(PREFIX_ACCOUNT), Signer(PREFIX_ACCOUNT)
XKEY = PrivateKey.generate()
XKEY_PUBLIC = encode_public(PREFIX_CURVE, bytes(XKEY.public_key))
Request = dict[str, Any]
Answer = Callable[[Request], "bytes | str | None"]


class Service:
    """Answers what a server asks, in a thread; `asked` is what that was."""

    def __init__(self, client: RawClient, answer: Answer, sealed: bool = False) -> None:
        self.client = client
        self.answer = answer
        self.sealed = sealed
        self.asked: list[Request] = []
        self.client.send(b"SUB $SYS.REQ.USER.AUTH 1\r\n")
        self.client.sync()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._end.is_set():
            try:
                message = self.client.message(timeout=0.05)
            except (TimedOut, OSError):
                continue
            payload = message.payload
            if self.sealed:
                _, server = decode_public(message.headers["Nats-Server-Xkey"])
                assert payload.startswith(b"xkv1")
                payload = Box(XKEY, PublicKey(server)).decrypt(payload[4:])
            request = decode_as(payload.decode(), Other)
            seen = {"claims": request, "headers": message.headers, **request.nats}
            self.asked.append(seen)
            made = self.answer(seen)
            if made is None:
                continue
            data = made if isinstance(made, bytes) else made.encode()
            if self.sealed and not data.startswith(b"plain"):
                data = b"xkv1" + bytes(Box(XKEY, PublicKey(server)).encrypt(data))
            data = data.removeprefix(b"plain")
            self.client.send(f"PUB {message.reply} {len(data)}\r\n".encode() + data + b"\r\n")

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self.client.close()


def user_of(request: Request, issuer: Signer = ISSUER, **more: Any) -> str:
    """The token of the user that is asked about."""
    top = {k: more.pop(k) for k in ("aud", "exp", "nbf", "iat", "name", "who") if k in more}
    return token(issuer, str(top.pop("who", request["user_nkey"])), "user", more, **top)


def response(request: Request, issuer: Signer = ISSUER, **more: Any) -> str:
    """The answer to a request, with `jwt` or `error`."""
    top = {"aud": request["server_id"]["id"], "sub": request["user_nkey"]}
    top |= {k: more.pop(k) for k in ("aud", "sub", "exp") if k in more}
    return token(issuer, top.pop("sub"), "authorization_response", more, **top)


def let_in(request: Request, **more: Any) -> str:
    return response(request, jwt=user_of(request, **{"aud": "APP", "name": "bob", **more}))


ANSWERS: dict[str, Answer] = {
    "bob": let_in,
    "nameless": lambda r: response(r, jwt=user_of(r, aud="APP")),
    "limited": lambda r: let_in(r, subs=1, payload=5),
    "with permissions": lambda r: let_in(r, pub={"allow": ["ok"]}, sub={"deny": ["no"]}),
    "into the callout's account": lambda r: let_in(r, aud="AUTH"),
    "into the global account": lambda r: let_in(r, aud="$G"),
    "into the system": lambda r: let_in(r, aud="SYS"),
    "known": let_in,
    "s": let_in,
    "error": lambda r: response(r, error="no way"),
    "both": lambda r: response(r, error="no way", jwt=user_of(r, aud="APP")),
    "neither": response,
    "nothing": lambda _: b"",
    "no token": lambda _: b"x",
    "no user": lambda r: response(r, jwt="x"),
    "an account": lambda r: response(r, jwt=Account(Operator()).token),
    "the user alone": lambda r: user_of(r, aud="APP"),
    "for another server": lambda r: response(
        r, jwt=user_of(r, aud="APP"), aud=Signer(PREFIX_SERVER).public
    ),
    "for no server": lambda r: response(r, jwt=user_of(r, aud="APP"), aud="x"),
    "for another user": lambda r: response(r, jwt=user_of(r, aud="APP"), sub=User(APP).public),
    "of another user": lambda r: let_in(r, who=User(APP).public),
    "of another issuer": lambda r: response(r, jwt=user_of(r, STRANGER, aud="APP")),
    "of an issuer's account": lambda r: let_in(r, issuer_account=ISSUER.public),
    "into no account": lambda r: let_in(r, aud="NOPE"),
    "into nothing": lambda r: response(r, jwt=user_of(r)),
    "expired": lambda r: let_in(r, exp=1),
    "an expired answer": lambda r: response(r, jwt=user_of(r, aud="APP"), exp=1),
    "later": lambda r: let_in(r, nbf=int(time.time()) + 100),
    "at no time": lambda r: let_in(r, times=[{"start": "00:00:00", "end": "00:00:00"}]),
    "through a proxy": lambda r: let_in(r, proxy_required=True),
    "silence": lambda _: None,
}
APP: Account = Account(Operator())
OUT = [
    *("error", "both", "neither", "nothing", "no token", "no user", "an account"),
    *("the user alone", "for another server", "for no server", "for another user"),
    *("of another user", "of another issuer", "of an issuer's account", "into no account"),
    *("into nothing", "expired", "an expired answer", "later", "at no time", "through a proxy"),
    "silence",
]
CONFIG = f"""
server_name: one
accounts {{
    AUTH {{ users: [{{ user: auth, password: x }}, {{ user: other, password: x }}] }}
    APP {{ users: [{{ user: known, password: x }}], default_permissions: {{ publish: dflt }} }}
    SYS {{ users: [{{ user: s, password: x }}] }}
}}
system_account: SYS
authorization {{
    timeout: 1
    auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth] MORE }}
}}
"""


def answered(request: Request) -> "bytes | str | None":
    options = request["connect_opts"]
    return ANSWERS[options.get("user") or options["name"]](request)


class Pair:
    """Both servers, each with its callout."""

    auth: User
    """An auth user, in operator mode."""

    def __init__(self, servers: Servers, config: str, sealed: bool = False) -> None:
        starts = (servers.under_test, servers.peer)
        self.servers: list[Server] = [start(config=config, monitor=True) for start in starts]
        self.enter: Callable[[Server], Client] = lambda s: Client(s, user="auth", **{"pass": "x"})
        """Logs in as the callout's own user."""
        self.services = [Service(self.enter(s), answered, sealed) for s in self.servers]

    def both(self, *lines: bytes, **options: object) -> list[object]:
        """What both say alike to the same client."""
        shown = []
        for server in self.servers:
            with Client(server, **options) as client:
                heard = [told(frame) for frame in client.said]
                for line in lines:
                    client.send(line)
                    heard += [frame.shown() for frame in client.sync()]
                shown.append(heard)
        assert shown[0] == shown[1]
        return shown[0]

    def events(self, say: Say) -> list[dict[str, Any]]:
        """What the callout's account is told where this login is refused."""
        events = []
        for server in self.servers:
            with self.enter(server) as ear:
                ear.send(b"SUB $SYS.ACCOUNT.CLIENT.AUTH.ERR 1\r\n")
                ear.sync()
                assert outcome(server, say)[-2][0] == EOF
                message = ear.message()
                assert ear.sync() == []
                assert not message.headers
                events.append({"subject": message.subject, **json.loads(message.payload)})
        return events

    def close(self) -> None:
        for service in self.services:
            service.close()


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> Iterator[Pair]:
    made = Pair(module_servers, CONFIG.replace("MORE", ""))
    yield made
    made.close()


def came_in(heard: list[object]) -> bool:
    last: Any = heard[-1]
    return bool(last[0] != EOF)


LINES = (b"PUB ok 0\r\n\r\nPUB dflt 0\r\n\r\nSUB no 1\r\nSUB yes 2\r\n", b"PUB ok 6\r\n123456\r\n")


@pytest.mark.parametrize("user", [u for u in ANSWERS if u not in OUT])
def test_who_is_let_in(pair: Pair, user: str) -> None:
    assert came_in(pair.both(*LINES, user=user, **{"pass": "y"}))


@pytest.mark.parametrize("user", OUT)
def test_who_is_refused(pair: Pair, user: str) -> None:
    say = {"user": user, "pass": "y"}
    ours, theirs = (outcome(server, say) for server in pair.servers)
    assert ours == theirs
    assert is_refused(ours, "Proxy Required" if user == "through a proxy" else FAILURE)


def shown_event(event: dict[str, Any]) -> object:
    """An event without what differs between any two servers; keys have their order."""
    server, client = dict(event.pop("server")), dict(event.pop("client"))
    assert event.pop("id") and event.pop("timestamp") and client["rtt"] > 0
    for name in ("id", "start", "stop", "rtt"):
        assert client.pop(name)
    server = {name: server[name] for name in ("name", "host", "ver")}
    event["reason"] = re.sub(r"\bU[A-Z2-7]{55}\b", "USER", event["reason"])
    return list(event.items()), list(client.items()), server


REFUSED_LOGINS: dict[str, Say] = {
    **{user: {"user": user, "pass": "y", "name": "n", "lang": "l", "version": "v"} for user in OUT},
    "a wrong password of an auth user": {"user": "auth", "pass": "nope"},
    "by a token": {"auth_token": "t", "name": "error"},
    "by a key": {"nkey": "U", "name": "error"},
}


@pytest.mark.parametrize("kind", REFUSED_LOGINS)
def test_the_account_is_told_of_refusals(pair: Pair, kind: str) -> None:
    ours, theirs = (shown_event(event) for event in pair.events(REFUSED_LOGINS[kind]))
    assert ours == theirs


def test_who_is_asked_about(pair: Pair) -> None:
    """The callout's own users are not, nor who is not who it says and is one of these."""
    counts = [len(service.asked) for service in pair.services]
    assert came_in(pair.both(b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n", user="auth", **{"pass": "x"}))
    assert not came_in(pair.both(user="auth", **{"pass": "y"}))
    assert counts == [len(service.asked) for service in pair.services]
    pair.both(b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n", name="bob", auth_token="secret")
    pair.both(name="bob")
    assert len(pair.services[0].asked) == counts[0] + 2
    pair.both(user="known", **{"pass": "x"})
    assert len(pair.services[0].asked) == counts[0] + 3


def test_what_is_asked(pair: Pair) -> None:
    asked: list[list[object]] = []
    for options in (
        {"user": "bob", "pass": "p", "name": "n", "lang": "l", "version": "v", "jwt": "j"},
        {"name": "bob", "auth_token": "t", "sig": "s"},
        {"name": "bob", "nkey": "U"},
    ):
        pair.both(**options)
        asked.append([])
        for service in pair.services:
            request = dict(service.asked[-1])
            claims = request.pop("claims")
            assert claims.exp - claims.iat == 1
            assert (claims.aud, claims.sub) == ("nats-authorization-request", ISSUER.public)
            assert request["server_id"]["id"] == claims.iss
            for of, name in (("server_id", "id"), ("client_info", "id"), ("client_info", "nonce")):
                if name in request[of]:
                    request[of] = {**request[of], name: "-"}
            request["user_nkey"] = request["user_nkey"][0]
            asked[-1].append(request)
        assert asked[-1][0] == asked[-1][1]


def test_silence_takes_as_long_as_the_configuration_says(pair: Pair) -> None:
    def seconds(server: Server) -> float:
        began = time.monotonic()
        with Client(server, user="silence") as client:
            assert client.said[0].line == b"-ERR 'Authorization Violation'"
        return time.monotonic() - began

    for server in pair.servers:
        assert any(0.9 < seconds(server) < 1.5 for _ in range(5))


def test_who_waits_holds_up_nobody(pair: Pair) -> None:
    server = pair.servers[0]

    def answered_meanwhile() -> bool:
        threads = [
            threading.Thread(target=lambda: Client(server, user="silence").close())
            for _ in range(50)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.2)  # so that they wait
        for user in ("bob", "bob", "error"):
            Client(server, user=user).close()
        waiting = any(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        return waiting

    assert any(answered_meanwhile() for _ in range(5))


def test_expiry_of_whom_a_callout_let_in(pair: Pair) -> None:
    ANSWERS["short"] = lambda r: let_in(r, exp=int(time.time()) + 2)
    shown = []
    for server in pair.servers:
        with Client(server, user="short") as client:
            shown.append([frame.shown() for frame in client.until(EOF)])
    assert shown[0] == shown[1] and len(shown[0]) == 2


def who_am_i(server: Server, **login: object) -> tuple[dict[str, Any], float]:
    """What the server says, and for how many seconds it is so; the user's key is new each time."""
    with Client(server, **login) as client:
        data = json.loads(client.who_am_i("_INBOX.me").payload)["data"]
        data["user"] = re.sub("U[A-Z2-7]{55}", "a key", data["user"])
        return data, data.pop("expires", 0) / 1e9


def test_who_is_behind_an_answer(pair: Pair) -> None:
    ANSWERS["named"] = lambda r: let_in(r, name="eve", exp=int(time.time()) + 1000)
    (ours, lasts), (theirs, theirs_lasts) = (who_am_i(s, user="named") for s in pair.servers)
    assert ours == theirs
    assert lasts == pytest.approx(theirs_lasts, abs=5)


def test_what_the_log_says(pair: Pair) -> None:
    said = []
    for server in pair.servers:
        begin = len(server.log())
        for user in ("error", "both", "for no server", "of another issuer", "of another user"):
            Client(server, user=user).close()
        Client(server, user="into no account").close()

        def warnings() -> list[str]:
            found = re.findall(r"\[WRN\] (.*)", server.log()[begin:])  # noqa: B023
            return [re.sub(r"\bU[A-Z2-7]{55}\b", "USER", line) for line in found]

        wait_until(lambda: len(warnings()) >= 6, "a warning for each")
        said.append(warnings())
    assert said[0] == said[1]


def test_allowed_accounts(servers: Servers) -> None:
    """Users of other accounts are let in as the configuration says."""
    pair = Pair(servers, CONFIG.replace("MORE", ", allowed_accounts: [AUTH]"))
    try:
        counts = [len(service.asked) for service in pair.services]
        assert came_in(pair.both(user="known", **{"pass": "x"}))
        assert counts == [len(service.asked) for service in pair.services]
        assert came_in(pair.both(user="known", **{"pass": "y"}))
        assert came_in(pair.both(user="bob"))
        ANSWERS["other"] = lambda r: let_in(r, aud="AUTH", name="x")
        pair.both(b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n", user="other", **{"pass": "x"})
        assert len(pair.services[0].asked) == counts[0] + 3
    finally:
        pair.close()


def test_sealed(servers: Servers) -> None:
    pair = Pair(servers, CONFIG.replace("MORE", f", xkey: {XKEY_PUBLIC}"), sealed=True)
    try:
        assert came_in(pair.both(user="bob"))
        for service in pair.services:
            request = service.asked[-1]
            assert request["headers"]["Nats-Server-Xkey"] == request["server_id"]["xkey"]
        assert not came_in(pair.both(user="error"))
        ANSWERS["unsealed"] = lambda r: "plain" + let_in(r)
        assert came_in(pair.both(user="unsealed"))
        ANSWERS["noise"] = lambda r: b"plainxkv1" + b"\0" * 100
        assert not came_in(pair.both(user="noise"))
        ANSWERS["less"] = lambda r: b"plainxkv"
        assert not came_in(pair.both(user="less"))
    finally:
        pair.close()


BLOCKS = [
    "auth_users: [a]",
    f"issuer: {ISSUER.public}",
    "issuer: x, auth_users: [a]",
    f"issuer: {ISSUER.public}, auth_users: [a], xkey: x",
    f"issuer: {ISSUER.public}, auth_users: [a], other: x",
]


@pytest.mark.parametrize("at", range(len(BLOCKS)))
def test_blocks_that_are_refused(servers: Servers, at: int) -> None:
    shown = []
    for start in (servers.under_test, servers.peer):
        with pytest.raises(Exception) as failure:
            start(config=f"authorization {{ auth_callout {{ {BLOCKS[at]} }} }}")
        (line,) = (x for x in str(failure.value).splitlines() if "server.conf:" in x)
        shown.append(line.partition("server.conf:")[2].partition(": ")[2])
    assert shown[0] == shown[1]


def test_certificates_are_told(servers: Servers, tmp_path: Path) -> None:
    site = Site(tmp_path)
    config = CONFIG.replace("MORE", "")
    tls = site.config(site.verifying)
    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config + tls)
        context = site.authority.client_context(site.client)
        with TlsClient(server.port, context) as login:
            login.send(b'CONNECT {"user":"auth","pass":"x","verbose":false}\r\nPING\r\n')
            login.until("PONG")
            service = Service(login, answered)
            with TlsClient(server.port, context) as client:
                client.send(b'CONNECT {"user":"bob","verbose":false}\r\nPING\r\n')
                assert client.until("PONG")[-1].verb == "PONG"
            service.close()
            said = service.asked[-1]["client_tls"]
            shown.append([said["version"], said["verified_chains"][0][0], "certs" in said])
    assert shown[0] == shown[1]


# ---- in operator mode

OPERATOR = Operator()
TARGET, CLOSED = Account(OPERATOR, name="TARGET"), Account(OPERATOR, name="CLOSED")
ROLE = Signer(PREFIX_ACCOUNT)
SCOPE = {"kind": "user_scope", "key": ROLE.public, "role": "r"}
SCOPED = Account(
    OPERATOR,
    name="SCOPED",
    signing_keys=[{**SCOPE, "template": {**UNLIMITED, "pub": {"allow": ["{{name()}}"]}}}],
)


@pytest.fixture(scope="module")
def operated(module_servers: Servers) -> Iterator[tuple[Pair, User]]:
    login = Account(OPERATOR, name="LOGIN")
    auth, sentinel = User(login), User(login, bearer_token=True, tags=["a:b"])
    login.token = login.made(
        authorization={
            "auth_users": [auth.public],
            "allowed_accounts": [TARGET.public, SCOPED.public],
        }
    )
    accounts = [login, TARGET, CLOSED, SCOPED]
    config = configured(OPERATOR, accounts, "authorization { timeout: 1 }")

    def respond(request: Request) -> "bytes | str | None":
        name = request["connect_opts"]["name"]
        by: Signer = login
        more: dict[str, Any] = {**UNLIMITED, "name": "bob"}
        if name == "target":
            return response(request, by, jwt=user_of(request, TARGET, **more))
        if name == "closed":
            return response(request, by, jwt=user_of(request, CLOSED, **more))
        if name == "role":
            scoped = user_of(request, ROLE, name="bob", issuer_account=SCOPED.public)
            return response(request, by, jwt=scoped)
        if name == "stranger":
            return response(request, STRANGER, jwt=user_of(request, by, **more))
        if name == "unknown account":
            return response(request, by, jwt=user_of(request, STRANGER, **more))
        if name == "silence":
            return None
        return response(request, by, jwt=user_of(request, by, **more))

    pair = Pair.__new__(Pair)
    starts = (module_servers.under_test, module_servers.peer)
    pair.servers = [start(config=config, monitor=True) for start in starts]
    pair.auth, pair.enter = auth, lambda server: Client(server, auth)
    pair.services = [Service(pair.enter(server), respond) for server in pair.servers]
    yield pair, sentinel
    pair.close()


ROUTES = ["own", "target", "closed", "role", "stranger", "unknown account"]


@pytest.mark.parametrize("name", ROUTES)
def test_callouts_of_accounts(operated: tuple[Pair, User], name: str) -> None:
    pair, sentinel = operated
    heard = pair.both(jwt=sentinel.token, name=name)
    assert came_in(heard) == (name in ("own", "target", "role"))
    if came_in(heard):
        lines = b"PUB bob 0\r\n\r\nPUB x 0\r\n\r\nPUB $SYS.REQ.USER.AUTH 0\r\n\r\n"
        pair.both(lines, jwt=sentinel.token, name=name)
    else:
        say = {"jwt": sentinel.token, "name": name}
        assert all(is_refused(outcome(server, say)) for server in pair.servers)


@pytest.mark.parametrize("name", ["own", "target"])
def test_who_is_behind_an_answer_in_an_account(operated: tuple[Pair, User], name: str) -> None:
    pair, sentinel = operated
    ours, theirs = (who_am_i(s, jwt=sentinel.token, name=name) for s in pair.servers)
    assert ours[0] == theirs[0]
    assert ours[1] == pytest.approx(theirs[1], abs=5)


def test_silence_of_the_callout_of_an_account(operated: tuple[Pair, User]) -> None:
    """nats-server closes such a connection without a word."""
    pair, sentinel = operated
    with Client(pair.servers[0], jwt=sentinel.token, name="silence") as client:
        assert client.said[0].line == b"-ERR 'Authorization Violation'"


def test_what_is_asked_of_an_account(operated: tuple[Pair, User]) -> None:
    pair, sentinel = operated
    pair.both(jwt=sentinel.token, name="own")
    shown = []
    for service in pair.services:
        request = service.asked[-1]
        info = {k: v for k, v in request["client_info"].items() if k != "id"}
        shown.append([info, request["connect_opts"], request["claims"].sub])
    assert shown[0] == shown[1]


def test_the_signature_of_an_answer_is_not_anybodys(operated: tuple[Pair, User]) -> None:
    """nats-server takes the word of any account's key for whom it signs."""
    pair, sentinel = operated
    service = pair.services[0]
    before = service.answer

    def forged(request: Request) -> str:
        own = request["claims"].sub
        made = user_of(request, TARGET, **UNLIMITED)
        return response(request, STRANGER, jwt=made, issuer_account=own)

    service.answer = forged
    try:
        with Client(pair.servers[0], jwt=sentinel.token, name="own") as client:
            assert client.said[-1].verb == EOF
    finally:
        service.answer = before


@pytest.mark.parametrize("name", ["closed", "stranger", "unknown account"])
def test_an_account_is_told_of_refusals(operated: tuple[Pair, User], name: str) -> None:
    """Without the token that lets anybody in who has it, which nats-server shows."""
    pair, sentinel = operated
    ours, theirs = pair.events({"jwt": sentinel.token, "name": name})
    assert "jwt" not in ours["client"]
    assert theirs["client"].pop("jwt") == sentinel.token
    assert shown_event(ours) == shown_event(theirs)


def test_an_account_is_told_of_a_wrong_signature(operated: tuple[Pair, User]) -> None:
    """Of an auth user; nats-server asks the global account about it, which does not answer."""
    pair, sentinel = operated
    ours, _ = pair.events(by_token(pair.auth, sentinel))
    assert ours["reason"] == FAILURE


def test_an_account_is_told_of_a_callout_that_does_not_answer(
    operated: tuple[Pair, User],
) -> None:
    pair, sentinel = operated
    ours, theirs = pair.events({"jwt": sentinel.token, "name": "silence"})
    assert theirs["client"].pop("jwt") == sentinel.token
    assert shown_event(ours) == shown_event(theirs)
