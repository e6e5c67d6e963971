"""JetStream of several accounts: limits, answers and directories, the same of both servers."""

import json
import re
from base64 import b64decode
from typing import Any

import pytest

from tests.client.raw import RawApp, header_block
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = """
server_name: one
jetstream {{ domain: hub, max_mem: 1MB, max_file: 10MB }}
accounts {{
    A {{ users: [{{ user: a, password: x }}], jetstream: {limits} }}
    B {{ users: [{{ user: b, password: x }}], jetstream: enabled }}
    N {{ users: [{{ user: n, password: x }}] }}
    D {{ users: [{{ user: d, password: x }}], jetstream: disabled }}
    S {{ users: [{{ user: s, password: x }}] }}
}}
system_account: S
"""


def log_in(server: Server, user: str) -> RawApp:
    options = {"verbose": False, "headers": True, "no_responders": True}
    return RawApp(server.port, options=json.dumps({**options, "user": user, "pass": "x"}).encode())


def pair(servers: Servers, limits: str = "enabled") -> list[Server]:
    config = CONFIG.format(limits=limits)
    starts = (servers.under_test, servers.peer)
    return [start(config=config, jetstream=True, monitor=True) for start in starts]


def told(answer: bytes) -> object:
    """An answer without its times and made-up names."""
    text = re.sub(r'"\d{4}-\d\d-\d\dT[^"]*"', '"T"', answer.decode())
    text = re.sub(r'"name":"[A-Za-z0-9]{8}"', '"name":"made up"', text)
    return json.loads(text) if text else text


def ask(app: RawApp, subject: str, body: object = None) -> Any:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    answer = app.request(subject, data)
    return [answer.status, told(answer.payload)]


def stream(name: str, **config: object) -> tuple[str, object]:
    return f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [name], **config}


def update(name: str, **config: object) -> tuple[str, object]:
    return f"$JS.API.STREAM.UPDATE.{name}", {"name": name, "subjects": [name], **config}


