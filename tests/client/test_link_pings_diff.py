"""`ping_interval` and `ping_max` of gateways and leaf nodes, which nats-server has from 2.15 on."""

import json

import pytest

from tests.client.dialled import GATEWAY, Dialled
from tests.client.mesh import NEWEST
from tests.servers import ServerFailed, Servers, free_port

pytestmark = NEWEST

PINGS = 'ping_interval: "200ms", ping_max: 3'
NO_SYSTEM = "accounts { SYS { users: [{ user: sys, password: sys }] } }\nsystem_account: SYS\n"


def pings(dialled: Dialled) -> tuple[int, list[str]]:
    """How many come, of which only the first is answered, and what the other side says at last."""
    lines = []
    for line in dialled.file:
        lines.append(line.decode().strip())
        if lines.count("PING") == 1 and lines[-1] == "PING":
            dialled.socket.sendall(b"PONG\r\n")
    dialled.socket.close()
    return lines.count("PING"), [line for line in lines if line.startswith("-ERR")]


def of_a_gateway(servers: Servers, kind: str) -> tuple[int, list[str]]:
    port = free_port()
    block = f'gateway {{ name: A, listen: "127.0.0.1:{port}", {PINGS} }}'
    servers.of_kind(kind, config=NO_SYSTEM + block)
    dialled = Dialled(port)
    dialled.say("CONNECT", GATEWAY.connect)
    dialled.say("INFO", GATEWAY.info)
    return pings(dialled)


def of_a_leaf_node(servers: Servers, kind: str) -> tuple[int, list[str]]:
    port = free_port()
    servers.of_kind(kind, config=f'leafnodes {{ listen: "127.0.0.1:{port}", {PINGS} }}')
    dialled = Dialled(port)
    dialled.socket.sendall(b"CONNECT " + json.dumps({"name": "L", "cluster": ""}).encode())
    dialled.socket.sendall(b"\r\nPING\r\n")
    return pings(dialled)


@pytest.mark.parametrize("of", [of_a_gateway, of_a_leaf_node])
def test_who_does_not_answer_is_cut(servers: Servers, of: object) -> None:
    assert callable(of)
    ours, theirs = of(servers, "o"), of(servers, "n")
    assert ours == theirs
    assert ours[1]


@pytest.mark.parametrize(
    "block",
    [
        'gateway { name: A, port: -1, ping_interval: "20s" }',
        'gateway { name: A, port: -1, ping_interval: "x" }',
        'cluster { name: A, port: -1, ping_interval: "40s" }',
        "gateway { name: A, port: -1, ping_max: x }",
        'leafnodes { port: -1, ping_interval: "x" }',
        "leafnodes { port: -1, ping_interval: 5 }",
        'leafnodes { port: -1, ping_max: "x" }',
    ],
)
def test_what_cannot_be_set(servers: Servers, block: str) -> None:
    def said(kind: str) -> list[str]:
        try:
            log = servers.of_kind(kind, config=NO_SYSTEM + block).log()
        except ServerFailed as failed:
            log = str(failed)
        lines = (line.partition(".conf:")[2] for line in log.splitlines() if "ping_" in line)
        return [line for line in lines if line]

    assert said("o") == said("n")
