"""Clients over TLS: handshakes, what comes before and behind them, and who is not let in.

What both servers are asked is compared; the rest is what TLS itself must hold to.
"""

import asyncio
import contextlib
import re
import select
import shutil
import socket
import ssl
import struct
import subprocess
import time
from typing import Any

import nats
import pytest

from tests.client.raw import EOF, RawClient
from tests.client.tls import Site, Start, TlsClient, page
from tests.servers import Server, Servers
from tests.waiting import wait_until


def kept(info: dict[str, Any]) -> dict[str, Any]:
    return {k: info.get(k) for k in ("tls_required", "tls_verify", "tls_available")}


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_upgrades_behind_info(start: Start, site: Site, version: ssl.TLSVersion) -> None:
    server = start(config=site.config())
    context = site.authority.client_context(least=version, most=version)
    with TlsClient(server.port, context) as client:
        assert kept(client.info) == {
            "tls_required": True,
            "tls_verify": None,
            "tls_available": None,
        }
        assert client.tls.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
        assert client.login() == ["PONG"]
        client.send(b"SUB a 1\r\nPUB a 5\r\nhello\r\n")
        assert client.until("MSG")[-1].payload == b"hello"


async def exchange(url: str, context: ssl.SSLContext, **options: Any) -> list[bytes]:
    """What a real client gets back of payloads around the sizes of records and buffers."""
    client = await nats.connect(url, tls=context, allow_reconnect=False, **options)
    subscription = await client.subscribe("a")
    sizes = [0, 1, 300, 16383, 16384, 16385, 65535, 65536, 70000, 100_000, 1_000_000]
    for size in sizes:
        await client.publish("a", bytes([size % 251]) * size)
    got = [(await subscription.next_msg(10)).data for _ in sizes]
    assert got == [bytes([size % 251]) * size for size in sizes]
    await client.close()
    return got


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("reactors", [1, 3])
def test_messages_of_every_size(
    servers: Servers, site: Site, version: ssl.TLSVersion, reactors: int
) -> None:
    server = servers.under_test(config=site.config(more=f"reactors: {reactors}"))
    context = site.authority.client_context(least=version, most=version)
    asyncio.run(exchange(f"tls://localhost:{server.port}", context))


def test_a_client_that_does_not_trust_the_server(start: Start, site: Site) -> None:
    server = start(config=site.config())
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsClient(server.port, site.stranger.client_context())
    server.wait_log("TLS handshake error: ")


def test_plain_bytes_where_tls_is_required(start: Start, site: Site) -> None:
    server = start(config="debug: true\n" + site.config())
    with RawClient(server.port) as client:
        assert client.frame().verb == "INFO"
        client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        said = client.until("EOF")
        assert not any(frame.verb in ("PONG", "-ERR") for frame in said)
    server.wait_log("tls: first record does not look like a TLS handshake")
    server.wait_log("TLS Handshake Failure")


def test_a_handshake_that_does_not_come(start: Start, site: Site) -> None:
    server = start(config="debug: true\n" + site.config("timeout: 0.5"))
    with RawClient(server.port) as client:
        assert client.frame().verb == "INFO"
        begun = time.monotonic()
        client.until("EOF")
        assert time.monotonic() - begun > 0.2
    server.wait_log("TLS Handshake Failure")


@pytest.mark.parametrize("switch", ["true", '"auto"', '"20s"'])
def test_the_handshake_comes_first(start: Start, site: Site, switch: str) -> None:
    server = start(config=site.config(f"handshake_first: {switch}"), monitor=True)

    def comes_first() -> bool:
        try:
            client = TlsClient(server.port, site.authority.client_context(), first=True)
        except OSError:
            return False  # later than the fifty milliseconds of "auto": INFO was sent instead
        with client:
            assert kept(client.info)["tls_required"] is True
            assert "PONG" in client.login()
            (shown,) = page(server, "/connz")["connections"]
            assert shown["tls_version"] == "1.3"
            return shown["tls_first"] is True

    assert any(comes_first() for _ in range(10 if switch == '"auto"' else 1))
    only = "will fail to connect" in server.log()
    assert only == (switch == "true")


def test_info_comes_after_the_delay(start: Start, site: Site) -> None:
    server = start(config=site.config('handshake_first: "200ms"'), monitor=True)
    begun = time.monotonic()
    with TlsClient(server.port, site.authority.client_context()) as client:
        assert time.monotonic() - begun > 0.1
        assert "PONG" in client.login()
        (shown,) = page(server, "/connz")["connections"]
        assert "tls_first" not in shown


def test_nothing_is_said_before_a_handshake_that_comes_first(start: Start, site: Site) -> None:
    server = start(config=site.config("handshake_first: true, timeout: 0.5"))
    with RawClient(server.port) as client:
        assert [frame.verb for frame in client.until("EOF")] == ["EOF"]


