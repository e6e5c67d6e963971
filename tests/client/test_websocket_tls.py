"""WebSocket behind TLS (`wss://`): what both servers say there, and that frames come through whole
however records, frames and the socket cut them."""

import asyncio
import os
import signal
import socket
import ssl

import nats
import pytest

from tests.certificates import Issued
from tests.client.raw import EOF, RawClient
from tests.client.tls import Site, Start, page
from tests.client.websocket import WsClient, websocket_port
from tests.servers import Server, Servers
from tests.websocket import CLOSE, request


def config(site: Site, tls: str = "", block: str = "", more: str = "") -> str:
    secured = site.config(tls)
    return f'websocket {{ host: "127.0.0.1", port: -1\n{secured}\n{block} }}\n{more}'


def opened(server: Server, context: ssl.SSLContext, *, deflate: bool = False) -> WsClient:
    client = WsClient(server, context=context, timeout=20, deflate=deflate)
    info = client.frame().json
    assert info["tls_required"] is info["tls_available"] is True
    assert "tls_verify" not in info
    client.send(b'CONNECT {"verbose":false,"headers":true}\r\n')
    client.sync()
    return client


def serial_of(client: WsClient) -> object:
    assert isinstance(client.socket, ssl.SSLSocket)
    certificate = client.socket.getpeercert()
    assert certificate
    return certificate["serialNumber"]


def test_requests_come_behind_the_handshake(start: Start, site: Site) -> None:
    server = start(config=config(site), monitor=True)
    with opened(server, site.authority.client_context()) as client:
        client.send(b"SUB a 1\r\nPUB a 5\r\nhello\r\n")
        assert client.until("MSG")[-1].payload == b"hello"
        (known,) = page(server, "/connz")["connections"]
        assert known["tls_version"] == "1.3"
        assert known["tls_cipher_suite"].startswith("TLS_")
        assert "tls_first" not in known
        assert page(server, "/varz")["websocket"]["tls_cert_not_after"]
        # The clients' own port has none of it.
        with RawClient(server.port) as plain:
            assert "tls_required" not in plain.frame().json
    assert f"wss://127.0.0.1:{websocket_port(server)}" in server.log()


def test_a_block_needs_tls_or_says_that_there_is_none(servers: Servers, site: Site) -> None:
    made = servers.under_test(config=config(site, block="no_tls: true"))
    with opened(made, site.authority.client_context()) as client:
        client.sync()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n", request(), b"\x16\x03\x01\x00\x05hello"])
def test_who_speaks_no_tls_gets_nothing(servers: Servers, site: Site, sent: bytes) -> None:
    server = servers.under_test(config=config(site), monitor=True)
    with RawClient(websocket_port(server)) as client:
        client.send(sent)
        assert client.frame().verb == EOF
    assert page(server, "/varz")["total_connections"] == 0
    assert page(server, "/connz?state=closed")["connections"] == []


def test_who_does_not_begin_or_end_a_handshake_is_cut_in_time(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=config(site, block='handshake_timeout: "2s"'))
    with RawClient(websocket_port(server)) as silent, RawClient(websocket_port(server)) as half:
        half.send(b"\x16\x03\x01")
        context = site.authority.client_context()
        with socket.create_connection(("127.0.0.1", websocket_port(server))) as bare:
            bare.settimeout(10)
            with context.wrap_socket(bare, server_hostname="localhost") as secured:
                assert secured.recv(1) == b""  # a handshake, and no request behind it
        assert silent.frame().verb == half.frame().verb == EOF


def test_certificates_name_users(start: Start, site: Site) -> None:
    users = 'authorization { users: [{ user: "CN=client,O=Acme" }] }'
    verify = f'ca_file: "{site.authority.cert}", verify_and_map: true'
    server = start(config=config(site, verify, more=users))

    def told(issued: Issued) -> str:
        context = site.authority.client_context(issued)
        with WsClient(server, context=context) as client:
            client.frame()
            client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
            return client.frame().verb

    assert told(site.client) == "PONG"
    assert told(site.other) == "-ERR"


@pytest.mark.parametrize("deflate", [False, True])
def test_messages_of_all_sizes(servers: Servers, site: Site, deflate: bool) -> None:
    server = servers.under_test(config=config(site, block="compression: true"))
    with opened(server, site.authority.client_context(), deflate=deflate) as client:
        client.send(b"SUB a 1\r\n")
        sizes = [0, 1, 125, 126, 4096, 16383, 16384, 16385, 65535, 65536, 100_000, 1_000_000]
        for size in sizes:
            payload = os.urandom(size // 2) + bytes(size - size // 2)
            client.send(b"PUB a %d\r\n%s\r\n" % (size, payload))
            assert client.until("MSG")[-1].payload == payload


@pytest.mark.parametrize("agent", ["", "Mozilla/5.0"])
@pytest.mark.parametrize("deflate", [False, True])
def test_who_reads_slowly_gets_everything(
    servers: Servers, site: Site, deflate: bool, agent: str
) -> None:
    """What was encrypted and could not be sent is sent in the same frames, whatever came to wait
    behind it: small messages, so that each frame's length would be another one."""
    server = servers.under_test(config=config(site, block="compression: true"))
    headers = {"user_agent": agent} if agent else {}
    if deflate:
        headers["sec_websocket_extensions"] = "permessage-deflate"
    context = site.authority.client_context()
    raw = request(**headers)
    with (
        WsClient(server, raw, context=context, receive_buffer=4096, timeout=30) as slow,
        RawClient(server.port) as fast,
    ):
        slow.frame()
        slow.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        slow.sync()
        fast.frame()
        fast.send(b'CONNECT {"verbose":false}\r\n')
        sent = []
        for i in range(60):
            batch = [os.urandom(1 + (i * 37 + k * 211) % 3000) for k in range(50)]
            sent += batch
            fast.send(b"".join(b"PUB a %d\r\n%s\r\n" % (len(p), p) for p in batch))
            fast.sync()
        got = [slow.until("MSG")[-1].payload for _ in sent]
        assert got == sent


def test_a_real_client(servers: Servers, site: Site) -> None:
    pytest.importorskip("aiohttp", reason="nats-py speaks WebSocket through it")
    server = servers.under_test(config=config(site))

    async def talk() -> None:
        url = f"wss://localhost:{websocket_port(server)}"
        client = await nats.connect(url, tls=site.authority.client_context(), allow_reconnect=False)
        subscription = await client.subscribe("a")
        for size in (0, 1, 70_000, 1_000_000):
            await client.publish("a", bytes(size))
            assert (await subscription.next_msg(10)).data == bytes(size)
        await client.close()

    asyncio.run(talk())


def test_a_stop_says_good_bye(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=config(site))
    with opened(server, site.authority.client_context()) as client:
        os.kill(server.pid, signal.SIGTERM)
        client.until(EOF)
        assert client.seen[-1].opcode == CLOSE


def test_a_reload_has_the_new_certificate(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=config(site))
    site_context = site.authority.client_context()
    with opened(server, site_context) as before:
        serial = serial_of(before)
        kept = site.server.cert.read_bytes(), site.server.key.read_bytes()
        renewed = site.authority.server()
        try:
            site.server.cert.write_bytes(renewed.cert.read_bytes())
            site.server.key.write_bytes(renewed.key.read_bytes())
            os.kill(server.pid, signal.SIGHUP)
            server.wait_log("Reloaded server configuration")
            with opened(server, site_context) as after:
                assert serial_of(after) != serial
            before.sync()
        finally:
            site.server.cert.write_bytes(kept[0])
            site.server.key.write_bytes(kept[1])
