"""Tokens of accounts by request: changed while users are there, looked up, listed and deleted; the
same said to both servers, each with a directory of its own."""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jsserver.text.identity import PREFIX_ACCOUNT, PREFIX_OPERATOR
from tests.client.raw import EOF, Frame
from tests.client.tokens import Client, configured
from tests.jwts import ACCOUNT_LIMITS, UNLIMITED, Account, Operator, User, token
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OPERATOR = Operator()
SYSTEM = User(OPERATOR.sys)
NOW = int(time.time())


class Pair:
    """Both servers, and who asks them."""

    def __init__(self, servers: Servers, folder: Path, resolver: str) -> None:
        self.servers: list[Server] = []
        self.folders: list[Path] = []
        for start in (servers.under_test, servers.peer):
            own = folder / str(len(self.servers))
            config = configured(OPERATOR, []).replace(
                "resolver: MEMORY", f"resolver: {{ dir: '{own}', {resolver} }}"
            )
            self.servers.append(start(config=config, jetstream=True))
            self.folders.append(own)

    def ask(self, subject: str, payload: bytes | str = b"", count: int = 1) -> list[object]:
        """What both answer alike."""
        answers = self.asked(subject, payload, count)
        assert answers[0] == answers[1]
        return answers[0]

    def asked(self, subject: str, payload: bytes | str = b"", count: int = 1) -> list[list[object]]:
        data = payload if isinstance(payload, bytes) else payload.encode()
        answers = []
        for server in self.servers:
            with Client(server, SYSTEM) as client:
                client.send(f"SUB in 1\r\nPUB {subject} in {len(data)}\r\n".encode())
                client.send(data + b"\r\n")
                answers.append([said(client.message()) for _ in range(count)])
        return answers

    def update(self, text: str) -> object:
        (answer,) = self.ask("$SYS.REQ.CLAIMS.UPDATE", text)
        return answer


def said(frame: Frame) -> object:
    """An answer without what differs between any two servers."""
    if not frame.payload.startswith(b"{"):
        return (frame.header, frame.payload)
    answer: dict[str, Any] = json.loads(frame.payload)
    for name in ("id", "seq", "time", "host"):
        answer.get("server", {}).pop(name, None)
    return list(answer.items())


