"""What somebody might try who may do little, and what happens in the middle of something else: both
servers do the same, and the one under test never lets through more.
"""

import contextlib
import json
import threading
import time
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_SERVER, encode_public
from tests.client.raw import EOF, RawApp, RawClient, TimedOut
from tests.client.refusals import by_token, closed_reason, is_refused, outcome
from tests.client.tls import page
from tests.client.tokens import Client, configured
from tests.jwts import ACCOUNT_LIMITS, UNLIMITED, Account, Operator, User, claims, sealed
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
accounts {
    A {
        users: [{ user: a, password: x }]
        exports: [{ service: svc }, { service: "open.>" }]
        jetstream: enabled
    }
    B {
        users: [
            { user: b, password: x }
            { user: asks, password: x,
              permissions: { publish: { allow: ["svc", "open.>"] }, subscribe: ["inbox.>"] } }
            { user: serves, password: x,
              permissions: { subscribe: ["work"], allow_responses: { max: 1, expires: "1m" } } }
            { user: also, password: x,
              permissions: { subscribe: ["work"], allow_responses: { max: 1, expires: "1m" } } }
        ]
        imports: [
            { service: { account: A, subject: svc } }
            { service: { account: A, subject: "open.>" } }
        ]
        jetstream: enabled
        limits: { max_connections: 6 }
    }
    C { users: [{ user: c, password: x,
        permissions: { subscribe: ["work"], allow_responses: { max: 1, expires: "1m" } } }] }
    ONE { users: [{ user: one, password: x }], limits: { max_connections: 1 } }
    SYS { users: [{ user: s, password: x }] }
}
system_account: SYS
"""


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=CONFIG, monitor=True, jetstream=True) for start in starts]


def login(user: str) -> bytes:
    options = {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": "x"}
    return json.dumps(options).encode()


def app(server: Server, user: str) -> RawApp:
    return RawApp(server.port, options=login(user))


# ---- one who comes twice


CHANGES = (
    ("b", "c"),
    ("serves", "also"),
    ("serves", "c"),
    ("b", "asks"),
    ("asks", "b"),
    ("b", "one"),
)


@pytest.mark.parametrize(("first", "then"), CHANGES)
def test_who_becomes_another_has_nothing_of_the_first(
    pair: list[Server], first: str, then: str
) -> None:
    """No subscription, no leave to answer, no room in the account that it left."""
    told = []
    for server in pair:
        with app(server, first) as client, app(server, "b") as other:
            client.send(b"SUB work 1\r\n")
            client.sync()
            other.send(b"PUB work back 1\r\nx\r\n")
            other.sync()
            before = [frame.shown() for frame in client.sync()]
            client.send(b"CONNECT " + login(then) + b"\r\n")
            said = [frame.shown() for frame in client.sync() if frame.verb not in ("INFO", "PING")]
            other.send(b"SUB back 1\r\nPUB work 1\r\ny\r\n")
            other.sync()
            client.send(b"PUB back 1\r\nx\r\nPUB back 1\r\nx\r\n")
            after = [frame.shown() for frame in client.sync()]
            heard = [frame.shown() for frame in other.sync()]
            told.append([before, said, after, heard])
    assert told[0] == told[1]


def test_who_becomes_nobody_is_cut(pair: list[Server]) -> None:
    told = []
    for server in pair:
        with app(server, "b") as client:
            client.send(b'CONNECT {"verbose":false,"user":"b","pass":"wrong"}\r\nPING\r\n')
            cid = int(str(client.info["client_id"]))
            said = [f.shown() for f in client.until(EOF) if f.verb not in ("INFO", "PING")]
            told.append([*said, closed_reason(server, cid)])
    assert told[0] == told[1] and is_refused(told[0])


def test_two_logins_at_once_where_one_has_room(pair: list[Server]) -> None:
    for server in pair:
        for _ in range(3):
            wait_until(
                lambda s=server: page(s, "/connz?acc=ONE")["num_connections"] == 0,
                "nobody is there",
            )
            clients = [RawClient(server.port) for _ in range(8)]
            for client in clients:
                client.frame()
            for client in clients:
                client.send(b"CONNECT " + login("one") + b"\r\nPING\r\n")
            ends = []
            for client in clients:
                frames = client.until("PONG")
                ends.append(frames[-1].verb)
                if frames[-1].verb == EOF:
                    assert "maximum account active connections" in str(frames)
            assert sorted(ends) == sorted([*[EOF] * 7, "PONG"])
            for client in clients:
                client.close()


# ---- replies that are somebody else's subjects


REPLIES = (
    *("$JS.API.STREAM.PURGE.S", "$JS.API.STREAM.DELETE.S", "$JS.API.STREAM.CREATE.T", "kept"),
    *("$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING.CONNZ", "svc", "open.a", "$JS.API.INFO"),
)


@pytest.mark.parametrize("reply", REPLIES)
def test_an_answer_is_no_way_round_permissions(servers: Servers, reply: str) -> None:
    """Somebody who may ask a service alone lets its answer go where they may not publish."""
    told = []
    for start in (servers.under_test, servers.peer):
        server = start(config=CONFIG, jetstream=True)
        with app(server, "b") as owner, app(server, "a") as service, app(server, "asks") as asker:
            owner.api("STREAM.CREATE.S", {"name": "S", "subjects": ["kept"]})
            for _ in range(3):
                owner.request("kept", b"x")
            service.send(b"SUB svc 1\r\nSUB open.> 2\r\n")
            service.sync()
            asker.send(f"PUB svc {reply} 1\r\nq\r\n".encode())
            heard = [f.shown() for f in asker.sync()]
            asked = service.message()
            body = b'{"name":"T","subjects":["t"]}' if "CREATE" in reply else b"answer"
            service.send(f"PUB {asked.reply} {len(body)}\r\n".encode() + body + b"\r\n")
            service.sync()
            service.sync()
            time.sleep(0.3)  # what should not happen would have happened by then
            names = owner.api("STREAM.NAMES").get("streams")
            count: Any = None
            with contextlib.suppress(TimedOut, KeyError):
                state: Any = owner.api("STREAM.INFO.S")["state"]
                count = state["messages"]
            asked_again = [(f.subject, f.payload) for f in service.sync() if f.verb != "PING"]
            told.append([heard, names, count, asked_again])
    assert told[0] == told[1]


# ---- JetStream of others


DOMAINS = """
server_name: one
jetstream { domain: hub }
accounts {
    A { users: [{ user: a, password: x }], jetstream: enabled
        exports: [{ service: "$JS.API.>", accounts: [I], response: stream }] }
    I { users: [{ user: i, password: x }]
        imports: [{ service: { account: A, subject: "$JS.API.>" }, to: "JS.A.API.>" }] }
    N { users: [{ user: n, password: x }] }
    SYS { users: [{ user: s, password: x }] }
}
system_account: SYS
"""


def test_prefixes_of_domains_lead_nowhere_else(servers: Servers) -> None:
    told = []
    subjects = (
        *("$JS.API.STREAM.NAMES", "$JS.hub.API.STREAM.NAMES", "$JS.nope.API.STREAM.NAMES"),
        *("JS.A.API.STREAM.NAMES", "JS.A.API.INFO", "$JS.hub.API.INFO", "$JS.API.INFO"),
        *("$JS.hub.API.$JS.hub.API.INFO", "$JS.hub.API.META.LEADER.STEPDOWN", "$JS.hub.API."),
        *("$JS.hub.API.SERVER.REMOVE", "$JS.API.STREAM.INFO.S"),
    )
    for start in (servers.under_test, servers.peer):
        server = start(config=DOMAINS, jetstream=True)
        found: list[object] = []
        with app(server, "a") as owner:
            owner.api("STREAM.CREATE.S", {"name": "S", "subjects": ["kept"]})
            for user in ("a", "i", "n", "s"):
                with app(server, user) as client:
                    for subject in subjects:
                        try:
                            frame = client.request(subject, timeout=0.6)
                        except (TimedOut, AssertionError):
                            found.append((user, subject, "silence"))
                            continue
                        told_of = json.loads(frame.payload) if frame.payload else {}
                        kept = {k: told_of.get(k) for k in ("type", "streams", "error")}
                        found.append((user, subject, frame.status, kept))
        told.append(found)
    for ours, theirs in zip(*told, strict=True):
        assert ours == theirs


# ---- circles


def test_circles_of_services_end(servers: Servers) -> None:
    """Three accounts whose subjects grow or change on the way round."""
    config = """
    accounts {
        A { users: [{ user: a, password: x }], exports: [{ service: "s.>" }]
            imports: [{ service: { account: C, subject: "s.>" }, to: "t.>" }] }
        B { users: [{ user: b, password: x }], exports: [{ service: "s.>" }]
            imports: [{ service: { account: A, subject: "s.>" }, to: "t.>" }] }
        C { users: [{ user: c, password: x }], exports: [{ service: "s.>" }]
            imports: [{ service: { account: B, subject: "s.>" }, to: "t.>" }] }
    }
    """
    for mapped in ("", 'mappings: { "s.*": "t.$1" }'):
        told = []
        text = config.replace("exports:", f"{mapped}\nexports:")
        for start in (servers.under_test, servers.peer):
            server = start(config=text)
            heard = []
            with app(server, "a") as a, app(server, "b") as b, app(server, "c") as c:
                for client in (a, b, c):
                    client.send(b"SUB s.> 1\r\n")
                    client.sync()
                for client in (a, b, c):
                    client.send(b"PUB t.x 1\r\nq\r\n")
                    client.sync()
                for client in (a, b, c):
                    heard.append([(f.subject, f.payload) for f in client.sync() if f.payload])
            told.append(heard)
        assert told[0] == told[1], mapped


# ---- tokens that are odd

OPERATOR = Operator()
ACCOUNT = Account(OPERATOR)
KEY = Signer(PREFIX_ACCOUNT)
TEMPLATED = Account(
    OPERATOR,
    name="T",
    tags=["a:1", "a:2"],
    signing_keys=[
        {
            "kind": "user_scope",
            "key": KEY.public,
            "role": "r",
            "template": {
                **UNLIMITED,
                "pub": {
                    "allow": ["n.{{name()}}.>", "{{tag(x)}}.{{tag(y)}}", "s.{{subject()}}"],
                    "deny": ["n.{{name()}}.no"],
                },
                "sub": {"allow": ["{{tag(x)}}.>", "q.* {{tag(y)}}", "{{account-tag(a)}}"]},
            },
        }
    ],
)


@pytest.fixture(scope="module")
def operated(module_servers: Servers) -> list[Server]:
    config = configured(OPERATOR, [ACCOUNT, TEMPLATED], "max_control_line: 4MB")
    starts = (module_servers.under_test, module_servers.peer)
    return [start(config=config, monitor=True) for start in starts]


NAMES = ("me", "*", ">", "a.b", "a b", "", "{{tag(x)}}", "a.>", ".", "a\tb", "é", "*.no")


@pytest.mark.parametrize("name", NAMES)
def test_what_a_name_makes_of_a_role(operated: list[Server], name: str) -> None:
    user = User(TEMPLATED, KEY, {"name": name}, tags=["x:one", "x:*", "y:two", "y:a b", "z"])
    told = []
    for server in operated:
        with Client(server, user) as client:
            said: list[object] = [frame.shown() for frame in client.said if frame.verb != "INFO"]
            if client.said[-1].verb != EOF:
                for line in (
                    *(
                        "PUB n.me.a 0\r\n",
                        "PUB n.me.no 0\r\n",
                        "PUB n.you.a 0\r\n",
                        "PUB n.a.b.c 0\r\n",
                    ),
                    *("PUB one.two 0\r\n", "PUB x.two 0\r\n", "PUB one.x 0\r\n", "PUB n.a 0\r\n"),
                    *("SUB one.a 1", "SUB two.a 2", "SUB 1 3", "SUB 2 4", "SUB 3 5", "SUB > 6"),
                    *("SUB q.a two 7", "SUB q.a 8", "SUB q.a three 9"),
                    f"PUB s.{user.public} 0\r\n",
                ):
                    client.send(line.encode() + b"\r\n")
                    said += [frame.shown() for frame in client.sync()]
            told.append(said)
    assert told[0] == told[1]


def raw(body: str) -> str:
    """A token with this text for its body's members."""
    user = User(ACCOUNT)
    HOLDERS[body] = user
    top = json.dumps(claims(ACCOUNT, user.public, "user", {}))
    text = top.replace('"nats": {"type": "user", "version": 2}', f'"nats": {{{body}}}')
    assert text != top
    return made(text)


