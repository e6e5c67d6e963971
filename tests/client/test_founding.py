"""A standalone server's directory becomes a cluster's, and what a cluster puts aside is found."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster
from tests.client.rescued import COUNT, asked, messages, served, told, tool
from tests.servers import Server, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")


async def filled(server: Server) -> None:
    async with connected(server) as client:
        js = client.jetstream(timeout=10)
        await api(client, "STREAM.CREATE.OLD", {"name": "OLD", "subjects": ["OLD.>"]})
        body = {"stream_name": "OLD", "config": {"durable_name": "D", "ack_policy": "explicit"}}
        await api(client, "CONSUMER.DURABLE.CREATE.OLD.D", body)
        for n in range(COUNT):
            await js.publish(f"OLD.{n % 5}", b"%d" % n, headers={"N": str(n)})
        pulled = await js.pull_subscribe_bind("D", "OLD")
        for message in await pulled.fetch(10, timeout=20):
            await message.ack_sync()


def clustered(servers: Servers, folders: dict[str, Path]) -> Cluster:
    """Members with these stores by their names, which dial all, in the order of their start."""
    cluster = Cluster(servers)
    ports = [free_port() for _ in folders]
    for (name, folder), port in zip(folders.items(), ports, strict=True):
        rest = f'{ACCOUNTS}\njetstream {{ store_dir: "{folder}" }}'
        cluster.add("o", rest=rest, routes=ports, port=port, monitor=True, server=name)
    return cluster


@pytest.mark.parametrize("kind", ["o", "p"])
@asynchronous
async def test_a_cluster_begins_with_the_streams_of_one_server(
    servers: Servers, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "store"
    make = servers.under_test if kind == "o" else servers.peer
    alone = make(config=f'{ACCOUNTS}\nserver_name: A\njetstream {{ store_dir: "{folder}" }}')
    await filled(alone)
    async with connected(alone) as client:
        before = await messages(client, "OLD")
    await asyncio.to_thread(alone.stop)
    words = ("found", str(folder), "--server", "A", "--cluster", "C", "--system-account", "SYS")
    assert tool(*words)[0] == 1
    code, out, errors = tool(*words, "--yes")
    assert code == 0, (out, errors)
    assert "is the directory of a member of a cluster" in tool(*words, "--yes")[2]
    # Those with empty directories come first, and follow all the same.
    cluster = clustered(servers, {"B": tmp_path / "b", "C": tmp_path / "c", "A": folder})
    await cluster.whole()
    async with connected(cluster.members[1]) as client:
        about = await served(client, "OLD")
        assert about["cluster"]["leader"] == "A"
        assert await messages(client, "OLD") == before
        config = about["config"] | {"num_replicas": 3}
        assert "error" not in await asked(client, "STREAM.UPDATE.OLD", config)

        async def current() -> bool:
            found = await asked(client, "STREAM.INFO.OLD", {})
            replicas = found.get("cluster", {}).get("replicas", [])
            return len(replicas) == 2 and all(one["current"] for one in replicas)

        await until(current)

        async def stands() -> bool:
            found = await asked(client, "CONSUMER.INFO.OLD.D", {})
            return "error" not in found and found["ack_floor"]["stream_seq"] == 10

        await until(stands)


@asynchronous
async def test_streams_that_no_cluster_knows_stay_where_they_are(
    servers: Servers, tmp_path: Path
) -> None:
    """A standalone server's directory that a cluster was begun on without `found`."""
    folder = tmp_path / "store"
    alone = servers.under_test(
        config=f'{ACCOUNTS}\nserver_name: A\njetstream {{ store_dir: "{folder}" }}'
    )
    await filled(alone)
    await asyncio.to_thread(alone.stop)
    cluster = clustered(servers, {"A": folder, "B": tmp_path / "b"})
    await cluster.whole()
    first = cluster.members[0]
    await until(lambda: "Stream 'ONE > OLD' is on disk here, and no assignment" in first.log())
    async with connected(cluster.members[1]) as client:
        assert (await api(client, "STREAM.NAMES", {}))["streams"] in (None, [])
        # One of that name is another one: what was there is put aside.
        config: dict[str, Any] = {"name": "OLD", "subjects": ["OLD.>"], "num_replicas": 2}
        await api(client, "STREAM.CREATE.OLD", config)
        await client.jetstream(timeout=10).publish("OLD.1", b"new")
    for member in cluster.members:
        await asyncio.to_thread(member.stop)
    (one,) = told("quarantine", "list", str(folder))["quarantine"]
    assert (one["kind"], one["account"], one["name"]) == ("stream", "ONE", "OLD")
    out = tmp_path / "out"
    code, text, errors = tool("quarantine", "restore", str(folder), one["id"], "--to", str(out))
    assert code == 0, (text, errors)
    again = servers.under_test(
        config=f'{ACCOUNTS}\nserver_name: Z\njetstream {{ store_dir: "{out}" }}'
    )
    async with connected(again) as client:
        assert len(await messages(client, "OLD")) == COUNT
    assert "nothing is put aside" in tool("quarantine", "list", str(folder))[1]


def test_what_is_put_aside_is_removed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    place = store / "jetstream" / "ONE" / "aside" / "S.1795991079532598043" / "msgs"
    place.mkdir(parents=True)
    (place / "1.blk").write_bytes(b"0123456789")
    (one,) = told("quarantine", "list", str(store))["quarantine"]
    assert one["bytes"] == 10 and one["time"].startswith("2026-11-29T")
    assert "is put aside as x; there is: ONE/aside/S.17" in tool(
        "quarantine", "remove", str(store), "x"
    )[2]
    assert tool("quarantine", "remove", str(store), one["id"])[0] == 1 and place.exists()
    assert tool("quarantine", "remove", str(store), one["id"], "--yes")[0] == 0
    assert not place.parent.exists()
