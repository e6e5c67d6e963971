"""Operator mode under those who mean harm, and under many at once."""

import contextlib
import json
import socket
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from jsserver.text.identity import PREFIX_OPERATOR
from tests.client.raw import EOF, RawClient
from tests.client.tokens import Client, configured
from tests.jwts import HEADER, UNLIMITED, Account, Operator, User, chunk, token
from tests.nkeys import Signer
from tests.servers import Server, Servers
from tests.waiting import wait_until

OPERATOR = Operator()
SYSTEM = User(OPERATOR.sys)
NOW = int(time.time())


@pytest.fixture(scope="module")
def served(module_servers: Servers) -> tuple[Server, Account]:
    account = Account(OPERATOR)
    config = configured(OPERATOR, [account], "max_control_line: 4MB")
    return module_servers.under_test(config=config), account


def refused(server: Server, text: object) -> None:
    """Somebody with such a token does not come in, and others do at once."""
    with Client(server, jwt=text, sig="AAAA") as client:
        assert client.said[-1].verb == EOF
        assert client.said[0].line in (b"-ERR 'Authorization Violation'", b"")


def body(text: bytes) -> str:
    return f"{chunk(json.dumps(HEADER).encode())}.{chunk(text)}.{chunk(bytes(64))}"


@pytest.mark.parametrize(
    "text",
    [
        "a" * (3 << 20),
        "." * (1 << 20),
        "a.b." + "c" * (1 << 20),
        body(b'{"nats":' * 100_000),
        body(b'{"nats":{"type":"user","version":2,"pub":{"allow":' + b"[" * 200_000),
        body(b'{"' + b"A" * 700_000 + b'":1}'),
        body(b'{"exp":' + b"9" * 100_000 + b"}"),
        body(b'{"nats":{"type":"user","version":' + b"9" * 5000 + b"}}"),
        "\u0000.\ud7ff.\uffff",
        1,
        ["a"],
        {"a": "b"},
    ],
    ids=["huge", "dots", "a huge chunk", "deep", "deep lists", "a huge name", "a huge number",
         "a huge version", "odd letters", "a number", "a list", "a map"],
)  # fmt: skip
def test_tokens_that_are_meant_to_hurt(served: tuple[Server, Account], text: object) -> None:
    server, account = served
    before = server.cpu_seconds()
    refused(server, text)
    with Client(server, User(account)) as client:
        assert client.said[-1].verb == "INFO"
    assert server.cpu_seconds() - before < 5


def test_forged_chains(served: tuple[Server, Account]) -> None:
    server, account = served
    false_operator = Signer(PREFIX_OPERATOR)
    own = Account(false_operator)
    for user in (
        User(own),
        User(Account(OPERATOR), account, **UNLIMITED),  # an account's key for another account
        User(account, own, **UNLIMITED),  # a stranger's key in the account's name
    ):
        with Client(server, user) as client:
            assert client.said[-1].verb == EOF
    stolen = User(account)
    thief = User(account)
    thief.token = stolen.token  # somebody else's token, signed for with a key of one's own
    with Client(server, thief) as client:
        assert client.said[-1].verb == EOF
    assert token(false_operator, account.public, "account") not in server.log()


def test_made_up_accounts_cost_nobody_anything(served: tuple[Server, Account]) -> None:
    server, account = served
    users = [User(Account(OPERATOR)) for _ in range(100)]

    def come(user: User) -> None:
        with Client(server, user) as client:
            assert client.said[-1].verb == EOF

    threads = [threading.Thread(target=come, args=(user,)) for user in users]
    for thread in threads:
        thread.start()
    with Client(server, User(account)) as client:
        assert client.said[-1].verb == "INFO"
    for thread in threads:
        thread.join()


def test_who_hangs_up_in_the_middle_of_a_login(served: tuple[Server, Account]) -> None:
    server, account = served
    user = User(account)
    for _ in range(200):
        with RawClient(server.port) as client:
            options = {"jwt": user.token, "sig": user.signature(str(client.frame().json["nonce"]))}
            client.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
    with Client(server, user) as client:
        assert client.said[-1].verb == "INFO"


