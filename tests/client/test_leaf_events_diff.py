"""Events of the system account about leaf nodes and hubs, beside nats-server's."""

import asyncio
import json
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.leafs import Tree
from tests.servers import Server, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

ACCOUNTS = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        A { users: [{ user: a, password: a }] }
    }
    system_account: SYS
"""
VARIES = ("id", "server", "timestamp", "start", "stop", "rtt", "num_subscriptions", "sent")
"""Fields that are only looked at for whether they are there."""


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: "" if k in (*VARIES, "received") else shape(v) for k, v in value.items()}
    return value


async def watched(server: Server, other: Server, begin: Any) -> list[tuple[str, Any]]:
    """What the system account of `server` hears while `begin` starts the link and until `other`
    has stopped."""
    heard: list[tuple[str, Any]] = []

    async def take(message: Any) -> None:
        if "SYS" not in message.subject.replace("$SYS", "") and "STATSZ" not in message.subject:
            heard.append((message.subject, shape(json.loads(message.data))))

    async with connected(server, user="sys", password="sys") as client:
        await client.subscribe("$SYS.ACCOUNT.>", cb=take)
        await client.subscribe("$SYS.SERVER.ACCOUNT.>", cb=take)
        await client.flush()
        await asyncio.to_thread(begin)
        await until(lambda: any(subject.endswith("A.CONNECT") for subject, _ in heard))
        await asyncio.to_thread(other.stop)
        await until(lambda: any(subject.endswith("A.DISCONNECT") for subject, _ in heard))
        return heard


@pytest.mark.parametrize("gateways", [False, True])
@asynchronous
async def test_a_hub_tells_of_its_leaf_nodes(servers: Servers, gateways: bool) -> None:
    found = []
    for kind in "po":
        tree = Tree(servers)
        block = f'gateway {{ name: X, listen: "127.0.0.1:{free_port()}" }}' if gateways else ""
        tree.add_hub(kind, rest=ACCOUNTS + block)
        leaf = tree.add_leaf("o", url=f"nats://a:a@127.0.0.1:{tree.port}")
        leaf.stop()
        found.append(sorted(await watched(tree.hub, leaf, leaf.start), key=str))
    assert found[0] == found[1]


@asynchronous
async def test_a_leaf_node_tells_of_its_hub(servers: Servers) -> None:
    found = []
    for kind in "po":
        tree = Tree(servers)
        tree.add_hub("o", rest=ACCOUNTS)
        tree.hub.stop()
        url = f"nats://a:a@127.0.0.1:{tree.port}"
        leaf = tree.add_leaf(kind, url=url, remote="account: A", rest=ACCOUNTS)
        found.append(sorted(await watched(leaf, tree.hub, tree.hub.start), key=str))
    assert found[0] == found[1]
