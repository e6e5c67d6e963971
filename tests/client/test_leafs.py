"""Leaf nodes and hubs, of ours and of nats-server in each mixture: what clients of one send, those
of the others get."""

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.exchanges import (
    plain_messages_reach_all_in_order,
    publish_to_all_but,
    requests_are_answered_from_everywhere,
)
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import Heard, clients_of, meet, mixtures
from tests.servers import Servers

COUNT = 1000

pytestmark = pytest.mark.usefixtures("peer_present")


@pytest.fixture(params=mixtures(*MIXED, "opo", "on", soak=["poo", "opp", "no"]))
def tree(request: pytest.FixtureRequest, servers: Servers) -> Tree:
    found = Tree(servers)
    found.start(request.param)
    return found


@asynchronous
async def test_plain_messages_reach_all_in_order(tree: Tree) -> None:
    async with clients_of(tree.members) as members:
        await plain_messages_reach_all_in_order(members, COUNT)


@asynchronous
async def test_one_member_of_a_queue_group_gets_each_message(tree: Tree) -> None:
    """A member at the server where a message is published comes before those of leaf nodes."""
    async with clients_of(tree.members) as members:
        heard = Heard()
        for number, client in enumerate(members):
            await heard.listen(client, f"all{number}", "work.*")
            await heard.listen(client, f"group{number}", "work.all", "group")
        await heard.listen(members[-1], "far", "work.far", "far")
        await heard.listen(members[-1], "far too", "work.far", "far")
        await meet(members)
        for client in members:
            for n in range(COUNT):
                await client.publish("work.all", b"%d" % n)
                await client.publish("work.far", b"%d" % n)
            await client.flush()
        total = COUNT * len(members)
        await until(lambda: heard.counts("all") == [total * 2] * len(members))
        await meet(members)
        assert heard.counts("group") == [COUNT] * len(members)
        assert sum(heard.counts("far")) == total
        assert min(heard.counts("far")) > total / 5


@asynchronous
async def test_requests_are_answered_from_everywhere(tree: Tree) -> None:
    async with clients_of(tree.members) as members:
        await requests_are_answered_from_everywhere(members, COUNT // 3)


@asynchronous
async def test_whoever_stops_listening_gets_nothing_more(tree: Tree) -> None:
    async with clients_of(tree.members) as members:
        got = await publish_to_all_but(members, 1)
        expected = {n: 1 for n in range(len(members)) if n != 1}
        await until(lambda: dict(got) == expected)
        await meet(members)
        assert dict(got) == expected


@pytest.mark.parametrize("kinds", MIXED)
@asynchronous
async def test_a_link_comes_back(servers: Servers, kinds: str) -> None:
    """With all interest, when the hub or the leaf node was away."""
    tree = Tree(servers)
    tree.start(kinds)
    for away in tree.members:
        async with connected(tree.members[1 - tree.members.index(away)]) as staying:
            got: list[bytes] = []

            async def take(message: Any, got: list[bytes] = got) -> None:
                got.append(message.data)

            await staying.subscribe("news", cb=take)
            away.restart(kill=True)
            async with connected(away) as coming:

                async def heard(coming: Client = coming, got: list[bytes] = got) -> bool:
                    await coming.publish("news", b"!")
                    await coming.flush()
                    await asyncio.sleep(0.05)  # until it is said again
                    return bool(got)

                await until(heard, 30)


@pytest.mark.parametrize("kinds", MIXED)
@asynchronous
async def test_mappings_and_imports_hold_for_what_comes(servers: Servers, kinds: str) -> None:
    """As if a client of the account had sent it, on either side."""
    accounts = """
        accounts {
            A { users: [{user: a, password: a}]
                mappings { "map.from": "map.to" }
                imports [
                    {stream: {account: B, subject: "out.*"}, prefix: "in"}
                    {service: {account: B, subject: "help"}, to: "ask"}
                ] }
            B { users: [{user: b, password: b}]
                exports [{stream: "out.*"}, {service: "help"}] }
        }
    """
    tree = Tree(servers)
    tree.start(kinds[0], rest=accounts)
    tree.add_leaf(kinds[1], url=tree.url.replace("//", "//a:a@"))
    async with (
        connected(tree.hub, user="a", password="a") as hub,
        connected(tree.hub, user="b", password="b") as other,
        connected(tree.members[1]) as leaf,
    ):
        heard = Heard()
        await heard.listen(hub, "mapped", "map.to")
        await heard.listen(leaf, "imported", "in.out.*")

        async def answer(message: Any) -> None:
            await message.respond(b"yes")

        await other.subscribe("help", cb=answer)
        await other.flush()
        await meet([hub, leaf])
        await leaf.publish("map.from", b"1")
        await other.publish("out.x", b"2")
        await other.flush()
        assert (await leaf.request("ask", b"?", timeout=10)).data == b"yes"
        await until(lambda: heard.counts("") == [1, 1])
        assert heard.messages["imported"][0].subject == "in.out.x"
        assert heard.messages["mapped"][0].subject == "map.to"