def test_tls_is_available(start: Start, site: Site) -> None:
    server = start(config=site.config(more="allow_non_tls: true"))
    with RawClient(server.port) as client:
        info = client.frame().json
        assert kept(info) == {"tls_required": None, "tls_verify": None, "tls_available": True}
        client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert client.until("PONG")
    with TlsClient(server.port, site.authority.client_context()) as client:
        assert "PONG" in client.login()


def test_whoever_is_silent_where_tls_is_available_goes_on_without(start: Start, site: Site) -> None:
    server = start(config=site.config("timeout: 0.3", more="allow_non_tls: true"))
    with RawClient(server.port) as client:
        assert client.frame().verb == "INFO"
        time.sleep(0.6)  # longer than a handshake may take
        client.send(b"PING\r\n")
        assert client.until("PONG")


def test_tls_1_3_alone(start: Start, site: Site) -> None:
    server = start(config=site.config('min_version: "1.3"'))
    old = site.authority.client_context(most=ssl.TLSVersion.TLSv1_2)
    with pytest.raises(OSError):
        TlsClient(server.port, old)
    with TlsClient(server.port, site.authority.client_context()) as client:
        assert "PONG" in client.login()


def test_a_chosen_cipher_suite(start: Start, site: Site) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    server = start(config=site.config(f"cipher_suites: [{suite}]"), monitor=True)
    context = site.authority.client_context(most=ssl.TLSVersion.TLSv1_2)
    with TlsClient(server.port, context) as client:
        assert "PONG" in client.login()
        (shown,) = page(server, "/connz")["connections"]
        assert (shown["tls_version"], shown["tls_cipher_suite"]) == ("1.2", suite)


def test_certificates_by_name(start: Start, site: Site) -> None:
    one = site.authority.issue("CN=one", dns=("one.test",))
    two = site.authority.issue("CN=two", dns=("two.test", "*.two.test"))
    pairs = ", ".join(f'{{cert_file: "{i.cert}", key_file: "{i.key}"}}' for i in (one, two))
    server = start(config=f"tls {{ certs: [{pairs}] }}")
    for name, subject in {"one.test": "one", "two.test": "two", "x.two.test": "two"}.items():
        plain = RawClient(server.port)
        assert plain.frame().verb == "INFO"
        context = site.authority.client_context()
        with context.wrap_socket(plain.socket, server_hostname=name) as made:
            cert = made.getpeercert()
            assert cert is not None
            assert cert["subject"] == ((("commonName", subject),),)


# ---- clients with certificates


def test_clients_need_certificates(start: Start, site: Site) -> None:
    server = start(config=site.config(site.verifying), monitor=True)
    with TlsClient(server.port, site.authority.client_context(site.client)) as client:
        assert kept(client.info)["tls_verify"] is True
        assert "PONG" in client.login()
        (shown,) = page(server, "/connz?auth=1")["connections"]
        assert shown["tls_peer_certs"][0] == {
            "subject": "CN=client,O=Acme",
            "spki_sha256": site.client.pin,
            "cert_sha256": site.client.digest,
        }
        assert "tls_peer_certs" not in page(server, "/connz")["connections"][0]
    for issued, words in (
        (None, "tls: client didn't provide a certificate"),
        (site.forged, "tls: failed to verify certificate"),
    ):
        with pytest.raises(OSError):  # in TLS 1.3 the client hears of it when it reads
            made = TlsClient(server.port, site.authority.client_context(issued))
            assert made.login() == ["EOF"]
            raise ConnectionError
        server.wait_log(words)


def test_only_pinned_certificates(start: Start, site: Site) -> None:
    pins = f"{site.verifying}, pinned_certs: ['{site.client.pin.upper()}']"
    server = start(config=site.config(pins))
    with TlsClient(server.port, site.authority.client_context(site.client)) as client:
        assert "PONG" in client.login()
    with pytest.raises(OSError):
        made = TlsClient(server.port, site.authority.client_context(site.other))
        assert made.login() == ["EOF"]
        raise ConnectionError
    server.wait_log("TLS handshake error: certificate not pinned")


