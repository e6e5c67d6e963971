"""Clusters of three, of ours and of nats-server in each mixture: what clients of one member send,
those of all others get, as from nats-server alone."""

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.elsewhere import use_jetstream
from tests.client.exchanges import (
    plain_messages_reach_all_in_order,
    publish_to_all_but,
    requests_are_answered_from_everywhere,
)
from tests.client.mesh import MIXED, Cluster, Heard, clients, meet, mixtures
from tests.servers import Servers, free_port

COUNT = 1000

pytestmark = pytest.mark.usefixtures("peer_present")


@pytest.fixture(params=mixtures("oop", "pop", "ooo", "non", soak=MIXED))
def cluster(request: pytest.FixtureRequest, servers: Servers) -> Cluster:
    found = Cluster(servers)
    found.start(request.param)
    return found


@asynchronous
async def test_plain_messages_reach_all_in_order(cluster: Cluster) -> None:
    async with clients(cluster) as members:
        await plain_messages_reach_all_in_order(members, COUNT)


@asynchronous
async def test_one_member_of_a_queue_group_gets_each_message(cluster: Cluster) -> None:
    async with clients(cluster) as members:
        heard = Heard()
        for number, client in enumerate(members):
            await heard.listen(client, f"queue{number}", "work", "group")
            await heard.listen(client, f"plain{number}", "work")
        await meet(members)
        for client in members:
            for n in range(COUNT):
                await client.publish("work", b"%d" % n)
            await client.flush()
        await until(lambda: heard.counts("plain") == [COUNT * 3] * 3)
        await until(lambda: sum(heard.counts("queue")) >= COUNT * 3)
        await meet(members)
        assert sum(heard.counts("queue")) == COUNT * 3
        # Each member of the group has its share: a third of the messages, give or take.
        assert min(heard.counts("queue")) > COUNT * 3 / 5


@asynchronous
async def test_requests_are_answered_from_everywhere(cluster: Cluster) -> None:
    async with clients(cluster) as members:
        await requests_are_answered_from_everywhere(members, COUNT // 3)


@asynchronous
async def test_whoever_stops_listening_gets_nothing_more(cluster: Cluster) -> None:
    async with clients(cluster) as members:
        got = await publish_to_all_but(members, 1)
        await until(lambda: got[0] == 1 and got[2] == 1)
        await meet(members)
        assert got == {0: 1, 2: 1}


@asynchronous
async def test_jetstream_of_other_members(servers: Servers) -> None:
    """Clients of a member without JetStream use that of the others as if it were here."""
    cluster = Cluster(servers)
    ports = [free_port(), free_port()]
    for port in ports:
        cluster.add("p", port=port, routes=ports, jetstream=True)
    cluster.add("o", routes=ports)
    async with connected(cluster.members[2]) as client:
        await use_jetstream(client)
