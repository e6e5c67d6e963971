"""A server of ours leads the meta group of two nats-servers: clients see the same as under a
nats-server, and each can take over from the other."""

import asyncio
import contextlib
import json
import re
import time
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, page
from tests.client.test_meta_member import NO_STREAMS, Members
from tests.client.test_operator_cluster import meet_stream
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

OURS = "C"
SHORTEST_ELECTION = 4.0
"""Seconds before a nats-server asks for votes, at the least."""
TIMES = re.compile(r"20\d\d-\d\d-\d\dT[0-9:.]+Z")
NAMES = re.compile(r'("(?:leader|name)":")(?:[ABC]|[0-9A-Za-z]{8})"')
LEFT = re.compile(r'("pause_remaining":)\d+')
DURABLE = {"durable_name": "D", "ack_policy": "explicit"}


def leads(members: Cluster) -> str:
    """The meta leader's name, if all running members agree; "" otherwise."""
    running = [one for one in members.members if one.running]
    said = {page(one, "jsz").get("meta_cluster", {}).get("leader") for one in running}
    return (said.pop() or "") if len(said) == 1 else ""


async def led_by(members: Cluster, name: str) -> None:
    """Makes this member the meta leader, by asking the present one to hand over."""
    running = next(one for one in members.members if one.running)
    async with connected(running, user="sys", password="sys") as system:

        async def led() -> bool:
            leader = leads(members)
            if leader and leader != name:
                wanted = {"placement": {"preferred": name}}
                with contextlib.suppress(NoAnswer):  # from a former leader
                    await api(system, "META.LEADER.STEPDOWN", wanted, 3)
            return leader == name

        await until(led, 60)


def requests() -> list[tuple[str, Any]]:
    """Requests for both clusters, in order."""
    stream = {"name": "S", "subjects": ["s.>"]}
    consumer = {"stream_name": "S", "config": DURABLE}
    return [
        ("STREAM.NAMES", None),
        ("STREAM.LIST", None),
        ("STREAM.CREATE.S", stream),
        ("STREAM.CREATE.S", stream),
        ("STREAM.CREATE.S", stream | {"subjects": ["other"]}),
        ("STREAM.CREATE.T", {"name": "T", "subjects": ["s.a"]}),
        ("STREAM.CREATE.T", {"name": "U"}),
        ("STREAM.CREATE.T", b"{"),
        ("STREAM.CREATE.T", {"name": "T", "unknown": 1}),
        ("STREAM.CREATE.T", {"name": "T", "num_replicas": 5}),
        ("STREAM.CREATE.T", {"name": "T", "num_replicas": 6}),
        ("STREAM.CREATE.T", {"name": "T", "placement": {"cluster": "X"}}),
        ("STREAM.CREATE.T", {"name": "T", "placement": {"tags": ["x"]}}),
        ("STREAM.UPDATE.S", stream | {"max_msgs": 7, "metadata": {"a": "<b>"}}),
        ("STREAM.UPDATE.S", stream | {"storage": "memory"}),
        ("STREAM.UPDATE.NO", {"name": "NO"}),
        ("STREAM.INFO.S", None),
        ("STREAM.INFO.NO", None),
        ("STREAM.NAMES", {"subject": "s.a"}),
        ("STREAM.NAMES", {"subject": "x"}),
        ("STREAM.LIST", None),
        ("CONSUMER.DURABLE.CREATE.S.D", consumer),
        ("CONSUMER.DURABLE.CREATE.S.D", consumer),
        (
            "CONSUMER.DURABLE.CREATE.S.D",
            {"stream_name": "S", "config": DURABLE | {"description": "x"}},
        ),
        (
            "CONSUMER.DURABLE.CREATE.S.D",
            {"stream_name": "S", "config": DURABLE | {"ack_policy": "none"}},
        ),
        (
            "CONSUMER.DURABLE.CREATE.S.R",
            {"stream_name": "S", "config": {"durable_name": "R", "num_replicas": 3}},
        ),
        ("CONSUMER.DURABLE.CREATE.NO.D", {"stream_name": "NO", "config": DURABLE}),
        (
            "CONSUMER.CREATE.S.E",
            {"stream_name": "S", "config": {"name": "E", "inactive_threshold": 10**12}},
        ),
        ("CONSUMER.NAMES.S", None),
        ("CONSUMER.NAMES.NO", None),
        ("CONSUMER.LIST.S", None),
        ("CONSUMER.LIST.NO", None),
        ("CONSUMER.INFO.S.D", None),
        ("CONSUMER.INFO.S.NO", None),
        ("CONSUMER.INFO.NO.D", None),
        (
            "CONSUMER.CREATE.S",
            {"stream_name": "S", "config": {"deliver_subject": "x", "inactive_threshold": 10**12}},
        ),
        ("CONSUMER.PAUSE.S.D", {"pause_until": "2099-01-01T00:00:00Z"}),
        ("CONSUMER.PAUSE.S.D", None),
        ("CONSUMER.PAUSE.S.NO", {"pause_until": "2099-01-01T00:00:00Z"}),
        ("CONSUMER.DELETE.S.D", {"a": 1}),
        ("CONSUMER.DELETE.S.D", None),
        ("CONSUMER.DELETE.S.D", None),
        ("CONSUMER.DELETE.NO.D", None),
        ("STREAM.DELETE.S", {"a": 1}),
        ("STREAM.DELETE.S", None),
        ("STREAM.DELETE.S", None),
    ]


