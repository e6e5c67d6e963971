"""What monitoring says of accounts and of users that came by tokens, beside nats-server's pages."""

import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT
from jsserver.text.s2 import decompress
from tests.client.raw import Frame
from tests.client.test_monitor_diff import (
    VOLATILE,
    VOLATILE_TOTALS,
    fetch,
    kind_of,
    page,
    plain,
)
from tests.client.tokens import Client, configured
from tests.jwts import UNLIMITED, Account, Operator, User, token
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

NOW = int(time.time())
OPERATOR = Operator(assert_server_version="2.0.0", tags=["o:1"])
KEY, ROLE = Signer(PREFIX_ACCOUNT), Signer(PREFIX_ACCOUNT)
SCOPE = {
    "kind": "user_scope",
    "key": ROLE.public,
    "role": "r",
    "template": {**UNLIMITED, "bearer_token": True, "pub": {"allow": ["{{name()}}"]}},
}
SHOP = Account(
    OPERATOR,
    name="SHOP",
    description="of things",
    tags=["region:eu", "x"],
    signing_keys=[KEY.public, SCOPE],
    revocations={User(Account(OPERATOR)).public: NOW - 100, "*": 1000},
    default_permissions={"pub": {"deny": ["no"]}, "sub": {}},
    mappings={
        "from.*": [{"subject": "to.$1", "weight": 30}, {"subject": "other.$1", "weight": 20}]
    },
    exports=[
        {"subject": "price.*", "type": "service", "response_type": "Stream"},
        {
            "subject": "ask",
            "type": "service",
            "service_latency": {"sampling": 50, "results": "lat"},
            "token_req": True,
            "revocations": {"*": 5},
        },
        {"subject": "news.>", "type": "stream", "token_req": True},
        {"subject": "open", "type": "stream", "name": "n", "description": "d"},
    ],
)
WEB = Account(OPERATOR, name="WEB")


def granted(subject: str, kind: str) -> str:
    return token(SHOP, WEB.public, "activation", {"subject": subject, "kind": kind})


WEB.nats["imports"] = [
    {"subject": "price.*", "type": "service", "account": SHOP.public, "local_subject": "p.*"},
    {
        "subject": "ask",
        "type": "service",
        "account": SHOP.public,
        "token": granted("ask", "service"),
        "share": True,
    },
    {
        "subject": "news.>",
        "type": "stream",
        "account": SHOP.public,
        "token": granted("news.>", "stream"),
        "local_subject": "got.>",
    },
    {"subject": "open", "type": "stream", "account": SHOP.public, "to": "pre"},
]
WEB.token = WEB.made()
BEARER = User(SHOP, bearer_token=True, tags=["t"])
USERS = {
    "plain": User(SHOP, tags=["team:red"]),
    "of a key": User(SHOP, KEY, {"name": "named"}, **UNLIMITED),
    "a bearer": BEARER,
    "of the system": User(OPERATOR.sys),
    "web": User(WEB),
}


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> Iterator[list[Server]]:
    config = configured(OPERATOR, [SHOP, WEB])
    starts = (module_servers.under_test, module_servers.peer)
    servers = [start(config=config, monitor=True) for start in starts]
    open_ = []
    for server in servers:
        for name, user in USERS.items():
            client = Client(server, user, name=name)
            assert client.said[-1].verb == "INFO"
            open_.append(client)
        with Client(server, USERS["plain"], name="gone") as client:
            assert client.said[-1].verb == "INFO"
    yield servers
    for client in open_:
        client.close()


