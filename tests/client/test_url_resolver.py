"""Accounts found over HTTP, as nats-server finds them; and a resolver that hangs."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.client.raw import EOF
from tests.client.tls import Site
from tests.client.tokens import Client, both, is_in
from tests.jwts import Account, Operator, User
from tests.servers import Servers
from tests.waiting import wait_until

OPERATOR = Operator()
KNOWN, OTHER, LARGE, HANGING, DRIPPING = (Account(OPERATOR) for _ in range(5))
TOKENS = {a.public: a.token for a in (KNOWN, OPERATOR.sys)}
TOKENS["wrong"] = TOKENS[OTHER.public] = KNOWN.token  # another account's


ASKED: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.removeprefix("/jwt/v1/accounts/")
        ASKED.append(name)
        if name == HANGING.public:
            self.connection.recv(1)  # until the server gives up
            return
        known = name in TOKENS or name in ("", LARGE.public, DRIPPING.public)
        self.send_response(200 if known else 404)
        self.end_headers()
        if name == LARGE.public:
            self.wfile.write(b"a" * (3 << 20))
        elif name == DRIPPING.public:
            for _ in range(40):
                self.wfile.write(b"a")
                time.sleep(0.1)  # four seconds for the whole answer
        else:
            self.wfile.write(TOKENS.get(name, "").encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/jwt/v1/accounts/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def secure(site: Site) -> Iterator[Callable[[str, bool], str]]:
    """URLs of servers over TLS, which are "localhost": with whose certificate, and whether they ask
    for one."""
    made: dict[tuple[str, bool], ThreadingHTTPServer] = {}

    def url(whose: str, verify: bool) -> str:
        if (whose, verify) not in made:
            issued = getattr(site, whose)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(issued.cert, issued.key)
            if verify:
                context.load_verify_locations(site.authority.cert)
                context.verify_mode = ssl.CERT_REQUIRED
            server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.daemon_threads = True
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            made[whose, verify] = server
        port = made[whose, verify].server_port
        return f"https://localhost:{port}/jwt/v1/accounts/"

    yield url
    for server in made.values():
        server.shutdown()
        server.server_close()


WAYS = {
    "a known authority": ("server", False, 'ca_file: "{ca}"'),
    "no authority": ("server", False, ""),
    "another authority": ("server", False, 'ca_file: "{other}"'),
    "not looked at": ("server", False, "insecure: true"),
    "another name": ("client", False, 'ca_file: "{ca}"'),
    "a certificate": (
        "server",
        True,
        'ca_file: "{ca}", cert_file: "{cert}", key_file: "{key}"',
    ),
    "no certificate": ("server", True, 'ca_file: "{ca}"'),
    "a stranger's certificate": (
        "server",
        True,
        'ca_file: "{ca}", cert_file: "{forged}", key_file: "{forged_key}"',
    ),
}
TAKEN = ("a known authority", "not looked at", "a certificate")


@pytest.mark.usefixtures("peer_present")
@pytest.mark.parametrize("way", WAYS)
def test_accounts_over_https(
    servers: Servers, site: Site, secure: Callable[[str, bool], str], way: str
) -> None:
    whose, verify, block = WAYS[way]
    block = block.format(
        ca=site.authority.cert,
        other=site.stranger.cert,
        cert=site.client.cert,
        key=site.client.key,
        forged=site.forged.cert,
        forged_key=site.forged.key,
    )
    config = f"{configured(secure(whose, verify))}\nresolver_tls {{ {block} }}"
    starts = (servers.under_test, servers.peer)
    if way not in TAKEN:
        for start in starts:
            with pytest.raises(Exception, match="could not fetch"):
                start(config=config)
        return
    pair = [start(config=config) for start in starts]
    assert is_in(both(pair, User(KNOWN)))
    assert not is_in(both(pair, User(OTHER)))


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("cert_file: x", "missing 'key_file' in TLS configuration"),
        ("key_file: x", "missing 'cert_file' in TLS configuration"),
        ("min_version: '1.3'", "the option min_version of resolver_tls is not available"),
        ("nope: x", 'unknown field "nope"'),
    ],
)
def test_blocks_that_are_refused(servers: Servers, block: str, why: str) -> None:
    with pytest.raises(Exception, match=why):
        servers.under_test(config=configured("https://x/") + f"\nresolver_tls {{ {block} }}")


def configured(url: str) -> str:
    return f'server_name: one\noperator: {OPERATOR.token}\nresolver: URL("{url}")'


@pytest.mark.usefixtures("peer_present")
def test_accounts_over_http(servers: Servers, url: str) -> None:
    pair = [servers.under_test(config=configured(url)), servers.peer(config=configured(url))]
    assert is_in(both(pair, User(KNOWN)))
    assert is_in(both(pair, User(OPERATOR.sys)))
    for account in (OTHER, Account(OPERATOR)):
        assert not is_in(both(pair, User(account)))


@pytest.mark.usefixtures("peer_present")
def test_a_server_that_is_not_there(servers: Servers, url: str) -> None:
    said = []
    for start in (servers.under_test, servers.peer):
        with pytest.raises(Exception) as failure:
            start(config=configured(url + "nothing"))
        said.append("could not fetch" in str(failure.value) and "404" in str(failure.value))
    assert said == [True, True]


def test_a_resolver_that_hangs_holds_up_its_own_account_alone(servers: Servers, url: str) -> None:
    server = servers.under_test(config=configured(url))
    strangers = [User(HANGING) for _ in range(40)] + [User(DRIPPING), User(LARGE)]
    refused: list[bool] = []

    def come(user: User) -> None:
        with Client(server, user) as client:
            refused.append(client.said[-1].verb == EOF)

    threads = [threading.Thread(target=come, args=(user,)) for user in strangers]
    for thread in threads:
        thread.start()
    wait_until(lambda: {HANGING.public, DRIPPING.public} <= {*ASKED}, "both are asked for")
    for account in (KNOWN, OPERATOR.sys):
        with Client(server, User(account)) as client:
            assert client.said[-1].verb == "INFO"
    assert any(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join()
    assert refused == [True] * len(strangers)
