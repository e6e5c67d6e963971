"""Where a meta leader places streams: a cluster of ours and one of nats-servers, with the same tags
and rooms, choose the same members, and give the same reasons where there are too few."""

import asyncio
import contextlib
import itertools
import json
import random
import re
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster
from tests.client.test_meta_leader import leads
from tests.servers import Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

MIB = 1 << 20
#: Tags, and MiB in files and in memory: so far apart that what the cases use changes no order.
MEMBERS = (
    (["az:1", "ssd", "eu"], 100, 1600),
    (["az:1", "hdd", "eu"], 200, 800),
    (["az:2", "ssd", "us"], 400, 400),
    (["az:3", "hdd", "us", "far"], 800, 200),
)
LIMITS = 'unique_tag: "az:", limits: { max_ha_assets: 4 }'
TAGS = ("ssd", "hdd", "eu", "us", "far", "az:1", "az:2", "!ssd", "!far", "!eu", "SSD", "none")
#: MiB and replicas for which too few have room, in files and in memory. A stream that is made
#: reserves its bytes, and servers tell late that it is gone.
TOO_BIG = (
    ((1, 1), (150, 4), (350, 3), (700, 2), (900, 1)),
    ((1, 1), (250, 4), (350, 5), (700, 3), (1500, 2), (3000, 1)),
)
CASES = 50


def cases() -> list[dict[str, Any]]:
    """Configurations of streams, from a seed."""
    rng = random.Random(2)
    found = []
    for _ in range(CASES):
        config: dict[str, Any] = {
            "name": "S",
            "num_replicas": rng.choice((1, 1, 1, 2, 3, 3, 4, 5)),
            "storage": rng.choice(("file", "file", "memory")),
        }
        if rng.random() < 0.3:
            in_memory = config["storage"] == "memory"
            mebibytes, config["num_replicas"] = rng.choice(TOO_BIG[in_memory])
            config["max_bytes"] = mebibytes * MIB
        if rng.random() < 0.6:
            config["placement"] = {"tags": rng.sample(TAGS, rng.choice((1, 1, 2, 3)))}
        if rng.random() < 0.15:
            config.setdefault("placement", {})["cluster"] = rng.choice(("C", "X"))
        if rng.random() < 0.1:
            config.setdefault("placement", {})["preferred"] = rng.choice("ABCD")
        found.append(config)
    return found


async def started(servers: Servers, kind: str) -> Cluster:
    cluster = Cluster(servers)
    ports = [free_port() for _ in MEMBERS]
    for port, (tags, files, memory) in zip(ports, MEMBERS, strict=True):
        sizes = f"max_file_store: {files * MIB}, max_memory_store: {memory * MIB}"
        rest = f"{ACCOUNTS}\nserver_tags: {json.dumps(tags)}\njetstream {{ {sizes}, {LIMITS} }}"
        cluster.add(kind, rest=rest, routes=ports, port=port, jetstream=True, monitor=True)
    await cluster.whole()
    return cluster


def reason(error: dict[str, Any]) -> object:
    """Why no stream was made, without the order of tags, which is random with nats-server."""
    text = re.sub(r"\[(.*?)\]", lambda tags: str(sorted(tags[1].split(", "))), error["description"])
    return error["err_code"], text


async def placed(client: Client, name: str, count: int) -> object:
    """The members of a stream, once there are so many."""
    members: list[str] = []

    async def settled() -> bool:
        nonlocal members
        with contextlib.suppress(NoAnswer, KeyError):
            of = (await api(client, f"STREAM.INFO.{name}"))["cluster"]
            members = sorted([of["leader"], *(one["name"] for one in of.get("replicas", []))])
        return len(members) == count

    await until(settled, 60)
    # which of two servers with the same unique tag is looked at first is random
    return ["A or B" if name in "AB" else name for name in members]


async def figures(system: Client) -> None:
    """Has all servers publish their statistics, by which a leader places."""
    await system.publish("$SYS.REQ.SERVER.PING", b"")
    await system.flush()
    await asyncio.sleep(0.3)  # no answer says that the leader has read them


async def outcomes(cluster: Cluster) -> list[tuple[object, object]]:
    """What came of the cases, one after another; of a growth; and with a member that is away."""
    found: list[tuple[object, object]] = []
    member = cluster.members[0]
    async with (
        connected(member) as client,
        connected(member, user="sys", password="sys") as system,
    ):

        async def led() -> bool:
            if leads(cluster) not in ("", "A"):
                await api(system, "META.LEADER.STEPDOWN", {"placement": {"preferred": "A"}})
            return leads(cluster) == "A"

        await until(led, 60)
        await figures(system)

        async def ask(config: dict[str, Any], what: str = "CREATE") -> None:
            name, count = config["name"], config.get("num_replicas", 1)
            answer = await api(client, f"STREAM.{what}.{name}", config)
            refused = "error" in answer
            said = reason(answer["error"]) if refused else await placed(client, name, count)
            found.append(((what, config), said))

        async def end(name: str) -> None:
            await api(client, f"STREAM.DELETE.{name}")

        async def ask_each(configs: list[dict[str, Any]]) -> None:
            for config in configs:
                await ask(config)
                await end("S")

        await ask_each(cases())
        grows = {"name": "S", "placement": {"tags": ["ssd"]}}
        await ask(grows)
        for tags, count in ((["ssd"], 2), (["ssd"], 4), (["far"], 2), (["ssd"], 1)):
            await ask(grows | {"placement": {"tags": tags}, "num_replicas": count}, "UPDATE")
        await end("S")
        for number in range(5):
            await ask({"name": f"N{number}", "num_replicas": 3})
            await figures(system)
        for number in range(5):
            await end(f"N{number}")
        await figures(system)
        await asyncio.to_thread(cluster.members[3].stop)  # nats-server learns of a kill late

        names = itertools.count()

        async def known() -> bool:
            name = f"T{next(names)}"
            on_d = json.dumps({"name": name, "placement": {"tags": ["far"]}}).encode()
            with contextlib.suppress(NoAnswer):
                answer = await client.request(f"$JS.API.STREAM.CREATE.{name}", on_d, timeout=1)
                return b"peer offline" in answer.data
            return False

        await until(known, 60)
        await ask_each(cases()[:20])
    return found


@asynchronous
async def test_streams_are_placed_as_by_nats_server(servers: Servers) -> None:
    ours, theirs = await started(servers, "o"), await started(servers, "p")
    found, expected = await asyncio.gather(outcomes(ours), outcomes(theirs))
    both = zip(found, expected, strict=True)
    wrong = [
        f"{case}: {own}, with nats-server {other}"
        for (case, own), (_, other) in both
        if own != other
    ]
    assert not wrong, "\n".join(wrong)