def made(text: str) -> str:
    import base64

    from tests.jwts import HEADER, chunk

    head = chunk(json.dumps(HEADER).encode())
    signed = f"{head}.{chunk(text.encode())}"
    signature = base64.urlsafe_b64encode(ACCOUNT.sign(signed.encode())).decode().rstrip("=")
    return f"{signed}.{signature}"


HOLDER = User(ACCOUNT)
HOLDERS: dict[str, User] = {}
PLAIN = '"type":"user","version":2,"subs":-1,"data":-1,"payload":-1'
BODIES = {
    "plain": PLAIN,
    "subs as a text": PLAIN.replace("-1", '"-1"', 1),
    "subs as a fraction": PLAIN.replace("-1", "-1.5", 1),
    "subs as 1e2": PLAIN.replace("-1", "1e2", 1),
    "subs as 100.0": PLAIN.replace("-1", "100.0", 1),
    "subs of 64 bits": PLAIN.replace("-1", "9223372036854775807", 1),
    "subs of more": PLAIN.replace("-1", "9223372036854775808", 1),
    "subs of thousands of digits": PLAIN.replace("-1", "9" * 5000, 1),
    "subs as true": PLAIN.replace("-1", "true", 1),
    "null everywhere": PLAIN
    + ',"pub":null,"sub":null,"resp":null,"src":null,"times":null,"tags":null',
    "twice, the last counts": '"bearer_token":true,' + PLAIN + ',"bearer_token":false',
    "twice, in other letters": PLAIN + ',"bearer_token":false,"BEARER_TOKEN":true',
    "in capitals": PLAIN.upper().replace("USER", "user"),
    "permissions twice": PLAIN + ',"pub":{"allow":["a"]},"pub":{"deny":["b"]}',
    "allow as a text": PLAIN + ',"pub":{"allow":"a"}',
    "allow of numbers": PLAIN + ',"pub":{"allow":[1]}',
    "allow of nothing": PLAIN + ',"pub":{"allow":[""]}',
    "allow of null": PLAIN + ',"pub":{"allow":[null]}',
    "permissions as a list": PLAIN + ',"pub":[]',
    "tags as a text": PLAIN + ',"tags":"a"',
    "src as a number": PLAIN + ',"src":1',
    "src as an odd list": PLAIN + ',"src":["127.0.0.1/32 "]',
    "src with more bits": PLAIN + ',"src":["127.0.0.1/33"]',
    "src of IPv6": PLAIN + ',"src":["::ffff:127.0.0.0/104"]',
    "src of a host in a network": PLAIN + ',"src":["127.0.0.1/8"]',
    "src with leading zeros": PLAIN + ',"src":["127.000.0.0/8"]',
    "times as a map": PLAIN + ',"times":{}',
    "times without an end": PLAIN + ',"times":[{"start":"00:00:00"}]',
    "resp as true": PLAIN + ',"resp":true',
    "resp of huge numbers": PLAIN + ',"resp":{"max":9223372036854775807,"ttl":9223372036854775807}',
    "resp of negative numbers": PLAIN + ',"resp":{"max":-1,"ttl":-1}',
    "version as a text": PLAIN.replace(":2", ':"2"'),
    "version 2.0": PLAIN.replace(":2", ":2.0"),
    "version 0": PLAIN.replace(":2", ":0"),
    "version -1": PLAIN.replace(":2", ":-1"),
    "no type": PLAIN.replace('"type":"user",', ""),
    "type in capitals": PLAIN.replace('"user"', '"USER"'),
    "an escaped name": PLAIN + ',"bearer_t\\u006fken":true',
    "a lone surrogate": PLAIN + ',"tags":["\\ud800"]',
    "NUL in a subject": PLAIN + ',"pub":{"allow":["a\\u0000b"]}',
    "unknown members": PLAIN + ',"x":{"y":[{}]}',
    "no limits": '"type":"user","version":2,"payload":0,"subs":1',
    "types as a text": PLAIN + ',"allowed_connection_types":"STANDARD"',
    "an empty type": PLAIN + ',"allowed_connection_types":[""]',
}


