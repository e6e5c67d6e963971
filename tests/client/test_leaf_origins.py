"""Mirrors and sources of a cluster's streams at a leaf node, and of a leaf node's streams in a
cluster, by their domains: a cut link and other leaders cost no message, and bring none twice."""

import asyncio
from typing import Any

from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, page
from tests.client.proxy import Proxy
from tests.client.test_held_diff import done
from tests.client.test_replicated import asked
from tests.client.test_replicated_origins import Publisher, came_to, contents, create, has
from tests.servers import Server, Servers, free_port


def hub(servers: Servers) -> tuple[Cluster, int]:
    """A cluster with the domain HUB, and the port for leaf nodes of its first member."""
    cluster, leaf_port = Cluster(servers), free_port()
    ports = [free_port() for _ in range(3)]
    for number, port in enumerate(ports):
        listen = f'leafnodes {{ listen: "127.0.0.1:{free_port() if number else leaf_port}" }}'
        rest = f"{ACCOUNTS}\n{jetstream(servers, 'HUB', number)}\n{listen}"
        cluster.add("o", rest=rest, routes=ports, port=port, monitor=True)
    return cluster, leaf_port


def leaf(servers: Servers, port: int) -> Server:
    remote = f'{{ urls: ["nats://one:x@127.0.0.1:{port}"], account: ONE }}'
    links = f'leafnodes {{ reconnect: "1s", remotes: [{remote}] }}'
    config = f"{ACCOUNTS}\nserver_name: LEAF\n{jetstream(servers, 'LEAF')}\n{links}"
    return servers.under_test(config=config, monitor=True)


def jetstream(servers: Servers, domain: str, number: int = 0) -> str:
    folder = servers.base / f"{domain}{number}"
    return f'jetstream {{ domain: {domain}, store_dir: "{folder}" }}'


def of(name: str, domain: str) -> dict[str, Any]:
    """An origin in another domain."""
    external = {"api": f"$JS.{domain}.API", "deliver": f"deliver.{domain}"}
    return {"name": name, "external": external}


async def active(client: Client, *names: str) -> bool:
    """Whether something has come from the origins of these streams."""
    infos = [await done(client, f"STREAM.INFO.{name}") for name in names]
    return all(one["active"] != -1 for i in infos for one in (i.get("sources") or [i["mirror"]]))


@asynchronous
async def test_a_cut_link_and_other_leaders_cost_no_message(servers: Servers) -> None:
    cluster, port = hub(servers)
    await cluster.whole()
    async with Proxy(port).listening() as proxy:
        far = leaf(servers, proxy.port)
        await until(lambda: page(far, "leafz")["leafnodes"] > 0)
        async with connected(cluster.members[1]) as here, connected(far) as there:

            async def placed() -> bool:
                body = {"name": "O", "subjects": ["O.*"], "num_replicas": 3}
                return "error" not in await asked(here, "STREAM.CREATE.O", body)

            await until(placed)
            await create(here, "W", subjects=["W.*"], retention="workqueue")
            await create(there, "L", 1, subjects=["L.*"])
            await create(there, "K", 1, subjects=["K.*"], retention="interest")
            await create(there, "MO", 1, mirror=of("O", "HUB"))
            await create(there, "SW", 1, sources=[of("W", "HUB")])
            await create(here, "ML", mirror=of("L", "LEAF"))
            await create(here, "SK", sources=[of("K", "LEAF")])
            await until(lambda: active(there, "MO", "SW"))
            await until(lambda: active(here, "ML", "SK"))

            publishers = [
                *(Publisher(here, "O"), Publisher(here, "W")),
                *(Publisher(there, "L"), Publisher(there, "K")),
            ]
            await asyncio.gather(*(one.publish(20) for one in publishers))
            proxy.shut()
            await asyncio.gather(*(one.publish(20) for one in publishers))
            proxy.reopen()
            for name in ("O", "W", "ML", "SK"):
                await asked(here, f"STREAM.LEADER.STEPDOWN.{name}")
            await asyncio.gather(*(one.publish(20) for one in publishers))

            for client, name in ((there, "MO"), (there, "SW"), (here, "ML"), (here, "SK")):
                await came_to(client, name, 60)
                await has(client, name, 60)
            await has(here, "W", 0)
            await has(there, "K", 0)
            assert await contents(here, "O") == await contents(there, "MO")
            assert await contents(there, "L") == await contents(here, "ML")
            for client, name in ((there, "SW"), (here, "SK")):
                taken = (await contents(client, name)).values()
                assert [int(one.source.split(" ")[1]) for one in taken] == [*range(1, 61)]
