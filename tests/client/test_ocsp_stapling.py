"""Certificates that are shown with OCSP responses, by this server and by nats-server."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority, Issued
from tests.client.test_tls_reload import reload
from tests.client.tls import Start
from tests.ocsp import Responder
from tests.servers import Server, ServerFailed, Servers, command_under_test
from tests.waiting import wait_until


class World:
    """An authority with its responder, and certificates that name it."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        self.responder = Responder(self.authority)
        self.must = self.authority.server(responder=self.responder.url, must_staple=True)
        self.may = self.authority.server(responder=self.responder.url)

    def config(self, issued: Issued | None = None, more: str = "") -> str:
        issued = issued or self.must
        return (
            f'tls {{ cert_file: "{issued.cert}", key_file: "{issued.key}", timeout: 5, '
            f'ca_file: "{self.authority.cert}", handshake_first: true }}\n{more}'
        )

    def asks(self, port: int, *more: str) -> str:
        """What OpenSSL's client says that asks for the status."""
        where = f"127.0.0.1:{port}"
        run = subprocess.run(
            ["openssl", "s_client", "-status", "-connect", where, *more],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=20,
            check=False,
        )
        return run.stdout

    def shown(self, port: int) -> str:
        """The status that a handshake carries; "" without one, "refused" without a handshake."""
        said = self.asks(port, "-CAfile", str(self.authority.cert), "-verify_return_error")
        if "Verify return code: 0" not in said or "Cipher is (NONE)" in said:
            return "refused"
        found = re.search(r"Cert Status: (\w+)", said)
        return "" if found is None else found[1]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.responder:
        yield made


def refusal(start: Start, config: str, **options: object) -> str:
    """Why a server does not start."""
    with pytest.raises(ServerFailed) as failed:
        start(config=config, **options)
    return str(failed.value)


def fresh(store: Path) -> str:
    return f'store_dir: "{store}"'


@pytest.mark.parametrize(
    ("more", "must", "may"),
    [
        ("", "good", ""),
        ("ocsp: true", "good", ""),
        ("ocsp: false", "", ""),
        ("ocsp { mode: auto }", "good", ""),
        ("ocsp { mode: Must }", "good", ""),
        ("ocsp { mode: ALWAYS }", "good", "good"),
        ("ocsp { mode: never }", "", ""),
    ],
)
def test_modes(start: Start, world: World, more: str, must: str, may: str) -> None:
    for issued, expected in ((world.must, must), (world.may, may)):
        server = start(config=world.config(issued, more))
        assert [world.shown(server.port) for _ in range(3)] == [expected] * 3
        if expected:
            server.wait_log("good, next update")
        server.stop()


def test_who_does_not_staple_reads_so(servers: Servers, world: World) -> None:
    """nats-server says it before it has a log."""
    what = f"Certificate at '{world.must.cert}' has MustStaple but OCSP is disabled"
    assert what in servers.under_test(config=world.config(more="ocsp: false")).log()
    assert (
        "MustStaple" not in servers.under_test(config=world.config(world.may, "ocsp: false")).log()
    )


def test_the_responder_is_asked_once(start: Start, world: World) -> None:
    server = start(config=world.config())
    for _ in range(5):
        assert world.shown(server.port) == "good"
    assert world.responder.asked == ["POST"]


def test_a_url_of_the_configuration(start: Start, world: World) -> None:
    nobody = world.authority.server(responder="http://127.0.0.1:1", must_staple=True)
    refusal(start, world.config(nobody))
    server = start(config=world.config(nobody, f'ocsp {{ url: "{world.responder.url}" }}'))
    assert world.shown(server.port) == "good"


@pytest.mark.parametrize(
    ("more", "runs"),
    [
        ("", True),
        ("ocsp: true", True),
        ("ocsp { mode: must }", False),
        ("ocsp { mode: always }", False),
    ],
)
@pytest.mark.parametrize("status", ["revoked", "unknown"])
def test_a_certificate_that_is_not_good(
    start: Start, world: World, more: str, runs: bool, status: str
) -> None:
    world.responder.otherwise = status
    if not runs:
        assert (
            f"found existing OCSP status for certificate at '{world.must.cert}': {status}"
        ) in refusal(start, world.config(more=more))
        return
    server = start(config=world.config(more=more))
    assert f"Cert Status: {status}" in world.asks(server.port)


