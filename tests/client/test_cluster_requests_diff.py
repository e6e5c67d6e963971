"""Limits of accounts, which count all replicas, and requests for another leader: a cluster of ours
answers as one of nats-servers."""

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import Cluster
from tests.client.test_held_diff import steady
from tests.client.test_replicated import asked, leader
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LIMITED = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        ONE {
            jetstream { max_file: 3000000, max_mem: 3000000 }
            users: [{ user: one, password: x }]
        }
        TWO {
            jetstream {
                max_file: 3000000, max_mem: 1000, max_bytes_required: true
                disk_max_stream_bytes: 1000000
            }
            users: [{ user: two, password: x }]
        }
        ANY { jetstream { max_file: -1, max_mem: 1000 }, users: [{ user: any, password: x }] }
    }
    system_account: SYS
    no_auth_user: one
"""
Requests = list[tuple[str, str, Any]]


def stream(name: str, replicas: int, size: int = -1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_replicas": replicas, "max_bytes": size, **more}


def limits() -> Requests:
    """Requests by account, in this order."""
    most = {"storage": "memory"}
    return [
        ("one", "STREAM.CREATE.A", stream("A", 3, 1000001)),
        ("one", "STREAM.CREATE.A", stream("A", 3, 1000000)),
        ("one", "STREAM.CREATE.B", stream("B", 1, 1)),
        ("one", "STREAM.CREATE.B", stream("B", 1)),
        ("one", "STREAM.UPDATE.A", stream("A", 3, 900000)),
        ("one", "STREAM.CREATE.B", stream("B", 1, 300001)),
        ("one", "STREAM.CREATE.B", stream("B", 1, 300000)),
        ("one", "STREAM.UPDATE.A", stream("A", 3, 900001)),
        ("one", "STREAM.UPDATE.A", stream("A", 3, 800000)),
        ("one", "STREAM.UPDATE.B", stream("B", 3, 200001)),
        ("one", "STREAM.CREATE.M", stream("M", 3, 1000001, **most)),
        ("one", "STREAM.CREATE.M", stream("M", 3, 1000000, **most)),
        ("two", "STREAM.CREATE.A", stream("A", 3)),
        ("two", "STREAM.CREATE.A", stream("A", 3, 1000001)),
        ("two", "STREAM.CREATE.A", stream("A", 3, 1000000)),
        ("two", "STREAM.CREATE.B", stream("B", 1, 1)),
        ("any", "STREAM.CREATE.A", stream("A", 3, 1 << 50)),
        ("any", "STREAM.CREATE.A", stream("A", 1, 1 << 50)),
        ("any", "STREAM.CREATE.A", stream("A", 1, 1001, **most)),
        ("any", "STREAM.CREATE.A", stream("A", 3, 1000, **most)),
    ]


WISHES: list[Any] = [
    {"placement": {"preferred": "ZZ"}},
    {"placement": {"cluster": "X"}},
    {"placement": {"tags": ["x"]}},
    {"placement": {"cluster": "C", "tags": ["x"]}},
    {"unknown": 1},
]
"""Wishes that no member can meet."""
WISH = {"placement": {"cluster": "C", "tags": ["all"]}}


async def stepdowns(client: Client, system: Client) -> list[Any]:
    """Answers to requests for another leader."""
    consumer = {"durable_name": "D", "ack_policy": "explicit"}
    for name, replicas in (("S", 3), ("R1", 1)):
        created = await asked(client, f"STREAM.CREATE.{name}", stream(name, replicas, 1000))
        assert "error" not in created, created
        body = {"stream_name": name, "config": consumer}
        created = await asked(client, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
        assert "error" not in created, created
    said: list[Any] = []

    async def led() -> bool:
        return bool(await leader(client, "STREAM.INFO.S"))

    await until(led, 30)
    for wish in WISHES:
        for kind, asset in (("STREAM", "S"), ("CONSUMER", "S.D"), ("STREAM", "R1")):
            said.append((asset, wish, await asked(client, f"{kind}.LEADER.STEPDOWN.{asset}", wish)))
        said.append((wish, await asked(system, "META.LEADER.STEPDOWN", wish)))
    leads = await leader(client, "STREAM.INFO.S")
    own = await asked(client, "STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": leads}})
    said.append(str(own).replace(f'"{leads}"', "L"))
    said.append((WISH, await asked(client, "STREAM.LEADER.STEPDOWN.S", WISH)))
    for none in ("STREAM.LEADER.STEPDOWN.NONE", "CONSUMER.LEADER.STEPDOWN.S.NONE"):
        said.append((none, await asked(client, none)))
    for name in ("S", "NONE"):
        said.append((name, await asked(client, f"CONSUMER.INFO.{name}.NONE", {"unknown": 1})))
    return said


def bare(answer: Any) -> Any:
    """An answer without leaders and members, which are chosen by chance."""
    if isinstance(answer, dict):
        unsteady = ("cluster", "api", "metadata")
        return {k: bare(v) for k, v in steady(answer).items() if k not in unsteady}
    return answer


async def answers(servers: Servers, kinds: str) -> list[Any]:
    cluster = Cluster(servers)
    cluster.start_all(kinds, [LIMITED + 'server_tags: ["all"]'] * 3)
    await cluster.ready()
    said: list[Any] = []
    async with (
        connected(cluster.members[0]) as one,
        connected(cluster.members[1], user="two", password="x") as two,
        connected(cluster.members[2], user="any", password="x") as any_,
        connected(cluster.members[2], user="sys", password="sys") as system,
    ):
        by = {"one": one, "two": two, "any": any_}
        for account, request, body in limits():
            said.append((account, request, body, bare(await asked(by[account], request, body))))
        await asked(one, "STREAM.DELETE.A")
        said += await stepdowns(one, system)
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in cluster.members))
    return said


@asynchronous
async def test_limits_and_stepdowns_are_as_where_nats_servers_are(servers: Servers) -> None:
    real = await answers(servers, "ppp")
    for theirs, ours in zip(real, await answers(servers, "ooo"), strict=True):
        assert theirs == ours