def consumer(of: str, name: str, **config: object) -> tuple[str, object]:
    body = {"stream_name": of, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
    return f"$JS.API.CONSUMER.CREATE.{of}.{name}", body


INFO = ("$JS.API.INFO", None)
MEMORY = {"storage": "memory"}
CASES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "streams": (
        "{ max_streams: 2 }",
        [
            *(stream(name) for name in ("P", "Q", "R")),
            stream("P"),
            ("$JS.API.STREAM.DELETE.P", None),
            stream("R"),
            stream("P", **MEMORY),
        ],
    ),
    "no streams": ("{ max_streams: 0 }", [stream("P")]),
    "consumers": (
        "{ max_consumers: 2 }",
        [
            stream("P"),
            stream("Q"),
            *(consumer("P", name) for name in ("c", "d", "e")),
            consumer("Q", "c"),
            consumer("P", "c", description="x"),
            ("$JS.API.CONSUMER.DELETE.P.c", None),
            consumer("P", "e"),
            ("$JS.API.CONSUMER.CREATE.Q", {"stream_name": "Q", "config": {}}),
            stream("R", max_consumers=3),
            stream("R", max_consumers=2),
        ],
    ),
    "bytes of files": (
        "{ max_file: 2000 }",
        [
            stream("P", max_bytes=2001),
            stream("P", max_bytes=2000),
            stream("Q", max_bytes=1),
            stream("Q"),
            update("P", max_bytes=1500),
            stream("Q", max_bytes=501),
            stream("Q", max_bytes=499),
            update("Q", max_bytes=600),
            stream("M", max_bytes=5000, **MEMORY),
        ],
    ),
    "bytes of memory": (
        "{ max_mem: 2000 }",
        [
            stream("P", max_bytes=2001, **MEMORY),
            stream("P", max_bytes=1999, **MEMORY),
            stream("Q", max_bytes=2, **MEMORY),
            stream("F", max_bytes=5000),
        ],
    ),
    "no memory": ("{ max_mem: 0 }", [stream("P", **MEMORY), stream("P"), ("P", b"x")]),
    "files are full": (
        "{ max_file: 1000 }",
        [stream("P"), stream("Q"), *([("P", b"x" * 300)] * 4), ("Q", b"x" * 300), ("Q", b"")],
    ),
    "memory is full": (
        "{ max_mem: 1000 }",
        [
            stream("P", **MEMORY),
            stream("Q"),
            *([("P", b"x" * 300)] * 4),
            ("Q", b"x" * 300),
            ("$JS.API.STREAM.PURGE.P", None),
            ("P", b"x" * 300),
        ],
    ),
    "bytes of a stream": (
        "{ memory_max_stream_bytes: 100, store_max_stream_bytes: 200 }",
        [
            stream("P"),
            stream("P", max_bytes=201),
            stream("P", max_bytes=200),
            stream("Q", **MEMORY),
            stream("Q", max_bytes=101, **MEMORY),
            stream("Q", max_bytes=100, **MEMORY),
            update("P", max_bytes=201),
            update("P"),
        ],
    ),
    "bytes required": (
        "{ max_bytes_required: true }",
        [
            stream("P"),
            stream("P", max_bytes=0),
            stream("P", max_bytes=10),
            update("P"),
            update("P", max_bytes=0),
            stream("Q", **MEMORY),
        ],
    ),
    "pending acks": (
        "{ max_ack_pending: 10 }",
        [
            stream("P"),
            consumer("P", "c"),
            consumer("P", "d", max_ack_pending=11),
            consumer("P", "d", max_ack_pending=10),
            consumer("P", "e", max_ack_pending=-1),
            consumer("P", "f", ack_policy="none"),
            consumer("P", "d", max_ack_pending=12),
            stream("Q", consumer_limits={"max_ack_pending": 11}),
            stream("Q", consumer_limits={"max_ack_pending": 9}),
            consumer("Q", "c"),
            consumer("Q", "d", max_ack_pending=10),
        ],
    ),
    "nothing": ("enabled", [stream("P"), consumer("P", "c"), ("P", b"x")]),
}


@pytest.mark.parametrize("case", CASES)
def test_limits_of_an_account(servers: Servers, case: str) -> None:
    """What is asked of account A is answered alike; B and its streams of the same names do not
    count."""
    limits, requests = CASES[case]
    shown = []
    for server in pair(servers, limits):
        with log_in(server, "a") as a, log_in(server, "b") as b:
            for name in ("P", "Q", "R", "X", "Y"):
                b.api(f"STREAM.CREATE.{name}", {"name": name})
            seen = [ask(a, *INFO)]
            seen += [ask(a, *request) for request in requests]
            seen += [ask(a, *INFO), ask(b, *INFO)]
        shown.append(seen)
    assert shown[0] == shown[1]
    assert any("error" in str(answer) for answer in shown[0]) or case == "nothing"


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("way", ["plain", "atomic", "fast"])
def test_a_sum_that_does_not_fit_the_account(servers: Servers, kind: str, way: str) -> None:
    """The increment as it is sent does, and what was stored before the limit stays."""
    limits = "{ max_file: 600, max_mem: 600 }"
    digits = "9" * 300
    batch = ("Nats-Batch-Id: x", "Nats-Batch-Sequence: 1", "Nats-Batch-Commit: 1")
    shown = []
    for server in pair(servers, limits):
        seen: list[object] = []
        with log_in(server, "a") as app:
            config = {"allow_msg_counter": True, "allow_atomic": True, "allow_batched": True}
            seen.append(ask(app, *stream("P", storage=kind, **config)))
            for name in ("Nats-Incr: 1", f"Nats-Incr: {digits}", "Nats-Incr: 1"):
                header = header_block(name, *(batch if way == "atomic" else ()))
                heard = app.inbox()
                prefix = f"{heard}.{len(seen)}.1.fail.1.2.$FI" if way == "fast" else heard
                if way == "fast":
                    app.subscribe(f"{heard}.>")
                app.publish("P", b"", header=header, reply=prefix)
                seen.append(told(app.message().payload))
                app.sync()
            seen.append(ask(app, "$JS.API.STREAM.INFO.P"))
        shown.append(seen)
    assert shown[0] == shown[1]
    assert "10002" in str(shown[0])


