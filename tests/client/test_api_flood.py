"""Connections that ask much of the API: everything is answered, and others do not wait for it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.client.raw import RawApp
from tests.servers import Server, Servers

MANY = 12_000
"""More than may wait in the server at once."""


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Server:
    server = module_servers.under_test(jetstream=True)
    with RawApp(server.port) as client:
        for name in ("E", "F"):
            assert "error" not in client.api(f"STREAM.CREATE.{name}", {"name": name})
    return server


def asking(subject: str, body: bytes = b"", count: int = 1) -> bytes:
    return b"PUB $JS.API.%s flood.in %d\r\n%s\r\n" % (subject.encode(), len(body), body) * count


@contextmanager
def flood(server: Server, requests: bytes) -> Iterator[None]:
    """One connection that asks without a pause, and reads what it is told."""
    with RawApp(server.port) as client:
        client.subscribe("flood.in")
        client.sync()
        client.socket.settimeout(0.1)
        ended = threading.Event()

        def send() -> None:
            while not ended.is_set():
                left = memoryview(requests)
                while left and not ended.is_set():
                    try:
                        left = left[client.socket.send(left) :]
                    except TimeoutError:
                        continue

        def read() -> None:
            while not ended.is_set():
                try:
                    client.socket.recv(1 << 20)
                except TimeoutError:
                    continue

        threads = [threading.Thread(target=work) for work in (send, read)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()


CREATE = b'{"stream_name":"E","config":{"inactive_threshold":600000000000}}'
FLOODS = {
    "infos": asking("STREAM.INFO.E", count=500),
    "creations": asking("CONSUMER.CREATE.E", CREATE, count=500),
    "unknown": asking("STREAM.INFO", count=500),
}


@pytest.mark.alone
@pytest.mark.parametrize("kind", FLOODS)
def test_others_are_answered_meanwhile(server: Server, kind: str) -> None:
    with flood(server, FLOODS[kind]), RawApp(server.port) as client:
        time.sleep(0.5)  # the flood has filled what there is to fill
        took = []
        for _ in range(10):
            started = time.monotonic()
            answer = json.loads(client.request("$JS.API.STREAM.INFO.F").payload)
            took.append(time.monotonic() - started)
            assert answer["config"]["name"] == "F"
        body = b'{"stream_name":"F","config":{"durable_name":"%s"}}' % kind.encode()
        made = client.request(f"$JS.API.CONSUMER.CREATE.F.{kind}", body)
        assert json.loads(made.payload)["name"] == kind
    assert sorted(took)[5] < 0.25, took
    assert "queue limit" not in server.log()


def test_all_that_one_connection_asks_is_answered(server: Server) -> None:
    with RawApp(server.port, timeout=60) as client:
        client.subscribe("flood.all")
        requests = asking("STREAM.INFO.F", count=MANY).replace(b"flood.in", b"flood.all")
        sender = threading.Thread(target=client.socket.sendall, args=(requests,))
        client.socket.settimeout(60)
        sender.start()
        heard = client.messages(MANY)
        sender.join()
    answers = [f for f in heard if b'"name":"F"' in f.payload]
    assert len(answers) == MANY
    assert "queue limit" not in server.log()
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.INFO.F")


def test_a_connection_that_asks_much_and_goes_leaves_nothing_behind(server: Server) -> None:
    for _ in range(20):
        with RawApp(server.port) as client:
            client.send(asking("STREAM.INFO.F", count=2000))
    with RawApp(server.port) as client:
        assert "error" not in client.api("STREAM.INFO.F")


def test_large_requests_of_many_take_little_memory(server: Server) -> None:
    """No more than a few of a connection wait in the server, and nobody's is dropped."""
    body = b'{"name":"G","description":"%s"}' % (b"x" * 1_000_000)
    request = asking("STREAM.CREATE.G", body)
    before = server.memory()
    most = []

    def ask() -> None:
        with RawApp(server.port, timeout=60) as client:
            client.socket.settimeout(60)
            for _ in range(20):
                client.socket.sendall(request)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with RawApp(server.port) as client:
            assert "error" not in client.api("STREAM.INFO.F")
        most.append(server.memory())
        time.sleep(0.05)
    assert max(most) - before < 150 << 20
    assert "queue limit" not in server.log()


@pytest.mark.parametrize("limits", ["request_queue_limit: 50", "info_queue_limit: 7"])
def test_one_connection_does_not_fill_a_short_queue(servers: Servers, limits: str) -> None:
    """It is not read on before what it has asked is answered, whatever the limit."""
    server = servers.under_test(config=f"jetstream {{ {limits} }}", jetstream=True)
    with RawApp(server.port, timeout=60) as client:
        assert "error" not in client.api("STREAM.CREATE.F", {"name": "F"})
        client.subscribe("flood.all")
        body = b'{"stream_name":"F","config":{"durable_name":"d"}}'
        requests = asking("STREAM.INFO.F", count=400) + asking(
            "CONSUMER.CREATE.F.d", body, count=400
        )
        client.send(requests.replace(b"flood.in", b"flood.all"))
        heard = client.messages(800)
    assert not [f for f in heard if b'"error"' in f.payload]
    assert "queue limit" not in server.log()
