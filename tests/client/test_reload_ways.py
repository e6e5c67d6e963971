"""Reloads for those who come another way: through WebSocket, by certificates, by an auth callout,
as users of the system account."""

import json
import threading
from typing import Any

import pytest

from tests.client.raw import RawClient
from tests.client.reloads import FAILED, Client, in_order, password, reload
from tests.client.test_callout_diff import ISSUER, STRANGER, Service, let_in
from tests.client.tls import Site, TlsClient
from tests.client.websocket import WsClient
from tests.nkeys import Signer
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SOCKET = 'websocket { host: "127.0.0.1", port: -1, no_tls: true }\nserver_name: one\n'
SUBS = b"SUB a 1\r\nSUB b 2\r\n"


def users(*rows: str) -> str:
    return "authorization { users: [" + ", ".join(f"{{ {row} }}" for row in rows) + "] }\n"


def connect(client: RawClient, name: str) -> RawClient:
    options = {"user": name, "pass": "x", "verbose": False}
    client.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n" + SUBS + b"PING\r\n")
    client.until("PONG")
    return client


def heard(client: RawClient) -> list[object]:
    if client.closed:
        return []
    client.send(b"PING\r\n")
    frames = [f.shown() for f in client.until("PONG") if f.verb not in ("PING", "INFO")]
    return [*in_order(frames)]


# ---- through WebSocket


def test_users_change_behind_websocket(servers: Servers) -> None:
    names = ("stays", "loses", "password", "goes", "tcp")
    rows = [f"user: {name}, password: x" for name in names]
    changed = [
        rows[0],
        rows[1] + ", permissions: { subscribe: a }",
        rows[2].replace("x", "y"),
        rows[4] + ", allowed_connection_types: [STANDARD]",
    ]
    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=SOCKET + users(*rows))
        clients = [connect(WsClient(server), name) for name in names]
        reload(server, SOCKET + users(*changed))
        shown.append([heard(client) for client in clients])
        with WsClient(server) as late:
            shown[-1].append(heard(connect(late, "goes")))
        for client in clients:
            client.close()
    assert shown[0] == shown[1]


def test_logins_behind_websocket_begin(servers: Servers) -> None:
    shown: list[list[object]] = []
    for start in (servers.under_test, servers.peer):
        server = start(config=SOCKET)
        with WsClient(server) as nobody:
            nobody.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
            nobody.until("PONG")
            reload(server, SOCKET + users("user: a, password: x"))
            shown.append([heard(nobody)])
        with WsClient(server) as late:
            shown[-1].append(late.frame().json.get("auth_required"))
            shown[-1].append(heard(connect(late, "a")))
    assert shown[0] == shown[1]


def test_what_websocket_may_not_change(servers: Servers) -> None:
    for start in (servers.under_test, servers.peer):
        server = start(config=SOCKET)
        for more in ("same_origin: true", "jwt_cookie: c", "allowed_origins: ['http://a.b']"):
            reload(server, SOCKET.replace("no_tls", f"{more}, no_tls"), FAILED)


# ---- by certificates


def test_a_user_whom_a_certificate_stands_for(servers: Servers, site: Site) -> None:
    issued = [site.authority.issue(subject=f"CN={name}") for name in ("kept", "gone")]

    def config(*names: str, rules: str = "") -> str:
        rows = [f'{{ user: "CN={name}" {rules} }}' for name in names]
        return site.config(
            f'ca_file: "{site.authority.cert}", verify_and_map: true',
            more=f"authorization {{ users: [{', '.join(rows)}] }}",
        )

    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config("kept", "gone"))
        clients = [TlsClient(server.port, site.authority.client_context(one)) for one in issued]
        for client in clients:
            client.login()
            client.send(SUBS)
            client.sync()
        reload(server, config("kept", rules=", permissions: { subscribe: a }"))
        shown.append([heard(client) for client in clients])
        for client in clients:
            client.close()
    assert shown[0] == shown[1]


# ---- by an auth callout


def called(*, more: str = "", issuer: str = ISSUER.public, app: str = "APP {}") -> str:
    return f"""
    accounts {{ AUTH {{ users: [{{ user: auth, password: x }}] }}, {app} }}
    authorization {{
        timeout: 5
        auth_callout {{ issuer: {issuer}, account: AUTH, auth_users: [auth] }}
    }}
    {more}
    """


