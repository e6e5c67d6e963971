"""Backups and restores in a cluster of ours, and beside a nats-server: a restore that is broken off
leaves nothing behind."""

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, clients_of
from tests.client.test_replicated import asked
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CHUNK = 64 << 10
COUNT = 60
PROPER = ("description", "placement", "metadata")
"""Keys of a configuration that may differ after a restore."""


async def backup(client: Client, stream: str) -> tuple[dict[str, Any], bytes]:
    """The answer, and the archive."""
    chunks: list[bytes] = []
    ended = asyncio.Event()

    async def take(message: Any) -> None:
        chunks.append(message.data)
        if message.reply:
            await message.respond(b"")
        if not message.data:
            ended.set()

    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=take)
    answer = await asked(client, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox})
    assert "error" not in answer, answer
    await asyncio.wait_for(ended.wait(), 30)
    await subscription.unsubscribe()
    return answer, b"".join(chunks)


async def restore(
    client: Client, config: dict[str, Any], archive: bytes, chunks: int = 0
) -> dict[str, Any]:
    """The last answer. `chunks`: how many are sent before the sender falls silent, 0: all."""
    answer = await asked(client, f"STREAM.RESTORE.{config['name']}", {"config": config})
    if "error" in answer:
        return answer
    where = answer["deliver_subject"]
    for at in range(0, len(archive), CHUNK):
        told = await client.request(where, archive[at : at + CHUNK], timeout=20)
        if told.data:
            return dict(json.loads(told.data))
        if at // CHUNK + 1 == chunks:
            return {}
    return dict(json.loads((await client.request(where, timeout=20)).data))


async def fill(client: Client, config: dict[str, Any], size: int = 10) -> None:
    """Publishes messages, deletes some, and begins to read with consumers."""
    name = config["name"]
    assert "error" not in await asked(client, f"STREAM.CREATE.{name}", config)
    stream = client.jetstream(timeout=10)

    async def taken() -> bool:
        return "seq" in json.loads((await client.request(f"{name}.0", b"0", timeout=10)).data)

    await until(taken, 30)
    for number in range(1, COUNT):
        await stream.publish(f"{name}.{number % 7}", b"%d" % number * size)
    for seq in (5, 6, 40):
        await stream.delete_msg(name, seq)
    for consumer in ("D", "E"):
        body = {"durable_name": consumer, "ack_policy": "explicit", "ack_wait": 60 * 10**9}
        request = f"CONSUMER.DURABLE.CREATE.{name}.{consumer}"
        answer = await asked(client, request, {"stream_name": name, "config": body})
        assert "error" not in answer, answer
    pull = await stream.pull_subscribe_bind("D", name)
    for number, message in enumerate(await pull.fetch(10, timeout=20)):
        if number in (0, 1, 4):
            await message.ack_sync(timeout=10)
    await pull.unsubscribe()


async def look(client: Client, name: str) -> dict[str, Any]:
    """The state of a stream and its consumers."""
    info = await asked(client, f"STREAM.INFO.{name}", {"deleted_details": True})
    found: dict[str, Any] = {"state": info.get("state")}
    (found["state"] or {}).pop("bytes", None)  # messages in memory take less
    found["config"] = {k: v for k, v in info.get("config", {}).items() if k not in PROPER}
    for consumer in ("D", "E"):
        answer = await asked(client, f"CONSUMER.INFO.{name}.{consumer}")
        for place in ("delivered", "ack_floor"):
            answer.get(place, {}).pop("last_active", None)
        steady = ("delivered", "ack_floor", "num_ack_pending", "num_pending")
        found[consumer] = {key: answer.get(key) for key in steady}
    found["messages"] = []
    seq = 1
    while "message" in (
        got := await asked(client, f"STREAM.MSG.GET.{name}", {"seq": seq, "next_by_subj": ">"})
    ):
        found["messages"].append(got["message"])
        seq = got["message"]["seq"] + 1
    return found


async def restored(client: Client, config: dict[str, Any], archive: bytes, had: Any) -> None:
    """Checks that the stream has its former state, and works."""
    name = config["name"]
    answer = await restore(client, config, archive)
    assert "error" not in answer, answer
    had["config"] = {k: v for k, v in config.items() if k not in PROPER}

    for _ in range(60):
        if (now := await look(client, name)) == had:
            break
        await asyncio.sleep(0.2)  # until its consumers are assigned and the group has agreed
    assert now == had
    stream = client.jetstream(timeout=10)
    assert (await stream.publish(f"{name}.new", b"")).seq == COUNT + 1
    pull = await stream.pull_subscribe_bind("D", name)
    next_ones = [m.metadata.sequence.stream for m in await pull.fetch(3, timeout=20)]
    assert next_ones == [13, 14, 15]
    await pull.unsubscribe()


async def clustered(servers: Servers, kinds: str) -> Cluster:
    """A cluster that places streams by the tags `one`, `two` and `three`."""
    cluster = Cluster(servers)
    tags = ("one", "two", "three")
    rests = [f'{ACCOUNTS} server_tags: ["{tag}"]' for tag in tags]
    cluster.start_all(kinds, rests)
    await cluster.ready()
    return cluster


