"""Routes under random interest, over connections that break, and to servers that take nothing."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.interest import World
from tests.client.mesh import Cluster, clients, meet, page
from tests.client.proxy import Proxy
from tests.seeds import seed_of
from tests.servers import Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

STEPS = 200


@pytest.mark.parametrize("kinds", ["opo", "pop", "ooo"])
@asynchronous
async def test_random_interest(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds)
    random = Random(f"{kinds}{seed_of('ROUTES_SEED')}")
    async with clients(cluster) as members:
        await World(members).play(random, STEPS)


@pytest.mark.parametrize("kinds", ["po", "op", "oo"])
@asynchronous
async def test_links_that_are_cut_come_back(servers: Servers, kinds: str) -> None:
    """After each cut interest is what it was, and what went while it lasted is gone afterwards."""
    cluster = Cluster(servers)
    port = free_port()
    cluster.add(kinds[0], port=port, routes=[], block='advertise: "127.0.0.1:1"')
    async with Proxy(port).listening() as proxy:
        cluster.add(kinds[1], routes=[proxy.port])
        async with clients(cluster) as members:
            random = Random(f"{kinds}{seed_of('ROUTES_SEED')}")
            await World(members).play_over_cuts(random, proxy, 4)


@asynchronous
async def test_a_server_that_takes_nothing_is_cut(servers: Servers) -> None:
    """At most max_pending waits for it, and nobody waits longer than that takes."""
    cluster = Cluster(servers)
    port = free_port()
    cluster.add("p", port=port, routes=[], block='advertise: "127.0.0.1:1"')
    async with Proxy(port).listening() as proxy:
        limit = "max_pending: 2000000\nmax_payload: 100000"
        cluster.add("o", routes=[proxy.port], rest=limit, monitor=True)
        ours = cluster.members[1]
        async with clients(cluster) as members:
            got: Counter[bytes] = Counter()

            async def take(message: Any) -> None:
                got[bytes(message.data[:1])] += 1

            await members[0].subscribe("much", cb=take)
            await meet(members)
            proxy.hold()
            async with connected(ours) as near:
                await near.subscribe("much.near", cb=take)
                for _ in range(400):
                    await members[1].publish("much", b"x" * 90_000)
                await members[1].publish("much.near", b"y")
                await members[1].flush(60)
                await until(lambda: got[b"y"] == 1)
            await until(lambda: page(ours, "varz")["slow_consumer_stats"]["routes"] > 0)
            assert "Slow Consumer Detected: MaxPending of 2000000 Exceeded" in ours.log()
            assert page(ours, "varz")["slow_consumer_stats"]["clients"] == 0
            proxy.release()
            proxy.cut()
            await meet(members, 40)
            await members[1].publish("much", b"z")
            await until(lambda: got[b"z"] == 1)