def test_whom_a_callout_let_in_stays_while_its_account_does(servers: Servers) -> None:
    """nats-server cuts everybody who has a name at every reload."""
    server = servers.under_test(config=called())
    service = Service(Client(server, **password("auth")), let_in)
    try:
        with Client(server, user="bob") as bob:
            bob.send(SUBS)
            reload(server, called(more="max_payload: 100000"))
            assert heard(bob) == [("PONG", b"PONG", b"", b"")]
            with Client(server, user="bob") as again:
                assert again.is_in
            reload(server, called(issuer=STRANGER.public), FAILED)
            reload(server, called(app="OTHER {}"))
            assert heard(bob)[-1] == ("EOF", b"", b"", b"")
        with Client(server, user="bob") as late:
            assert not late.is_in
    finally:
        service.close()


def test_an_answer_that_comes_after_the_account_has_gone(servers: Servers) -> None:
    server = servers.under_test(config=called())
    asked, go = threading.Event(), threading.Event()

    def answer(request: dict[str, Any]) -> str:
        asked.set()
        go.wait(10)
        return let_in(request)

    service = Service(Client(server, **password("auth")), answer)
    try:
        said: list[bool] = []
        comer = threading.Thread(target=lambda: said.append(Client(server, user="bob").is_in))
        comer.start()
        assert asked.wait(10)
        reload(server, called(app="OTHER {}"))
        go.set()
        comer.join(10)
        assert said == [False]
    finally:
        service.close()


# ---- by a proxy

PROXIES = Signer(), Signer()
BEHIND = "user: behind, password: x, proxy_required: true"


def behind(server: Server, proxy: Signer, **options: object) -> Client:
    """One whom a proxy passes on."""
    client = Client.__new__(Client)
    RawClient.__init__(client, server.port)
    client.info = client.frame().json
    sig = proxy.signature(str(client.info["nonce"]))
    said = {"verbose": False, "protocol": 1, "proxy_sig": sig, **options}
    client.send(b"CONNECT " + json.dumps(said).encode() + b"\r\nPING\r\n")
    client.said = client.until("INFO")
    return client


def test_a_proxy_is_trusted_no_more(servers: Servers) -> None:
    def config(*proxies: Signer, more: str = "") -> str:
        keys = ", ".join(f"{{ key: {proxy.public} }}" for proxy in proxies)
        return f"proxies {{ trusted: [{keys}] }}\n{users(BEHIND, 'user: a, password: x' + more)}"

    login = {"user": "behind", "pass": "x"}
    shown = []
    for start in (servers.under_test, servers.peer):
        server = start(config=config(*PROXIES))
        clients = [behind(server, proxy, **login) for proxy in PROXIES]
        clients.append(Client(server, **password("a")))
        reload(server, config(PROXIES[0]))
        shown.append([heard(client) for client in clients])
        reload(server, config(PROXIES[0], more=", proxy_required: true"))
        shown[-1] += [heard(client) for client in clients]
        for client in clients:
            client.close()
    assert shown[0] == shown[1]


# ---- the system account


def test_the_system_account_gets_users(servers: Servers) -> None:
    def config(*names: str) -> str:
        rows = ", ".join(f"{{ user: {name}, password: x }}" for name in names)
        a = "A { users: [{ user: a, password: x }] }"
        return f"accounts {{ SYS {{ users: [{rows}] }}, {a} }}\nsystem_account: SYS"

    def watch(server: Server) -> list[str]:
        with Client(server, **password("s")) as watcher:
            assert watcher.is_in
            watcher.send(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\n")
            watcher.sync()
            with Client(server, **password("a")):
                return [watcher.message().subject]

    for start in (servers.under_test, servers.peer):
        server = start(config=config())
        reload(server, config("s"))
        assert watch(server) == ["$SYS.ACCOUNT.A.CONNECT"]
        reload(server, config())
        with Client(server, **password("s")) as gone:
            assert not gone.is_in
        reload(server, config("s"))
        assert watch(server) == ["$SYS.ACCOUNT.A.CONNECT"]
