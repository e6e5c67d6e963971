"""Clients behind WebSocket: a real one, crowds that half ask, bombs, and those that do not read."""

import asyncio
import contextlib
import os
import socket
import time
from typing import Any

import pytest

from tests.client.raw import EOF, RawApp, RawClient
from tests.client.websocket import WsClient, websocket_port
from tests.servers import Server, Servers
from tests.waiting import wait_until
from tests.websocket import CLOSE, PING, compressed, frame, request

CONFIG = """
websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true
%s }
max_payload: 1MB
%s
"""
QUIET = b'CONNECT {"verbose":false,"headers":true}\r\n'


def start(servers: Servers, block: str = "", more: str = "", **options: object) -> Server:
    return servers.under_test(config=CONFIG % (block, more), args=["-D"], **options)


def assert_grown_less(server: Server, before: int, megabytes: int) -> None:
    """AddressSanitizer keeps what was freed for a while."""
    if "SANITIZE" not in os.environ:
        assert server.memory() < before + megabytes * 1024 * 1024


def opened(server: Server, **terms: Any) -> WsClient:
    client = WsClient(server, **terms)
    client.frame()
    client.send(QUIET)
    client.sync()
    return client


def test_a_real_client(servers: Servers) -> None:
    pytest.importorskip("aiohttp", reason="nats-py speaks WebSocket through it")
    import nats

    server = start(servers, jetstream=True)

    async def talk() -> None:
        nc = await nats.connect(f"ws://127.0.0.1:{websocket_port(server)}")
        heard: asyncio.Queue[object] = asyncio.Queue()
        await nc.subscribe("a", cb=heard.put)
        for n in (0, 10, 70_000, 1_000_000):
            payload = os.urandom(n)
            await nc.publish("a", payload)
            assert (await asyncio.wait_for(heard.get(), 10)).data == payload  # type: ignore[attr-defined]
        js = nc.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        for i in range(100):
            await js.publish("s.a", b"x" * i)
        sub = await js.pull_subscribe("s.>", "d")
        got = await sub.fetch(100, timeout=10)
        assert [len(m.data) for m in got] == list(range(100))
        await nc.close()

    asyncio.run(asyncio.wait_for(talk(), 60))


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_messages_between_both_kinds_of_clients(
    servers: Servers, deflate: bool, masked: bool
) -> None:
    server = start(servers)
    sizes = [0, 1, 100, 5000, 65_535, 65_536, 200_000, 1_000_000]
    with opened(server, deflate=deflate, masked=masked) as web, RawApp(server.port) as plain:
        for one, other in ((web, plain), (plain, web)):
            other.send(b"SUB a 1\r\n")
            other.sync()
            for n in sizes:
                payload = os.urandom(n // 2) + b"x" * (n - n // 2)
                one.send(b"PUB a %d\r\n%s\r\n" % (n, payload))
                assert other.message().payload == payload
            other.send(b"UNSUB 1\r\n")
            other.sync()


def test_crowds_that_only_half_ask_hold_up_nobody(servers: Servers) -> None:
    server = start(servers, 'handshake_timeout: "3s"')
    port = websocket_port(server)
    half = request()[:-2]
    crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(1500)]
    try:
        for i, s in enumerate(crowd):
            s.sendall(half[: i % len(half)])
        with opened(server), pytest.raises(BlockingIOError):  # nobody is cut yet
            crowd[-1].recv(1, socket.MSG_DONTWAIT)
        for s in crowd:
            s.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert s.recv(1) == b""
    finally:
        for s in crowd:
            s.close()
    assert server.log().count("Client connection created") == 1
    assert "Internal error" not in server.log()


