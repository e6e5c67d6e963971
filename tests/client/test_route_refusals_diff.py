"""What a cluster's port refuses, and with which words: the same of both servers."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.dialled import ROUTE, Dialled
from tests.client.mesh import Cluster
from tests.client.raw import RawClient
from tests.servers import Server, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

LOGIN = "authorization { user: u, password: secret, timeout: 1 }"


def both(servers: Servers, run: Callable[[Server, int], Any], **options: Any) -> tuple[Any, Any]:
    found = []
    for kind in "op":
        cluster = Cluster(servers)
        server = cluster.add(kind, **options)
        found.append(run(server, cluster.ports[0]))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("connect", "info"),
    [
        ({"lang": "go"}, None),
        ({"gateway": "G"}, None),
        ({"cluster": "OTHER"}, {}),
        (None, {}),
        ({}, {"route_pool_idx": 7}),
        ({}, {"route_account": "ZZ"}),
        ({}, {"route_account": "$G"}),
        ({}, {"route_pool_size": 0, "route_account": "$SYS"}),
        ({}, {"server_name": "A"}),
        ({}, {"compression": "zip"}),
    ],
    ids=[
        *("client", "gateway", "cluster", "no-connect", "index", "account", "$G", "no-pool"),
        *("name", "compression"),
    ],
)
def test_who_may_not_come(
    servers: Servers, connect: dict[str, Any] | None, info: dict[str, Any] | None
) -> None:
    ours, peers = both(servers, lambda server, port: ROUTE.refusal(port, connect, info))
    assert ours == peers


def test_a_login(servers: Servers) -> None:
    ours, peers = both(servers, lambda server, port: ROUTE.refused_logins(port), block=LOGIN)
    assert ours == peers == [["-ERR 'Authorization Violation'"]] * 3


def test_whoever_says_nothing_is_cut(servers: Servers) -> None:
    ours, peers = both(servers, lambda server, port: Dialled(port).errors(), block=LOGIN)
    assert ours == peers


def test_a_message_before_the_handshake(servers: Servers) -> None:
    def run(server: Server, port: int) -> list[str]:
        dialled = Dialled(port)
        dialled.socket.sendall(b"RMSG $G foo 2\r\nhi\r\n")
        return dialled.errors()

    ours, peers = both(servers, run)
    assert ours == peers


def test_the_members_of_info(servers: Servers) -> None:
    def run(server: Server, port: int) -> dict[str, Any]:
        dialled = Dialled(port)
        dialled.socket.close()
        return dict(dialled.info)

    ours, peers = both(servers, run)
    varying = {"server_id", "nonce", "go", "port", "git_commit"}
    # Where a peer tells of its clients' port.
    differing = {"connect_urls", "xkey", "api_lvl"}
    left = varying | differing
    assert {k: v for k, v in ours.items() if k not in left} == {
        k: v for k, v in peers.items() if k not in left
    }
    assert re.fullmatch(r"[\w-]{15}", ours["nonce"])


def test_who_does_not_answer_is_cut(servers: Servers) -> None:
    """After as many PINGs as `ping_max` says."""

    def pings(server: Server, port: int) -> tuple[int, list[str]]:
        dialled = Dialled(port)
        dialled.say("CONNECT", ROUTE.connect)
        dialled.say("INFO", ROUTE.info)
        lines = []
        for line in dialled.file:
            lines.append(line.decode())
            if line == b"PING\r\n" and lines.count("PING\r\n") == 1:
                dialled.socket.sendall(b"PONG\r\n")
        dialled.socket.close()
        return lines.count("PING\r\n"), [line for line in lines if line.startswith("-ERR")]

    block = 'ping_interval: "200ms", ping_max: 4'
    ours, theirs = both(servers, pings, block=block)
    assert ours == theirs


def test_who_takes_no_bytes_is_cut(servers: Servers) -> None:
    cluster = Cluster(servers)
    server = cluster.add("o", block='write_deadline: "300ms"')
    dialled = Dialled(cluster.ports[0])
    dialled.say("CONNECT", ROUTE.connect)
    dialled.say("INFO", ROUTE.info | {"route_pool_idx": 2})  # that of the global account
    dialled.socket.sendall(b"RS+ $G much\r\nPING\r\n")
    for line in dialled.file:
        if line == b"PONG\r\n":
            break
    with RawClient(server.port) as client:
        client.send(b"CONNECT {}\r\n")
        payload = bytes(1 << 20)
        for _ in range(32):
            client.send(b"PUB much %d\r\n%s\r\n" % (len(payload), payload))
        said = "Slow Consumer Detected: WriteDeadline of 300ms exceeded"
        wait_until(lambda: said in server.log(), said)
    dialled.socket.close()