def config_of(name: str, replicas: int, *tags: str, **more: Any) -> dict[str, Any]:
    placement = {"tags": list(tags)} if tags else {}
    return {
        "name": name,
        "subjects": [f"{name}.>"],
        "num_replicas": replicas,
        "placement": placement,
        **more,
    }


async def absent(client: Client, name: str) -> None:
    """Checks that the name of a failed restore is free again."""

    async def gone() -> bool:
        names = (await asked(client, "STREAM.NAMES")).get("streams") or []
        return name not in names

    await until(gone, 30)


async def refusals(client: Client, config: dict[str, Any], archive: bytes) -> None:
    """Restores of a stream that does not exist, all of which fail."""
    answer = await restore(client, config, archive[:300] + bytes(99) + archive[400:])
    assert answer["error"]["err_code"] == 10062, answer
    await absent(client, config["name"])
    assert await restore(client, config, archive, chunks=1) == {}  # then the sender falls silent
    answer = await restore(client, config, archive)
    assert answer["error"]["err_code"] == 10130, answer
    await absent(client, config["name"])


@asynchronous
async def test_a_cluster_of_ours_restores_what_it_has_backed_up(servers: Servers) -> None:
    cluster = await clustered(servers, "ooo")
    async with clients_of(cluster.members) as clients:
        await fill(clients[0], config_of("S", 1, "two"), 20000)
        had = await look(clients[1], "S")
        answer, archive = await backup(clients[2], "S")
        assert answer["state"]["messages"] == COUNT - 3
        config = answer["config"]
        refused = await restore(clients[0], config, archive)
        assert refused["error"]["err_code"] == 10130, refused
        await asked(clients[0], "STREAM.DELETE.S")
        await refusals(clients[1], config, archive)
        await restored(clients[0], config, archive, had)
        await asked(clients[0], "STREAM.DELETE.S")
        await restored(clients[2], {**config, "storage": "memory"}, archive, had)


async def led(client: Client, name: str) -> str:
    """The leader of a stream whose other members are all current."""
    found: list[str] = []

    async def whole() -> bool:
        cluster = (await asked(client, f"STREAM.INFO.{name}")).get("cluster") or {}
        others = cluster.get("replicas", [])
        found.append(cluster.get("leader", ""))
        return bool(found[-1]) and len(others) == 2 and all(one["current"] for one in others)

    await until(whole, 60)
    return found[-1]


@pytest.mark.parametrize("kinds", ["ooo", "oop"])
@asynchronous
async def test_what_is_restored_to_three_outlives_each_of_them(
    servers: Servers, kinds: str
) -> None:
    cluster = await clustered(servers, kinds)
    archive = b""
    async with clients_of(cluster.members) as clients:
        await fill(clients[0], config_of("S", 3))
        had = await look(clients[0], "S")
        answer, archive = await backup(clients[1], "S")
        await asked(clients[0], "STREAM.DELETE.S")
        if kinds == "ooo":
            await refusals(clients[1], answer["config"], archive)
        await restored(clients[0], answer["config"], archive, had)
        for consumer in ("D", "E"):
            info = await asked(clients[2], f"CONSUMER.INFO.S.{consumer}")
            assert len(info["cluster"]["replicas"]) == 2, info
        first = await led(clients[2], "S")
    number = "ABC".index(first)
    cluster.members[number].kill()
    async with connected(cluster.members[number - 1]) as client:

        async def led_anew() -> bool:
            cluster = (await asked(client, "STREAM.INFO.S")).get("cluster") or {}
            return cluster.get("leader", "") not in ("", first)

        await until(led_anew, 60)

        async def consumer_led_anew() -> bool:
            cluster = (await asked(client, "CONSUMER.INFO.S.E")).get("cluster") or {}
            return cluster.get("leader", "") not in ("", first)

        await until(consumer_led_anew, 60)
        now = await look(client, "S")
        assert now["messages"][:-1] == had["messages"]
        pull = await client.jetstream(timeout=10).pull_subscribe_bind("E", "S")
        assert (await pull.fetch(1, timeout=20))[0].metadata.sequence.stream == 1
    cluster.members[number].start()
    async with connected(cluster.members[number]) as client:
        assert await led(client, "S") != ""
        assert (await look(client, "S"))["messages"] == now["messages"]


@asynchronous
async def test_a_server_that_is_killed_half_way_begins_anew(servers: Servers) -> None:
    """No member leads with a part of the archive."""
    cluster = await clustered(servers, "ooo")
    async with clients_of(cluster.members) as clients:
        await fill(clients[0], config_of("S", 3), 20000)
        answer, archive = await backup(clients[1], "S")
        await asked(clients[0], "STREAM.DELETE.S")
        config = answer["config"]
        assert await restore(clients[0], config, archive, chunks=1) == {}
    takes = next(m for m in cluster.members if any(m.store.glob("**/ONE/streams/.new-*")))
    takes.kill()
    takes.start()
    async with connected(takes) as client:

        async def free() -> bool:
            deleted = await asked(client, "STREAM.DELETE.S")
            return bool(deleted.get("success")) or deleted["error"]["err_code"] == 10059

        await until(free, 60)
        assert "error" not in await restore(client, config, archive)
        await led(client, "S")
