"""One request of a mebibyte, whatever it asks for: another account does not wait for it."""

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

pytestmark = pytest.mark.alone

MOST = 1 << 20
CONFIG = """
accounts {
    A { jetstream: enabled, users: [ { user: a, password: a } ] }
    B { jetstream: enabled, users: [ { user: b, password: b } ] }
}
"""
LONGEST = 0.5
"""Seconds that another account waits at most, on a machine that others use as well."""
ATTEMPTS = 3
"""Of which one is within that."""
MOST_CPU = 8.0
"""Seconds of the processor."""


def options(user: str) -> bytes:
    login = {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": user}
    return json.dumps(login).encode()


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Server:
    server = module_servers.under_test(jetstream=True, monitor=True, config=CONFIG)
    with RawApp(server.port, options=options("b")) as client:
        assert "error" not in client.api("STREAM.CREATE.W", {"name": "W"})
    return server


# ---- who watches ---------------------------------------------------------------------------------


class Watch:
    """Another account: logs in, asks the API and looks at the health, again and again."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.longest = 0.0
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._failed: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._began = time.monotonic()
                self._once()
                self.longest = max(self.longest, time.monotonic() - self._began)
        except Exception as error:
            self._failed = error

    def _once(self) -> None:
        with RawApp(self.server.port, options=options("b"), timeout=60) as client:
            assert "error" not in client.api("STREAM.INFO.W")
        with socket.create_connection(("127.0.0.1", self.server.monitor_port), 60) as monitor:
            monitor.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: monitor.recv(4096), b""))
            assert b'"status":"ok"' in answer, answer

    def end(self) -> float:
        """The longest round; the failure of one is raised."""
        self._ended.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self.longest


@contextmanager
def watched(server: Server) -> Iterator[list[float]]:
    """A list that holds how long the watcher waited at most, once the block ends."""
    found: list[float] = []
    watch = Watch(server)
    try:
        yield found
    finally:
        found.append(watch.end())


def nobody_waits(server: Server, request: Callable[[int], None]) -> None:
    """Makes a request, up to three times, each with another number."""
    waits = []
    for attempt in range(ATTEMPTS):
        before = server.cpu_seconds()
        with watched(server) as waited:
            request(attempt)
            time.sleep(0.1)  # what begins behind the answer is looked at too
        assert server.cpu_seconds() - before < MOST_CPU
        waits += waited
        if waits[-1] < LONGEST:
            return
    pytest.fail(f"another account waited {waits} s")


# ---- what is asked for ---------------------------------------------------------------------------


def filled(make: Callable[[int], object], most: int = MOST - 4096) -> list[Any]:
    """As many different ones as a request has room for."""
    made: list[object] = []
    size = 0
    for number in itertools.count():
        one = make(number)
        size += len(json.dumps(one, separators=(",", ":"))) + 1
        if size > most:
            return made
        made.append(one)
    raise AssertionError


def crossing(number: int) -> str:
    """Patterns of which only the last tokens differ wherever two of them do."""
    bits = ("*" if number >> bit & 1 else "x" for bit in range(12))
    return f"a.{'.'.join(bits)}.{number}"


def transform(number: int) -> dict[str, str]:
    return {"src": f"a.{number}", "dest": f"b.{number}"}


STREAMS: dict[str, tuple[dict[str, Any], int]] = {
    "literal subjects": ({"subjects": [f"a.{n}" for n in range(80_000)]}, 0),
    "a clash at the end": ({"subjects": [*(f"a.{n}" for n in range(80_000)), "a.*"]}, 10052),
    "crossing subjects": ({"subjects": [crossing(n) for n in range(2500)]}, 0),
    "too many crossing subjects": ({"subjects": filled(crossing)}, 10052),
    "one long subject": ({"subjects": ["x." * 120_000 + "x"]}, 0),
    "too many tokens": ({"subjects": ["x." * 300_000 + "x"]}, 10052),
    "transforms of a mirror": (
        {"mirror": {"name": "O", "subject_transforms": filled(transform)}},
        0,
    ),
    "transforms of a source": (
        {"sources": [{"name": "O", "subject_transforms": filled(transform)}]},
        0,
    ),
    "crossing transforms": (
        {"sources": [{"name": "O", "subject_transforms": filled(lambda n: {"src": crossing(n)})}]},
        0,
    ),
    "external sources": (
        {
            "sources": [
                {"name": f"O{n}", "external": {"api": f"x.{n}", "deliver": ""}} for n in range(3000)
            ]
        },
        0,
    ),
    "sources of one stream": (
        {"sources": [{"name": "O", "filter_subject": f"x.{n}"} for n in range(3000)]},
        0,
    ),
    "metadata": ({"metadata": {str(n): "" for n in range(20_000)}}, 0),
    "too much metadata": ({"metadata": {str(n): "" for n in range(80_000)}}, 10052),
    "a transform of many parts": (
        {
            "subject_transform": {
                "src": "*.>",
                "dest": "b." + "{{wildcard(1)}}." * 20_000 + ">",
            }
        },
        10156,
    ),
}

BODIES = {
    "empty sources": b'{"name":"A","sources":[' + b",".join([b"{}"] * 349_000) + b"]}",
    "empty subjects": b'{"name":"A","subjects":[' + b",".join([b'""'] * 349_000) + b"]}",
    "small items": b'{"x":[' + b",".join([b"{}"] * 349_000) + b"]}",
    "a deep list": b"[" * (MOST - 8),
    "a deep object": b'{"a":' * 200_000,
    "one key": b'{"name":"A",' + b",".join([b'"max_age":0'] * 87_000) + b"}",
    "objects of one key": b'{"name":"A",'
    + b",".join(b'"metadata":{"%d":""}' % n for n in range(38_000))
    + b"}",
    "a long number": b'{"max_age":' + b"1" * (MOST - 64) + b"}",
    "half surrogates": b'{"description":"' + b"\\ud800" * 170_000 + b'"}',
    "no UTF-8": b'{"description":"' + b"\xff" * (MOST - 64) + b'"}',
    "an unknown key": b'{"' + b"\x7f" * (MOST - 64) + b'":1}',
}

CONSUMERS: dict[str, tuple[dict[str, Any], int]] = {
    "literal filters": ({"filter_subjects": [f"a.{n}" for n in range(60_000)]}, 0),
    "filters with and without wildcards": (
        {"filter_subjects": [f"a.{n}" for n in range(60_000)] + [f"a.*.{n}" for n in range(256)]},
        0,
    ),
    "crossing filters": ({"filter_subjects": filled(crossing)}, 0),
    "filters that cover": ({"filter_subjects": [*filled(crossing), "a.>"][-20_000:]}, 10138),
    "backoff": ({"ack_policy": "explicit", "backoff": [1000] * 200_000}, 0),
    "groups": (
        {
            "ack_policy": "explicit",
            "priority_policy": "overflow",
            "priority_groups": [str(n) for n in range(100_000)],
        },
        0,
    ),
    "metadata": ({"metadata": {str(n): "" for n in range(20_000)}}, 0),
}


def ask(client: RawApp, subject: str, body: object) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    assert len(data) <= MOST
    answer = json.loads(client.request(f"$JS.API.{subject}", data, timeout=60).payload)
    assert isinstance(answer, dict)
    return answer


def code(answer: dict[str, Any]) -> int:
    return int(answer.get("error", {}).get("err_code", 0))


@pytest.fixture
def client(server: Server) -> Iterator[RawApp]:
    with RawApp(server.port, options=options("a"), timeout=60) as client:
        yield client


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream(server: Server, client: RawApp, kind: str) -> None:
    """Made, changed, shown, listed and removed."""
    config, refusal = STREAMS[kind]

    def request(attempt: int) -> None:
        name = f"A{attempt}"
        asked = {"name": name, **config}
        assert code(ask(client, f"STREAM.CREATE.{name}", asked)) == refusal
        if refusal:
            return
        other: dict[str, Any] = {"description": "changed"}
        if "subjects" in config:
            other["subjects"] = [f"b.{subject}" for subject in config["subjects"][:50_000]]
        assert code(ask(client, f"STREAM.UPDATE.{name}", {**asked, **other})) == 0
        assert code(ask(client, f"STREAM.INFO.{name}", b"")) == 0
        assert code(ask(client, "STREAM.LIST", b"")) == 0
        assert code(ask(client, "STREAM.NAMES", {"subject": "b.*.x"})) == 0
        assert code(ask(client, f"STREAM.DELETE.{name}", b"")) == 0

    nobody_waits(server, request)


@pytest.mark.parametrize("kind", ["literal subjects", "too many crossing subjects"])
def test_a_restore(server: Server, client: RawApp, kind: str) -> None:
    config, refusal = STREAMS[kind]

    def request(attempt: int) -> None:
        asked = {"config": {"name": "R", **config}, "state": {}}
        answer = ask(client, "STREAM.RESTORE.R", asked)
        assert code(answer) == refusal
        if not refusal:
            client.request(answer["deliver_subject"])  # which ends it

    nobody_waits(server, request)


@pytest.mark.parametrize("kind", BODIES)
def test_a_body(server: Server, client: RawApp, kind: str) -> None:
    def request(attempt: int) -> None:
        ask(client, "STREAM.CREATE.A", BODIES[kind])
        ask(client, "STREAM.DELETE.A", b"")

    nobody_waits(server, request)


@pytest.mark.parametrize("kind", CONSUMERS)
def test_a_consumer(server: Server, client: RawApp, kind: str) -> None:
    config, refusal = CONSUMERS[kind]
    ask(client, "STREAM.CREATE.C", {"name": "C", "subjects": ["a.>"]})

    def request(attempt: int) -> None:
        asked: dict[str, Any]
        asked = {"stream_name": "C", "config": {"durable_name": "c", **config}}
        assert code(ask(client, "CONSUMER.CREATE.C.c", asked)) == refusal
        if refusal:
            return
        asked["config"]["description"] = "changed"
        assert code(ask(client, "CONSUMER.CREATE.C.c", asked)) == 0
        assert code(ask(client, "CONSUMER.INFO.C.c", b"")) == 0
        assert code(ask(client, "CONSUMER.LIST.C", b"")) == 0
        assert code(ask(client, "CONSUMER.DELETE.C.c", b"")) == 0

    nobody_waits(server, request)


def test_many_wildcards_beside_many_streams(server: Server, client: RawApp) -> None:
    """What takes too long to be compared is refused."""
    for number in range(2000):
        name = f"M{number}"
        asked = {"name": name, "subjects": [f"many.{number}.x"], "storage": "memory"}
        assert code(ask(client, f"STREAM.CREATE.{name}", asked)) == 0
    many = {"name": "A", "subjects": [f"many.*.{n}" for n in range(40_000)]}

    def request(attempt: int) -> None:
        assert code(ask(client, "STREAM.CREATE.A", many)) == 10052
        overlaps = {"name": "A", "subjects": ["many.*.x"]}
        assert code(ask(client, "STREAM.CREATE.A", overlaps)) == 10065

    nobody_waits(server, request)


def test_requests_of_a_connection_keep_their_order(server: Server, client: RawApp) -> None:
    """Also behind one that is worked on beside the event loop."""
    big = {"name": "O", "subjects": [f"order.{n}" for n in range(40_000)]}
    inboxes = [client.inbox() for _ in range(3)]
    bodies = (big, {"stream_name": "O", "config": {"durable_name": "c"}}, None)
    subjects = ("STREAM.CREATE.O", "CONSUMER.CREATE.O.c", "STREAM.DELETE.O")
    for inbox, subject, body in zip(inboxes, subjects, bodies, strict=True):
        payload = b"" if body is None else json.dumps(body).encode()
        client.publish(f"$JS.API.{subject}", payload, reply=inbox)
    answers = [json.loads(frame.payload) for frame in client.messages(3, 60)]
    assert [code(answer) for answer in answers] == [0, 0, 0]


def test_the_server_ends_while_it_compares_patterns(servers: Servers) -> None:
    server = servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        many = {"name": "A", "subjects": filled(crossing)[:25_000]}
        client.publish("$JS.API.STREAM.CREATE.A", json.dumps(many).encode(), reply="x")
        client.sync()
        assert server.stop() == 0
