"""Certificates that change while the server runs, and monitoring over HTTPS."""

import asyncio
import json
import os
import shutil
import signal
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, Issued
from tests.client.raw import RawClient
from tests.client.tls import Site, Start, TlsClient, page
from tests.servers import Server, Servers, free_port
from tests.waiting import wait_until


class Files:
    """A certificate and its key that are replaced in place."""

    def __init__(self, folder: Path, issued: Issued) -> None:
        self.cert, self.key = folder / "server.pem", folder / "server.key"
        self.put(issued)

    def put(self, issued: Issued) -> None:
        shutil.copy(issued.cert, self.cert)
        shutil.copy(issued.key, self.key)
        self.key.chmod(0o600)

    def config(self, extra: str = "", more: str = "") -> str:
        return f'tls {{ cert_file: "{self.cert}", key_file: "{self.key}"\n{extra} }}\n{more}'


def served(server: Server, authority: Authority) -> bytes:
    """The certificate that a new connection is shown."""
    with TlsClient(server.port, authority.client_context()) as client:
        assert "PONG" in client.login()
        der = client.tls.getpeercert(binary_form=True)
        assert der is not None
        return der


def reload(server: Server, says: str = "Reloaded server configuration") -> None:
    before = server.log().count(says)
    os.kill(server.pid, signal.SIGHUP)
    wait_until(lambda: server.log().count(says) > before, says)


def test_new_certificates_are_for_new_connections(start: Start, site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path, site.server)
    server = start(config=files.config())
    with TlsClient(server.port, site.authority.client_context()) as old:
        old.login()
        first = served(server, site.authority)
        files.put(site.authority.server())
        assert served(server, site.authority) == first  # nobody said that they are new
        reload(server)
        assert served(server, site.authority) != first
        old.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert old.until("MSG")[-1].payload == b"hi"


def test_nothing_is_lost_over_reloads(servers: Servers, site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path, site.server)
    server = servers.under_test(config=files.config(), jetstream=True)

    async def publish() -> None:
        import nats

        context = site.authority.client_context()
        client = await nats.connect(f"tls://localhost:{server.port}", tls=context)
        stream = client.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        for round_ in range(5):
            files.put(site.authority.server())
            os.kill(server.pid, signal.SIGHUP)
            for number in range(200):
                ack = await stream.publish("s", b"%d" % number)
                assert ack.seq == round_ * 200 + number + 1
        await client.close()

    asyncio.run(publish())
    assert "Failed to reload" not in server.log()


def test_files_that_cannot_be_used_change_nothing(start: Start, site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path, site.server)
    server = start(config=files.config())
    first = served(server, site.authority)
    for cert, key in (
        (b"no certificate", site.server.key.read_bytes()),
        (site.server.cert.read_bytes(), site.other.key.read_bytes()),
        (site.server.cert.read_bytes(), b""),
    ):
        files.cert.write_bytes(cert)
        files.key.write_bytes(key)
        reload(server, "Failed to reload server configuration: ")
        assert served(server, site.authority) == first
    files.put(site.authority.server())
    reload(server)
    assert served(server, site.authority) != first


def test_other_changes_are_refused_by_name(servers: Servers, site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path, site.server)
    server = servers.under_test(config=files.config(more="max_payload: 1000"))
    first = served(server, site.authority)
    files.put(site.authority.server())
    path = server.folder / "server.conf"
    path.write_text(path.read_text().replace("1000", "2000") + "\nmax_pending: 2000000\n")
    reload(server, "config reload not supported for max_pending")
    assert "Reloaded" not in server.log()
    assert served(server, site.authority) == first


def test_tls_is_switched_off_and_on(servers: Servers, site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path, site.server)
    server = servers.under_test(config=files.config())
    path = server.folder / "server.conf"
    path.write_text("")
    reload(server)
    with RawClient(server.port) as client:
        assert "tls_required" not in client.frame().json
        client.send(b"PING\r\n")
        client.until("PONG")
    path.write_text(files.config())
    reload(server)
    served(server, site.authority)


def test_without_a_file_there_is_nothing_to_reload(start: Start) -> None:
    server = start()
    reload(server, "can only reload config when a file is provided using -c or --config")


