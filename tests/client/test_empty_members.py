"""Servers with empty directories begin no cluster of their own beside a server that has one."""

import asyncio
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import Cluster, page
from tests.client.rescued import asked, kill_all, lose, served, tool
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")


COUNT = 20


async def killed(servers: Servers, kinds: str) -> Cluster:
    """Three members with a stream, of which the last two have lost their disks."""
    cluster = Cluster(servers)
    cluster.start_all(kinds)
    await cluster.whole()
    async with connected(cluster.members[0]) as client:
        config = {"name": "ALL", "subjects": ["ALL.>"], "num_replicas": 3}

        async def made() -> bool:
            return "error" not in await asked(client, "STREAM.CREATE.ALL", config)

        await until(made)
        await served(client, "ALL")
        js = client.jetstream(timeout=10)
        for n in range(COUNT):
            await js.publish("ALL.1", b"%d" % n)
        await until(lambda: all(map(has_all, cluster.members)))
    await kill_all(cluster.members)
    for member in cluster.members[1:]:
        lose(member)
    return cluster


def has_all(member: Server) -> bool:
    """Whether a member's replica has all messages."""
    account = page(member, "jsz?acc=ONE&streams=1").get("account_details", [{}])[0]
    streams = account.get("stream_detail") or [{}]
    return bool(streams[0].get("state", {}).get("messages") == COUNT)


async def serves_all(member: Server) -> None:
    """The stream is served with all its messages."""
    async with connected(member) as client:
        about = await served(client, "ALL")
        assert about["state"]["messages"] == COUNT


async def begin(members: list[Server]) -> None:
    for member in members:
        member.launch()
    for member in members:
        await asyncio.to_thread(member.wait_ready)


def leader(member: Server) -> str:
    return str(page(member, "jsz").get("meta_cluster", {}).get("leader", ""))


@pytest.mark.parametrize("kinds", ["ooo", "poo", "opo"])
@asynchronous
async def test_the_log_of_one_member_outlives_two_empty_ones(servers: Servers, kinds: str) -> None:
    """Both empty servers are there first."""
    cluster = await killed(servers, kinds)
    last, *others = cluster.members
    await begin([*others, last])
    await cluster.whole()
    await serves_all(others[0])


@asynchronous
async def test_empty_servers_follow_the_one_that_a_rescue_has_left(servers: Servers) -> None:
    """They have a leader of their own when it starts."""
    cluster = await killed(servers, "ooo")
    last, *others = cluster.members
    code, out, errors = tool("rescue", str(last.store), "--server", "A", "--yes", "--remove-lost")
    assert code == 0, (out, errors)
    await begin(others)
    await until(lambda: all(map(leader, others)), 30)
    async with connected(others[0]) as client:  # their log becomes longer than the survivor's
        for n in range(8):
            config = {"name": f"NEW{n}", "subjects": [f"NEW{n}.>"]}

            async def made(config: dict[str, Any] = config) -> bool:
                return "error" not in await asked(client, f"STREAM.CREATE.{config['name']}", config)

            await until(made)
    await begin([last])
    await until(lambda: all(leader(member) == "A" for member in cluster.members), 30)
    await cluster.whole()
    await serves_all(others[0])
