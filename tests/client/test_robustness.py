"""Malformed input, floods and silent subscribers: the server lives on and serves the others.

The random part takes `ROBUSTNESS_SECONDS` (3); its seed is `ROBUSTNESS_SEED` (1, shown).
"""

import os
import random
import socket
import threading
import time

import pytest

from tests.client.raw import EOF, RawApp, RawClient, header_block
from tests.seeds import seed_of
from tests.servers import Server, Servers

SECONDS = float(os.environ.get("ROBUSTNESS_SECONDS", "3"))
SEED = seed_of("ROBUSTNESS_SEED")

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'

# What a client may send that no client should, and how the connection must end: with one of these
# -ERR texts, with "" for a close without a word, with None for a connection that goes on.
MALFORMED: dict[str, tuple[bytes, str | None]] = {
    "empty_line": (b"\r\n", "Unknown Protocol Operation"),
    "nul_bytes": (b"\0" * 100 + b"\r\n", "Unknown Protocol Operation"),
    "invalid_utf8": (b"\xff\xfe\xfd\r\n", "Unknown Protocol Operation"),
    "utf8_subject": (b"SUB \xc3\x28 1\r\nPUB \xc3\x28 1\r\nx\r\n", None),
    "another_protocol": (b"GET / HTTP/1.1\r\n\r\n", "Unknown Protocol Operation"),
    "endless_line": (b"SUB " + b"a" * 100_000, "maximum control line exceeded"),
    "endless_connect": (b"CONNECT {" + b" " * 100_000, "maximum control line exceeded"),
    "huge_size": (b"PUB a 999999999\r\n", "Maximum Payload Violation"),
    "size_overflow": (b"PUB a 99999999999999999999999\r\n", ""),
    "size_negative": (b"PUB a -5\r\n", ""),
    "size_not_a_number": (b"PUB a 1e3\r\n", ""),
    "size_wrong": (b"PUB a 2\r\nabcdef\r\n", "Unknown Protocol Operation"),
    "header_over_total": (b"HPUB a 20 10\r\n", ""),
    "header_huge": (b"HPUB a 999999999 999999999\r\n", "Maximum Payload Violation"),
    "header_negative": (b"HPUB a -1 10\r\n", ""),
    "no_arguments": (b"PUB \r\n", ""),
    "too_many_arguments": (b"SUB a b c d e\r\n", ""),
    "empty_tokens": (b"SUB a..b 1\r\nPUB ... 1\r\nx\r\n", None),
    "bad_connect": (b"CONNECT {{{{\r\n", ""),
    "deep_connect": (b"CONNECT " + b'{"a":' * 500 + b"1" + b"}" * 500 + b"\r\n", None),
    "deep_array": (b'CONNECT {"a":' + b"[" * 2000 + b"]" * 2000 + b"}\r\n", None),
    "many_unsubs": (b"UNSUB nothing\r\n" * 1000, None),
    "half_a_payload": (b"PUB a 1000\r\nhalf", None),
    "server_verbs": (b"MSG a 1 1\r\nx\r\n", "Unknown Protocol Operation"),
}


@pytest.fixture(scope="module")
def server(module_servers: Servers) -> Server:
    return module_servers.under_test(jetstream=True)


def assert_serves(server: Server) -> None:
    """Another client gets core messages and JetStream's answers."""
    assert server.running, server.log()
    with RawApp(server.port, timeout=10) as client:
        client.subscribe("health")
        client.publish("health", b"ok")
        assert client.message().payload == b"ok"
        if server.jetstream:
            assert "error" not in client.api("INFO")


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_input_gets_its_answer(server: Server, name: str) -> None:
    data, ending = MALFORMED[name]
    with RawClient(server.port) as client:
        assert client.frame().verb == "INFO"
        client.send(CONNECT + data)
        if ending is None:
            frames = client.quiet(0.2)
            assert all(f.verb != EOF for f in frames), frames
        else:
            last = client.until(EOF)
            errors = [f.line.decode() for f in last if f.verb == "-ERR"]
            assert errors == ([f"-ERR '{ending}'"] if ending else [])
    assert_serves(server)


