"""Tokens of users that are odd in what they say, or come at an odd moment: both servers do the
same, and the one under test never lets through more.
"""

import json
import time
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_SERVER, encode_public
from tests.client.raw import EOF, RawClient
from tests.client.refusals import by_token, is_refused, outcome
from tests.client.tokens import Client, configured
from tests.jwts import ACCOUNT_LIMITS, UNLIMITED, Account, Operator, User, claims, sealed
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

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


TRIES = 20
"""nats-server lets some in and cuts them at once: what they hear first varies."""


@pytest.mark.parametrize("case", TIMES)
def test_times_that_are_odd(operated: list[Server], case: str) -> None:
    user = User(ACCOUNT, claims=TIMES[case])
    for _ in range(TRIES):
        told = [outcome(server, by_token(user)) for server in operated]
        if told[0] == told[1]:
            break
    assert told[0] == told[1]


NEGATIVE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
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
