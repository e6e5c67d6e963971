"""What accounts share by their tokens: imports, exports, activations and mappings, of both servers
alike."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jsserver.jwt.tokens import decode
from jsserver.text.identity import PREFIX_ACCOUNT
from tests.client.raw import Frame
from tests.client.tokens import Client, configured
from tests.jwts import ACCOUNT_LIMITS, Account, Operator, User, token
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OPERATOR = Operator()
SYSTEM = User(OPERATOR.sys)
NOW = int(time.time())
KEY = Signer(PREFIX_ACCOUNT)
EXPORTER, IMPORTER = Account(OPERATOR, name="E"), Account(OPERATOR, name="I")


def granted(subject: str, kind: str, by: Signer = EXPORTER, **more: object) -> str:
    sub = str(more.pop("sub", IMPORTER.public))
    nats = {"subject": subject, "kind": kind}
    if by is KEY:
        nats["issuer_account"] = EXPORTER.public
    return token(by, sub, "activation", nats, **more)


def stream(subject: str, **more: object) -> dict[str, object]:
    return {"subject": subject, "type": "stream", **more}


def service(subject: str, **more: object) -> dict[str, object]:
    return {"subject": subject, "type": "service", **more}


EXPORTS = [
    *(stream("open.>"), stream("shut.>", token_req=True), service("ask"), service("ask.*")),
    *(service("many", response_type="Stream"), service("hidden", token_req=True)),
    stream("of.*", account_token_position=2),
]
EXPORTER.nats |= {"exports": EXPORTS, "signing_keys": [KEY.public]}
IMPORTS = [
    *(stream("open.a"), stream("open.b.*", local_subject="mine.*"), stream("open.c", to="pre")),
    stream("shut.good", token=granted("shut.good", "stream")),
    stream("shut.key", token=granted("shut.>", "stream", KEY)),
    stream("shut.none"),
    stream("shut.over", token=granted("shut.over", "stream", exp=NOW - 10)),
    stream(f"of.{IMPORTER.public}", local_subject="own"),
    stream(f"of.{OPERATOR.sys.public}", local_subject="others"),
    *(service("ask", local_subject="please"), service("ask.*", local_subject="please.*")),
    *(service("many", share=True), service("hidden"), stream("never.exported")),
]
IMPORTER.nats |= {
    "imports": [{**i, "account": EXPORTER.public} for i in IMPORTS],
    "mappings": {"from.*": [{"subject": "to.$1"}], "lost": [{"subject": "found", "weight": 100}]},
}
SUBJECTS = [
    *("open.a", "open.b.x", "open.c", "open.d", "shut.good", "shut.key", "shut.none"),
    *("shut.over", f"of.{IMPORTER.public}", f"of.{OPERATOR.sys.public}"),
    "never.exported",
]


@pytest.fixture
def pair(servers: Servers, tmp_path: Path) -> Iterator[list[Server]]:
    EXPORTER.token = EXPORTER.made(iat=NOW - 100)
    IMPORTER.token = IMPORTER.made(iat=NOW - 100)
    made = []
    for at, start in enumerate((servers.under_test, servers.peer)):
        config = configured(OPERATOR, [EXPORTER, IMPORTER]).replace(
            "resolver: MEMORY", f"resolver: {{ type: full, dir: '{tmp_path}/{at}' }}"
        )
        made.append(start(config=config))
    yield made


def named(frame: Frame) -> tuple[str, bytes]:
    return frame.subject, frame.payload


class Conversation:
    """A user of each account, in the order in which a server hears of them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.inside = Client(server, User(IMPORTER))
        self.outside = Client(server, User(EXPORTER))
        self.inside.send(b"SUB > 1\r\n")
        self.inside.sync()

    def heard(self) -> list[tuple[str, bytes]]:
        """What the importer hears of what the exporter sends."""
        for subject in SUBJECTS:
            self.outside.send(f"PUB {subject} 1\r\nx\r\n".encode())
        self.outside.sync()
        return sorted(named(frame) for frame in self.inside.sync() if frame.verb == "MSG")

    def asked(self) -> list[object]:
        """What becomes of requests of the importer."""
        found: list[object] = []
        self.outside.send(b"SUB ask 1\r\nSUB ask.* 2\r\nSUB many 3\r\nSUB hidden 4\r\n")
        self.outside.sync()
        with Client(self.server, User(IMPORTER)) as client:
            client.send(b"SUB in.* 1\r\n")
            client.sync()
            for at, subject in enumerate(("please", "please.x", "many", "hidden", "ask")):
                client.send(f"PUB {subject} in.{at} 1\r\nq\r\n".encode())
                client.sync()
                for frame in self.outside.sync():
                    found.append((frame.subject, frame.payload, bool(frame.reply)))
                    for _ in range(2):
                        self.outside.send(f"PUB {frame.reply} 1\r\na\r\n".encode())
                self.outside.sync()
                found.append([(f.subject, f.payload, f.status) for f in client.sync()])
        self.outside.send(b"UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\nUNSUB 4\r\n")
        self.outside.sync()
        return found

    def update(self, text: str) -> None:
        with Client(self.server, SYSTEM) as asker:
            asker.send(f"SUB in 1\r\nPUB $SYS.REQ.CLAIMS.UPDATE in {len(text)}\r\n".encode())
            asker.send(text.encode() + b"\r\n")
            assert b"jwt updated" in asker.message().payload

    def close(self) -> None:
        self.inside.close()
        self.outside.close()