async def answers(client: Client) -> list[tuple[str, str]]:
    """Answers to clients, without times and chosen names."""
    found = []
    for subject, body in requests():
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        data = payload if isinstance(payload, bytes) else payload.encode()
        try:
            raw = (await client.request(f"$JS.API.{subject}", data, timeout=10)).data.decode()
        except NoAnswer:
            raw = "no answer"
        for pattern, instead in (
            (TIMES, "TIME"),
            (NAMES, r"\1NAME"),
            (LEFT, r"\1LEFT"),
        ):
            raw = pattern.sub(instead, raw)
        found.append((subject, raw))
    return found


@asynchronous
async def test_clients_are_answered_as_where_a_nats_server_leads(servers: Servers) -> None:
    members, real = Members(servers), Cluster(servers)
    real.start_all("ppp", [ACCOUNTS, ACCOUNTS, f'{ACCOUNTS}\nserver_tags: ["!jetstream"]\n'])
    await led_by(members, OURS)
    await until(lambda: bool(leads(real)), 60)
    async with connected(real.members[0]) as client:
        expected = await answers(client)
    for asked in (members.real[0], members.ours):
        async with connected(asked) as client:
            got = await answers(client)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine == theirs


async def works(server: Server, name: str) -> None:
    """Creates, uses and deletes a stream and a consumer."""
    async with connected(server) as client:
        config = {"name": name, "subjects": [f"{name}.>"]}

        async def made() -> bool:
            return "error" not in await api(client, f"STREAM.CREATE.{name}", config)

        await until(made)
        await meet_stream(client, f"{name}.a")
        body = {"stream_name": name, "config": DURABLE}
        assert "error" not in await api(client, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
        assert name in (await api(client, "STREAM.NAMES"))["streams"]
        assert (await api(client, f"CONSUMER.DELETE.{name}.D"))["success"]
        assert (await api(client, f"STREAM.DELETE.{name}"))["success"]


@asynchronous
async def test_each_takes_over_from_the_other(servers: Servers) -> None:
    members = Members(servers)
    await led_by(members, "A")
    await works(members.ours, "W0")
    await led_by(members, OURS)
    await works(members.real[1], "W1")
    await asyncio.to_thread(members.ours.kill)  # a nats-server takes over
    await until(lambda: leads(members) in ("A", "B"), 60)
    await works(members.real[0], "W2")
    await asyncio.to_thread(members.ours.start)
    leader = members.members["AB".index(leads(members))]
    (other,) = (one for one in members.real if one is not leader)
    await until(lambda: members.current(), 60)
    await asyncio.to_thread(other.stop)
    await asyncio.to_thread(leader.kill)  # ours has all that it agreed on
    await asyncio.to_thread(other.start)
    await until(lambda: bool(leads(members)), 60)
    await works(members.ours, "W3")


@asynchronous
async def test_a_stream_whose_servers_are_gone_is_offline_and_can_be_deleted(
    servers: Servers,
) -> None:
    members = Members(servers)
    await led_by(members, OURS)
    async with connected(members.ours) as client:
        made = await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        holder = members.members["AB".index(made["cluster"]["leader"])]
        await asyncio.to_thread(holder.stop)
        found = await api(client, "STREAM.INFO.S")
        assert found["error"]["err_code"] == 10118
        assert (await api(client, "STREAM.LIST"))["missing"] == ["S"]
        assert (await api(client, "STREAM.NAMES"))["streams"] == ["S"]
        assert (await api(client, "STREAM.DELETE.S"))["success"]
        assert (await api(client, "STREAM.NAMES"))["streams"] is None


def sizes(cluster: Cluster) -> set[int]:
    """The size of the meta group, as each member reports it."""
    return {page(one, "jsz")["meta_cluster"]["cluster_size"] for one in cluster.members}


@asynchronous
async def test_a_cluster_of_ours_alone_begins_and_goes_on(servers: Servers) -> None:
    """Each server starts on an empty directory; the lead moves long before an election timeout."""
    ours = Cluster(servers)
    ours.start_all("ooo", [ACCOUNTS + NO_STREAMS] * 3)
    for kill in (False, True):
        await until(lambda: bool(leads(ours)), 60)
        await until(lambda: sizes(ours) == {3}, 30)
        first = leads(ours)
        leader = ours.members["ABC".index(first)]
        others = [one for one in ours.members if one is not leader]
        await asyncio.to_thread(leader.kill if kill else leader.stop)
        began = time.monotonic()
        await until(lambda old=first: leads(ours) not in ("", old), 60)  # type: ignore[misc]
        assert time.monotonic() - began < SHORTEST_ELECTION
        for one in others:
            async with connected(one) as client:
                assert (await api(client, "STREAM.NAMES"))["streams"] is None
                refused = await api(client, "STREAM.CREATE.S", {"name": "S"})
                assert refused["error"]["err_code"] == 10005, "nobody holds streams"
        await asyncio.to_thread(leader.start)


@asynchronous
async def test_the_system_account_is_answered_as_where_a_nats_server_leads(
    servers: Servers,
) -> None:
    members, real = Members(servers), Cluster(servers)
    real.start_all("ppp")
    await until(lambda: bool(leads(real)), 60)
    await led_by(members, OURS)
    found = []
    for cluster in (members, real):
        config = {"name": "TWO", "subjects": ["two"], "num_replicas": 2}
        async with (
            connected(cluster.members[0]) as client,
            connected(cluster.members[1], user="sys", password="sys") as system,
        ):
            made = await api(client, "STREAM.CREATE.TWO", config)
            assert len(made["cluster"]["replicas"]) == 1
            said = []
            for subject, body in (
                ("META.LEADER.STEPDOWN", {"placement": {"preferred": "ZZ"}}),
                ("META.LEADER.STEPDOWN", {"placement": {"preferred": leads(cluster)}}),
                ("META.LEADER.STEPDOWN", {"unknown": 1}),
                ("SERVER.REMOVE", {"peer": "ZZ"}),
                ("SERVER.REMOVE", {"unknown": 1}),
                ("ACCOUNT.PURGE.ONE", None),
            ):
                text = json.dumps(await api(system, subject, body))
                said.append((subject, text.replace(f'\\"{leads(cluster)}\\"', "LEADER")))

            async def gone(client: Client = client) -> bool:
                return (await api(client, "STREAM.NAMES"))["streams"] is None

            await until(gone)
            said.append(("", json.dumps(await api(system, "META.LEADER.STEPDOWN"))))
            found.append(said)
    assert found[0] == found[1]


@asynchronous
async def test_a_member_that_is_removed_counts_no_more(servers: Servers) -> None:
    members = Members(servers)
    await led_by(members, OURS)
    gone, stays = members.real
    await asyncio.to_thread(gone.kill)
    async with connected(members.ours, user="sys", password="sys") as system:
        assert (await api(system, "SERVER.REMOVE", {"peer": "A"}))["success"]

        def size() -> set[int]:
            found = (page(one, "jsz").get("meta_cluster", {}) for one in members.running())
            return {one.get("cluster_size", 0) for one in found}

        await until(lambda: size() == {2}, 30)
        again = await api(system, "SERVER.REMOVE", {"peer": "A"})
        assert again["error"]["err_code"] == 10044
        await works(stays, "W4")
