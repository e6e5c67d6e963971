"""What must not come through once somebody is in, case by case: both servers refuse alike, and the
server under test lets nothing more through.

Who must not come in at all is in test_must_refuse.py.
"""

import json
import time
from collections.abc import Sequence

import pytest

from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
accounts {
    A {
        users: [
            { user: a, password: x }
            { user: denied, password: x, permissions: {
                publish: { allow: ">", deny: ["p.no.>", "exact"] }
                subscribe: { allow: ">", deny: ["s.no", "q.* grp", "w.*.x"] } } }
            { user: starred, password: x, permissions: {
                publish: { allow: ["p.*", "x.*.z", "svc"], deny: "p.a" }
                subscribe: { allow: ["s.* v1.>", "inbox.*"], deny: "s.a" } } }
            { user: once, password: x
              permissions: { subscribe: "ask.>", allow_responses: { max: 1, expires: "300ms" } } }
            { user: twice, password: x, permissions: { publish: { deny: "r.no" },
              subscribe: "ask.>", allow_responses: { max: 2, expires: "1m" } } }
        ]
        exports: [
            { service: svc, accounts: [B] }
            { service: "of.*", account_token_position: 2 }
            { stream: "news.>", accounts: [B] }
        ]
    }
    B {
        users: [{ user: b, password: x }
                { user: shy, password: x, permissions: { publish: { deny: "svc" },
                  subscribe: { allow: "inbox.>" } } }]
        imports: [
            { service: { account: A, subject: svc } }
            { service: { account: A, subject: of.B }, to: own }
            { stream: { account: A, subject: "news.>" }, prefix: got }
        ]
    }
    N { users: [{ user: n, password: x }] }
    SYS { users: [{ user: s, password: x }] }
}
system_account: SYS
"""


@pytest.fixture(scope="module")
def pair(module_servers: Servers) -> list[Server]:
    return [module_servers.under_test(config=CONFIG), module_servers.peer(config=CONFIG)]


def client(server: Server, user: str) -> RawApp:
    options = {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": "x"}
    return RawApp(server.port, options=json.dumps(options).encode())


def shown(frames: Sequence[Frame]) -> list[str]:
    """In any order; without what the servers say by themselves."""
    return sorted(str(frame.shown()) for frame in frames if frame.verb != "PING")


PUBLISH = (
    *("p.no.a", "p.no.a.b", "exact", "p.a", "p.b", "p.no", "x.y.z", "x.y.z.z", "x.z", "svc"),
    *("exact.a", "p.*", "p.>", "*.a", "$SYS.a", "p.no.>", "s.no"),
)
SUBSCRIBE = (
    *(
        "s.no",
        "s.*",
        "s.>",
        ">",
        "*.no",
        "q.a",
        "q.a grp",
        "q.a other",
        "q.* grp",
        "q.> grp",
        "> grp",
    ),
    *("w.a.x", "w.*.x", "w.*.*", "w.a.*", "s.a v1.a", "s.b v1.a", "s.b v1", "s.b", "s.b v2.a"),
    *("inbox.a", "inbox.*", "inbox.>", "inbox", "s.a"),
)


@pytest.mark.parametrize("user", ["denied", "starred", "once", "shy"])
def test_deny_is_stronger_than_allow(pair: list[Server], user: str) -> None:
    """Wildcards, queues, and everything that is neither."""
    found = []
    for server in pair:
        said = []
        with client(server, user) as app:
            for subject in PUBLISH:
                app.send(f"PUB {subject} 0\r\n\r\n".encode())
                said.append((subject, shown(app.sync())))
            for sid, words in enumerate(SUBSCRIBE):
                app.send(f"SUB {words} {sid}\r\n".encode())
                said.append((words, shown(app.sync())))
                app.send(f"UNSUB {sid}\r\n".encode())
        found.append(said)
    for ours, theirs in zip(*found, strict=True):
        assert ours == theirs
    assert any("Violation" in str(answer) for _, answer in found[0])


@pytest.mark.parametrize("words", ["s.>", ">", "s.*", "*.no", "s.> grp", "> other"])
def test_what_is_denied_is_not_delivered(pair: list[Server], words: str) -> None:
    """A wildcard that overlaps with it lets the rest through."""
    heard = []
    for server in pair:
        with client(server, "denied") as app, client(server, "a") as other:
            app.send(f"SUB {words} 1\r\n".encode())
            app.sync()
            for subject in ("s.no", "s.yes", "s.no.a", "w.a.x", "w.a.y"):
                other.send(f"PUB {subject} 1\r\nx\r\n".encode())
            other.sync()
            heard.append(shown(app.sync()))
    assert heard[0] == heard[1]
    assert not any("s.no " in line or "w.a.x" in line for line in map(str, heard[0]))


@pytest.mark.parametrize("user", ["once", "twice"])
def test_answers_beyond_what_is_allowed(pair: list[Server], user: str) -> None:
    told = []
    for server in pair:
        said: list[object] = []
        with client(server, user) as app, client(server, "a") as asker:
            app.subscribe("ask.>")
            asker.subscribe("r.>")
            app.sync()
            asker.sync()

            for reply in ("r.1", "r.no", "ask.loop", "r.late"):
                asker.publish("ask.a", b"q", reply=reply)
                asker.sync()
                app.sync()
                if reply == "r.late":
                    time.sleep(0.5)  # the time to answer runs out
                for subject in (reply, reply, reply, reply + ".x", "r.other"):
                    app.publish(subject, b"x")
                    said.append((subject, shown(app.sync()), shown(asker.sync())))
        told.append(said)
    assert told[0] == told[1]
    assert sum("Violation" in str(line) for line in told[0]) > 8


IMPORTS = {
    "nothing exported": ("", "{ service: { account: X, subject: a } }"),
    "private": ("{ service: a, accounts: [Z] }", "{ service: { account: X, subject: a } }"),
    "private stream": ("{ stream: a, accounts: [Z] }", "{ stream: { account: X, subject: a } }"),
    "a stream as a service": ("{ stream: a }", "{ service: { account: X, subject: a } }"),
    "a service as a stream": ("{ service: a }", "{ stream: { account: X, subject: a } }"),
    "more than is exported": ("{ service: a.b }", "{ service: { account: X, subject: a.* } }"),
    "all of it": ("{ stream: a.* }", '{ stream: { account: X, subject: "a.>" } }'),
    "another's token": (
        "{ service: a.*, account_token_position: 2 }",
        "{ service: { account: X, subject: a.Z } }",
    ),
    "all tokens": (
        "{ service: a.*, account_token_position: 2 }",
        "{ service: { account: X, subject: a.* } }",
    ),
    "of nobody": ("", "{ service: { account: NOPE, subject: a } }"),
    "a circle": (
        "{ service: a }], imports: [{ service: { account: Y, subject: a } }",
        "{ service: { account: X, subject: a } }], exports: [{ service: a }",
    ),
    "a wildcard in a prefix": (
        "{ stream: a }",
        '{ stream: { account: X, subject: a }, prefix: "p.*" }',
    ),
    "a wildcard too many": (
        "{ service: a.* }",
        '{ service: { account: X, subject: a.* }, to: "b.*.*" }',
    ),
    "a wildcard too few": ("{ service: a.* }", "{ service: { account: X, subject: a.* }, to: b }"),
    "a reference to nothing": (
        "{ service: a.* }",
        "{ service: { account: X, subject: a.* }, to: b.$2 }",
    ),
}


@pytest.mark.parametrize("case", IMPORTS)
def test_imports_that_may_not_be(servers: Servers, case: str) -> None:
    exports, imports = IMPORTS[case]
    config = f"accounts {{ X {{ exports: [{exports}] }}, Y {{ imports: [{imports}] }}, Z {{}} }}"
    told = []
    for start in (servers.under_test, servers.peer):
        with pytest.raises(Exception) as failure:
            start(config=config)
        lines = str(failure.value).splitlines()
        told.append([line.partition("server.conf:")[2].partition(": ")[2] for line in lines])
    assert told[0] == told[1]


FORGED = b'NATS/1.0\r\nNats-Request-Info: {"acc":"SYS","user":"root"}\r\n%bA: b\r\n\r\n'


@pytest.mark.parametrize(
    "more", [b"", b'nats-request-info: {"acc":"SYS"}\r\n', b"Nats-Request-Info:\r\n"]
)
@pytest.mark.parametrize("subject", ["svc", "own"])
def test_nobody_says_whom_a_request_is_from(pair: list[Server], subject: str, more: bytes) -> None:
    heard = []
    for server in pair:
        with client(server, "a") as service, client(server, "b") as asker:
            service.subscribe("svc")
            service.subscribe("of.*")
            service.sync()
            asker.publish(subject, b"q", reply=asker.inbox(), header=FORGED % more)
            asker.sync()
            frame = service.message()
            lines = frame.header.split(b"\r\n")
            infos = [line for line in lines if line.startswith(b"Nats-Request-Info:")]
            assert len(infos) == 1 and json.loads(infos[0].partition(b":")[2])["acc"] == "B"
            heard.append([frame.subject, sorted(line for line in lines if line not in infos)])
    assert heard[0] == heard[1]


@pytest.mark.parametrize("user", ["n", "b", "a"])
def test_the_systems_subjects_of_an_account_are_its_own(pair: list[Server], user: str) -> None:
    """Nobody answers but what is offered to all; what happens elsewhere is not heard."""
    subjects = (
        *("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.PING.STATSZ"),
        *("$SYS.REQ.ACCOUNT.A.CONNZ", "$SYS.REQ.ACCOUNT.SYS.INFO", "$SYS.REQ.CLAIMS.LIST"),
        *("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.A.CLAIMS.UPDATE", "$SYS.REQ.USER.AUTH"),
        *("$SYS.DEBUG.SUBSCRIBERS", "$SYS.REQ.SERVER.PING.KICK", "$SYS.REQ.ACCOUNT.PING.CONNS"),
    )
    told = []
    for server in pair:
        with client(server, user) as app, client(server, "s") as system:
            system.subscribe("$SYS.>")
            system.sync()
            said: list[object] = []
            for subject in subjects:
                frame = app.request(subject, b"{}")
                told_of = json.loads(frame.payload) if frame.payload else {}
                said.append([subject, frame.status, list(told_of)])
            app.subscribe("$SYS.>")
            app.sync()
            with client(server, "a"), client(server, "n"):
                pass
            said.append([f.subject for f in app.sync() if f.verb == "MSG"])
            assert not [f for f in system.sync() if f.payload == b"{}"]
            told.append(said)
    for ours, theirs in zip(*told, strict=True):
        assert ours == theirs


def test_subscribers_are_counted(pair: list[Server]) -> None:
    """By the system account's users, of that account."""
    questions = (
        *("foo", "foo.a", "foo.*", ">", "foo.a q", "foo.a r", "foo.* q", "*", "", " ", "foo.a  q"),
        *("foo.a q q", "foo.>", "a b c", "bar"),
    )
    told = []
    for server in pair:
        with client(server, "s") as app, client(server, "s") as other:
            for words in ("foo", "foo.a", "foo.*", "foo.a q", "foo.a q", "foo.* q", "foo.b r"):
                other.subscribe(*words.split())
            other.sync()
            told.append(
                [app.request("$SYS.DEBUG.SUBSCRIBERS", q.encode()).payload for q in questions]
            )
    assert dict(zip(questions, told[0], strict=True)) == dict(zip(questions, told[1], strict=True))
