"""Links that are cut at random while clients publish on both sides: nobody gets a message twice,
and interest is there again soon after the link.

`CUT_SECONDS` (1.5): how long one link is cut and healed; `CUT_SEED` chooses a run.
"""

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import asynchronous, connected, until
from tests.client.gateways import Supercluster
from tests.client.leafs import Tree
from tests.client.mesh import NEWEST, Cluster, page
from tests.client.proxy import Proxy
from tests.seeds import seed_of
from tests.servers import Server, Servers, free_port

SECONDS = float(os.environ.get("CUT_SECONDS", "1.5"))
pytestmark = [
    pytest.mark.usefixtures("peer_present"),
    pytest.mark.timeout(120 + SECONDS * 4),
]
KINDS = ["oo", "op", pytest.param("no", marks=NEWEST)]
RESTORED_SECONDS = 2.0
"""How long after the link interest may take."""
PAUSE = 0.002
"""Seconds between two messages of a publisher, so that these leave the servers the machine."""
Linked = Callable[[], bool]


@contextlib.asynccontextmanager
async def route(servers: Servers, kinds: str) -> AsyncIterator[tuple[list[Server], Proxy, Linked]]:
    cluster, port = Cluster(servers), free_port()
    alone = 'advertise: "127.0.0.1:1"'
    cluster.add(kinds[0], port=port, routes=[], block=alone, monitor=True)
    async with Proxy(port).listening() as proxy:
        cluster.add(kinds[1], routes=[proxy.port], block=alone, monitor=True)
        yield cluster.members, proxy, lambda: page(cluster.members[1], "routez")["num_routes"] > 0


@contextlib.asynccontextmanager
async def leaf(servers: Servers, kinds: str) -> AsyncIterator[tuple[list[Server], Proxy, Linked]]:
    tree = Tree(servers)
    tree.add_hub(kinds[0])
    async with Proxy(tree.port).listening() as proxy:
        tree.add_leaf(kinds[1], url=f"nats://127.0.0.1:{proxy.port}", monitor=True)
        yield tree.members, proxy, lambda: page(tree.members[1], "leafz")["leafnodes"] > 0


@contextlib.asynccontextmanager
async def gateway(
    servers: Servers, kinds: str
) -> AsyncIterator[tuple[list[Server], Proxy, Linked]]:
    joined, port = Supercluster(servers), free_port()
    async with Proxy(port).listening() as proxy:
        joined.add("B", kinds[0], port, f'advertise: "127.0.0.1:{proxy.port}"', monitor=True)
        of_b = f'gateways: [{{ name: B, url: "nats://127.0.0.1:{proxy.port}" }}]'
        joined.add("A", kinds[1], free_port(), of_b, monitor=True)
        here, there = joined.members

        def linked() -> bool:
            found = page(there, "gatewayz")
            return bool(found["outbound_gateways"] and found["inbound_gateways"].get("B"))

        yield [here, there], proxy, linked


class Traffic:
    """Publishers and subscribers on both sides of a link."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.plain: list[Counter[bytes]] = [Counter() for _ in clients]
        self.queue: Counter[bytes] = Counter()
        self.ends = False

    async def listen(self) -> None:
        for number, client in enumerate(self.clients):

            async def hear(message: Any, number: int = number) -> None:
                self.plain[number][message.data] += 1

            async def work(message: Any) -> None:
                self.queue[message.data] += 1

            async def answer(message: Any) -> None:
                await message.respond(b"yes")

            await client.subscribe("news.*", cb=hear)
            await client.subscribe("news.*", "workers", cb=work)
            await client.subscribe(f"side.{number}", cb=answer)
            await client.flush()

    async def publish(self, number: int) -> None:
        count = 0
        while not self.ends:
            await self.clients[number].publish("news.x", b"%d-%d" % (number, count))
            count += 1
            await asyncio.sleep(PAUSE)

    async def restored(self) -> None:
        """Waits until each side is asked from the other one."""
        for number, client in enumerate(self.clients):

            async def answered(number: int = number, client: Client = client) -> bool:
                try:
                    await client.request(f"side.{1 - number}", b"", timeout=0.5)
                except (NoRespondersError, NoAnswer):
                    await asyncio.sleep(0.02)  # until it is asked again
                    return False
                return True

            await until(answered, 20)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("link", [route, leaf, gateway])
@asynchronous
async def test_nobody_hears_anything_twice(servers: Servers, link: Any, kinds: str) -> None:
    random = Random(f"{kinds}{link.__name__}{seed_of('CUT_SEED')}")
    async with (
        link(servers, kinds) as (members, proxy, linked),
        connected(members[0]) as one,
        connected(members[1]) as other,
    ):
        traffic = Traffic([one, other])
        await traffic.listen()
        await until(linked, 20)
        await traffic.restored()
        publishers = [asyncio.create_task(traffic.publish(number)) for number in range(2)]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            await asyncio.sleep(random.uniform(0, 0.3))  # while messages go
            if random.random() < 0.5:
                proxy.cut()
            else:
                proxy.shut()
                await asyncio.sleep(random.uniform(0, 0.3))  # while nobody gets through
                proxy.reopen()
            await until(linked, 20)
            began = time.monotonic()
            await traffic.restored()
            assert time.monotonic() - began < RESTORED_SECONDS
        traffic.ends = True
        await asyncio.gather(*publishers)
        await traffic.restored()
        for number, heard in enumerate(traffic.plain):
            assert max(heard.values()) == 1
            # All of the own side's, and of the other side's what went while the link was there.
            assert {data[:1] for data in heard} == {b"0", b"1"}, number
        assert max(traffic.queue.values()) == 1