def hostile(values: random.Random) -> bytes:
    """Something between a proper conversation and noise."""
    word = bytes(values.choice(b"abc.*>$_ \t") for _ in range(values.randrange(1, 20)))
    size = values.choice([0, 1, 5, 100, values.randrange(2000)])
    body = values.randbytes(size)
    pieces = [
        lambda: CONNECT,
        lambda: b"PING\r\n",
        lambda: b"SUB %s %d\r\n" % (word, values.randrange(50)),
        lambda: b"SUB %s q %d\r\n" % (word, values.randrange(50)),
        lambda: b"UNSUB %d %d\r\n" % (values.randrange(50), values.randrange(5)),
        lambda: b"PUB %s %d\r\n%s\r\n" % (word.strip() or b"a", size, body),
        lambda: b"PUB %s %d\r\n%s\r\n" % (word, size + values.randrange(-3, 3), body),
        lambda: b"HPUB a %d %d\r\n%s\r\n" % (values.randrange(60), size, body),
        lambda: b"PUB $JS.API.%s in %d\r\n%s\r\n" % (word.strip() or b"X", size, body),
        lambda: b"PUB $JS.API.STREAM.CREATE.X in %d\r\n%s\r\n" % (size, body),
        lambda: b"PUB $JS.ACK.%s in %d\r\n%s\r\n" % (word.strip() or b"X", size, body),
        lambda: values.randbytes(values.randrange(1, 300)),
        lambda: bytes([values.randrange(256)]),
        lambda: b"CONNECT " + body + b"\r\n",
    ]
    weights = [3, 2, 3, 1, 2, 5, 1, 1, 2, 1, 1, 1, 1, 1]
    data = b"".join(p() for p in values.choices(pieces, weights, k=values.randrange(1, 40)))
    if values.random() < 0.3:
        spot = values.randrange(len(data))
        data = data[:spot] + bytes([values.randrange(256)]) + data[spot + 1 :]
    return data


def test_random_bytes(server: Server) -> None:
    print(f"ROBUSTNESS_SEED={SEED} ROBUSTNESS_SECONDS={SECONDS}")
    values = random.Random(SEED)
    end = time.monotonic() + SECONDS
    turns = 0
    while time.monotonic() < end:
        with RawClient(server.port) as client:
            if values.random() < 0.8:
                client.send(CONNECT)
            data = hostile(values)
            while data:
                piece = values.choice([1, 10, 500, len(data)])
                client.send(data[:piece])
                data = data[piece:]
            if values.random() < 0.5:
                client.quiet(0.002)
        turns += 1
        assert server.running, f"after {turns} connections:\n{server.log()}"
    assert turns > 10
    assert_serves(server)


def test_huge_headers(server: Server) -> None:
    with RawApp(server.port, timeout=10) as client:
        config = {"name": "H", "subjects": ["h"]}
        assert "error" not in client.api("STREAM.CREATE.H", config)
        client.subscribe("echo")
        for size in (1000, 60_000, 500_000):
            header = header_block("A: " + "x" * size)
            client.publish("echo", b"body", header=header)
            frame = client.message()
            assert (frame.header, frame.payload) == (header, b"body")
            ack = client.request("h", b"body", header=header).payload
            assert (b'"seq":' in ack) if size < 65_000 else (b'"err_code":10097' in ack)
        many = header_block(*(f"Nats-Expected-Stream-{n}: x" for n in range(2000)))
        assert b'"seq":' in client.request("h", b"", header=many).payload
    assert_serves(server)


def test_connections_that_say_nothing(server: Server) -> None:
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    assert_serves(server)
    for one in sockets:
        one.close()
    assert_serves(server)


def churn(server: Server, count: int) -> None:
    """Clients that connect, subscribe, talk and leave, some without a goodbye."""
    for n in range(count):
        with RawClient(server.port) as client:
            client.send(CONNECT + b"SUB churn.%d.* 1\r\nSUB churn.> q 2\r\n" % n)
            client.send(b"PUB churn.%d.x 10\r\n0123456789\r\n" % n)
            if n % 3:
                client.send(b"PING\r\n")
                client.until("PONG")