Change = Callable[[World], None]


def _ended(world: World) -> None:
    world.responder.ends = -5


def _to_come(world: World) -> None:
    world.responder.begins = 60


def _of_a_stranger(world: World) -> None:
    world.responder.signs_for = Authority(world.must.cert.parent / "strange", "CN=test authority")


def _by_a_stranger(world: World) -> None:
    stranger = Authority(world.must.cert.parent / "strange", "CN=test authority")
    world.responder.signer = stranger.issue("CN=answers", answers=True)


def _no_response(world: World) -> None:
    world.responder.raw = b"nothing"


def _cut(world: World) -> None:
    world.responder.raw = world.responder.made(world.must.made.serial_number)[:-7]


def _longer(world: World) -> None:
    world.responder.raw = world.responder.made(world.must.made.serial_number) + b"\0"


def _fails(world: World) -> None:
    world.responder.status = 500


def _is_down(world: World) -> None:
    world.responder.close()


@pytest.mark.parametrize(
    "change",
    [
        _ended,
        _to_come,
        _of_a_stranger,
        _by_a_stranger,
        _no_response,
        _cut,
        _longer,
        _fails,
        _is_down,
    ],
)
def test_an_answer_that_cannot_be_used(start: Start, world: World, change: Change) -> None:
    change(world)
    why = refusal(start, world.config())
    assert f"bad OCSP status update for certificate at '{world.must.cert}'" in why


def test_whoever_may_answer_for_the_authority(start: Start, world: World) -> None:
    world.responder.signer = world.authority.issue("CN=answers", answers=True)
    assert world.shown(start(config=world.config()).port) == "good"


def test_whoever_may_not_answer_for_the_authority(servers: Servers, world: World) -> None:
    """nats-server takes it for what its own certificates are shown with."""
    world.responder.signer = world.authority.issue("CN=answers")
    assert "bad OCSP signature" in refusal(servers.under_test, world.config())


def test_an_answer_about_another_certificate(servers: Servers, world: World) -> None:
    """nats-server does not look whom it is about."""
    world.responder.raw = world.responder.made(world.may.made.serial_number)
    why = refusal(servers.under_test, world.config())
    assert "the answer is about another certificate" in why


def test_an_answer_of_any_size(servers: Servers, world: World) -> None:
    world.responder.raw = bytes(1 << 20)
    assert "the answer is too large" in refusal(servers.under_test, world.config())


def test_a_start_that_waits_can_be_ended(servers: Servers, world: World, tmp_path: Path) -> None:
    world.responder.delay.clear()
    server = Server(command_under_test(), tmp_path / "waiting", config=world.config())
    servers.started.append(server)
    server.launch()
    wait_until(lambda: bool(world.responder.asked), "nobody asks")
    assert server.stop(5) == 1
    assert "Ended while OCSP responders were asked" in server.log()


def test_answers_are_kept(start: Start, world: World, tmp_path: Path) -> None:
    store = tmp_path / "store"
    server = start(config=world.config(more=fresh(store)))
    kept = store / "ocsp" / world.must.digest
    assert kept.exists() and [p.name for p in kept.parent.iterdir()] == [world.must.digest]
    world.responder.close()
    server.restart()
    assert world.shown(server.port) == "good"


@pytest.mark.parametrize("ours_first", [True, False])
def test_what_one_server_keeps_the_other_reads(
    servers: Servers, world: World, tmp_path: Path, ours_first: bool, peer_present: None
) -> None:
    config = world.config(more=fresh(tmp_path / "store"))
    pair = [servers.under_test, servers.peer]
    first, second = pair if ours_first else reversed(pair)
    first(config=config).stop()
    world.responder.close()
    assert world.shown(second(config=config).port) == "good"


