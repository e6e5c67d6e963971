"""Reloads in operator mode: tokens in the configuration, and which accounts may come, change while
users are connected; the same with both servers."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.reloads import FAILED, in_order, reload
from tests.client.tokens import Client, configured
from tests.jwts import ACCOUNT_LIMITS, Account, Operator, User
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OPERATOR = Operator()
SYSTEM = User(OPERATOR.sys)
NOW = int(time.time())
SUBS = b"SUB a 1\r\nSUB b 2\r\nSUB i.> 3\r\n"


def heard(client: Client) -> list[object]:
    if client.closed:
        return []
    client.send(b"PING\r\n")
    return [*in_order([frame.shown() for frame in client.until("PONG")])]


def over(server: Server, config: str, users: list[User], sends: list[bytes]) -> list[object]:
    """What users hear over a reload, of what each sends after it, and who gets in then."""
    clients = [Client(server, user) for user in users]
    for client in clients:
        client.send(SUBS)
    shown: list[object] = [heard(client) for client in clients]
    reload(server, config)
    time.sleep(0.1)  # clients that are cut have heard of it
    shown += [heard(client) for client in clients]
    for client, sent in zip(clients, sends, strict=True):
        client.send(sent)
        shown.append(heard(client))
    shown += [heard(client) for client in clients]
    for client, user in zip(clients, users, strict=True):
        client.close()
        with Client(server, user) as again:
            shown.append(again.said[-1].verb)
    return shown


def changed(account: Account, **claims: Any) -> str:
    """The configuration's account with claims that are newer."""
    account.token = account.made(iat=NOW - 5, **claims)
    return account.token


def imports(account: Account) -> list[dict[str, str]]:
    return [{"name": "x", "subject": "a", "account": account.public, "type": "stream", "to": "i"}]


CHANGES: dict[str, Callable[[Account, Account, list[User]], str]] = {
    "nothing": lambda a, b, users: configured(OPERATOR, [a, b]),
    "an account goes": lambda a, b, users: configured(OPERATOR, [a]),
    "an account comes": lambda a, b, users: configured(OPERATOR, [a, b, Account(OPERATOR)]),
    "pinned": lambda a, b, users: configured(
        OPERATOR, [a, b], f"resolver_pinned_accounts: [{a.public}]"
    ),
    "a user is revoked": lambda a, b, users: (
        changed(b, revocations={users[1].public: NOW + 100_000}) and configured(OPERATOR, [a, b])
    ),
    "default permissions": lambda a, b, users: (
        changed(b, default_permissions={"sub": {"deny": ["a", "i.>"]}, "pub": {"deny": ["b"]}})
        and configured(OPERATOR, [a, b])
    ),
    "default permissions of what is imported": lambda a, b, users: (
        changed(b, imports=imports(a), default_permissions={"sub": {"deny": ["i.a"]}})
        and configured(OPERATOR, [a, b])
    ),
    "limits": lambda a, b, users: (
        changed(b, limits={**ACCOUNT_LIMITS, "payload": 1}) and configured(OPERATOR, [a, b])
    ),
    "an import": lambda a, b, users: (
        changed(
            b,
            imports=[
                {"name": "x", "subject": "a", "account": a.public, "type": "stream", "to": "i"}
            ],
        )
        and configured(OPERATOR, [a, b])
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tokens_of_the_configuration(servers: Servers, change: str) -> None:
    exports = [{"name": "x", "subject": "a", "type": "stream"}]
    a, b = Account(OPERATOR, exports=exports), Account(OPERATOR)
    for account in (a, b):
        account.token = account.made(iat=NOW - 10)
    users = [User(a), User(b), User(b)]
    before = configured(OPERATOR, [a, b])
    after = CHANGES[change](a, b, users)
    sends = [b"PUB a 2\r\nhi\r\n", b"PUB a 2\r\nho\r\nPUB b 1\r\nx\r\n", b""]
    ours, theirs = (
        over(start(config=before), after, users, sends)
        for start in (servers.under_test, servers.peer)
    )
    assert ours == theirs


def test_operators_and_the_kind_of_resolver_stay(servers: Servers) -> None:
    account = Account(OPERATOR)
    config = configured(OPERATOR, [account])
    texts = [configured(Operator(), []), "debug: true"]
    for start in (servers.under_test, servers.peer):
        server = start(config=config)
        with Client(server, User(account)) as client:
            for text in texts:
                reload(server, text, FAILED)
                client.sync()


def test_tokens_in_a_directory_are_read_again(servers: Servers, tmp_path: Any) -> None:
    account = Account(OPERATOR)
    account.token = account.made(iat=NOW - 10)
    config = configured(OPERATOR, [account]).replace(
        "resolver: MEMORY", f"resolver: {{ type: full, dir: '{tmp_path}' }}"
    )
    server = servers.under_test(config=config)
    user = User(account)
    with Client(server, user) as client:
        client.send(SUBS)
        client.sync()
        token = account.made(iat=NOW - 5, default_permissions={"sub": {"deny": ["a"]}})
        (tmp_path / f"{account.public}.jwt").write_text(token)
        reload(server)
        assert [b'"a"' in frame.line for frame in client.sync()] == [True]
        (tmp_path / f"{account.public}.jwt").unlink()
        reload(server, config.replace(f"  {account.public}: {account.token}\n", ""))
        assert b"Authorization Violation" in client.until("EOF")[0].line