@pytest.mark.skipif(
    "SANITIZE" in os.environ, reason="AddressSanitizer keeps what was freed for a while"
)
def test_clients_that_come_and_go_leave_no_memory_behind(servers: Servers) -> None:
    server = servers.under_test()
    with RawApp(server.port) as client:
        client.request("$SYS.REQ.USER.INFO")  # answered by the control plane, so all is loaded
    churn(server, 300)
    before = server.memory()
    churn(server, 1000)
    grown = 0
    end = time.monotonic() + 10
    while time.monotonic() < end:
        grown = server.memory() - before
        if grown < max(before // 10, 4_000_000):
            break
        time.sleep(0.1)
    else:
        raise AssertionError(f"{grown} bytes more than the {before} before")
    with RawApp(server.port) as client:
        assert client.request("churn.1.x").status == "503"


PENDING = 2_000_000
SLOW = f'max_pending: {PENDING}\nmax_payload: 100000\nwrite_deadline: "2s"\n'


def test_a_subscriber_that_stops_reading_is_cut(servers: Servers) -> None:
    server = servers.under_test(config=SLOW)
    body = b"x" * 50_000
    with RawApp(server.port, timeout=20) as publisher:
        publisher.publish("warm", body)
        publisher.request("$SYS.REQ.USER.INFO")  # the control plane is loaded when it answers
        slow = RawClient(server.port, receive_buffer=4096)
        slow.send(CONNECT + b"SUB flood 1\r\nPING\r\n")
        slow.until("PONG")
        before = highest = server.memory()
        cut = False
        end = time.monotonic() + 20
        while not cut and time.monotonic() < end:
            for _ in range(20):
                publisher.publish("flood", body)
            publisher.sync()
            highest = max(highest, server.memory())
            cut = "slow consumer" in server.log().lower()
        assert cut, "the subscriber was never cut"
        assert publisher.request("flood").status == "503"
        assert highest - before < PENDING * 3 + 8_000_000
        with slow:
            heard = slow.until(EOF, 20)
    assert heard[-1].verb == EOF
    assert [f for f in heard if f.verb == "-ERR"] == []


def test_a_subscriber_that_stops_reading_does_not_slow_the_others(servers: Servers) -> None:
    server = servers.under_test(config=SLOW)
    with (
        RawApp(server.port, timeout=20) as publisher,
        RawApp(server.port, timeout=20) as reader,
        RawClient(server.port, receive_buffer=4096) as slow,
    ):
        slow.send(CONNECT + b"SUB flood 1\r\nPING\r\n")
        slow.until("PONG")
        reader.subscribe("flood")
        reader.sync()
        for n in range(400):
            publisher.publish("flood", b"%d " % n + b"x" * 20_000)
            frame = reader.message()
            assert frame.payload.startswith(b"%d " % n)


def test_a_publisher_that_stops_in_the_middle_harms_nobody(server: Server) -> None:
    with RawClient(server.port) as half:
        half.send(CONNECT + b"PUB a 100000\r\n" + b"x" * 50_000)
        for _ in range(5):
            assert_serves(server)
    assert_serves(server)


def test_a_publisher_is_slowed_down_by_its_own_subscription(servers: Servers) -> None:
    """What it reads more slowly than it writes, all arrives, though a busy machine keeps it from
    reading for half a second."""
    server = servers.under_test(config="max_payload: 100000\nmax_pending: 12MB\n")
    size, count, per_second = 1000, 40_000, 15_000_000
    message = b"MSG a 1 1000\r\n" + b"x" * size + b"\r\n"
    with RawClient(server.port) as client:
        client.send(CONNECT + b"SUB a 1\r\nPING\r\n")
        client.until("PONG")
        writer = threading.Thread(
            target=client.send, args=((b"PUB a 1000\r\n" + b"x" * size + b"\r\n") * count,)
        )
        writer.start()
        received = 0
        started = time.monotonic()
        while received < count * len(message):
            data = client.socket.recv(65536)
            assert data, f"cut after {received} of {count * len(message)} bytes: {server.log()}"
            received += len(data)
            time.sleep(max(received / per_second - (time.monotonic() - started), 0))
        writer.join(10)


def test_who_never_reads_is_cut_all_the_same(servers: Servers) -> None:
    server = servers.under_test(config="max_payload: 100000\nmax_pending: 1MB\n")
    with RawClient(server.port, timeout=20, receive_buffer=4096) as client:
        client.send(CONNECT + b"SUB a 1\r\n")
        client.send((b"PUB a 50000\r\n" + b"x" * 50000 + b"\r\n") * 400)
        server.wait_log("Slow Consumer Detected: MaxPending of 1048576 Exceeded")
    assert_serves(server)
