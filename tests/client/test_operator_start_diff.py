"""What a configuration says of operators, and JetStream of tokens: the same to both servers."""

import json
import re
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR
from tests.client.tokens import Client, both, configured, is_in
from tests.jwts import ACCOUNT_LIMITS, UNLIMITED, Account, Operator, User
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OPERATOR = Operator()
KEY = Signer(PREFIX_ACCOUNT)
MAIN = Account(OPERATOR, name="MAIN", signing_keys=[KEY.public])


def test_strict_signing_keys(servers: Servers) -> None:
    """The operator's own key and the accounts' are for signing keys alone."""
    operator = Operator(strict_signing_key_usage=True)
    operator.sys.token = operator.sys.made(operator.signing)
    by_own, by_signing = Account(operator), Account(operator.signing, signing_keys=[KEY.public])
    config = configured(operator, [by_own, by_signing])
    pair = [servers.under_test(config=config), servers.peer(config=config)]
    assert not is_in(both(pair, User(by_own)))
    assert not is_in(both(pair, User(by_signing)))
    assert is_in(both(pair, User(by_signing, KEY, **UNLIMITED)))


def test_trusted_keys(servers: Servers) -> None:
    key, stranger = Signer(PREFIX_OPERATOR), Signer(PREFIX_OPERATOR)
    known, unknown = Account(key), Account(stranger)
    preload = "\n".join(f"  {a.public}: {a.token}" for a in (known, unknown))
    config = f"trusted_keys: [{key.public}]\nresolver: MEM\nserver_name: one\n"
    config += f"resolver_preload {{\n{preload}\n}}"
    pair = [servers.under_test(config=config), servers.peer(config=config)]
    assert is_in(both(pair, User(known)))
    assert not is_in(both(pair, User(unknown)))
    both(pair)


def test_pinned_accounts_and_the_sentinel(servers: Servers) -> None:
    pinned, other = Account(OPERATOR), Account(OPERATOR)
    sentinel = User(pinned, bearer_token=True, pub={"deny": [">"]})
    config = configured(
        OPERATOR,
        [pinned, other],
        f"resolver_pinned_accounts: [{pinned.public}]",
        f"default_sentinel: {sentinel.token}",
    )
    pair = [servers.under_test(config=config), servers.peer(config=config)]
    assert is_in(both(pair, User(pinned)))
    assert not is_in(both(pair, User(other)))
    assert is_in(both(pair, User(OPERATOR.sys)))
    assert is_in(both(pair))
    both(pair, None, jwt="x")
    both(pair, None, user="u")


CONFLICTS = {
    "accounts": ["operator: {op}", "resolver: MEM", "accounts {{ A {{}} }}"],
    "users": [
        *("operator: {op}", "resolver: MEM"),
        "authorization {{ users: [{{user: a, password: b}}] }}",
    ],
    "keys": ["operator: {op}", "resolver: MEM", "trusted_keys: {op_key}"],
    "another system account": ["operator: {op}", "resolver: MEM", "system_account: {acc}"],
    "no_auth_user": ["operator: {op}", "resolver: MEM", "no_auth_user: a"],
    "a sentinel alone": ["default_sentinel: {op}"],
    "a sentinel that is none": ["operator: {op}", "resolver: MEM", "default_sentinel: x"],
    "a sentinel that signs": ["operator: {op}", "resolver: MEM", "default_sentinel: {user}"],
    "a bad pin": ["operator: {op}", "resolver: MEM", "resolver_pinned_accounts: x"],
    "a newer server": ["operator: {newer}", "resolver: MEM"],
    "a much newer server": ["operator: {much}", "resolver: MEM"],
    "a strange server": ["operator: {strange}", "resolver: MEM"],
    "no such file": ["operator: /nowhere/op.jwt", "resolver: MEM"],
    "an account as operator": ["operator: {account}", "resolver: MEM"],
    "a bad trusted key": ["trusted_keys: [{acc}]", "resolver: MEM"],
    "a bad preload": ["operator: {op}", "resolver: MEM", "resolver_preload {{ {acc}: {user} }}"],
    "a list as preload": ["operator: {op}", "resolver: MEM", "resolver_preload: [1]"],
    "a number as resolver": ["operator: {op}", "resolver: 1"],
    "no system account": ["operator: {op}", "resolver: MEM"],
}