@pytest.fixture(scope="module")
def pair(module_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("full")
    return Pair(module_servers, folder, "type: full, allow_delete: true")


def deletion(*accounts: object, by: Signer | None = None, sub: str = "") -> str:
    signer = by or OPERATOR
    return token(signer, sub or signer.public, "generic", {"accounts": list(accounts)})


def test_an_account_comes_is_asked_for_and_goes(pair: Pair) -> None:
    account = Account(OPERATOR)
    user = User(account)
    for server in pair.servers:
        with Client(server, user) as client:
            assert client.said[-1].verb == EOF
    assert "jwt updated" in str(pair.update(account.token))
    for server, folder in zip(pair.servers, pair.folders, strict=True):
        assert (folder / f"{account.public}.jwt").read_text() == account.token
        with Client(server, user) as client:
            assert client.said[-1].verb == "INFO"
    (found,) = pair.ask(f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.LOOKUP")
    assert found == (b"", account.token.encode())
    pair.ask(f"$SYS.REQ.ACCOUNT.{Account(OPERATOR).public}.CLAIMS.LOOKUP")
    pair.ask("$SYS.REQ.CLAIMS.LIST")
    shown = []
    for server in pair.servers:
        with Client(server, user) as client:
            with Client(server, SYSTEM) as asker:
                text = deletion(account.public)
                asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.DELETE in {len(text)}\r\n".encode())
                asker.send(text.encode() + b"\r\n")
                answer = said(asker.message())
            shown.append([answer, [frame.shown() for frame in client.until(EOF)]])
        with Client(server, user) as client:
            assert client.said[-1].verb == EOF
    assert shown[0] == shown[1]
    for folder in pair.folders:
        assert (folder / f"{account.public}.jwt.deleted").exists()
        assert not (folder / f"{account.public}.jwt").exists()


def test_a_restart_finds_what_was_brought(pair: Pair) -> None:
    account = Account(OPERATOR)
    pair.update(account.token)
    for server in pair.servers:
        server.restart()
        with Client(server, User(account)) as client:
            assert client.said[-1].verb == "INFO"


def test_packs(pair: Pair) -> None:
    count = len(list(pair.folders[0].glob("*.jwt")))
    answers = pair.asked("$SYS.REQ.CLAIMS.PACK", b"x" * 32, count + 1)
    assert sorted(map(str, answers[0])) == sorted(map(str, answers[1]))
    assert answers[0][-1] == (b"", b"")
    digest = 0
    for path in pair.folders[0].glob("*.jwt"):
        digest ^= int.from_bytes(hashlib.sha256(path.read_bytes()).digest(), "big")
    assert pair.ask("$SYS.REQ.CLAIMS.PACK", digest.to_bytes(32, "big")) == [(b"", b"")]


ACCOUNT = Account(OPERATOR)
WRONG: dict[str, tuple[str, str]] = {
    "not his own": (Account(OPERATOR).token, ACCOUNT.public),
    "a user's": (User(ACCOUNT).token, ACCOUNT.public),
    "a bad limit": (ACCOUNT.made(limits={**ACCOUNT_LIMITS, "tiered_limits": {"": {}}}), ""),
    "a bad mapping": (ACCOUNT.made(mappings={"a": [{"subject": "b", "weight": 101}]}), ""),
}


@pytest.mark.parametrize("which", WRONG)
def test_updates_that_are_refused(pair: Pair, which: str) -> None:
    text, account = WRONG[which]
    for subject in (
        f"$SYS.REQ.ACCOUNT.{account or ACCOUNT.public}.CLAIMS.UPDATE",
        f"$SYS.ACCOUNT.{account or ACCOUNT.public}.CLAIMS.UPDATE",
        *([] if account and which == "not his own" else ["$SYS.REQ.CLAIMS.UPDATE"]),
    ):
        (answer,) = pair.ask(subject, text)
        assert "'code', 500" in str(answer) or "'code': 500" in str(answer)


def test_what_jsserver_alone_refuses(pair: Pair) -> None:
    """nats-server keeps tokens of foreign operators, and older ones in place of newer ones."""
    known = Account(OPERATOR)
    pair.update(known.token)
    foreign, older = Account(Operator()).token, known.made(iat=NOW - 1000, name="old")
    for text, why in ((foreign, "not signed by a trusted operator"), (older, "a newer jwt")):
        ours, _ = pair.asked("$SYS.REQ.CLAIMS.UPDATE", text)
        assert why in str(ours) and "500" in str(ours)
    folder = pair.folders[0]
    assert (folder / f"{known.public}.jwt").read_text() == known.token


def test_bytes_that_are_no_token(pair: Pair) -> None:
    for payload in (b"", b"x", b"\xff.\xfe.\xfd", b"a" * (1 << 20), b"[" * 100_000):
        for subject in (
            "$SYS.REQ.CLAIMS.UPDATE",
            "$SYS.REQ.CLAIMS.DELETE",
            f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.UPDATE",
        ):
            for answer in pair.asked(subject, payload):
                assert "error" in str(answer)


DELETIONS: dict[str, Callable[[], str]] = {
    "by an account": lambda: deletion(ACCOUNT.public, by=ACCOUNT),
    "by a foreign operator": lambda: deletion(ACCOUNT.public, by=Signer(PREFIX_OPERATOR)),
    "for another": lambda: deletion(ACCOUNT.public, sub=ACCOUNT.public),
    "of no account": lambda: deletion(User(ACCOUNT).public),
    "of a number": lambda: deletion(1),
    "of the system account": lambda: deletion(OPERATOR.sys.public),
    "without a list": lambda: token(OPERATOR, OPERATOR.public, "generic", {"accounts": "x"}),
    "with nothing": lambda: token(OPERATOR, OPERATOR.public, "generic", {}),
    "of a stranger": lambda: deletion(Account(OPERATOR).public),
    "by a signing key": lambda: deletion(by=OPERATOR.signing),
}


@pytest.mark.parametrize("which", DELETIONS)
def test_deletions(pair: Pair, which: str) -> None:
    pair.ask("$SYS.REQ.CLAIMS.DELETE", DELETIONS[which]())


# ---- changes for those who are there

KEY, ROLE = Signer(PREFIX_ACCOUNT), Signer(PREFIX_ACCOUNT)


def role(**template: object) -> dict[str, object]:
    body = {**UNLIMITED, **template}
    return {"kind": "user_scope", "key": ROLE.public, "role": "r", "template": body}


def watched(
    pair: Pair, account: Account, users: list[User], change: str
) -> tuple[list[list[Any]], list[list[Any]]]:
    """What users hear who are connected while their account changes, of both servers."""
    pair.update(account.token)
    heard: list[list[list[Any]]] = []
    for server in pair.servers:
        clients = [Client(server, user) for user in users]
        for client in clients:
            client.send(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
            client.sync()
        with Client(server, SYSTEM) as asker:
            asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(change)}\r\n".encode())
            asker.send(change.encode() + b"\r\n")
            assert b"jwt updated" in asker.message().payload
        time.sleep(0.1)  # clients that are cut have heard of it
        heard.append([])
        for client in clients:
            client.send(b"PING\r\n")
            frames = [frame.shown() for frame in client.until("PONG")]
            heard[-1].append(frames)
            client.close()
    return heard[0], heard[1]


def test_changes_while_users_are_there(pair: Pair) -> None:
    def changed(
        users: Callable[[Account], list[User]], change: dict[str, Any], **nats: Any
    ) -> None:
        account = Account(OPERATOR, **nats)
        account.token = account.made(iat=NOW - 10)
        known = users(account)
        for key, value in list(change.items()):
            if callable(value):
                change[key] = value(known)
        ours, theirs = watched(pair, account, known, account.made(**change))
        if "signing_keys" in change:  # whose key is gone has limits of 0, too, for a moment
            theirs = [[f for f in said if b"maximum subscriptions" not in f[1]] for said in theirs]
        assert ours == theirs, change

    def one(account: Account) -> list[User]:
        return [User(account), User(account)]

    def kinds(account: Account) -> list[User]:
        return [
            *(User(account), User(account, KEY, **UNLIMITED), User(account, ROLE)),
            *(User(account, bearer_token=True), User(account, claims={"iat": NOW - 5000})),
        ]

    keys: dict[str, Any] = {"signing_keys": [KEY.public, role()]}
    changed(one, {"name": "other"})
    changed(one, {"revocations": lambda users: {users[0].public: NOW + 100_000}})
    changed(kinds, {"revocations": {"*": NOW - 1000}}, **keys)
    changed(kinds, {"signing_keys": [role()]}, **keys)
    changed(kinds, {"signing_keys": [KEY.public]}, **keys)
    changed(kinds, {"signing_keys": [KEY.public, role(payload=5)]}, **keys)
    changed(kinds, {"limits": {**ACCOUNT_LIMITS, "disallow_bearer": True}}, **keys)
    changed(kinds, {"limits": {**ACCOUNT_LIMITS, "conn": 2}}, **keys)
    changed(one, {"limits": {**ACCOUNT_LIMITS, "subs": 2}})
    changed(kinds, {"default_permissions": {"sub": {"deny": ["b"]}}}, **keys)
    changed(kinds, {"default_permissions": {"sub": {"allow": ["a", "c"]}}}, **keys)
    changed(one, {"default_permissions": {}}, default_permissions={"sub": {"deny": ["c"]}})
    changed(one, {"limits": {**ACCOUNT_LIMITS, "subs": 5, "payload": 10}})


def test_limits_of_jetstream_change(pair: Pair) -> None:
    account = Account(OPERATOR)
    account.token = account.made(iat=NOW - 10)
    pair.update(account.token)
    user = User(account)

    def stream(name: str) -> list[object]:
        answers = []
        for server in pair.servers:
            with Client(server, user) as client:
                body = json.dumps({"name": name}).encode()
                subject = f"$JS.API.STREAM.CREATE.{name}"
                client.send(f"SUB in 1\r\nPUB {subject} in {len(body)}\r\n".encode() + body)
                client.send(b"\r\n")
                frame = client.message()
                answers.append(json.loads(frame.payload).get("error") if frame.payload else frame)
        assert answers[0] == answers[1]
        return answers

    stream("A")
    for at, limits in enumerate(({"streams": 1}, {"streams": 2}, {"disk_storage": 0})):
        more = {**ACCOUNT_LIMITS, "disk_storage": -1, "mem_storage": 0, "consumer": -1, **limits}
        pair.update(account.made(iat=NOW - 9 + at, limits=more))
        for name in ("A", "B", "C"):
            stream(name)


# ---- other resolvers


def test_a_cache_keeps_what_it_runs(servers: Servers, tmp_path: Path) -> None:
    pair = Pair(servers, tmp_path, "type: cache, ttl: '1h'")
    account = Account(OPERATOR)
    assert "skipped" in str(pair.update(account.token))
    (answer,) = pair.ask(f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE", account.token)
    assert "skipped" in str(answer)
    assert "updated" in str(pair.update(OPERATOR.sys.made()))
    pair.ask("$SYS.REQ.CLAIMS.UPDATE", "x")
    pair.ask(f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE", "x")


def test_a_cache_asks_for_what_it_has_not(servers: Servers, tmp_path: Path) -> None:
    pair = Pair(servers, tmp_path, "type: cache")
    account = Account(OPERATOR)
    for server, folder in zip(pair.servers, pair.folders, strict=True):
        with Client(server, SYSTEM) as keeper:
            keeper.send(f"SUB $SYS.REQ.ACCOUNT.{account.public}.CLAIMS.LOOKUP 1\r\n".encode())
            keeper.sync()
            client = Client.__new__(Client)
            user = User(account)
            super(Client, client).__init__(server.port)
            nonce = str(client.frame().json["nonce"])
            options = {"jwt": user.token, "sig": user.signature(nonce), "verbose": False}
            client.send(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
            asked = keeper.message()
            answer = account.token.encode()
            keeper.send(f"PUB {asked.reply} {len(answer)}\r\n".encode() + answer + b"\r\n")
            assert client.until("PONG")[-1].verb == "PONG"
            client.close()
        assert (folder / f"{account.public}.jwt").exists()


def test_without_its_token_the_system_account_takes_it(servers: Servers, tmp_path: Path) -> None:
    for at, start in enumerate((servers.under_test, servers.peer)):
        config = f"operator: {OPERATOR.token}\nresolver: {{type: full, dir: '{tmp_path}/{at}'}}"
        server = start(config=config)
        server.wait_log("Using bootstrapping system account")
        account = Account(OPERATOR)
        with Client(server, SYSTEM) as asker:
            for text in (OPERATOR.sys.token, account.token):
                asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(text)}\r\n".encode())
                asker.send(text.encode() + b"\r\n")
                assert b"jwt updated" in asker.message().payload
        with Client(server, User(account)) as client, Client(server, SYSTEM) as again:
            assert client.said[-1].verb == again.said[-1].verb == "INFO"
        server.restart()
        assert "bootstrapping" not in server.log()


def test_a_foreign_account_asks_in_vain(pair: Pair) -> None:
    account = Account(OPERATOR)
    pair.update(account.token)
    for server in pair.servers:
        with Client(server, User(account)) as client:
            for name in ("UPDATE", "LIST", "DELETE", "PACK"):
                client.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.{name} in 0\r\n\r\n".encode())
                assert client.message().status == "503"


def test_directories_that_are_refused(servers: Servers, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    own = f"dir: '{tmp_path / 'own'}'"  # nats-server reads all that is there
    (tmp_path / "own").mkdir()
    for options in (
        "type: full",
        f"type: full, {own}, ttl: '1h'",
        f"type: full, {own}, hard_delete: true",
        f"type: cache, {own}, interval: '1h'",
        f"type: cache, {own}, allow_delete: true",
        f"type: cache, {own}, hard_delete: true",
        f"type: other, {own}",
        f"type: full, dir: '{file}'",
    ):
        shown = []
        config = f"operator: {OPERATOR.token}\nresolver: {{ {options} }}"
        for start in (servers.under_test, servers.peer):
            with pytest.raises(Exception) as failure:
                start(config=config)
            lines = [line for line in str(failure.value).splitlines() if "server.conf:" in line]
            shown.append({line.partition("server.conf:")[2].partition(": ")[2] for line in lines})
        assert shown[0] and shown[0] <= shown[1], options