@pytest.mark.parametrize("case", BODIES)
def test_odd_bodies(operated: list[Server], case: str) -> None:
    text = raw(BODIES[case])
    user = HOLDERS[BODIES[case]]
    told = []
    for server in operated:
        found = outcome(server, by_token(text, user))
        if found[-1][0] == "PONG":
            user.token = text
            with Client(server, user) as client:
                client.send(b"PUB a 0\r\n\r\nPUB b 0\r\n\r\nSUB a 1\r\nSUB b 2\r\n")
                found.append([frame.shown() for frame in client.sync()])
        told.append([found, outcome(server, {"jwt": text})[-1]])
    ours, theirs = told
    if case in STRICTER:
        assert is_refused(ours[0])
    else:
        assert ours == theirs


STRICTER = ("a lone surrogate",)
"""What only the server under test refuses."""


def test_names_forge_no_lines_of_the_log(servers: Servers) -> None:
    forged = "\n[1] 2026/11/25 00:00:00.000000 [INF] forged"
    account = Account(OPERATOR, name="A" + forged, trace={"dest": "x"})
    server = servers.under_test(config=configured(OPERATOR, [account]), args=["-DV"])
    rule = f"a b c{forged}"
    for user in (
        User(account, claims={"name": "u" + forged}),
        User(account, pub={"allow": [rule]}, tags=[forged]),
        User(account, times_location=forged),
        User(account, issuer_account=forged),
    ):
        with Client(server, user, name=forged, lang=forged, user="u" + forged) as client:
            client.send(f"PUB a{forged} 0\r\n\r\nSUB x{forged} 1\r\n".encode())
            client.quiet(0.1)
    server.stop()
    assert "forged" in server.log()
    assert not [line for line in server.log().splitlines() if line.startswith("[1] ")]


