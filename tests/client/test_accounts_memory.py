"""What accounts, connections and subscriptions take in memory, beside nats-server."""

import json

import pytest

from tests.client.raw import RawClient
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

ACCOUNTS = 1500
SUBSCRIPTIONS = 10
CONFIG = json.dumps(
    {
        "accounts": {
            f"A{number}": {"users": [{"user": f"u{number}", "password": "x"}]}
            for number in range(ACCOUNTS)
        }
    }
)


def grown(server: Server) -> int:
    """Bytes of a server with a client in each account, who subscribes."""
    clients = []
    for number in range(ACCOUNTS):
        client = RawClient(server.port)
        clients.append(client)
        options = json.dumps({"user": f"u{number}", "pass": "x", "verbose": False})
        lines = [f"SUB account.{number}.subject.{n}.> {n}" for n in range(SUBSCRIPTIONS)]
        client.send("\r\n".join([f"CONNECT {options}", *lines, ""]).encode())
    for client in clients:
        client.sync()
    memory = server.memory()
    for client in clients:
        client.close()
    return memory


def test_many_accounts_take_no_more_memory_than_in_nats_server(servers: Servers) -> None:
    ours, theirs = (grown(start(config=CONFIG)) for start in (servers.under_test, servers.peer))
    assert ours < theirs
