"""Clusters of three, of ours and of nats-server in each mixture: what clients of one member send,
those of all others get, as from nats-server alone."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from nats.errors import NoRespondersError

from tests.client.aio import asynchronous, connected, until
from tests.client.elsewhere import use_jetstream
from tests.client.mesh import MIXED, Cluster, Heard, clients, meet
from tests.servers import Servers, free_port

COUNT = 1000

pytestmark = pytest.mark.usefixtures("peer_present")


@pytest.fixture(params=MIXED)
def cluster(request: pytest.FixtureRequest, servers: Servers) -> Cluster:
    found = Cluster(servers)
    found.start(request.param)
    return found


@asynchronous
async def test_plain_messages_reach_all_in_order(cluster: Cluster) -> None:
    async with clients(cluster) as members:
        heard = Heard()
        for number, client in enumerate(members):
            await heard.listen(client, f"plain{number}", "plain.*")
        await meet(members)
        for number, client in enumerate(members):
            for n in range(COUNT):
                headers = {"Nth": str(n)} if n % 2 else None
                await client.publish(f"plain.{number}", b"%d" % n, headers=headers)
            await client.flush()
        await until(lambda: heard.counts("plain") == [COUNT * 3] * 3)
        for messages in heard.messages.values():
            for number in range(3):
                of = [m for m in messages if m.subject == f"plain.{number}"]
                assert [m.data for m in of] == [b"%d" % n for n in range(COUNT)]
                expected = [{"Nth": str(n)} if n % 2 else None for n in range(COUNT)]
                assert [m.headers or None for m in of] == expected


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
        for number, client in enumerate(members):

            async def answer(message: Any, number: int = number) -> None:
                await message.respond(b"%d:%s" % (number, message.data))

            await client.subscribe(f"service.{number}", cb=answer)
        await meet(members)
        for client in members:
            for number in range(3):
                subject = f"service.{number}"
                asked = [client.request(subject, b"%d" % n, timeout=10) for n in range(COUNT // 3)]
                answers = await asyncio.gather(*asked)
                expected = [b"%d:%d" % (number, n) for n in range(COUNT // 3)]
                assert [found.data for found in answers] == expected
            with pytest.raises(NoRespondersError):
                await client.request("nobody", b"", timeout=10)


@asynchronous
async def test_whoever_stops_listening_gets_nothing_more(cluster: Cluster) -> None:
    async with clients(cluster) as members:
        got: Counter[int] = Counter()
        subscriptions = []
        for number, client in enumerate(members):

            async def take(_: Any, number: int = number) -> None:
                got[number] += 1

            subscriptions.append(await client.subscribe("news", cb=take))
        await meet(members)
        await subscriptions[1].unsubscribe()
        await members[1].flush()
        await meet(members)
        await members[0].publish("news", b"")
        await members[0].flush()
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
