"""PROXY headers of both versions: what a proxy says of a client, the same at both servers."""

import contextlib
import select
import socket
import struct
import time

import pytest

from tests.client.raw import RawClient
from tests.client.tls import Site, Start, TlsClient, page
from tests.servers import Server, Servers
from tests.waiting import wait_until

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


@pytest.fixture(scope="module", params=["ours", "peer"])
def proxied(request: pytest.FixtureRequest, module_servers: Servers) -> Server:
    if request.param == "peer":
        request.getfixturevalue("peer_present")
        return module_servers.peer(config="proxy_protocol: true", monitor=True)
    return module_servers.under_test(config="proxy_protocol: true", monitor=True)


def v2(
    body: bytes = b"", *, command: int = 0x21, family: int = 0x11, size: int | None = None
) -> bytes:
    count = len(body) if size is None else size
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", count) + body


INET = socket.inet_aton("192.0.2.9") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 4711, 4222)
INET6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::9")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 4712, 4222)
)
MAPPED = (
    socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.7")
    + socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.8")
    + struct.pack(">HH", 4713, 4222)
)

TAKEN = {
    "v1 TCP4": (b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 4222\r\n", "192.0.2.1", 56324),
    "v1 TCP6": (b"PROXY TCP6 2001:db8::1 2001:db8::2 56325 4222\r\n", "2001:db8::1", 56325),
    "v1 mapped": (b"PROXY TCP6 ::ffff:192.0.2.3 ::1 5 4222\r\n", "192.0.2.3", 5),
    "v1 spaces": (b"PROXY  TCP4   192.0.2.1 10.0.0.1 1 2 \r\n", "192.0.2.1", 1),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1", None),
    "v1 unknown and more": (b"PROXY UNKNOWN a b c d e f\r\n", "127.0.0.1", None),
    "v2 inet": (v2(INET), "192.0.2.9", 4711),
    "v2 inet6": (v2(INET6, family=0x21), "2001:db8::9", 4712),
    "v2 mapped": (v2(MAPPED, family=0x21), "192.0.2.7", 4713),
    "v2 with more behind": (v2(INET + bytes(5000)), "192.0.2.9", 4711),
    "v2 local": (v2(command=0x20, family=0), "127.0.0.1", None),
    "v2 local with an address": (v2(INET, command=0x20), "127.0.0.1", None),
    "v2 unspecified": (v2(bytes(7), family=0x01), "127.0.0.1", None),
    "none": (b"", "127.0.0.1", None),
}

REFUSED = {
    "v1 no protocol": b"PROXY \r\n",
    "v1 too few": b"PROXY TCP4 192.0.2.1 10.0.0.1 56324\r\n",
    "v1 too many": b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 1 2\r\n",
    "v1 address": b"PROXY TCP4 192.0.2 10.0.0.1 56324 4222\r\n",
    "v1 zeros": b"PROXY TCP4 192.0.02.1 10.0.0.1 56324 4222\r\n",
    "v1 protocol": b"PROXY UDP4 192.0.2.1 10.0.0.1 56324 4222\r\n",
    "v1 families": b"PROXY TCP4 ::1 ::1 56324 4222\r\n",
    "v1 families too": b"PROXY TCP6 1.2.3.4 1.2.3.4 56324 4222\r\n",
    "v1 long": b"PROXY TCP4 " + b"1" * 200 + b"\r\n",
    "v2 signature": b"\r\n\r\n\x00\r\nQUIX\n" + bytes(8),
    "v2 version": v2(INET, command=0x11),
    "v2 command": v2(INET, command=0x22),
    "v2 datagram": v2(INET, family=0x12),
    "v2 unix": v2(bytes(216), family=0x31),
    "v2 short": v2(INET[:11]),
    "v2 short inet6": v2(INET6[:35], family=0x21),
}


def connect(server: Server, header: bytes, pieces: int = 1 << 20) -> RawClient:
    client = RawClient(server.port)
    assert "client_ip" not in client.frame().json
    for at in range(0, len(header), pieces):
        client.send(header[at : at + pieces])
        if pieces < 10:
            time.sleep(0.001)  # so that pieces come one by one
    client.send(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
    return client


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("pieces", [1 << 20, 1])
def test_who_a_proxy_connects_for(proxied: Server, name: str, pieces: int) -> None:
    header, ip, port = TAKEN[name]
    if pieces == 1:
        header = header if len(header) < 200 else header[:40] + header[40:]
        pieces = 1 if len(header) < 200 else 700
    with connect(proxied, header, pieces) as client:
        client.until("PONG")
        info = client.until("INFO")[-1].json
        assert info["client_ip"] == ip
        (shown,) = page(proxied, f"/connz?cid={info['client_id']}")["connections"]
        assert (shown["ip"], shown["port"]) == (ip, port or client.socket.getsockname()[1])


WORDS = {
    "v1 no protocol": "invalid PROXY protocol header: invalid v1 format",
    "v1 too few": "invalid PROXY protocol header: invalid v1 format",
    "v1 address": "invalid PROXY protocol header: invalid address",
    "v1 long": "invalid PROXY protocol header: v1 line too long",
    "v1 families": "invalid PROXY protocol header: TCP4 with IPv6 address",
    "v2 signature": "invalid PROXY protocol header: invalid signature",
    "v2 version": "invalid PROXY protocol header: invalid version 0x10",
    "v2 command": "unknown PROXY protocol command: 0x02",
    "v2 datagram": "unsupported PROXY protocol feature: only STREAM protocol supported",
    "v2 unix": "unsupported PROXY protocol feature: unsupported address family 0x30",
    "v2 short": "IPv4 address data too short: 11 bytes",
}


@pytest.mark.parametrize("name", REFUSED)
def test_headers_that_are_refused(proxied: Server, name: str) -> None:
    with connect(proxied, REFUSED[name]) as client:
        assert [frame.verb for frame in client.until("EOF")] == ["EOF"]
        if name in WORDS:
            port = client.socket.getsockname()[1]
            line = f"Error reading PROXY protocol header from 127.0.0.1:{port}: {WORDS[name]}"
            proxied.wait_log(line)


@pytest.mark.parametrize("sent", [b"", b"PROXY TC", SIGNATURE[:9], v2(INET)[:20]])
def test_a_header_that_ends_early(proxied: Server, sent: bytes) -> None:
    with RawClient(proxied.port) as client:
        client.frame()
        client.send(sent)
        client.socket.shutdown(socket.SHUT_WR)
        assert [frame.verb for frame in client.until("EOF")] == ["EOF"]
    wait_until(lambda: page(proxied, "/varz")["connections"] == 0, "it is gone")


def test_a_header_that_does_not_come_whole(start: Start) -> None:
    server = start(config="proxy_protocol: true", monitor=True)
    assert "PROXY protocol enabled for client connections" in server.log()
    with RawClient(server.port, timeout=15) as client:
        client.frame()
        client.send(b"PROXY TCP4 1.2")
        begun = time.monotonic()
        used = server.cpu_seconds()
        client.until("EOF")
        assert 3 < time.monotonic() - begun < 12
        assert server.cpu_seconds() - used < 1  # it waits, and does not look again and again


def test_without_the_option_a_header_is_no_verb(start: Start) -> None:
    server = start()
    with RawClient(server.port) as client:
        client.frame()
        client.send(TAKEN["v1 TCP4"][0])
        assert client.until("EOF")[0].verb == "-ERR"


@pytest.mark.parametrize("first", [False, True])
def test_the_header_comes_before_tls(start: Start, site: Site, first: bool) -> None:
    extra = "handshake_first: true" if first else ""
    server = start(config=site.config(extra, more="proxy_protocol: true"), monitor=True)
    context = site.authority.client_context()
    header = TAKEN["v1 TCP4"][0]
    with TlsClient(server.port, context, first=first, before=header) as client:
        client.login()
        assert client.until("INFO")[-1].json["client_ip"] == "192.0.2.1"
        (shown,) = page(server, "/connz")["connections"]
        assert (shown["ip"], shown["tls_version"]) == ("192.0.2.1", "1.3")


@pytest.mark.parametrize("header", [b"", TAKEN["v2 inet"][0]])
def test_whoever_waits_for_info_gets_it_after_the_delay(
    start: Start, site: Site, header: bytes
) -> None:
    server = start(config=site.config('handshake_first: "100ms"', more="proxy_protocol: true"))
    plain = RawClient(server.port)
    assert plain.frame(3).verb == "INFO"
    plain.send(header)
    context = site.authority.client_context()
    with context.wrap_socket(plain.socket, server_hostname="localhost") as made:
        made.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert made.recv(6) == b"PONG\r\n"


def test_tls_is_available_behind_a_header(start: Start, site: Site) -> None:
    more = "proxy_protocol: true, allow_non_tls: true"
    server = start(config=site.config(more=more), monitor=True)
    header = TAKEN["v2 inet"][0]
    with TlsClient(server.port, site.authority.client_context(), before=header) as client:
        assert "PONG" in client.login()
    with connect(server, header) as client:
        client.until("PONG")


def test_too_many_are_told_why_behind_the_header(start: Start, site: Site) -> None:
    """Before their handshake, for whose beginning nobody waits."""
    limited = site.config("connection_rate_limit: 1", more="proxy_protocol: true")
    server = start(config=limited)
    said = b"-ERR 'Connection throttling is active. Please try again later.'"
    with contextlib.ExitStack() as stack:
        # At most one of them is let in where a second ends between them.
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(8)]
        for client in clients:
            client.send(TAKEN["v1 TCP4"][0])
        assert {client.frame().verb for client in clients} == {"INFO"}

        def told() -> bool:
            ready = [c for c in clients if select.select([c.socket], [], [], 0)[0]]
            for client in ready:
                assert [client.frame().line, client.frame().verb] == [said, "EOF"]
                clients.remove(client)
            return len(clients) <= 4

        wait_until(told, "most are refused")