ENDPOINTS = (
    *("INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.CREATE.P", "STREAM.UPDATE.P", "STREAM.INFO.P"),
    *("STREAM.DELETE.P", "STREAM.PURGE.P", "STREAM.MSG.GET.P", "STREAM.MSG.DELETE.P"),
    *("CONSUMER.CREATE.P", "CONSUMER.CREATE.P.c", "CONSUMER.DURABLE.CREATE.P.c"),
    *("CONSUMER.NAMES.P", "CONSUMER.LIST.P", "CONSUMER.INFO.P.c", "CONSUMER.DELETE.P.c"),
    *("CONSUMER.PAUSE.P.c", "CONSUMER.MSG.NEXT.P.c", "DIRECT.GET.P", "DIRECT.GET.P.P"),
)


NOT_OF_CLIENTS = ("FOO", "INFO.x", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "STREAM.SNAPSHOT.P")
UNANSWERED = ("CONSUMER.MSG.NEXT.P.c", "DIRECT.GET.P", "DIRECT.GET.P.P")
"""nats-server's system account answers these as it does any request: here nobody does."""


@pytest.mark.parametrize("user", ["n", "d", "s"])
def test_an_account_without_jetstream(servers: Servers, user: str) -> None:
    """Every request has the same answer in it, or the same silence, also under the domain."""
    both = pair(servers)
    for seconds in (0.5, 10.0):  # what differs may only have come late
        ours, theirs = (answers_without(server, user, seconds) for server in both)
        if ours == theirs:
            break
    assert ours == theirs


def answers_without(server: Server, user: str, seconds: float) -> list[object]:
    """What comes of each request, all made at once, until nothing comes for a time."""
    seen: dict[str, list[object]] = {}
    with log_in(server, user) as app:
        for prefix in ("$JS.API", "$JS.hub.API"):
            for endpoint in (*ENDPOINTS, *NOT_OF_CLIENTS):
                if user == "s" and endpoint in UNANSWERED:
                    continue
                app.publish(f"{prefix}.{endpoint}", b"{}", reply=app.inbox())
                seen[str(app.last_sid)] = [prefix, endpoint]
        while heard := [f for f in app.quiet(seconds) if f.verb in ("MSG", "HMSG")]:
            for frame in heard:
                seen[frame.sid].append([frame.status, told(frame.payload)])
    return [*seen.values()]


def fill(server: Server) -> None:
    """Streams of the same names in two accounts, with messages, consumers and acks."""
    for user in ("a", "b"):
        with log_in(server, user) as app:
            for name in ("P", "Q"):
                app.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
                for number in range(5):
                    app.request(f"{name}.{number}", f"{user} {name} {number}".encode())
                ask(app, *consumer(name, "c"))
                for ack in (b"+ACK", b"+NXT", b""):
                    got = app.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", b'{"no_wait":true}')
                    if ack:
                        app.publish(got.reply, ack)
                app.sync()


def held(server: Server) -> object:
    """What a server has of it: messages, and where the consumers stand."""
    seen: dict[str, object] = {}
    for user in ("a", "b"):
        with log_in(server, user) as app:
            for name in ("P", "Q"):
                found = []
                for number in range(1, 6):
                    message = app.api(f"STREAM.MSG.GET.{name}", {"seq": number})["message"]
                    assert isinstance(message, dict)
                    found.append(b64decode(message["data"]).decode())
                about = app.api(f"CONSUMER.INFO.{name}.c")
                floor = about["ack_floor"]
                assert isinstance(floor, dict)
                stands = [floor["stream_seq"], about["num_ack_pending"], about["num_pending"]]
                seen[f"{user} {name}"] = [found, stands]
                app.api(f"STREAM.PURGE.{name}", {"keep": 4})
                app.request(f"{name}.more", b"more")
    return seen


