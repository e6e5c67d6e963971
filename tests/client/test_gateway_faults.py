"""Gateways under random interest, over servers that come and go, and how clusters hear of each
other."""

import asyncio
from random import Random
from typing import Any

import bcrypt
import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.elsewhere import use_jetstream
from tests.client.gateways import Supercluster
from tests.client.interest import World
from tests.client.mesh import Cluster, Heard, clients_of, meet, page
from tests.client.proxy import Proxy
from tests.seeds import seed_of
from tests.servers import ServerFailed, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

STEPS = 100
SYSTEM = "accounts { SYS { users: [{ user: sys, password: sys }] } }\nsystem_account: SYS"


@pytest.mark.parametrize("kinds", ["oo-p", "op-po", "o-o-p"])
@asynchronous
async def test_random_interest(servers: Servers, kinds: str) -> None:
    joined = Supercluster(servers)
    joined.start(kinds)
    random = Random(f"{kinds}{seed_of('ROUTES_SEED')}")
    async with clients_of(joined.members) as members:
        await World(members).play(random, STEPS)


@pytest.mark.parametrize("kinds", ["o-p-o", "p-o-p", "o-o-o"])
@asynchronous
async def test_clusters_hear_of_each_other(servers: Servers, kinds: str) -> None:
    """A and C name B alone."""
    joined = Supercluster(servers)
    port = free_port()
    of_b = f'gateways: [{{ name: B, url: "nats://127.0.0.1:{port}" }}]'
    first, second, third = kinds.split("-")
    joined.add("B", second, port, "")
    joined.add("A", first, free_port(), of_b)
    joined.add("C", third, free_port(), of_b)
    async with clients_of(joined.members):
        pass  # each has heard each other


@pytest.mark.parametrize("kinds", ["op-p", "po-o", "oo-p"])
@asynchronous
async def test_servers_of_a_cluster_tell_each_other_of_clusters(
    servers: Servers, kinds: str
) -> None:
    """The first server of A names B; the second one names nobody, nor does B."""
    joined = Supercluster(servers)
    of_a, of_b = kinds.split("-")
    port = free_port()
    joined.add("B", of_b, port, "")
    of_other = f'gateways: [{{ name: B, url: "nats://127.0.0.1:{port}" }}]'
    joined.add("A", of_a[0], free_port(), of_other)
    joined.add("A", of_a[1], free_port(), "")
    async with clients_of(joined.members):
        pass


@pytest.mark.parametrize("kinds", ["o-p", "p-o", "o-o"])
@asynchronous
async def test_a_cluster_that_comes_back(servers: Servers, kinds: str) -> None:
    """What its clients subscribe to then is known, and nothing is of what they did before."""
    joined = Supercluster(servers)
    joined.start(kinds)
    here, there = joined.members
    async with connected(here) as client:
        for n in range(2):
            async with connected(there) as other:
                heard = Heard()
                await heard.listen(other, f"news{n}", f"news.{n}")
                await meet([client, other])
                for number in range(2):
                    await client.publish(f"news.{number}", b"")
                await meet([client, other])
                assert heard.counts("news") == [1]
            await asyncio.to_thread(there.restart, kill=bool(n))


@pytest.mark.parametrize("kinds", ["po", "op", "oo"])
@asynchronous
async def test_connections_that_are_cut_come_back(servers: Servers, kinds: str) -> None:
    """After each cut interest is what it was, and what went while it lasted is gone afterwards."""
    joined = Supercluster(servers)
    port = free_port()
    async with Proxy(port).listening() as proxy:
        joined.add("B", kinds[1], port, f'advertise: "127.0.0.1:{proxy.port}"')
        of_b = f'gateways: [{{ name: B, url: "nats://127.0.0.1:{proxy.port}" }}]'
        joined.add("A", kinds[0], free_port(), of_b)
        async with clients_of(joined.members) as members:
            random = Random(f"{kinds}{seed_of('ROUTES_SEED')}")
            await World(members).play_over_cuts(random, proxy, 3)


