"""Accounts found over HTTP, as nats-server finds them; and a resolver that hangs."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.client.raw import EOF
from tests.client.tokens import Client, both, is_in
from tests.jwts import Account, Operator, User
from tests.servers import Servers

OPERATOR = Operator()
KNOWN, OTHER, LARGE, HANGING, DRIPPING = (Account(OPERATOR) for _ in range(5))
TOKENS = {a.public: a.token for a in (KNOWN, OPERATOR.sys)}
TOKENS["wrong"] = TOKENS[OTHER.public] = KNOWN.token  # another account's


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.removeprefix("/jwt/v1/accounts/")
        if name == HANGING.public:
            time.sleep(4)
            return
        known = name in TOKENS or name in ("", LARGE.public, DRIPPING.public)
        self.send_response(200 if known else 404)
        self.end_headers()
        if name == LARGE.public:
            self.wfile.write(b"a" * (3 << 20))
        elif name == DRIPPING.public:
            for _ in range(40):
                self.wfile.write(b"a")
                time.sleep(0.1)
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
    with pytest.raises(Exception, match="is not available in this version"):
        servers.under_test(config=configured("https://127.0.0.1/"))


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
    time.sleep(0.3)
    for account in (KNOWN, OPERATOR.sys):
        began = time.monotonic()
        with Client(server, User(account)) as client:
            assert client.said[-1].verb == "INFO"
        assert time.monotonic() - began < 1
    for thread in threads:
        thread.join()
    assert refused == [True] * len(strangers)