SUBJECTS = {
    "a user": HOLDER.public,
    "nobody": "",
    "some text": "x",
    "an account": ACCOUNT.public,
    "the operator": OPERATOR.public,
    "a server": encode_public(PREFIX_SERVER, HOLDER.raw),
    "a user in small letters": HOLDER.public.lower(),
    "a user with a wrong checksum": HOLDER.public[:-1] + "A",
    "a user and more": HOLDER.public + "A",
}


@pytest.mark.parametrize("bearer", [False, True])
@pytest.mark.parametrize("case", SUBJECTS)
def test_whom_a_token_is_of(operated: list[Server], case: str, bearer: bool) -> None:
    body = {**UNLIMITED, "bearer_token": bearer}
    text = sealed(claims(ACCOUNT, SUBJECTS[case], "user", body), ACCOUNT.sign)
    told = [outcome(server, by_token(text, HOLDER)) for server in operated]
    if case == "a user and more":  # which nats-server reads as the user
        assert is_refused(told[0]) or bearer
    else:
        assert told[0] == told[1]


TIMES: dict[str, dict[str, int]] = {
    "made later": {"iat": int(time.time()) + 10_000},
    "made before there was time": {"iat": -5},
    "never made": {"iat": 0},
    "over before there was time": {"exp": -1},
    "over at the end of time": {"exp": (1 << 63) - 1},
    "beginning before there was time": {"nbf": -(1 << 63)},
    "over before it begins": {"exp": 1, "nbf": int(time.time()) + 10_000},
}