@pytest.mark.parametrize("content", [b"", b"nothing", "other"])
def test_a_kept_answer_that_cannot_be_used(
    start: Start, world: World, tmp_path: Path, content: bytes | str
) -> None:
    kept = tmp_path / "store" / "ocsp" / world.must.digest
    kept.parent.mkdir(parents=True)
    if isinstance(content, str):
        world.responder.ends = -5
        content = world.responder.made(world.must.made.serial_number)
        world.responder.ends = 3600
    kept.write_bytes(content)
    server = start(config=world.config(more=fresh(tmp_path / "store")))
    assert world.shown(server.port) == "good"
    assert kept.read_bytes() != content


def _asked_again(world: World, server: Server) -> None:
    before = len(world.responder.asked)
    wait_until(lambda: len(world.responder.asked) > before, "nobody is asked again", 20)


def test_answers_are_renewed_before_they_end(start: Start, world: World) -> None:
    world.responder.ends = 5
    server = start(config=world.config())
    world.responder.ends = 3600
    _asked_again(world, server)
    server.wait_log("Received OCSP status", 10)
    assert world.shown(server.port) == "good"


def test_a_certificate_that_is_revoked_later(start: Start, world: World) -> None:
    world.responder.ends = 4
    server = start(config=world.config(more="ocsp { mode: must }"))
    world.responder.otherwise = "revoked"
    wait_until(lambda: not server.running, "the server goes on", 20)
    what = f"Received OCSP status for Client certificate '{world.must.cert}': revoked"
    assert what in server.log().replace("certificate at '", "certificate '")


def test_beyond_its_end_no_handshake_is_made(start: Start, world: World) -> None:
    world.responder.ends = 4
    server = start(config=world.config())
    assert world.shown(server.port) == "good"
    world.responder.status = 500
    wait_until(lambda: world.shown(server.port) == "refused", "handshakes go on", 20)
    world.responder.status, world.responder.ends = 200, 3600
    wait_until(lambda: world.shown(server.port) == "good", "no handshakes", 20)


def test_a_reload_asks_about_new_certificates(
    servers: Servers, world: World, tmp_path: Path
) -> None:
    files = [tmp_path / "server.pem", tmp_path / "server.key"]

    def put(issued: Issued) -> None:
        for source, path in zip((issued.cert, issued.key), files, strict=True):
            shutil.copy(source, path)

    put(world.may)
    config = world.config(Issued(files[0], files[1], world.may.made))
    server = servers.under_test(config=config)
    assert world.shown(server.port) == ""
    put(world.must)
    world.responder.status = 500
    reload(server, "Failed to reload server configuration: bad OCSP status update")
    assert world.shown(server.port) == ""
    world.responder.status = 200
    reload(server)
    assert world.shown(server.port) == "good"
    path = server.folder / "server.conf"
    path.write_text(path.read_text() + "\nocsp: false\n")
    reload(server)
    assert world.shown(server.port) == ""


def test_of_several_certificates_each_has_its_own(servers: Servers, world: World) -> None:
    other = world.authority.issue(
        "CN=other", dns=("other.test",), responder=world.responder.url, must_staple=True
    )
    world.responder.says[other.made.serial_number] = "unknown"
    certs = ", ".join(
        f'{{cert_file: "{one.cert}", key_file: "{one.key}"}}' for one in (world.must, other)
    )
    server = servers.under_test(
        config=f'tls {{ certs: [{certs}], ca_file: "{world.authority.cert}", first: true }}'
    )
    assert world.shown(server.port) == "good"
    said = world.asks(server.port, "-servername", "other.test")
    assert "Cert Status: unknown" in said


def test_behind_websocket(servers: Servers, world: World) -> None:
    block = (
        f'tls {{ cert_file: "{world.must.cert}", key_file: "{world.must.key}", '
        f'ca_file: "{world.authority.cert}" }}'
    )
    server = servers.under_test(config=f"websocket {{ listen: '127.0.0.1:-1'\n{block} }}")
    found = re.search(r"wss://127\.0\.0\.1:(\d+)", server.log())
    assert found is not None
    assert world.shown(int(found[1])) == "good"