@pytest.mark.parametrize("which", CONFLICTS)
def test_configurations_that_are_refused(servers: Servers, which: str) -> None:
    bad = {
        f"{name}": Operator(assert_server_version=version).token
        for name, version in (("newer", "2.14.99"), ("much", "3.0.0"), ("strange", "2.x"))
    }
    words = {
        **{"op": OPERATOR.token, "op_key": OPERATOR.public, "acc": MAIN.public},
        **{"user": User(MAIN).token, "account": MAIN.token, **bad},
    }
    config = "\n".join(CONFLICTS[which]).format(**words)
    shown = []
    for start in (servers.under_test, servers.peer):
        with pytest.raises(Exception) as failure:
            start(config=config)
        lines = str(failure.value).splitlines()
        said = [line for line in lines if re.search(r"nats-server:|\[FTL\]|conf:", line)]
        text = re.sub(r"^\[\d+\] \S+ \S+ |\S*/(?=server\.conf)", "", "\n".join(said), flags=re.M)
        shown.append(text)
    assert shown[0] == shown[1] and shown[0]


STORING = Account(
    OPERATOR,
    limits={**ACCOUNT_LIMITS, "disk_storage": 1 << 20, "mem_storage": 1 << 20, "streams": 2},
)
TIERED = Account(
    OPERATOR,
    limits={
        **ACCOUNT_LIMITS,
        "tiered_limits": {"R1": {"disk_storage": -1, "streams": 1}, "R3": {"disk_storage": 100}},
    },
)


def asked(server: Server, user: User, subject: str, body: object = None) -> dict[str, Any]:
    """The answer of JetStream's API."""
    with Client(server, user) as client:
        payload = b"" if body is None else json.dumps(body).encode()
        client.send(b"SUB in 1\r\n" + f"PUB $JS.API.{subject} in {len(payload)}\r\n".encode())
        client.send(payload + b"\r\n")
        frame = client.message()
        return {"status": frame.status} if frame.header else json.loads(frame.payload)


def test_jetstream_of_tokens(servers: Servers) -> None:
    others = Account(
        OPERATOR, limits={**ACCOUNT_LIMITS, "tiered_limits": {"R3": {"disk_storage": -1}}}
    )
    config = configured(OPERATOR, [STORING, TIERED, MAIN, others])
    pair = [start(config=config, jetstream=True) for start in (servers.under_test, servers.peer)]
    storing, tiered, without = User(STORING), User(TIERED), User(MAIN)
    said: list[list[object]] = []
    for server in pair:
        answers: list[object] = []
        answers.append(asked(server, without, "STREAM.CREATE.A", {"name": "A"}).get("error"))
        for name in ("A", "B", "C"):
            made = asked(server, storing, f"STREAM.CREATE.{name}", {"name": name})
            answers.append(made.get("error"))
        big = {"name": "D", "max_bytes": 2 << 20}
        answers.append(asked(server, storing, "STREAM.UPDATE.A", {**big, "name": "A"}).get("error"))
        for name in ("A", "B"):
            made = asked(server, tiered, f"STREAM.CREATE.{name}", {"name": name})
            answers.append(made.get("error"))
        for size in (-1, 50, 200):  # of another tier, whose limits are its own
            body = {"name": "C", "num_replicas": 3, "max_bytes": size}
            answers.append(asked(server, tiered, "STREAM.CREATE.C", body).get("error"))
        answers.append(asked(server, User(others), "STREAM.CREATE.A", {"name": "A"}).get("error"))
        for user in (storing, tiered):
            info = asked(server, user, "INFO")
            answers.append([info.get(n) for n in ("limits", "streams", "storage", "tiers")])
        said.append(answers)
        server.restart()
        for user, count in ((storing, 2), (tiered, 1)):
            assert len(asked(server, user, "STREAM.NAMES")["streams"]) == count
    assert said[0] == said[1]


def test_claims_without_effect_are_told(servers: Servers) -> None:
    limited = Account(OPERATOR, limits={**ACCOUNT_LIMITS, "leaf": 3}, cluster_traffic="owner")
    plain = Account(OPERATOR, cluster_traffic="system")
    server = servers.under_test(config=configured(OPERATOR, [limited, plain]))
    assert all(is_in(both([server] * 2, User(account))) for account in (limited, plain))
    told = [line for line in server.log().splitlines() if "is served without its" in line]
    assert len(told) == 1 and limited.public in told[0]
    assert 'cluster traffic "owner"' in told[0]