def connected(server: Server, users: list[User]) -> list[socket.socket]:
    """All have said CONNECT before anybody looks whether they are let in."""
    sockets = []
    for user in users:
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        sockets.append(sock)
        data = b""
        while not data.endswith(b"\r\n"):
            data += sock.recv(65536)
        nonce = json.loads(data[5:])["nonce"]
        options = {"jwt": user.token, "sig": user.signature(nonce), "verbose": False}
        sock.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
    for sock in sockets:
        data = b""
        while b"PONG\r\n" not in data:
            more = sock.recv(65536)
            assert more, data
            data += more
    return sockets


def test_an_update_while_a_thousand_are_there(servers: Servers, tmp_path: Path) -> None:
    config = configured(OPERATOR, []).replace(
        "resolver: MEMORY", f"resolver: {{ type: full, dir: '{tmp_path}/jwt' }}"
    )
    server = servers.under_test(config=config)
    account = Account(OPERATOR)
    account.token = account.made(iat=NOW - 10)
    stay, go = ([User(account) for _ in range(500)] for _ in range(2))
    revocations = {user.public: NOW + 100_000 for user in go}

    def update(text: str) -> None:
        asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(text)}\r\n".encode())
        asker.send(text.encode() + b"\r\n")
        assert b"jwt updated" in asker.message().payload

    with Client(server, SYSTEM) as asker, contextlib.ExitStack() as ends:
        update(account.token)
        remain, gone = (
            [ends.enter_context(sock) for sock in connected(server, users)] for users in (stay, go)
        )
        before = server.cpu_seconds()
        update(account.made(revocations=revocations))
        for sock in gone:
            data = b""
            while more := sock.recv(65536):
                data += more
            assert b"-ERR 'User Authentication Revoked'" in data
        assert server.cpu_seconds() - before < 5
        for sock in remain:
            sock.sendall(b"PING\r\n")
        for sock in remain:
            data = b""
            while b"PONG" not in data:  # the server may have asked first
                more = sock.recv(65536)
                assert more, data
                data += more
            assert b"-ERR" not in data


def test_nobody_slips_in_while_the_token_is_revoked(servers: Servers, tmp_path: Path) -> None:
    """A client that logs in as the revocation comes is refused or cut, however the two meet."""
    config = configured(OPERATOR, []).replace(
        "resolver: MEMORY", f"resolver: {{ type: full, dir: '{tmp_path}/jwt' }}"
    )
    server = servers.under_test(config=config)
    account = Account(OPERATOR)
    revocations: dict[str, int] = {}

    def update(text: str) -> None:
        asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(text)}\r\n".encode())
        asker.send(text.encode() + b"\r\nUNSUB 1 1\r\n")
        assert b"jwt updated" in asker.message().payload

    def come(user: User, over: threading.Event, open_: list[Client]) -> None:
        while not over.is_set():
            client = Client(server, user)
            if client.said[-1].verb == EOF:
                client.close()
            else:
                open_.append(client)

    with Client(server, SYSTEM) as asker:
        update(account.made(iat=NOW - 100))
        for turn in range(6):
            user, over = User(account), threading.Event()
            kept: list[list[Client]] = [[] for _ in range(4)]
            threads = [threading.Thread(target=come, args=(user, over, own)) for own in kept]
            for thread in threads:
                thread.start()
            wait_until(partial(all, kept), "all are in")
            revocations[user.public] = NOW + 100_000
            update(account.made(iat=NOW - 99 + turn, revocations=revocations))
            over.set()
            for thread in threads:
                thread.join()
            for client in (client for own in kept for client in own):
                with client:
                    client.until(EOF)
            with Client(server, user) as late:
                assert late.said[-1].verb == EOF


def test_many_come_and_go(served: tuple[Server, Account]) -> None:
    server, account = served
    memory = server.memory()
    for _ in range(2):
        for sock in connected(server, [User(account) for _ in range(1000)]):
            sock.close()
    wait_until(lambda: server.memory() < memory + (64 << 20), "connections that left take nothing")
