"""Two clusters that are joined by gateways, of ours and of nats-server in each mixture: what
clients of one server send, those of all others get, as from nats-server alone."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from nats.errors import NoRespondersError

from tests.client.aio import asynchronous, connected, until
from tests.client.gateways import MIXED, Supercluster
from tests.client.mesh import Heard, clients_of, meet
from tests.servers import Servers

COUNT = 1000

pytestmark = pytest.mark.usefixtures("peer_present")


@pytest.fixture(params=MIXED)
def joined(request: pytest.FixtureRequest, servers: Servers) -> Supercluster:
    found = Supercluster(servers)
    found.start(request.param)
    return found


@asynchronous
async def test_plain_messages_reach_all_in_order(joined: Supercluster) -> None:
    async with clients_of(joined.members) as members:
        heard = Heard()
        for number, client in enumerate(members):
            await heard.listen(client, f"plain{number}", "plain.*")
        await meet(members)
        for number, client in enumerate(members):
            for n in range(COUNT):
                headers = {"Nth": str(n)} if n % 2 else None
                await client.publish(f"plain.{number}", b"%d" % n, headers=headers)
            await client.flush()
        every = len(members)
        await until(lambda: heard.counts("plain") == [COUNT * every] * every)
        await meet(members)
        for messages in heard.messages.values():
            for number in range(every):
                of = [m for m in messages if m.subject == f"plain.{number}"]
                assert [m.data for m in of] == [b"%d" % n for n in range(COUNT)]
                expected = [{"Nth": str(n)} if n % 2 else None for n in range(COUNT)]
                assert [m.headers or None for m in of] == expected


@asynchronous
async def test_queue_groups_prefer_their_own_cluster(joined: Supercluster) -> None:
    async with clients_of(joined.members) as members:
        heard = Heard()
        clusters = [name for name, c in joined.clusters.items() for _ in c.members]
        for number, client in enumerate(members):
            await heard.listen(client, f"queue{number}", "work.*", "group")
            await heard.listen(client, f"plain{number}", "work.*")
        last = members[-1]
        await heard.listen(last, "far", "work.*", "far")
        await meet(members)
        for cluster, client in zip(clusters, members, strict=True):
            for n in range(COUNT):
                await client.publish(f"work.{cluster}", b"%d" % n)
            await client.flush()
        every = len(members)
        await until(lambda: heard.counts("plain") == [COUNT * every] * every)
        await until(lambda: sum(heard.counts("queue")) >= COUNT * every)
        await until(lambda: heard.counts("far")[0] >= COUNT * every)
        await meet(members)
        assert sum(heard.counts("queue")) == COUNT * every
        assert heard.counts("far") == [COUNT * every]
        for number, cluster in enumerate(clusters):
            got = heard.messages[f"queue{number}"]
            assert {m.subject for m in got} == {f"work.{cluster}"}
            assert len(got) > COUNT * 3 / 5  # its share of what its cluster has sent, more or less


@asynchronous
async def test_requests_are_answered_from_everywhere(joined: Supercluster) -> None:
    async with clients_of(joined.members) as members:
        for number, client in enumerate(members):

            async def answer(message: Any, number: int = number) -> None:
                assert not message.reply.startswith("_GR_")
                await message.respond(b"%d:%s" % (number, message.data))

            await client.subscribe(f"service.{number}", cb=answer)
        await meet(members)
        each = COUNT // len(members)
        for client in members:
            for number in range(len(members)):
                subject = f"service.{number}"
                asked = [client.request(subject, b"%d" % n, timeout=10) for n in range(each)]
                answers = await asyncio.gather(*asked)
                assert [found.data for found in answers] == [
                    b"%d:%d" % (number, n) for n in range(each)
                ]
            with pytest.raises(NoRespondersError):
                await client.request("nobody", b"", timeout=10)


@asynchronous
async def test_new_clients_are_answered_at_once(joined: Supercluster) -> None:
    """Their interest in the answer is not known in the other cluster when that gets the request."""
    async with clients_of(joined.members) as members:
        replies = []

        async def answer(message: Any) -> None:
            replies.append(message.reply)
            await message.respond(message.data)

        for number, client in enumerate(members):
            await client.subscribe(f"service.{number}", cb=answer)
        await meet(members)
        for server in joined.members:
            for number in range(len(members)):
                async with connected(server) as fresh:
                    found = await fresh.request(f"service.{number}", b"asked", timeout=10)
                    assert found.data == b"asked"
        assert not [reply for reply in replies if not reply.startswith("_INBOX.")]


@asynchronous
async def test_whoever_stops_listening_gets_nothing_more(joined: Supercluster) -> None:
    async with clients_of(joined.members) as members:
        got: Counter[int] = Counter()
        subscriptions = []
        for number, client in enumerate(members):

            async def take(_: Any, number: int = number) -> None:
                got[number] += 1

            subscriptions.append(await client.subscribe("news", cb=take))
        await meet(members)
        await subscriptions[-1].unsubscribe()
        await members[-1].flush()
        await meet(members)
        await members[0].publish("news", b"")
        await members[0].flush()
        await meet(members)
        await meet(members)
        assert got == dict.fromkeys(range(len(members) - 1), 1)