def test_who_is_no_longer_pinned_is_cut(servers: Servers, site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path, site.server)
    pins = f"pinned_certs: ['{site.client.pin}', '{site.other.pin}']"
    server = servers.under_test(config=files.config(f"{site.verifying}, {pins}"))
    with (
        TlsClient(server.port, site.authority.client_context(site.client)) as kept,
        TlsClient(server.port, site.authority.client_context(site.other)) as cut,
    ):
        kept.login()
        cut.login()
        path = server.folder / "server.conf"
        path.write_text(path.read_text().replace(f", '{site.other.pin}'", ""))
        reload(server)
        cut.until("EOF")
        kept.send(b"PING\r\n")
        kept.until("PONG")


# ---- monitoring


def fetch(port: int, path: str, context: ssl.SSLContext) -> tuple[int, Any]:
    with urllib.request.urlopen(
        f"https://localhost:{port}{path}", timeout=10, context=context
    ) as answer:
        return answer.status, json.load(answer)


@pytest.mark.parametrize("extra", ["", "verify"])
def test_monitoring_over_https(start: Start, site: Site, extra: str) -> None:
    port = free_port()
    rules = f"{site.verifying}, pinned_certs: ['{site.client.pin}']" if extra else ""
    server = start(config=site.config(rules, more=f"https: 127.0.0.1:{port}"))
    assert f"Starting https monitor on 127.0.0.1:{port}" in server.log()
    context = site.authority.client_context()
    status, varz = fetch(port, "/varz", context)
    assert (status, varz["https_port"], varz["http_port"]) == (200, port, 0)
    with pytest.raises(urllib.error.URLError):
        fetch(port, "/varz", site.stranger.client_context())
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET /varz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" not in plain.recv(4096)
    assert fetch(port, "/connz", context)[0] == 200


def test_many_pages_of_one_connection_and_a_large_one(servers: Servers, site: Site) -> None:
    import http.client

    port = free_port()
    server = servers.under_test(config=site.config(more=f"https: 127.0.0.1:{port}"))
    clients = [TlsClient(server.port, site.authority.client_context()) for _ in range(50)]
    for client in clients:
        client.login()
        client.send(b"".join(b"SUB a.%d.%s %d\r\n" % (n, b"x" * 100, n) for n in range(60)))
        client.send(b"PING\r\n")
        client.until("PONG")
    connection = http.client.HTTPSConnection(
        "localhost", port, timeout=10, context=site.authority.client_context()
    )
    for path in ("/varz", "/connz?subs=1", "/healthz", "/connz?subs=1"):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        body = json.loads(answer.read())
        if "connz" in path:
            assert sum(len(c["subscriptions_list"]) for c in body["connections"]) == 50 * 60
    connection.close()
    for client in clients:
        client.close()


def test_garbage_where_https_is_served(servers: Servers, site: Site) -> None:
    port = free_port()
    servers.under_test(config=site.config(more=f"https: 127.0.0.1:{port}"))
    for sent in (b"", b"\x16", b"\x16\x03\x01\xff\xff" + bytes(70000), b"\x00" * 5, bytes(100000)):
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            plain.sendall(sent)
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        context = site.authority.client_context()
        made = context.wrap_socket(plain, server_hostname="localhost")
        made.sendall(b"GET /varz")  # and no more
    assert fetch(port, "/varz", site.authority.client_context())[0] == 200


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("https_port: {port}", "TLS cert and key required for HTTPS"),
        (
            "http_port: 1, https_port: {port}",
            "can't specify both HTTP (1) and HTTPs ({port}) ports",
        ),
    ],
)
def test_https_that_cannot_be(servers: Servers, config: str, words: str) -> None:
    from tests.servers import ServerFailed

    port = free_port()
    with pytest.raises(ServerFailed) as failed:
        servers.under_test(config=config.format(port=port))
    assert f"Can't start monitoring: {words.format(port=port)}" in str(failed.value)


def test_a_key_that_others_can_read_is_told_of(
    servers: Servers, site: Site, tmp_path: Path
) -> None:
    files = Files(tmp_path, site.server)
    files.key.chmod(0o644)
    server = servers.under_test(config=files.config(), monitor=True)
    assert f"{files.key} can be read by others than its owner" in server.log()
    assert page(server, "/varz")["tls_required"] is True