@asynchronous
async def test_no_cluster_that_is_not_named(servers: Servers) -> None:
    joined = Supercluster(servers)
    port = free_port()
    joined.add("A", "o", port, "reject_unknown_cluster: true", monitor=True)
    of_a = f'gateways: [{{ name: A, url: "nats://127.0.0.1:{port}" }}]'
    joined.add("B", "p", free_port(), of_a, monitor=True)
    log = joined.members[0].log
    await until(lambda: 'Rejecting connection from gateway "B"' in log())
    assert page(joined.members[0], "gatewayz")["inbound_gateways"] == {}


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("kinds", ["o-p", "p-o", "o-o"])
@asynchronous
async def test_logins(servers: Servers, kinds: str, hashed: bool) -> None:
    """By the URL, or the same for all."""

    def login(user: str, password: str) -> str:
        if hashed:
            password = bcrypt.hashpw(password.encode(), bcrypt.gensalt(8, b"2a")).decode()
        return f'authorization {{ user: {user}, password: "{password}", timeout: 10 }}'

    joined = Supercluster(servers)
    here, there = kinds.split("-")
    ports = [free_port(), free_port()]
    of_b = f'gateways: [{{ name: B, url: "nats://u:p@127.0.0.1:{ports[1]}" }}]'
    joined.add("A", here, ports[0], f"{of_b}\n{login('v', 'q')}")
    of_a = f'gateways: [{{ name: A, url: "nats://v:q@127.0.0.1:{ports[0]}" }}]'
    joined.add("B", there, ports[1], f"{of_a}\n{login('u', 'p')}")
    async with clients_of(joined.members):
        pass


@asynchronous
async def test_jetstream_of_another_cluster(servers: Servers) -> None:
    """Clients of a cluster without JetStream use that of another one."""
    joined = Supercluster(servers)
    port = free_port()
    of_b = f'gateways: [{{ name: B, url: "nats://127.0.0.1:{port}" }}]'
    routes = [free_port(), free_port()]
    joined.add("B", "p", port, "", jetstream=True, routes=routes, port=routes[0])
    joined.add("B", "p", free_port(), "", jetstream=True, routes=routes, port=routes[1])
    joined.add("A", "o", free_port(), of_b)
    async with connected(joined.members[2]) as client:
        await use_jetstream(client)


@asynchronous
async def test_leaf_nodes_of_two_clusters(servers: Servers) -> None:
    """A client behind a leaf node of one cluster is answered by one behind a leaf node of the
    other, at once."""
    for kinds in ("oo", "op", "po"):
        joined = Supercluster(servers)
        ports = [free_port(), free_port()]
        gates = [free_port(), free_port()]
        for name, kind, port, gate in zip("AB", kinds, ports, gates, strict=True):
            other = "B" if name == "A" else "A"
            of = gates[1] if name == "A" else gates[0]
            block = f'gateways: [{{ name: {other}, url: "nats://127.0.0.1:{of}" }}]'
            rest = f'{SYSTEM}\nleafnodes {{ listen: "127.0.0.1:{port}" }}'
            joined.add(name, kind, gate, block, rest)
        leafs = []
        for number, port in enumerate(ports):
            remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}'
            leafs.append(servers.under_test(config=f"server_name: L{number}\n{remote}"))
        async with clients_of([*joined.members, *leafs]) as members:
            replies: list[str] = []

            async def answer(message: Any, replies: list[str] = replies) -> None:
                replies.append(message.reply)
                await message.respond(b"yes")

            await members[3].subscribe("service", cb=answer)
            await meet(members)
            for _ in range(3):
                async with connected(leafs[0]) as fresh:
                    assert (await fresh.request("service", b"", timeout=10)).data == b"yes"
            assert len(replies) == 3
            assert all(reply.startswith("_INBOX.") for reply in replies)


def test_the_name_of_a_cluster_is_that_of_its_gateway(servers: Servers) -> None:
    cluster = Cluster(servers, "OTHER")
    gate = f'gateway {{ name: A, listen: "127.0.0.1:{free_port()}" }}'
    with pytest.raises(ServerFailed, match="cluster name conflicts"):
        cluster.add("o", rest=gate)