def test_too_many_handshakes_in_a_second(start: Start, site: Site) -> None:
    """Those beyond are told why, behind INFO and before a handshake; the log counts them."""
    server = start(config=site.config("connection_rate_limit: 3, timeout: 60"), monitor=True)
    said = b"-ERR 'Connection throttling is active. Please try again later.'"
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(12)]
        assert {client.frame().verb for client in clients} == {"INFO"}
        refused: list[RawClient] = []

        def told() -> bool:
            for client in clients:
                if client not in refused and select.select([client.socket], [], [], 0)[0]:
                    assert [client.frame().line, client.frame().verb] == [said, EOF]
                    refused.append(client)
            line = r"\[WRN\] Rejected (\d+) connections due to TLS rate limiting"
            return 0 < sum(map(int, re.findall(line, server.log()))) == len(refused)

        wait_until(told, "the log counts those that were refused")
        assert len(refused) <= 9
    assert "maximum connections exceeded" not in server.log()
    closed = page(server, "/connz?state=closed")["connections"]
    reasons = [c["reason"] for c in closed]
    assert reasons.count("Maximum Connections Exceeded") == len(refused)


@pytest.mark.usefixtures("peer_present")
@pytest.mark.parametrize("first", ["true", '"1s"'])
def test_a_full_server_that_expects_a_handshake_first(
    servers: Servers, site: Site, first: str
) -> None:
    """Who is too many hears so at once, in plain text, and no INFO."""
    config = site.config(f"handshake_first: {first}", "max_connections: 1")
    heard = []
    for make in (servers.under_test, servers.peer):
        server = make(config=config)
        with TlsClient(server.port, site.authority.client_context(), first=True) as there:
            there.sync()
            with RawClient(server.port) as client:
                heard.append([client.frame().line, client.frame().verb])
    assert heard[0] == heard[1] == [b"-ERR 'maximum connections exceeded'", EOF]


def test_varz(start: Start, site: Site) -> None:
    server = start(config=site.config(site.verifying + ", timeout: 3"), monitor=True)
    varz = page(server, "/varz")
    assert varz["tls_required"] and varz["tls_verify"]
    assert (varz["tls_timeout"], varz["auth_timeout"]) == (3, 4)
    end = site.server.made.not_valid_after_utc
    assert varz["tls_cert_not_after"] == end.strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- what an attacker sends


