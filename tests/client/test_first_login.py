"""The first client: what its login and its traced lines need is loaded before "Server is ready"."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import bcrypt
import pytest

from tests.client.raw import RawClient
from tests.client.tls import Site, TlsClient
from tests.client.tokens import Client, configured
from tests.client.websocket import WsClient
from tests.jwts import Account, Operator, User
from tests.nkeys import Signer
from tests.servers import Server, Servers, servers_in

#: Python says of each module that it is loaded, between the lines of the log.
IMPORT = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)
#: What a thread does that nobody waits for.
CLEANUP = {"jsserver.process.procs", "shutil"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with servers_in(tmp_path) as started:
        yield started


def loaded_later(server: Server) -> set[str]:
    ready = server.log().partition("Server is ready")[2]
    return set(IMPORT.findall(ready)) - CLEANUP


def says(client: RawClient, **options: object) -> None:
    client.send(b"CONNECT " + json.dumps({"verbose": False, **options}).encode() + b"\r\n")
    assert client.sync() is not None
    client.close()


def by_password(server: Server) -> None:
    says(RawClient(server.port), user="u", **{"pass": "secret"})


def through_websocket(server: Server) -> None:
    says(WsClient(server), user="u", **{"pass": "secret"})


USER = 'authorization { users: [ { user: u, password: "%s", permissions: { publish: ["a.>"] } } ] }'
HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
FORMS: dict[str, tuple[str, Callable[[Server], None]]] = {
    "password": (USER % "secret", by_password),
    "hash": (USER % HASHED, by_password),
    "websocket": (USER % "secret" + "\nwebsocket { port: -1, no_tls: true }", through_websocket),
    "trace": ("trace: true", lambda server: says(RawClient(server.port))),
    "debug": ("debug: true", lambda server: says(RawClient(server.port))),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_first_login_loads_nothing(servers: Servers, form: str) -> None:
    config, log_in = FORMS[form]
    server = servers.under_test(config=config, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert IMPORT.search(server.log())
    log_in(server)
    assert loaded_later(server) == set()


def test_the_first_login_by_nkey_loads_nothing(servers: Servers) -> None:
    signer = Signer()
    server = servers.under_test(
        config=f"authorization {{ users: [ {{ nkey: {signer.public} }} ] }}",
        env={"PYTHONPROFILEIMPORTTIME": "1"},
    )
    client = RawClient(server.port)
    nonce = str(client.frame().json["nonce"])
    says(client, nkey=signer.public, sig=signer.signature(nonce))
    assert loaded_later(server) == set()


def test_the_first_login_by_token_loads_nothing(servers: Servers) -> None:
    operator = Operator()
    account = Account(operator)
    server = servers.under_test(
        config=configured(operator, [account]), env={"PYTHONPROFILEIMPORTTIME": "1"}
    )
    assert [frame.verb for frame in Client(server, User(account)).said][-1] == "INFO"
    assert loaded_later(server) == set()


def test_the_first_login_by_certificate_loads_nothing(servers: Servers, tmp_path: Path) -> None:
    site = Site(tmp_path)
    mapping = f'ca_file: "{site.authority.cert}", verify_and_map: true'
    server = servers.under_test(
        config=site.config(mapping, "authorization { users: [ { user: a@example.com } ] }"),
        env={"PYTHONPROFILEIMPORTTIME": "1"},
    )
    client = TlsClient(server.port, site.authority.client_context(site.client))
    assert client.login()[-1] == "PONG"
    assert loaded_later(server) == set()


def test_the_lines_of_the_first_client_are_in_the_log_with_its_pong(servers: Servers) -> None:
    server = servers.under_test(config="trace: true")
    with RawClient(server.port) as client:
        client.send(b'CONNECT {"verbose":false,"name":"first"}\r\nPING\r\n')
        client.until("PONG")
        server.wait_log("->> [PONG]", 0.5)
    lines = [line for line in server.log().splitlines() if "[TRC]" in line]
    assert [re.sub(r".* - (?=<<-|->>)", "", line)[:13] for line in lines] == [
        "<<- [CONNECT ",
        "<<- [PING]",
        "->> [PONG]",
    ]
