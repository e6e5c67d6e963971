"""What somebody might try who may do little, and what happens in the middle of something else: both
servers do the same, and the one under test never lets through more.
"""

import contextlib
import json
import threading
import time
from functools import partial
from typing import Any

import pytest

from tests.client.raw import EOF, RawApp, RawClient, TimedOut
from tests.client.refusals import closed_reason, is_refused, outcome
from tests.client.tls import page
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
            said = [frame.shown() for frame in client.sync() if frame.verb != "INFO"]
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


def has_clients(server: Server, count: int, query: str = "") -> bool:
    return bool(page(server, f"/connz{query}")["num_connections"] == count)


def test_two_logins_at_once_where_one_has_room(pair: list[Server]) -> None:
    for server in pair:
        for _ in range(3):
            wait_until(partial(has_clients, server, 0, "?acc=ONE"), "nobody is there")
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
            asked_again = [(f.subject, f.payload) for f in service.sync()]
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


# ---- in the middle of something


def test_who_leaves_while_a_callout_thinks(servers: Servers) -> None:
    """A client that has gone is not let in, and the next one is asked about."""
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
            wait_until(partial(has_clients, server, 1), "only the callout")
    finally:
        made.close()


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
