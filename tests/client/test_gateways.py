"""Two clusters that are joined by gateways, of ours and of nats-server in each mixture: what
clients of one server send, those of all others get, as from nats-server alone."""

from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.exchanges import (
    plain_messages_reach_all_in_order,
    publish_to_all_but,
    requests_are_answered_from_everywhere,
)
from tests.client.gateways import MIXED, Supercluster
from tests.client.mesh import Heard, clients_of, meet, mixtures
from tests.servers import Servers

COUNT = 1000

pytestmark = pytest.mark.usefixtures("peer_present")


@pytest.fixture(params=mixtures("o-o", "p-o", "oo-p", "op-op", "o-n", soak=MIXED))
def joined(request: pytest.FixtureRequest, servers: Servers) -> Supercluster:
    found = Supercluster(servers)
    found.start(request.param)
    return found


@asynchronous
async def test_plain_messages_reach_all_in_order(joined: Supercluster) -> None:
    async with clients_of(joined.members) as members:
        await plain_messages_reach_all_in_order(members, COUNT)


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
        each = COUNT // len(members)
        replies = await requests_are_answered_from_everywhere(members, each)
        assert not [reply for reply in replies if reply.startswith("_GR_")]


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
        got = await publish_to_all_but(members, len(members) - 1)
        await meet(members)
        await meet(members)
        assert got == dict.fromkeys(range(len(members) - 1), 1)
