"""What a stream publishes again passes between accounts as its account's clients' messages do, but
asks for nothing there."""

import json

import pytest

from tests.client.raw import Frame, RawApp
from tests.servers import Server, Servers

CONFIG = """
server_name: one
jetstream {}
accounts {
    A {
        jetstream: enabled
        users: [{ user: a, password: x }]
        exports: [{ stream: "out.>" }]
        imports: [
            { service: { account: B, subject: svc }, to: out.svc }
            { service: { account: C, subject: "$JS.API.>" }, to: "out.api.>" }
        ]
        mappings: { "out.m": "out.n" }
    }
    B {
        users: [{ user: b, password: x }]
        exports: [{ service: svc }, { stream: "out.>" }]
        imports: [{ stream: { account: A, subject: "out.>" }, prefix: froma }]
    }
    C {
        jetstream: enabled
        users: [{ user: c, password: x }]
        exports: [{ service: "$JS.API.>" }]
    }
}
"""
STREAM = {"name": "S", "subjects": ["s.>"], "republish": {"src": "s.>", "dest": "out.>"}}


def connect(server: Server, user: str) -> RawApp:
    options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
    return RawApp(server.port, options=json.dumps({**options, "user": user, "pass": "x"}).encode())


def shown(frames: list[Frame]) -> list[tuple[str, str, list[str], bytes]]:
    return sorted(
        (
            f.subject,
            f.reply,
            [x for x in f.header.decode().split("\r\n") if "Time" not in x],
            f.payload,
        )
        for f in frames
    )


def heard(server: Server) -> list[object]:
    """What each account hears of messages that are stored in A; its last one ends it."""
    lines: list[object] = []
    with connect(server, "a") as client, connect(server, "a") as a, connect(server, "b") as b:
        assert "error" not in client.api("STREAM.CREATE.S", STREAM)
        for listener, subjects in ((a, ("out.>", "out.n")), (b, ("froma.>", "svc"))):
            for subject in subjects:
                listener.subscribe(subject)
            listener.sync()
        for token in ("x", "svc", "m", "n"):
            client.request(f"s.{token}", b"data")
            client.request("s.end", b"end")
            for name, listener in (("a", a), ("b", b)):
                frames = [listener.message()]
                while frames[-1].payload != b"end":
                    frames.append(listener.message())
                lines.append((token, name, shown(frames)))
    return lines


@pytest.mark.usefixtures("peer_present")
def test_other_accounts_hear_what_is_exported(servers: Servers) -> None:
    ours, theirs = (
        heard(start(config=CONFIG, jetstream=True)) for start in (servers.under_test, servers.peer)
    )
    assert ours == theirs


def test_another_accounts_api_is_not_asked(servers: Servers) -> None:
    server = servers.under_test(config=CONFIG, jetstream=True)
    with connect(server, "a") as a, connect(server, "c") as c:
        assert "error" not in a.api("STREAM.CREATE.S", STREAM)
        assert "error" not in c.api("STREAM.CREATE.V", {"name": "V", "subjects": ["v"]})
        answer = json.loads(a.request("out.api.STREAM.NAMES").payload)
        assert answer["streams"] == ["V"]
        a.request("s.api.STREAM.DELETE.V")
        a.request("s.api.STREAM.CREATE.NEW", b'{"name":"NEW","subjects":["new"]}')
        a.sync()
        assert c.api("STREAM.NAMES")["streams"] == ["V"]