def test_imports_exports_and_activations(pair: list[Server]) -> None:
    shown = []
    for server in pair:
        talk = Conversation(server)
        said: list[object] = [talk.heard(), talk.asked()]
        # The exporter takes back what it exports, then a token; the importer what it imports.
        revoked = [
            {**e, "revocations": {IMPORTER.public: NOW + 100_000}} if e.get("token_req") else e
            for e in EXPORTS
        ]
        talk.update(EXPORTER.made(iat=NOW - 90, exports=EXPORTS[1:]))
        said.append(talk.heard())
        talk.update(EXPORTER.made(iat=NOW - 80))
        again = talk.heard()  # nats-server's importers hear of it with their own next change
        assert server is not pair[0] or again == said[0]
        talk.update(IMPORTER.made(iat=NOW - 75))
        said += [talk.heard(), talk.asked()]
        talk.update(EXPORTER.made(iat=NOW - 70, exports=revoked))
        said.append(talk.heard())
        talk.update(IMPORTER.made(iat=NOW - 60, imports=[]))
        said += [talk.heard(), talk.asked()]
        talk.close()
        shown.append(said)
    assert shown[0] == shown[1]
    assert len(shown[0][0]) == 6, "what is let through at first"  # type: ignore[arg-type]


def test_an_activation_that_ends_while_it_is_used(pair: list[Server]) -> None:
    shown = []
    for server in pair:
        ends = int(time.time()) + 3
        short = stream("shut.short", token=granted("shut.short", "stream", exp=ends))
        talk = Conversation(server)
        made = [{**short, "account": EXPORTER.public}]
        talk.update(IMPORTER.made(iat=NOW - 50, imports=made))
        heard = []
        for pause in (0, 3.5):
            time.sleep(pause)  # until the token has ended
            talk.outside.send(b"PUB shut.short 1\r\nx\r\n")
            talk.outside.sync()
            heard.append([named(frame) for frame in talk.inside.sync() if frame.verb == "MSG"])
        talk.close()
        shown.append(heard)
    assert shown[0] == shown[1] == [[("shut.short", b"x")], []]


def test_a_revocation_is_of_one_export(pair: list[Server]) -> None:
    exports = [stream("shut.>", token_req=True), stream("closed.>", token_req=True)]
    imports = [stream(s, token=granted(s, "stream")) for s in ("shut.a", "closed.a")]
    issued = decode(str(imports[1]["token"])).iat
    imported = [{**i, "account": EXPORTER.public} for i in imports]
    both = ["shut.a", "closed.a"]
    shown = []
    for server in pair:
        talk = Conversation(server)
        heard = []
        revocations = [{}, {IMPORTER.public: NOW + 100_000}, {"*": issued}, {"*": issued - 1}]
        for at, revoked in enumerate(revocations):
            more = {"revocations": revoked} if revoked else {}
            changed = [exports[0], {**exports[1], **more}]
            talk.update(EXPORTER.made(iat=NOW - 60 + at, exports=changed))
            # nats-server's importers hear of it with their own next change
            talk.update(IMPORTER.made(iat=NOW - 60 + at, imports=imported, tags=[f"t{at}"]))
            talk.outside.send(b"PUB shut.a 0\r\n\r\nPUB closed.a 0\r\n\r\n")
            talk.outside.sync()
            heard.append([frame.subject for frame in talk.inside.sync() if frame.verb == "MSG"])
        talk.close()
        shown.append(heard)
    assert shown[0] == shown[1] == [both, ["shut.a"], ["shut.a"], both]


def test_mappings(pair: list[Server]) -> None:
    shown = []
    for server in pair:
        talk = Conversation(server)
        heard = []
        changes: list[dict[str, Any]] = [{}, {"mappings": {"lost": [{"subject": "other"}]}}]
        for change in changes:
            if change:
                talk.update(IMPORTER.made(iat=NOW - 40, **change))
            with Client(server, User(IMPORTER)) as client:
                client.send(b"PUB from.x 1\r\na\r\nPUB lost 1\r\nb\r\nPUB plain 1\r\nc\r\n")
                client.sync()
            heard.append([named(frame) for frame in talk.inside.sync() if frame.verb == "MSG"])
        talk.close()
        shown.append(heard)
    assert shown[0] == shown[1]


def test_accounts_that_import_of_each_other(servers: Servers) -> None:
    first, second = Account(OPERATOR), Account(OPERATOR)
    for one, other in ((first, second), (second, first)):
        one.token = one.made(
            exports=[stream(f"{one.public}.>")],
            imports=[{**stream(f"{other.public}.a"), "account": other.public}],
            limits=ACCOUNT_LIMITS,
        )
    config = configured(OPERATOR, [first, second])
    for start in (servers.under_test, servers.peer):
        server = start(config=config)
        with Client(server, User(first)) as a, Client(server, User(second)) as b:
            for client in (a, b):
                client.send(b"SUB > 1\r\n")
                client.sync()
            a.send(f"PUB {first.public}.a 0\r\n\r\n".encode())
            assert b.message().subject == f"{first.public}.a"
            b.send(f"PUB {second.public}.a 0\r\n\r\n".encode())
            assert {a.message().subject, a.message().subject} == {
                f"{first.public}.a",
                f"{second.public}.a",
            }