@pytest.mark.parametrize("case", TIMES)
def test_times_that_are_odd(operated: list[Server], case: str) -> None:
    user = User(ACCOUNT, claims=TIMES[case])
    told = [outcome(server, by_token(user)) for server in operated]
    assert told[0] == told[1]


NEGATIVE: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "a user's payload": ({}, {"payload": -5}),
    "a user's subscriptions": ({}, {"subs": -2}),
    "an account's payload": ({"payload": -5}, {}),
    "an account's subscriptions": ({"subs": -9}, {}),
    "an account's connections": ({"conn": -2}, {}),
}


@pytest.mark.parametrize("case", NEGATIVE)
def test_negative_limits_let_nothing_through(servers: Servers, case: str) -> None:
    """But for -1, which is none."""
    of_account, of_user = NEGATIVE[case]
    account = Account(OPERATOR, limits={**ACCOUNT_LIMITS, **of_account})
    user = User(account, **of_user)
    told = []
    for start in (servers.under_test, servers.peer):
        server = start(config=configured(OPERATOR, [account]))
        with Client(server, user) as client:
            said = client.said
            if said[-1].verb != EOF:
                client.send(b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n")
                said = [*said, *client.until("PONG")]
            told.append({frame.line for frame in said if frame.verb == "-ERR"})
    assert told[0] == told[1] and told[0]


def test_large_tokens(operated: list[Server]) -> None:
    """As large as a line of the protocol may be."""
    told = []
    user = User(ACCOUNT)
    for pad in (5_000, 30_000, 48_000):
        body = claims(ACCOUNT, user.public, "user", {**UNLIMITED, "tags": ["t" * pad]})
        text = sealed(body, ACCOUNT.sign)
        began = time.monotonic()
        told.append([outcome(server, by_token(text, user))[-1] for server in operated])
        assert time.monotonic() - began < 10
    assert [str(ours) for ours, _ in told] == [str(theirs) for _, theirs in told]


# ---- in the middle of something


def test_who_leaves_while_a_callout_thinks(servers: Servers) -> None:
    """Nobody is let in who is not there, and whoever comes next is asked about."""
    from tests.client.test_callout_diff import CONFIG as CALLOUT
    from tests.client.test_callout_diff import Pair, let_in

    made = Pair(servers, CALLOUT.replace("MORE", ""))
    began = threading.Event()
    goes_on = threading.Event()

    def slowly(request: dict[str, Any]) -> str:
        if request["connect_opts"].get("user") == "leaves":
            began.set()
            goes_on.wait(5)
        return let_in(request)

    try:
        for server, service in zip(made.servers, made.services, strict=True):
            service.answer = slowly
            began.clear()
            goes_on.clear()
            with RawClient(server.port) as client:
                client.frame()
                client.send(b'CONNECT {"verbose":false,"user":"leaves"}\r\nPUB a 0\r\n\r\n')
                assert began.wait(5)
            goes_on.set()
            for name in ("bob", "jim"):
                found = outcome(server, {"user": name})
                assert found[-1][0] == "PONG", found
            wait_until(
                lambda s=server: page(s, "/connz")["num_connections"] == 1, "only the callout"
            )
    finally:
        made.close()


def test_who_says_more_while_its_token_is_checked(operated: list[Server]) -> None:
    """What comes behind CONNECT waits, and counts for nobody if that is refused."""
    good, bad = User(ACCOUNT), User(Account(OPERATOR))
    for server in operated:
        with Client(server, good) as listener:
            listener.send(b"SUB > 1\r\n")
            listener.sync()
            for user in (bad, good):
                with RawClient(server.port) as client:
                    nonce = str(client.frame().json["nonce"])
                    options = {"jwt": user.token, "sig": user.signature(nonce), "verbose": False}
                    client.send(
                        b"CONNECT "
                        + json.dumps(options).encode()
                        + f"\r\nPUB said.{user is good} 0\r\n\r\nPING\r\n".encode()
                    )
                    client.until("PONG")
            heard = [frame.subject for frame in listener.sync() if frame.verb == "MSG"]
            assert heard == ["said.True"]


def test_a_limit_of_connections_holds_for_tokens_at_once(servers: Servers) -> None:
    account = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "conn": 3})
    config = configured(OPERATOR, [account])
    for start in (servers.under_test, servers.peer):
        server = start(config=config, monitor=True)
        users = [User(account) for _ in range(12)]
        clients = [RawClient(server.port) for _ in users]
        for client, user in zip(clients, users, strict=True):
            nonce = str(client.frame().json["nonce"])
            options = {"jwt": user.token, "sig": user.signature(nonce), "verbose": False}
            client.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        ends = [client.until("PONG")[-1].verb for client in clients]
        assert ends.count("PONG") == 3 and ends.count(EOF) == 9
        for client in clients:
            client.close()


