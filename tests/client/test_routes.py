"""Clusters of three, of ours and of nats-server in each mixture: what clients of one member send,
those of all others get, as from nats-server alone."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import NoStreamResponseError

from tests.client.aio import asynchronous, connected, until
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
        js = client.jetstream(timeout=10)

        async def made() -> bool:
            try:
                await js.add_stream(name="S", subjects=["s.>"])
            except Exception:  # until the others have chosen a leader
                return False
            return True

        async def heard() -> bool:
            try:
                await js.publish("s.0", b"0")
            except NoStreamResponseError:  # until its server has told this one
                return False
            return True

        await until(made, 30)
        await until(heard)
        for n in range(1, COUNT):
            await js.publish(f"s.{n % 7}", b"%d" % n, headers={"Nth": str(n)} if n % 2 else None)
        expected = [(f"s.{n % 7}", b"%d" % n) for n in range(COUNT)]

        pushed: list[tuple[str, bytes]] = []

        async def take(message: Any) -> None:
            pushed.append((message.subject, message.data))
            await message.ack()

        await js.subscribe("s.>", durable="pushed", cb=take, manual_ack=True)
        await until(lambda: len(pushed) >= COUNT)
        assert pushed == expected

        pull = await js.pull_subscribe("s.>", durable="pulled")
        pulled: list[tuple[str, bytes]] = []
        while len(pulled) < COUNT:
            try:
                messages = await pull.fetch(100, timeout=10 if pulled else 1)
            except NoAnswer:
                assert not pulled  # until its server has told this one of the consumer
                continue
            for message in messages:
                pulled.append((message.subject, message.data))
                await message.ack()
        assert pulled == expected

        ordered = await js.subscribe("s.>", ordered_consumer=True)
        found = [await ordered.next_msg(10) for _ in range(COUNT)]
        assert [(message.subject, message.data) for message in found] == expected

        async def acked() -> bool:
            infos = [await js.consumer_info("S", name) for name in ("pushed", "pulled")]
            return all(info.ack_floor.stream_seq == COUNT for info in infos if info.ack_floor)

        await until(acked)
        bucket = await js.create_key_value(bucket="B")
        watcher = await bucket.watchall()
        for n in range(50):
            await bucket.put(f"k{n}", b"%d" % n)
        keys: list[str] = []
        while len(keys) < 50:
            entry = await watcher.updates(timeout=10)
            if entry is not None:
                keys.append(entry.key)
        assert keys == [f"k{n}" for n in range(50)]
