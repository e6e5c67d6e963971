"""Clients whose certificates are looked up at OCSP responders, by this server and nats-server."""

import asyncio
import json
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority, Issued
from tests.client.test_tls_reload import reload
from tests.client.tls import Start, TlsClient, page
from tests.ocsp import Responder
from tests.servers import Server, ServerFailed, Servers
from tests.waiting import wait_until


class World:
    """An authority with its responder, and clients that have certificates of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ours")
        self.responder = Responder(self.authority)
        self.server = self.authority.server()
        self.client = self.authority.issue("CN=client,O=Acme", responder=self.responder.url)
        self.other = self.authority.issue("CN=other", responder=self.responder.url)
        self.silent = self.authority.issue("CN=silent")

    def tls(self, peer: str) -> str:
        return (
            f'tls {{ cert_file: "{self.server.cert}", key_file: "{self.server.key}", '
            f'ca_file: "{self.authority.cert}", verify: true, timeout: 3, ocsp_peer: {peer} }}\n'
        )

    def config(self, peer: str = "true", more: str = "ocsp_cache: false") -> str:
        return self.tls(peer) + more

    def stored(self, more: str = "") -> str:
        return f'ocsp_cache {{ local_store: "{self.folder / "kept"}", {more} }}'

    def enters(self, server: Server, issued: Issued | None = None, **options: Any) -> bool:
        """Whether a client with a certificate is let in."""
        context = self.authority.client_context(issued or self.client, **options)
        try:
            with TlsClient(server.port, context) as client:
                return "PONG" in client.login()
        except OSError:
            return False


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.responder:
        yield made


OPTIONS = ["true", "{verify: true, warn_only: true}", "{verify: true, unknown_is_good: true}"]
OPTIONS += ["{verify: true, allow_when_ca_unreachable: true}", "false", "{verify: false}", "{}"]


@pytest.mark.parametrize("peer", OPTIONS)
def test_what_a_responder_says(start: Start, world: World, peer: str) -> None:
    server = start(config=world.config(peer))
    off = "verify: true" not in peer and peer != "true"
    always = off or "warn_only" in peer
    for status, enters in (
        ("good", True),
        ("revoked", always),
        ("unknown", always or "unknown_is_good" in peer),
    ):
        world.responder.otherwise = status
        assert world.enters(server) == enters, status
    assert world.responder.asked == ([] if off else ["GET"] * 3)
    assert world.enters(server, world.silent)
    world.responder.close()
    assert world.enters(server) == (always or "unreachable" in peer)
    assert world.enters(server, world.silent)


def test_over_tls_12_and_13(start: Start, world: World) -> None:
    server = start(config=world.config())
    world.responder.says[world.other.made.serial_number] = "revoked"
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        assert world.enters(server, least=version, most=version)
        assert not world.enters(server, world.other, least=version, most=version)


Change = Callable[[World], None]


def _ended(world: World) -> None:
    world.responder.begins, world.responder.ends = -100, -60


def _ended_just_now(world: World) -> None:
    world.responder.ends = -5


def _to_come(world: World) -> None:
    world.responder.begins = 60


def _soon(world: World) -> None:
    world.responder.begins = 5


def _without_end(world: World) -> None:
    world.responder.ends = None


def _long_ago_without_end(world: World) -> None:
    world.responder.ends, world.responder.begins = None, -3700


def _by_a_stranger(world: World) -> None:
    world.responder.signs_for = Authority(world.folder / "strange", "CN=test authority")


def _by_a_delegate(world: World) -> None:
    world.responder.signer = world.authority.issue("CN=answers", answers=True)


def _by_no_delegate(world: World) -> None:
    world.responder.signer = world.authority.issue("CN=answers")


def _no_response(world: World) -> None:
    world.responder.raw = b"nothing"


def _fails(world: World) -> None:
    world.responder.status = 500


CHANGES: dict[Change, bool] = {
    _ended: False,
    _ended_just_now: True,
    _to_come: False,
    _soon: True,
    _without_end: True,
    _long_ago_without_end: False,
    _by_a_stranger: False,
    _by_a_delegate: True,
    _by_no_delegate: False,
    _no_response: False,
    _fails: False,
}


@pytest.mark.parametrize("change", CHANGES)
def test_which_answers_count(start: Start, world: World, change: Change) -> None:
    change(world)
    server = start(config=world.config())
    assert world.enters(server) == CHANGES[change]
    assert world.enters(server, world.silent)


def test_an_answer_about_another_certificate(servers: Servers, world: World) -> None:
    """nats-server does not look whom it is about."""
    server = servers.under_test(config=world.config())
    world.responder.raw = world.responder.made(world.other.made.serial_number)
    assert not world.enters(server)
    assert world.enters(server, world.other)


def test_who_resumes_is_looked_up_again(servers: Servers, world: World) -> None:
    server = servers.under_test(config=world.config())
    context = world.authority.client_context(world.client)
    with TlsClient(server.port, context) as client:
        client.login()
        session = client.tls.session
    with TlsClient(server.port, context, session=session) as client:
        client.login()
        assert not client.tls.session_reused
    assert len(world.responder.asked) == 2


@pytest.mark.parametrize("reactors", [1, 3])
def test_many_at_once_ask_once(servers: Servers, world: World, reactors: int) -> None:
    server = servers.under_test(config=world.config() + f"\nreactors: {reactors}")
    world.responder.delay.clear()

    async def all_of_them() -> list[bool]:
        tries = [asyncio.to_thread(world.enters, server) for _ in range(8)]
        asked = asyncio.gather(*tries)
        await asyncio.to_thread(wait_until, lambda: bool(world.responder.asked), "nobody asks", 10)
        await asyncio.sleep(0.3)  # for the others to come to where they wait
        world.responder.delay.set()
        return await asked

    assert asyncio.run(all_of_them()) == [True] * 8
    assert len(world.responder.asked) < 8


def test_who_waits_keeps_nobody_waiting(servers: Servers, world: World) -> None:
    config = world.config("{verify: true, ca_timeout: 30}")
    server = servers.under_test(config=config, args=["-D"])
    world.responder.delay.clear()
    context = world.authority.client_context(world.client)
    begun = time.monotonic()
    with TlsClient(server.port, context) as waiting:
        waiting.send(b"CONNECT {}\r\nPING\r\n")
        for _ in range(20):
            assert world.enters(server, world.silent)
        assert waiting.frame().verb == "EOF"
    assert 2 < time.monotonic() - begun < 8
    server.wait_log("TLS handshake timeout")


def test_who_goes_while_it_waits(servers: Servers, world: World) -> None:
    server = servers.under_test(config=world.config("{verify: true, ca_timeout: 30}"))
    world.responder.delay.clear()
    context = world.authority.client_context(world.client)
    with TlsClient(server.port, context) as waiting:
        wait_until(lambda: bool(world.responder.asked), "nobody asks", 10)
        waiting.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    before = server.cpu_seconds()
    time.sleep(1)  # in which it might look again and again
    assert server.cpu_seconds() - before < 0.5
    world.responder.delay.set()
    assert world.enters(server)


def test_why_in_the_log(start: Start, world: World) -> None:
    server = start(config=world.config(), args=["-D"])
    world.responder.otherwise = "revoked"
    assert not world.enters(server)
    server.wait_log("OCSP verify fail for [CN=client,O=Acme] with CA status [revoked]")
    server.wait_log("TLS handshake error: client not OCSP valid")
    world.responder.close()
    assert not world.enters(server)
    what = "Attempt to obtain OCSP response from CA responder for [CN=client,O=Acme] failed: "
    server.wait_log(what + "exhausted OCSP responders: ")


def test_certificates_have_to_be_asked_for(servers: Servers, world: World) -> None:
    config = world.config().replace("verify: true, timeout", "timeout")
    with pytest.raises(ServerFailed, match=r"requires TLS verify \(mTLS\) to be enabled"):
        servers.under_test(config=config)


def test_a_reload_begins_and_ends_it(servers: Servers, world: World) -> None:
    server = servers.under_test(config=world.config("false"))
    world.responder.otherwise = "revoked"
    assert world.enters(server)
    path = server.folder / "server.conf"
    path.write_text(world.config())
    reload(server)
    assert not world.enters(server)
    path.write_text(world.config("{verify: true, warn_only: true}"))
    reload(server)
    assert world.enters(server)
    path.write_text(world.config("false"))
    reload(server)
    asked = len(world.responder.asked)
    assert world.enters(server) and len(world.responder.asked) == asked


def test_behind_websocket(servers: Servers, world: World) -> None:
    block = world.tls("true")
    server = servers.under_test(config=f"websocket {{ listen: '127.0.0.1:-1'\n{block} }}")
    found = re.search(r"wss://127\.0\.0\.1:(\d+)", server.log())
    assert found is not None
    world.responder.says[world.other.made.serial_number] = "revoked"
    for issued, answered in ((world.client, True), (world.other, False)):
        context = world.authority.client_context(issued)
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="localhost") as secured:
                    secured.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert secured.recv(100).startswith(b"HTTP/1.1") == answered
            except (ssl.SSLError, ConnectionError):
                assert not answered


# ---- what is kept


def test_answers_are_kept(start: Start, world: World) -> None:
    server = start(config=world.config(more=world.stored()), monitor=True)
    for _ in range(3):
        assert world.enters(server)
    world.responder.says[world.other.made.serial_number] = "revoked"
    for _ in range(2):
        assert not world.enters(server, world.other)
    assert len(world.responder.asked) == 2
    varz = page(server, "/varz")
    assert varz["tls_ocsp_peer_verify"] is True
    assert varz["ocsp_peer_cache"] == {
        "cache_type": "local",
        "cache_hits": 3,
        "cache_misses": 2,
        "cached_responses": 2,
        "cached_revoked_responses": 1,
        "cached_good_responses": 1,
    }
    world.responder.close()
    server.restart()
    assert world.enters(server)
    assert not world.enters(server, world.other)
    kept = json.loads((world.folder / "kept" / "cache.json").read_text())
    assert sorted((one["subject"], one["resp_status"]) for one in kept.values()) == [
        ("CN=client,O=Acme", "good"),
        ("CN=other", "revoked"),
    ]


@pytest.mark.parametrize("ours_first", [True, False])
def test_what_one_server_keeps_the_other_reads(
    servers: Servers, world: World, ours_first: bool, peer_present: None
) -> None:
    config = world.config(more=world.stored())
    pair = [servers.under_test, servers.peer]
    first, second = pair if ours_first else reversed(pair)
    server = first(config=config)
    assert world.enters(server)
    server.stop()
    world.responder.close()
    assert world.enters(second(config=config))


@pytest.mark.parametrize("preserve", [True, False])
def test_a_revocation_is_remembered(start: Start, world: World, preserve: bool) -> None:
    """Where no responder can be asked, a client that was revoked before stays outside."""
    peer = "{verify: true, allow_when_ca_unreachable: true, allowed_clockskew: 0}"
    more = world.stored(f"preserve_revoked: {str(preserve).lower()}")
    server = start(config=world.config(peer, more))
    world.responder.otherwise, world.responder.ends = "revoked", 2
    assert not world.enters(server)
    time.sleep(3)  # until the answer has ended
    world.responder.close()
    assert not world.enters(server)
    assert world.enters(server) is not preserve


@pytest.mark.parametrize("content", [b"", b"nothing", b"[]", b'{"a": {}}', b'{"YQ==": 5}'])
def test_a_file_that_cannot_be_used(start: Start, world: World, content: bytes) -> None:
    path = world.folder / "kept" / "cache.json"
    path.parent.mkdir()
    path.write_bytes(content)
    server = start(config=world.config(more=world.stored()))
    assert world.enters(server)
    server.stop()
    assert len(json.loads(path.read_text())) >= 1


def test_the_file_is_written_meanwhile(start: Start, world: World) -> None:
    server = start(config=world.config(more=world.stored("save_interval: 1")))
    assert world.enters(server)
    path = world.folder / "kept" / "cache.json"
    wait_until(path.exists, "nothing is written", 10)


# ---- events


def test_events(start: Start, world: World) -> None:
    users = "accounts { SYS { users: [ { user: sys, password: sys } ] } }\nsystem_account: SYS\n"
    users += "no_auth_user: sys\n"
    server = start(config=world.config(more="ocsp_cache: false\n" + users))
    world.responder.says[world.other.made.serial_number] = "revoked"
    context = world.authority.client_context(world.client)
    with TlsClient(server.port, context) as hears:
        hears.login()
        hears.send(b"SUB $SYS.SERVER.*.OCSP.PEER.> 1\r\nPING\r\n")
        hears.until("PONG")
        assert not world.enters(server, world.other)
        events = [hears.until("MSG")[-1], hears.until("MSG")[-1]]
    found = {e.subject.split(".", 3)[3]: json.loads(e.payload) for e in events}
    assert sorted(found) == ["OCSP.PEER.CONN.REJECT", "OCSP.PEER.LINK.INVALID"]
    reject, invalid = (found[name] for name in sorted(found))
    assert list(reject) == ["type", "id", "timestamp", "kind", "peer", "server", "reason"]
    assert list(invalid) == ["type", "id", "timestamp", "link", "peer", "server", "reason"]
    assert reject["type"] == "io.nats.server.advisory.v1.ocsp_peer_reject"
    assert invalid["type"] == "io.nats.server.advisory.v1.ocsp_peer_link_invalid"
    assert (reject["kind"], reject["reason"]) == ("Client", "client not OCSP valid")
    assert invalid["reason"] == "Invalid OCSP response status: revoked"
    assert reject["peer"] == invalid["peer"] == invalid["link"]
    assert reject["peer"]["subject"] == "CN=other"
    assert reject["peer"]["issuer"] == "CN=test authority"
    assert sorted(reject["peer"]) == ["fingerprint", "issuer", "raw", "subject"]
