"""Leaf nodes of clusters, and clusters whose members are leaf nodes, of ours and of nats-server in
several mixtures."""

from collections.abc import Iterator

import pytest

from tests.client.aio import asynchronous, until
from tests.client.leafs import server
from tests.client.mesh import Cluster, Heard, clients_of, meet, mixtures
from tests.servers import Server, Servers, free_port

COUNT = 200

pytestmark = pytest.mark.usefixtures("peer_present")


class Grove:
    """A cluster of two hubs, and a cluster of two leaf nodes, each with a hub of its own."""

    def __init__(self, servers: Servers, kinds: str) -> None:
        hub_routes, leaf_routes = [free_port(), free_port()], [free_port(), free_port()]
        self.hubs: list[Server] = []
        self.leafs: list[Server] = []
        ports = [free_port(), free_port()]
        for number, kind in enumerate(kinds[:2]):
            config = f"""
                server_name: HUB{number}
                {cluster("EAST", hub_routes, number)}
                leafnodes {{ listen: "127.0.0.1:{ports[number]}", no_advertise: true }}
            """
            self.hubs.append(server(servers, kind, config))
        for number, kind in enumerate(kinds[2:]):
            config = f"""
                server_name: LEAF{number}
                {cluster("WEST", leaf_routes, number)}
                leafnodes {{
                    remotes: [ {{ url: "nats://127.0.0.1:{ports[number]}"
                                  ignore_discovered_servers: true }} ]
                    reconnect: 200ms
                }}
            """
            self.leafs.append(server(servers, kind, config))

    @property
    def members(self) -> list[Server]:
        return [*self.hubs, *self.leafs]


def cluster(name: str, ports: list[int], number: int) -> str:
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    return f'cluster {{ name: {name}, listen: "127.0.0.1:{ports[number]}", routes: [{urls}] }}'


@pytest.fixture(
    params=mixtures("oooo", "oopp", "poop", "noon", soak=["ppoo", "opop", "oppp", "ppop"])
)
def grove(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Grove]:
    yield Grove(servers, request.param)


@asynchronous
async def test_each_message_comes_once(grove: Grove) -> None:
    """To every plain subscriber, whichever way it could take; to one member of a group."""
    async with clients_of(grove.members) as members:
        heard = Heard()
        for number, client in enumerate(members):
            await heard.listen(client, f"plain{number}", "plain.*")
            await heard.listen(client, f"group{number}", "plain.*", "group")
        await meet(members)
        for number, client in enumerate(members):
            for n in range(COUNT):
                await client.publish(f"plain.{number}", b"%d" % n)
            await client.flush()
        each = COUNT * len(members)
        await until(lambda: min(heard.counts("plain")) >= each)
        await until(lambda: sum(heard.counts("group")) >= each)
        await meet(members)
        assert heard.counts("plain") == [each] * len(members)
        assert sum(heard.counts("group")) == each
        for messages in (heard.messages[f"plain{n}"] for n in range(len(members))):
            for number in range(len(members)):
                of = [m.data for m in messages if m.subject == f"plain.{number}"]
                assert of == [b"%d" % n for n in range(COUNT)]


@asynchronous
async def test_a_listener_at_one_leaf_node_is_heard_of_by_all(grove: Grove) -> None:
    async with clients_of(grove.members) as members:
        heard = Heard()
        await heard.listen(members[-1], "far", "far", "group")
        await heard.listen(members[-1], "near", "far")
        await meet(members)
        for client in members:
            await client.publish("far", b"")
            await client.flush()
        await until(lambda: min(heard.counts("")) >= len(members))
        await meet(members)
        assert heard.counts("") == [len(members)] * 2


async def crossing(servers: Servers, kinds: str, rules: str) -> list[list[str]]:
    """What gets from each of two hubs to those who listen at a leaf node of the second one, where
    the first one has the rules for what crosses routes: `subscription subject` of each message."""
    port = free_port()
    hubs = Cluster(servers, "EAST")
    hubs.add(kinds[0], block=rules)
    hubs.add(kinds[1], rest=f'leafnodes {{ listen: "127.0.0.1:{port}" }}')
    config = f"""
        server_name: LEAF
        {cluster("WEST", [free_port()], 0)}
        leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ], reconnect: 200ms }}
    """
    members = [*hubs.members, server(servers, kinds[2], config)]
    heard = Heard()
    async with clients_of(members) as (first, second, leaf):
        for subject in ("a.x", "a.y", "b"):
            await heard.listen(leaf, subject, subject)
            await heard.listen(leaf, f"{subject} in a group", subject, "group")
        await meet([first, second, leaf])
        found = []
        for client in (first, second):
            for subject in ("a.x", "a.y", "b"):
                await client.publish(subject, b"")
            await client.flush()
            await meet([first, second, leaf])
            found.append(
                sorted(f"{on} {m.subject}" for on in heard.messages for m in heard.messages[on])
            )
    return found


@pytest.mark.parametrize("kinds", mixtures("opo", "poo", soak=["opp", "ooo"]))
@asynchronous
async def test_interest_of_leaf_nodes_keeps_to_the_rules_of_routes(
    servers: Servers, kinds: str
) -> None:
    """As interest of a member's clients does."""
    rules = 'permissions { export: { deny: "a.x" } }'
    found = await crossing(servers, kinds, rules)
    assert found == await crossing(servers, "ppp", rules)
    assert len(found[0]) == 4