def handshake_bytes(site: Site) -> bytes:
    """A ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = site.authority.client_context()
    made = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


def alive(server: Server, site: Site) -> None:
    with TlsClient(server.port, site.authority.client_context()) as client:
        assert "PONG" in client.login()


def test_every_cut_of_a_handshake(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=site.config("timeout: 1"))
    hello = handshake_bytes(site)
    for size in [*range(0, 64), *range(64, len(hello), 37), len(hello)]:
        with RawClient(server.port) as client:
            client.frame()
            client.send(hello[:size])
    alive(server, site)


def test_a_thousand_half_handshakes_keep_nobody_out(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=site.config("timeout: 2"), monitor=True)
    hello = handshake_bytes(site)
    halves = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(1000)]
    try:
        for number, half in enumerate(halves):
            half.sendall(hello[: 1 + number % len(hello)])
        alive(server, site)
    finally:
        for half in halves:
            half.close()
    wait_until(lambda: page(server, "/varz")["connections"] == 0, "all of them are gone")


def test_single_bytes_both_ways(servers: Servers, site: Site) -> None:
    """Ciphertext that comes byte by byte, and is taken so."""
    server = servers.under_test(config=site.config())
    plain = RawClient(server.port, receive_buffer=1024)
    plain.frame()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = site.authority.client_context()
    made = context.wrap_bio(incoming, outgoing, server_hostname="localhost")

    def drip() -> None:
        for byte in outgoing.read():
            plain.send(bytes([byte]))

    while True:
        try:
            made.do_handshake()
            break
        except ssl.SSLWantReadError:
            drip()
            incoming.write(plain.socket.recv(7))
    made.write(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 3\r\nabc\r\nPING\r\n')
    drip()
    got = b""
    while not got.endswith(b"PONG\r\n"):
        try:
            got += made.read(1)
        except ssl.SSLWantReadError:
            incoming.write(plain.socket.recv(1))
    assert b"MSG a 1 3\r\nabc\r\n" in got
    plain.close()


def test_garbage_behind_the_handshake(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=site.config())
    for garbage in (
        b"PING\r\n",
        b"\x17\x03\x03\x00\x20" + bytes(32),  # a record that does not decrypt
        b"\x17\x03\x03\xff\xff" + bytes(100),  # longer than a record may be
        b"\x15\x03\x03\x00\x02\x02\x28",  # an alert in the clear
        b"\x16\x03\x01\x02\x00" + bytes(512),
    ):
        with RawClient(server.port) as plain:
            plain.frame()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            context = site.authority.client_context()
            made = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    made.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.send(outgoing.read())
                    incoming.write(plain.socket.recv(65536))
            plain.send(outgoing.read())
            plain.send(garbage)
            plain.until("EOF")
    alive(server, site)


def test_resets_in_every_state(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=site.config(), monitor=True)
    context = site.authority.client_context()
    hello = handshake_bytes(site)
    linger = struct.pack("ii", 1, 0)

    def reset(sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        sock.close()

    for _ in range(20):
        for sent in (b"", hello[:1], hello[:50], hello):
            half = socket.create_connection(("127.0.0.1", server.port))
            half.sendall(sent)
            reset(half)
        for sent in (b"", b"PING\r\n", b"SUB a 1\r\nPUB a 100000\r\n" + bytes(70000)):
            with RawClient(server.port) as plain:
                plain.frame()
                made = context.wrap_socket(plain.socket, server_hostname="localhost")
                made.sendall(sent)
                reset(made)
    wait_until(lambda: page(server, "/varz")["connections"] == 0, "all of them are gone")
    alive(server, site)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
@pytest.mark.parametrize(("version", "asks"), [("-tls1_3", b"K\n" * 60), ("-tls1_2", b"R\n")])
def test_new_keys_again_and_again(servers: Servers, site: Site, version: str, asks: bytes) -> None:
    """A client that renews keys and sends nothing, or begins a handshake anew, is cut."""
    server = servers.under_test(config="debug: true\n" + site.config("handshake_first: true"))
    client = subprocess.Popen(
        ["openssl", "s_client", version, "-connect", f"127.0.0.1:{server.port}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert client.stdin is not None and client.stdout is not None
    try:
        while b"INFO {" not in client.stdout.readline():
            assert client.poll() is None
        with contextlib.suppress(BrokenPipeError):
            for at in range(0, len(asks), 2):
                client.stdin.write(asks[at : at + 2])
                client.stdin.flush()
                time.sleep(0.02)  # openssl takes a letter for a command at the start of a read
        server.wait_log("Client connection closed")
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            client.stdin.close()
    with TlsClient(server.port, site.authority.client_context(), first=True) as other:
        assert "PONG" in other.login()


def test_a_close_is_announced(start: Start, site: Site) -> None:
    server = start(config=site.config())
    with TlsClient(server.port, site.authority.client_context()) as client:
        client.login()
        # The standard library has it, its type stubs do not.
        client.tls.suppress_ragged_eofs = False  # type: ignore[attr-defined]
        client.send(b"NONSENSE\r\n")
        verbs = [frame.verb for frame in client.until("EOF")]
        assert "-ERR" in verbs  # and no SSLEOFError: close_notify came
    with TlsClient(server.port, site.authority.client_context()) as client:
        client.login()
        client.send(b"PUB a 2\r\nhi\r\n")
        client.tls.unwrap()  # returns when the server has answered with its own


def test_whoever_reads_nothing_is_cut(servers: Servers, site: Site) -> None:
    more = "max_pending: 1048576, write_deadline: '500ms'"
    server = servers.under_test(config=site.config(more=more), monitor=True)
    context = site.authority.client_context()
    with TlsClient(server.port, context) as slow, TlsClient(server.port, context) as fast:
        slow.login()
        slow.send(b"SUB a 1\r\nPING\r\n")
        slow.until("PONG")
        fast.login()
        for _ in range(600):
            fast.send(b"PUB a 30000\r\n" + bytes(30000) + b"\r\n")
        wait_until(lambda: page(server, "/varz")["slow_consumers"] == 1, "it is cut")
        fast.send(b"PING\r\n")
        fast.until("PONG")


def test_whoever_reads_late_gets_everything(servers: Servers, site: Site) -> None:
    server = servers.under_test(config=site.config())
    context = site.authority.client_context()
    with TlsClient(server.port, context) as late, TlsClient(server.port, context) as fast:
        late.login()
        late.send(b"SUB a 1\r\nPING\r\n")
        late.until("PONG")
        fast.login()
        for number in range(1000):
            payload = number.to_bytes(4, "big") * 5000
            fast.send(b"PUB a %d\r\n" % len(payload) + payload + b"\r\n")
        for number in range(1000):
            assert late.until("MSG")[-1].payload == number.to_bytes(4, "big") * 5000


def test_a_reading_stop_and_a_large_message(servers: Servers, site: Site) -> None:
    """Records that end within a message, behind it, and several messages in one record."""
    server = servers.under_test(config=site.config())
    with TlsClient(server.port, site.authority.client_context()) as client:
        client.login()
        client.send(b"SUB a 1\r\n")
        stream = b"".join(
            b"PUB a %d\r\n" % n + bytes([n % 256]) * n + b"\r\n" for n in (5, 200_000, 3, 70_000, 1)
        )
        for size in (1000, 16384, 40_000):
            for at in range(0, len(stream), size):
                client.send(stream[at : at + size])
            for n in (5, 200_000, 3, 70_000, 1):
                assert client.until("MSG")[-1].payload == bytes([n % 256]) * n