@pytest.mark.parametrize("way", ["there", "back"])
def test_directories_of_accounts_move_between_the_servers(servers: Servers, way: str) -> None:
    """One server's directory is opened in place by the other, with what each account has."""
    ours, theirs = pair(servers)
    first, second = (theirs, ours) if way == "there" else (ours, theirs)
    fill(first)
    first.stop()
    second.stop()
    second.store = first.store
    second.start()
    assert held(second) == {
        f"{user} {name}": [[f"{user} {name} {number}" for number in range(5)], [2, 1, 2]]
        for user in ("a", "b")
        for name in ("P", "Q")
    }
    second.stop()
    names = sorted(str(p.relative_to(first.store)) for p in first.store.glob("jetstream/*/*/*"))
    assert names == [f"jetstream/{a}/streams/{s}" for a in "AB" for s in "PQ"]
    # Back where it came from, with the purge and one more message.
    first.start()
    for user in ("a", "b"):
        with log_in(first, user) as app:
            for name in ("P", "Q"):
                state = app.api(f"STREAM.INFO.{name}")["state"]
                assert isinstance(state, dict)
                assert (state["messages"], state["first_seq"], state["last_seq"]) == (5, 2, 6)
                got = app.api(f"STREAM.MSG.GET.{name}", {"seq": 3})["message"]
                assert isinstance(got, dict) and got["subject"] == f"{name}.2"


def test_the_system_account_purges_another(servers: Servers) -> None:
    """Everything of one account goes, is told, and does not come back; nobody else's does.

    nats-server may stop a stream before it has told of its consumer."""
    shown: list[object] = []
    events: list[set[str]] = []
    for server in pair(servers):
        fill(server)
        seen: list[object] = []
        with log_in(server, "s") as system, log_in(server, "a") as a, log_in(server, "b") as b:
            a.subscribe("$JS.EVENT.ADVISORY.*.DELETED.>")
            a.sync()
            for app in (a, b):
                inbox = app.inbox()
                app.publish("$JS.API.ACCOUNT.PURGE.A", b"", reply=inbox)
                seen.append(len([f for f in app.quiet(0.2) if f.verb in ("MSG", "HMSG")]))
            for name in ("A", "A", "N", "NOPE", "a/b", "a\\b"):
                seen.append(ask(system, f"$JS.API.ACCOUNT.PURGE.{name}", b"x"))
            inbox = system.inbox()
            system.publish("$JS.API.ACCOUNT.PURGE.A.B", b"", reply=inbox)
            seen.append(len([f for f in system.quiet(0.2) if f.verb in ("MSG", "HMSG")]))
            heard = a.messages(2) if events else a.messages(4)  # of 2 streams, 2 consumers
            events.append({f.subject for f in [*heard, *a.quiet(0.5)]})
            seen += [ask(app, "$JS.API.STREAM.NAMES") for app in (a, b)]
            seen += [ask(a, *INFO), ask(a, *stream("P")), ask(a, "P", b"first again")]
        server.restart(kill=True)
        with log_in(server, "a") as a, log_in(server, "b") as b:
            seen += [ask(app, "$JS.API.STREAM.NAMES") for app in (a, b)]
            seen.append(ask(a, "$JS.API.STREAM.MSG.GET.P", {"seq": 1}))
        shown.append(seen)
    assert shown[0] == shown[1]
    assert len(events[0]) == 4 and events[1] <= events[0]


def test_a_purge_takes_what_an_account_left_that_has_no_jetstream(servers: Servers) -> None:
    for server in pair(servers):
        fill(server)
        server.stop()
        server.config = server.config.replace("}], jetstream: enabled", "}]")
        server.start()
        with log_in(server, "s") as system:
            for name in ("A", "B"):
                ask(system, f"$JS.API.ACCOUNT.PURGE.{name}")
        assert not [*server.store.glob("jetstream/*/streams/*/msgs")]