def test_crowds_that_leave_in_every_state_leave_nothing(servers: Servers) -> None:
    server = start(servers, monitor=True)
    port = websocket_port(server)
    whole = request()
    said = frame(QUIET + b"SUB a 1\r\nPUB a 3\r\nabc\r\nPING\r\n") + compressed(b"PING\r\n" * 50, 3)
    said += frame(b"x", PING) + frame(b"\x03\xe8", CLOSE)

    def crowd() -> None:
        for i in range(0, len(whole), 2):
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(whole[:i])
        raw = request(sec_websocket_extensions="permessage-deflate")
        for i in range(0, len(said), 2):
            with WsClient(port, raw) as client:
                client.raw(said[:i])

    crowd()
    before = server.memory()
    for _ in range(5):
        crowd()
    assert_grown_less(server, before, 8)
    wait_until(
        lambda: server.log().count("connection created") == server.log().count("connection closed"),
        "the ends of all",
    )
    with opened(server) as client:
        client.sync()


def test_bombs_end_only_themselves(servers: Servers) -> None:
    server = start(servers)
    bomb = compressed(b"PUB a 1048576\r\n" + b"\0" * 200_000_000)
    with opened(server, deflate=True) as other:
        before = server.memory()
        for _ in range(20):
            with opened(server, deflate=True) as client:
                client.raw(bomb)
                assert client.until(EOF, 20)[-1].verb == EOF
        other.sync()
        assert_grown_less(server, before, 16)
    text = "read error: maximum payload exceeded"
    wait_until(lambda: server.log().count(text) == 20, "what is said of all")


@pytest.mark.parametrize("deflate", [False, True])
def test_who_does_not_read_is_cut(servers: Servers, deflate: bool) -> None:
    server = start(servers, more="max_pending: 2MB")
    slow = WsClient(server, deflate=deflate, receive_buffer=4096)
    with slow, RawApp(server.port) as fast:
        slow.frame()
        slow.send(QUIET + b"SUB a 1\r\n")
        slow.sync()
        payload = os.urandom(50_000).hex().encode()
        for _ in range(400):
            fast.publish("a", payload)
            if "Slow Consumer Detected" in server.log():
                break
            fast.sync()
        server.wait_log("Slow Consumer Detected")


@pytest.mark.parametrize("deflate", [False, True])
def test_who_reads_slowly_gets_everything(servers: Servers, deflate: bool) -> None:
    server = start(servers, more='write_deadline: "2s"')
    slow = WsClient(server, deflate=deflate, receive_buffer=4096)
    with slow, RawApp(server.port) as fast:
        slow.frame()
        slow.send(QUIET + b"SUB a 1\r\n")
        slow.sync()
        payload = os.urandom(50_000).hex().encode()
        for _ in range(40):
            fast.publish("a", payload)
        fast.sync()
        for i in range(40):
            if i % 10 == 0:
                time.sleep(0.3)  # what comes meanwhile waits
            assert slow.message().payload == payload


def test_a_byte_at_a_time(servers: Servers) -> None:
    server = start(servers)
    with RawClient(websocket_port(server)) as raw:
        for byte in request():
            raw.send(bytes([byte]))
        assert raw.frame().line == b"HTTP/1.1 101 Switching Protocols"
    with opened(server, deflate=True) as client:
        for byte in frame(b"SUB a 1\r\n") + compressed(b"PUB a 300\r\n%s\r\n" % (b"ab" * 150), 3):
            client.raw(bytes([byte]))
        assert client.message().payload == b"ab" * 150


def test_it_listens_no_more_and_says_good_bye_when_it_ends(servers: Servers) -> None:
    server = start(servers)
    port = websocket_port(server)
    with opened(server) as client:
        server.stop()
        client.until(EOF)
        assert client.seen[-1].payload == b"\x03\xe9Server Shutdown"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_pings_have_an_interval_of_their_own(servers: Servers) -> None:
    server = start(servers, 'ping_interval: "200ms"', "ping_max: 2")
    with opened(server) as client, RawApp(server.port) as plain:
        frames = client.until(EOF)
        assert [f.line for f in frames[-2:]] == [b"-ERR 'Stale Connection'", b""]
        assert client.seen[-1].payload == b"\x03\xe9Stale Connection"
        assert plain.sync() == []
