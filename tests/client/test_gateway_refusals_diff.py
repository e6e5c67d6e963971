"""What a gateway's port refuses and says, and what a server says that dials: the same of both
servers."""

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.dialled import GATEWAY, Dialled
from tests.client.gateways import Supercluster
from tests.servers import Server, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

LOGIN = "authorization { user: u, password: secret, timeout: 1 }"


def both(servers: Servers, run: Callable[[Server, int], Any], block: str = "") -> tuple[Any, Any]:
    found = []
    for kind in "op":
        port = free_port()
        server = Supercluster(servers).add("A", kind, port, block)
        found.append(run(server, port))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("connect", "info"),
    [
        ({"gateway": ""}, None),
        ({"gateway": "", "lang": "go"}, None),
        ({}, {"server_name": "A1"}),
        (None, {}),
    ],
    ids=["route", "client", "name", "no-connect"],
)
def test_who_may_not_come(
    servers: Servers, connect: dict[str, Any] | None, info: dict[str, Any] | None
) -> None:
    ours, peers = both(servers, lambda server, port: GATEWAY.refusal(port, connect, info))
    assert ours == peers


def test_clusters_that_are_not_known(servers: Servers) -> None:
    ours, peers = both(
        servers, lambda server, port: GATEWAY.refusal(port, {}, {}), "reject_unknown_cluster: true"
    )
    assert ours == peers == ["-ERR 'Connection to gateway \"A\" rejected'"]


def test_a_login(servers: Servers) -> None:
    ours, peers = both(servers, lambda server, port: GATEWAY.refused_logins(port), LOGIN)
    assert ours == peers == [["-ERR 'Authorization Violation'"]] * 3


def test_whoever_says_nothing_is_cut(servers: Servers) -> None:
    ours, peers = both(servers, lambda server, port: Dialled(port).errors(), LOGIN)
    assert ours == peers


def test_the_members_of_info(servers: Servers) -> None:
    def run(server: Server, port: int) -> dict[str, Any]:
        dialled = Dialled(port)
        dialled.socket.close()
        text = json.dumps(dialled.info).replace(str(port), "7222")
        return dict(json.loads(text))

    ours, peers = both(servers, run)
    left = {"server_id"}
    assert {k: v for k, v in ours.items() if k not in left} == {
        k: v for k, v in peers.items() if k not in left
    }


def lines_of(file: Any, count: int) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    while len(found) < count:
        verb, _, rest = file.readline().decode().strip().partition(" ")
        if verb not in ("PING", "PONG", ""):
            found.append((verb, json.loads(rest)))
    return found


@pytest.fixture
def dialled_by(servers: Servers) -> Callable[[str], tuple[Server, socket.socket]]:
    """A server of a kind that has a gateway B, which is this socket: the connection that comes."""

    def start(kind: str) -> tuple[Server, socket.socket]:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.settimeout(20)
        url = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        block = f'gateways: [{{ name: B, url: "{url}" }}]'
        server = Supercluster(servers).add("A", kind, free_port(), block)
        found, _ = listening.accept()
        found.settimeout(20)
        return server, found

    return start


@pytest.mark.parametrize(
    "info",
    [{"gateway": ""}, {"gateway": "OTHER"}, {"gateway": "B", "server_name": "A1"}],
    ids=["port", "other", "name"],
)
def test_what_a_server_that_dials_says(
    dialled_by: Callable[[str], tuple[Server, socket.socket]], info: dict[str, Any]
) -> None:
    found = []
    for kind in "op":
        _, link = dialled_by(kind)
        link.sendall(f"INFO {json.dumps(GATEWAY.info | info)} \r\n".encode())
        found.append([line for line in link.makefile("rb") if not line.startswith(b"PING")])
    assert found[0] == found[1]


def test_connect_and_info_of_a_server_that_dials(
    dialled_by: Callable[[str], tuple[Server, socket.socket]],
) -> None:
    found = []
    for kind in "op":
        _, link = dialled_by(kind)
        link.sendall(f"INFO {json.dumps(GATEWAY.info | {'gateway': 'B'})} \r\n".encode())
        (_, connect), (_, info) = lines_of(link.makefile("rb"), 2)
        assert connect.pop("name") == info.pop("server_id")
        for key in ("port", "gateway_url", "gateway_urls"):
            info.pop(key)
        found.append((connect, info))
    assert found[0] == found[1]
