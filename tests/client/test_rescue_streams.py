"""`jsserver cluster rescue --stream`: a stream whose group lost its majority, in a cluster that has
its own still."""

import asyncio
from functools import partial

import pytest
from nats.aio.client import Client

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import NAMES, Cluster
from tests.client.rescued import asked, kill_all, lose, messages, served, told, tool
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

COUNT, ACKED = 60, 20


@asynchronous
async def test_a_stream_goes_on_with_the_one_replica_that_is_left(servers: Servers) -> None:
    cluster = Cluster(servers)
    cluster.start_all("ooooo")
    await cluster.ready()
    config = {"name": "ALL", "subjects": ["ALL.>"], "num_replicas": 3}
    async with connected(cluster.members[0]) as client:
        await api(client, "STREAM.CREATE.ALL", config)
        about = {"durable_name": "D", "ack_policy": "explicit"}
        body = {"stream_name": "ALL", "config": about}
        await until(lambda: created(client, "CONSUMER.DURABLE.CREATE.ALL.D", body))
        js = client.jetstream(timeout=10)
        for n in range(COUNT):
            await js.publish("ALL.1", b"%d" % n)
        pulled = await js.pull_subscribe_bind("D", "ALL")
        for message in await pulled.fetch(ACKED, timeout=20):
            await message.ack_sync()
        found = (await served(client, "ALL"))["cluster"]
        before = await messages(client, "ALL")
    names = [found["leader"], *(one["name"] for one in found["replicas"])]
    members = [cluster.members[NAMES.index(name)] for name in names]
    left, *lost = members  # the leader has all that was acked
    await kill_all(members)
    for member in lost:
        lose(member)
    words = ["rescue", str(left.store), "--server", names[0], "--stream", "ONE/ALL"]
    assert tool(*words)[0] == 1
    plan = told(*words)
    assert {one["fate"] for one in plan["assets"]} == {"reduced"}
    assert len(plan["given_up"]) == 2 and not plan["damage"]
    code, out, errors = tool(*words, "--yes")
    assert code == 0, (out, errors)
    assert tool(*words)[:2] == (0, "nothing to do\n")
    await asyncio.to_thread(left.start)
    spare = next(one for one in cluster.members if one not in members)
    async with connected(spare) as client:
        for name in names[1:]:
            await until(partial(created, client, "STREAM.PEER.REMOVE.ALL", {"peer": name}))
        await served(client, "ALL")
        assert await messages(client, "ALL") == before
        await client.jetstream(timeout=10).publish("ALL.1", b"after")

        async def current() -> bool:
            for request in ("STREAM.INFO.ALL", "CONSUMER.INFO.ALL.D"):
                about = await asked(client, request, {})
                replicas = about.get("cluster", {}).get("replicas", [])
                if len(replicas) != 2 or not all(one["current"] for one in replicas):
                    return False
            return bool(about["ack_floor"]["stream_seq"] == ACKED)

        await until(current, 60)
    assert not list(left.store.glob("**/rescued"))


async def created(client: Client, request: str, body: object) -> bool:
    return "error" not in await asked(client, request, body)


@asynchronous
async def test_a_stream_with_its_majority_needs_no_rescue(servers: Servers) -> None:
    cluster = Cluster(servers)
    cluster.start_all("ooo")
    await cluster.ready()
    async with connected(cluster.members[0]) as client:
        config = {"name": "ALL", "subjects": ["ALL.>"], "num_replicas": 3}
        await api(client, "STREAM.CREATE.ALL", config)
        await served(client, "ALL")
    await kill_all(cluster.members)
    store = str(cluster.members[0].store)
    for words, says in (
        (("--with", "B", "--stream", "ONE/ALL"), "2 of 3 members of ONE > ALL are a majority"),
        (("--stream", "ONE/NONE"), "has no stream ONE/NONE; it has: ONE/ALL"),
        (("--stream", "ONE/ALL", "--remove-lost"), "are for a rescue without --stream"),
    ):
        code, _, errors = tool("rescue", store, "--server", "A", *words, "--yes")
        assert code == 2 and says in errors, (words, errors)
