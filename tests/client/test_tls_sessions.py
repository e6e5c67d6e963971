"""Sessions of TLS that a client keeps and offers again: what a handshake found out about the client
is never believed in a later one."""

import socket
import ssl
import time

import pytest

from tests.client.raw import RawClient
from tests.client.tls import Site, Start, TlsClient, page
from tests.client.websocket import WsClient, websocket_port
from tests.servers import Server, Servers, free_port

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
LIFE = 5
"""Seconds for which a certificate is valid that expires during a test."""


class Door:
    """Where clients come in: the clients' port, or the one for WebSocket."""

    def __init__(self, name: str, server: Server) -> None:
        self._websocket = name == "websocket"
        self._server = server

    def connect(self, context: ssl.SSLContext, session: ssl.SSLSession | None) -> RawClient:
        """A client behind its handshake, which offers the session."""
        if not self._websocket:
            return TlsClient(self._server.port, context, session=session)
        return WsClient(websocket_port(self._server), context=context, session=session)


def config(site: Site, door: str, rules: str) -> str:
    if door == "clients":
        return site.config(rules)
    return f'websocket {{ host: "127.0.0.1", port: -1\n{site.config(rules)} }}'


def kept(client: RawClient) -> ssl.SSLSession | None:
    """Logs in, so that the tickets have come; the session of the connection."""
    client.send(b'CONNECT {"verbose":false}\r\n')
    client.sync()
    assert isinstance(client.socket, ssl.SSLSocket)
    return client.socket.session


def is_let_in(door: Door, context: ssl.SSLContext, session: ssl.SSLSession | None) -> bool:
    try:
        with door.connect(context, session) as client:
            client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
            return "PONG" in [frame.verb for frame in client.until("PONG")]
    except OSError:
        return False


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["clients", "websocket"])
def test_a_session_does_not_outlive_the_certificate(
    start: Start, site: Site, name: str, version: ssl.TLSVersion
) -> None:
    door = Door(name, start(config=config(site, name, site.verifying)))
    issued = site.authority.issue("CN=short", days=LIFE / 86400)
    ends = issued.made.not_valid_after_utc.timestamp()
    context = site.authority.client_context(issued, least=version, most=version)
    with door.connect(context, None) as client:
        session = kept(client)
    while time.time() <= ends + 1:
        time.sleep(0.1)
    assert not is_let_in(door, context, session)
    assert is_let_in(door, site.authority.client_context(site.client), None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_of_monitoring_does_not_stand_for_a_certificate(
    start: Start, site: Site, version: ssl.TLSVersion
) -> None:
    """Monitoring asks for no certificate, and has the certificate and the keys of the clients'
    port."""
    https = free_port()
    server = start(config=site.config(site.verifying, more=f"https: 127.0.0.1:{https}"))
    context = site.authority.client_context(least=version, most=version)
    with (
        socket.create_connection(("127.0.0.1", https), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        secured.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b"200 OK" in secured.recv(4096)
        session = secured.session
    assert not is_let_in(Door("clients", server), context, session)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_certificates_of_clients_sessions_are_resumed(
    start: Start, site: Site, version: ssl.TLSVersion
) -> None:
    server = start(config=site.config())
    context = site.authority.client_context(least=version, most=version)
    with TlsClient(server.port, context) as client:
        session = kept(client)
    with TlsClient(server.port, context, session=session) as client:
        assert client.tls.session_reused
        kept(client)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rules", ["", "pinned_certs: ['{pin}']", "verify_and_map: true"])
def test_who_offers_a_session_is_verified_again(
    servers: Servers, site: Site, rules: str, version: ssl.TLSVersion
) -> None:
    """A client that offers a session makes a whole handshake, and is known by its certificate."""
    text = f"{site.verifying}, {rules.format(pin=site.client.pin)}"
    users = 'authorization { users: [{ user: "CN=client,O=Acme" }] }' if "map" in rules else ""
    server = servers.under_test(config=site.config(text, users), monitor=True)
    context = site.authority.client_context(site.client, least=version, most=version)
    with TlsClient(server.port, context) as client:
        session = kept(client)
    with TlsClient(server.port, context, session=session) as client:
        assert not client.tls.session_reused
        kept(client)
        (shown,) = page(server, "/connz?auth=1")["connections"]
        assert shown["tls_peer_certs"][0]["spki_sha256"] == site.client.pin