def sorted_(value: Any) -> Any:
    """Maps and lists without an order, volatile values as the names of their types."""
    if isinstance(value, dict):
        return {k: kind_of(v) if k in VOLATILE else sorted_(v) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return sorted((sorted_(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    return value


def account(server: Server, name: str, system: str) -> Any:
    """The account's details, without what the servers offer to every account in their own way."""
    detail = page(server, f"/accountz?acc={name}")["account_detail"]
    imports = [i for i in detail.get("imports", ()) if i["account"] != system]
    exports = [e for e in detail.get("exports", ()) if not e["subject"].startswith("$SYS")]
    detail.pop("subscriptions")
    return sorted_({**detail, "imports": imports, "exports": exports})


@pytest.mark.parametrize("which", [SHOP, WEB, OPERATOR.sys], ids=["exporter", "importer", "system"])
def test_accounts(pair: list[Server], which: Account) -> None:
    ours, theirs = (account(server, which.public, OPERATOR.sys.public) for server in pair)
    assert ours == theirs


SHARING = """
accounts {
    X {
        users: [{ user: x, password: x }]
        exports: [
            { service: "a.*.b.*", accounts: [Y, Z] }, { service: many, response: stream }
            { service: timed, latency: { sampling: headers, subject: lat } }
            { stream: "s.>", accounts: [Y] }, { stream: "t.*.*" }
            { service: "of.*", account_token_position: 2 }
        ]
        mappings: { one: two, "in.*.*": [
            { dest: "out.$2.$1", weight: 60% }, { dest: x, weight: 10 }] }
    }
    Y {
        imports: [
            { service: { account: X, subject: "a.*.b.*" }, to: "b.$2.$1" }
            { service: { account: X, subject: "a.1.b.2" }, to: short }
            { service: { account: X, subject: many }, share: true }
            { service: { account: X, subject: timed } }, { service: { account: X, subject: of.Y } }
            { stream: { account: X, subject: "s.>" }, prefix: "got.it" }
            { stream: { account: X, subject: "t.*.*" }, to: "u.$2.$1" }
            { stream: { account: X, subject: t.1.2 }, to: one }
        ]
    }
    Z {}
    SYS { users: [{ user: s, password: x }] }
}
system_account: SYS
mappings: { g: h }
"""


def test_accounts_of_a_configuration(servers: Servers) -> None:
    pair = [start(config=SHARING, monitor=True) for start in (servers.under_test, servers.peer)]
    for name in ("X", "Y", "Z", "$G", "SYS"):
        ours, theirs = (account(server, name, "SYS") for server in pair)
        assert ours == theirs


@pytest.mark.parametrize("state", ["open", "closed"])
def test_connections(pair: list[Server], state: str) -> None:
    shown = []
    for server in pair:
        found = page(server, f"/connz?auth=1&state={state}")["connections"]
        for row in found:
            row.pop("in_bytes")
            row.pop("out_bytes")
        shown.append(plain(found))
    assert shown[0] == shown[1]


def test_a_role_of_bearers_shows_no_token(pair: list[Server]) -> None:
    """It is all that such a user needs. nats-server looks at the token alone, and shows it."""
    user = User(SHOP, ROLE, {"name": "b"})
    with Client(pair[0], user, name="role", sig="") as client:
        assert client.said[-1].verb == "INFO"
        status, _, body = fetch(pair[0], "/connz?auth=1&state=any")
        assert status == 200 and b'"role"' in body
        assert user.token.encode() not in body and BEARER.token.encode() not in body
        assert USERS["plain"].token.encode() in body


def test_the_server(pair: list[Server]) -> None:
    ours, theirs = (page(server, "/varz") for server in pair)
    volatile = VOLATILE | VOLATILE_TOTALS | {"in_msgs", "out_msgs", "total_connections"}
    volatile |= {"in_client_msgs", "out_client_msgs"}
    for found in (ours, theirs):
        assert found["trusted_operators_jwt"] == [OPERATOR.token]
        claims = found.pop("trusted_operators_claim")
        assert claims[0]["nats"]["assert_server_version"] == "2.0.0"
        found["claims"] = sorted_(claims)
    assert plain(ours, volatile) == plain(theirs, volatile)


def test_pinned_accounts(servers: Servers) -> None:
    config = configured(OPERATOR, [SHOP, WEB], f"resolver_pinned_accounts: [{WEB.public}]")
    counts = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config, monitor=True)
        for user in ("plain", "web", "of a key"):
            Client(server, USERS[user]).close()
        counts.append(page(server, "/varz")["pinned_account_fails"])
    assert counts == [2, 2]


# ---- the insides


def test_queues(pair: list[Server]) -> None:
    """Each server has its own; the form is the same."""
    for server in pair:
        for target in ("/ipqueuesz", "/ipqueuesz?all=1", "/ipqueuesz?all=1&queues=nope"):
            found = page(server, target)
            assert all(set(queue) <= {"pending", "in_progress"} for queue in found.values())
            assert bool(found) == (target == "/ipqueuesz?all=1") or target == "/ipqueuesz"
        assert fetch(server, "/ipqueuesz?all=x")[0] == 400


def test_variables(servers: Servers) -> None:
    """Whatever else they tell, no password."""
    for start in (servers.under_test, servers.peer):
        server = start(args=["--user", "a", "--pass=s3cr3t"], monitor=True)
        status, kind, body = fetch(server, "/debug/vars")
        assert (status, kind) == (200, "application/json; charset=utf-8")
        found = json.loads(body)
        assert found["memstats"]["Alloc"] > 0 and "NumGC" in found["memstats"]
        assert "--pass=[REDACTED]" in found["cmdline"] and b"s3cr3t" not in body


def asked(server: Server, subject: str, body: bytes = b"", header: bytes = b"") -> Frame:
    header = header or b"NATS/1.0\r\n\r\n"
    sizes = f"{len(header)} {len(header) + len(body)}"
    with Client(server, USERS["of the system"]) as client:
        client.send(b"SUB in 1\r\n" + f"HPUB {subject} in {sizes}\r\n".encode())
        client.send(header + body + b"\r\n")
        return client.message()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("IPQUEUESZ", b"{}"),
        ("IPQUEUESZ", b'{"all":true,"filter":"nope"}'),
        ("IPQUEUESZ", b'{"all":"x"}'),
        ("EXPVARZ", b""),
        ("PROFILEZ", b""),
        ("PROFILEZ", b"x"),
    ],
)
def test_what_is_asked_of_the_insides(pair: list[Server], name: str, body: bytes) -> None:
    shown = []
    for server in pair:
        answer = json.loads(asked(server, f"$SYS.REQ.SERVER.PING.{name}", body).payload)
        assert answer.pop("server")["name"] == "one"
        if name == "EXPVARZ":
            assert set(answer["data"]) == {"memstats", "cmdline"}
            continue
        if "error" in answer:
            answer["error"]["description"] = ""  # each parser of JSON has words of its own
        if answer.get("data") and body == b"{}":
            answer["data"] = {}
        shown.append(answer)
    assert shown[:1] == shown[1:]


def test_profiles_of_gos_runtime_are_not_available(pair: list[Server]) -> None:
    answer = json.loads(asked(pair[0], "$SYS.REQ.SERVER.PING.PROFILEZ", b'{"name":"heap"}').payload)
    assert 'the profile "heap" is not available' in answer["data"]["error"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        *(("snappy", "snappy"), ("s2", "snappy"), ("gzip", "gzip"), ("GZIP, Snappy", "snappy")),
        *(("deflate, gzip;q=0.1", "gzip"), ("zstd", "identity"), ("", "")),
    ],
)
@pytest.mark.parametrize("subject", ["$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.PING.CONNZ"])
def test_compressed_answers(pair: list[Server], subject: str, accepted: str, encoding: str) -> None:
    header = f"NATS/1.0\r\nA: b\r\nAccept-Encoding: {accepted}\r\n\r\n".encode()
    heads = []
    for server in pair:
        frame = asked(server, subject, header=header)
        heads.append(frame.header)
        payload = frame.payload
        if encoding == "gzip":
            payload = gzip.decompress(payload)
        elif encoding == "snappy":
            payload = decompress(payload, 1 << 30)
            assert len(frame.payload) < len(payload)
        assert json.loads(payload)["server"]["name"] == "one"
    assert heads[0] == heads[1]
    assert encoding.encode() in heads[0]


def test_errors_are_not_compressed(pair: list[Server]) -> None:
    header = b"NATS/1.0\r\nAccept-Encoding: gzip\r\n\r\n"
    heads = []
    for server in pair:
        for subject, body in (
            ("$SYS.REQ.SERVER.PING.VARZ", b"x"),
            ("$SYS.REQ.SERVER.PING.IDZ", b""),
            ("$SYS.REQ.SERVER.PING.STATSZ", b""),
            ("$SYS.REQ.USER.INFO", b""),
            ("$SYS.REQ.ACCOUNT.NOPE.INFO", b""),
        ):
            heads.append((server.folder.name, subject, asked(server, subject, body, header).header))
    ours = [head for name, _, head in heads if "peer" not in name]
    assert ours == [head for name, _, head in heads if "peer" in name]