WALLED = """
server_name: one
jetstream { domain: hub }
accounts {
    A { jetstream: enabled, users: [
        { user: a, password: x }
        { user: denied, password: x, permissions: { publish: { deny: ["$JS.API.STREAM.DELETE.>",
          "$JS.API.STREAM.PURGE.*", "$JS.API.CONSUMER.MSG.NEXT.>", "$JS.API.DIRECT.GET.>"] } } }
        { user: allowed, password: x, permissions: { publish: { allow: ["$JS.hub.API.>"] } } }
        { user: plain, password: x, permissions: { publish: { allow: ["$JS.API.STREAM.NAMES"] } } }
    ] }
    SYS { users: [{ user: s, password: x }] }
}
system_account: SYS
"""


@pytest.mark.parametrize("user", ["denied", "allowed", "plain"])
def test_a_prefix_is_no_way_round_permissions(servers: Servers, user: str) -> None:
    """What may not be asked of JetStream may not be asked by its domain's name either."""
    told = []
    for start in (servers.under_test, servers.peer):
        server = start(config=WALLED, jetstream=True)
        found: list[object] = []
        with app(server, "a") as owner, app(server, user) as client:
            for name in ("S", "T"):
                config = {"name": name, "subjects": [name.lower()], "allow_direct": True}
                owner.api(f"STREAM.CREATE.{name}", config)
                owner.request(name.lower(), b"x")
            config = {"durable_name": "c", "ack_policy": "none"}
            owner.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
            inbox = client.inbox()
            for prefix in ("$JS.API.", "$JS.hub.API."):
                for rest in (
                    *("STREAM.NAMES", "STREAM.PURGE.S", "STREAM.DELETE.T", "STREAM.INFO.S"),
                    *("CONSUMER.MSG.NEXT.S.c", "DIRECT.GET.S", "DIRECT.GET.S.s"),
                ):
                    body = b'{"seq":1}' if rest == "DIRECT.GET.S" else b""
                    client.publish(prefix + rest, body, reply=inbox)
                    frames = [f for f in client.quiet(0.25) if f.verb != "PING"]
                    errors = [f.line for f in frames if f.verb == "-ERR"]
                    found.append((prefix + rest, errors, sum(f.verb != "-ERR" for f in frames)))
            found.append(owner.api("STREAM.NAMES").get("streams"))
        told.append(found)
    for ours, theirs in zip(*told, strict=True):
        assert ours == theirs
