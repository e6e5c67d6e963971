"""A server of ours as meta leader scales, moves and replaces assets on nats-servers, as a
nats-server would."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, NAMES, Cluster, page, placeable
from tests.client.test_meta_leader import leads, led_by
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

S = {"name": "S", "subjects": ["s"], "num_replicas": 1}
DURABLE = {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}}


async def led_by_ours(servers: Servers, tags: tuple[str, ...]) -> Cluster:
    """nats-servers with these tags, and one of ours that leads and holds nothing."""
    cluster = Cluster(servers)
    rests = [f'{ACCOUNTS}\nserver_tags: ["{tag}"]\n' for tag in (*tags, "!jetstream")]
    cluster.start_all("p" * len(tags) + "o", rests)
    await led_by(cluster, NAMES[len(tags)])
    async with connected(cluster.members[0]) as client:
        await placeable(client, len(tags))
    return cluster


async def holders(client: Client, request: str) -> set[str]:
    """Names of an asset's members, once all are current, one leads, and no others are wished;
    otherwise none."""
    try:
        answer = await client.request(f"$JS.API.{request}", b"", timeout=2)
    except NoAnswer:  # no leader at the moment
        return set()
    of = json.loads(answer.data).get("cluster", {})
    others = of.get("replicas", [])
    if not of.get("leader") or not all(one["current"] for one in others) or of.get("desired"):
        return set()
    return {of["leader"], *(one["name"] for one in others)}


async def held_by(client: Client, request: str, count: int) -> set[str]:
    """An asset's members, once there are so many."""
    found: set[str] = set()

    async def so_many() -> bool:
        nonlocal found
        found = await holders(client, request)
        return len(found) == count

    await until(so_many, 60)
    return found


async def all_there(client: Client, count: int) -> None:
    info = await api(client, "STREAM.INFO.S")
    assert info["state"]["messages"] == count


@asynchronous
async def test_a_stream_and_its_consumers_are_scaled(servers: Servers) -> None:
    cluster = await led_by_ours(servers, ("a", "a", "a"))
    async with connected(cluster.members[0]) as client:
        assert "error" not in await api(client, "STREAM.CREATE.S", S)
        assert "error" not in await api(client, "CONSUMER.DURABLE.CREATE.S.D", DURABLE)
        for _ in range(10):
            await client.request("s", b"x", timeout=10)
        for count in (3, 1):
            answer = await api(client, "STREAM.UPDATE.S", S | {"num_replicas": count})
            assert answer["config"]["num_replicas"] == count
            stream = await held_by(client, "STREAM.INFO.S", count)
            assert await held_by(client, "CONSUMER.INFO.S.D", count) == stream
            await all_there(client, 10)
        refused = await api(client, "STREAM.UPDATE.S", S | {"num_replicas": 5})
        assert refused["error"]["err_code"] == 10005


@asynchronous
async def test_a_consumer_is_scaled(servers: Servers) -> None:
    cluster = await led_by_ours(servers, ("a", "a", "a"))
    async with connected(cluster.members[0]) as client:
        assert "error" not in await api(client, "STREAM.CREATE.S", S | {"num_replicas": 3})
        assert "error" not in await api(client, "CONSUMER.DURABLE.CREATE.S.D", DURABLE)
        for count in (1, 3):
            config: dict[str, Any] = DURABLE["config"] | {"num_replicas": count}  # type: ignore[operator]
            body = DURABLE | {"config": config, "action": "update"}
            assert "error" not in await api(client, "CONSUMER.CREATE.S.D", body)
            there = await held_by(client, "CONSUMER.INFO.S.D", count)
            if count == 1:
                for what in ("EVACUATE", "REMOVE"):
                    there = await moved_off(client, what, there)
        for peer, code in ((None, 10003), ({"peer": "ZZ"}, 10040), ({"peer": "A"}, 10075)):
            refused = await api(client, "CONSUMER.PEER.REMOVE.S.D", peer)
            assert refused["error"]["err_code"] == code
        for asset, code in (("NO.D", 10059), ("S.NO", 10014)):
            refused = await api(client, f"CONSUMER.PEER.EVACUATE.{asset}", {"peer": "A"})
            assert refused["error"]["err_code"] == code


async def moved_off(client: Client, what: str, there: set[str]) -> set[str]:
    """The member of a consumer of one, once it has left the server that it was on."""
    (before,) = there
    answer = await api(client, f"CONSUMER.PEER.{what}.S.D", {"peer": before})
    kind = f"io.nats.jetstream.api.v1.consumer_{what.lower()}_peer_response"
    assert answer == {"type": kind, "success": True}
    after: set[str] = set()

    async def moved() -> bool:
        nonlocal after
        after = await holders(client, "CONSUMER.INFO.S.D")
        return len(after) == 1 and before not in after

    await until(moved, 60)
    return after


@asynchronous
async def test_a_stream_moves_to_other_tags_and_away_from_a_server(servers: Servers) -> None:
    cluster = await led_by_ours(servers, ("a", "b", "b"))
    async with (
        connected(cluster.members[0]) as client,
        connected(cluster.members[0], user="sys", password="sys") as system,
    ):
        on_a = S | {"placement": {"tags": ["a"]}}
        assert "error" not in await api(client, "STREAM.CREATE.S", on_a)
        assert "error" not in await api(client, "CONSUMER.DURABLE.CREATE.S.D", DURABLE)
        for _ in range(10):
            await client.request("s", b"x", timeout=10)
        on_b = S | {"placement": {"tags": ["b"]}}
        both = await api(client, "STREAM.UPDATE.S", on_b | {"num_replicas": 2})
        assert both["error"]["err_code"] == 10123
        assert "error" not in await api(client, "STREAM.UPDATE.S", on_b)

        async def moved(off: str) -> bool:
            stream = await holders(client, "STREAM.INFO.S")
            consumer = await holders(client, "CONSUMER.INFO.S.D")
            return stream == consumer and len(stream) == 1 and off not in stream

        await until(lambda: moved("A"), 60)
        await all_there(client, 10)
        (here,) = await holders(client, "STREAM.INFO.S")
        cancels = (system, "ACCOUNT.STREAM.CANCEL_MOVE.ONE"), (client, "STREAM.CANCEL_MOVE")
        for asking, request in cancels:
            cancelled = await api(asking, f"{request}.S")
            assert cancelled["error"]["err_code"] == 10129
        answer = await api(system, "ACCOUNT.STREAM.MOVE.ONE.S", {"server": here})
        assert "error" not in answer
        await until(lambda: moved(here), 60)
        await all_there(client, 10)
        for body, code in (({"server": "ZZ"}, 10044), ({"server": "A"}, 10040), ({"x": 1}, 10025)):
            refused = await api(system, "ACCOUNT.STREAM.MOVE.ONE.S", body)
            assert refused["error"]["err_code"] == code
        refused = await api(system, "ACCOUNT.STREAM.MOVE.NO.S")
        assert refused["error"]["err_code"] == 10035


@asynchronous
async def test_a_member_is_replaced_by_request_and_when_it_leaves_the_cluster(
    servers: Servers,
) -> None:
    cluster = await led_by_ours(servers, ("a", "a", "a", "a"))
    async with (
        connected(cluster.members[0]) as client,
        connected(cluster.members[0], user="sys", password="sys") as system,
    ):
        assert "error" not in await api(client, "STREAM.CREATE.S", S | {"num_replicas": 3})
        assert "error" not in await api(client, "CONSUMER.DURABLE.CREATE.S.D", DURABLE)
        for _ in range(10):
            await client.request("s", b"x", timeout=10)
        first = await held_by(client, "STREAM.INFO.S", 3)
        (spare,) = {*"ABCD"} - first
        for body, code in ((None, 10003), ({}, 10003), ({"peer": "ZZ"}, 10040), ({"a": 1}, 10025)):
            refused = await api(client, "STREAM.PEER.REMOVE.S", body)
            assert refused["error"]["err_code"] == code
        gone = max(first - {"A"})
        assert (await api(client, "STREAM.PEER.REMOVE.S", {"peer": gone}))["success"]

        async def held(wanted: set[str]) -> bool:
            stream = await holders(client, "STREAM.INFO.S")
            return stream == await holders(client, "CONSUMER.INFO.S.D") == wanted

        await until(lambda: held(first - {gone} | {spare}), 60)
        await all_there(client, 10)
        leaves = max((first - {gone} | {spare}) - {"A"})
        await asyncio.to_thread(cluster.members[NAMES.index(leaves)].kill)
        assert (await api(system, "SERVER.REMOVE", {"peer": leaves}))["success"]
        await until(lambda: held({*"ABCD"} - {leaves}), 60)
        await all_there(client, 10)


@asynchronous
async def test_the_lead_goes_to_a_member_with_a_tag(servers: Servers) -> None:
    cluster = await led_by_ours(servers, ("a", "b"))
    async with connected(cluster.members[0], user="sys", password="sys") as system:
        for placement in ({"tags": ["x"]}, {"cluster": "X"}):

            async def refused(placement: object = placement) -> bool:
                """A member that has not heard yet who leads answers that there is no leader."""
                answer = await api(system, "META.LEADER.STEPDOWN", {"placement": placement})
                return "no replacement peer connected" in answer["error"]["description"]

            await until(refused, 30)
        answer = await api(system, "META.LEADER.STEPDOWN", {"placement": {"tags": ["B"]}})
        assert answer["success"]
        await until(lambda: leads(cluster) == "B", 60)


def health(server: Server) -> int:
    """The status of the page by which a load balancer knows whether to send clients."""
    try:
        with urllib.request.urlopen(f"{server.monitor_url}/healthz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def _created(client: Client) -> bool:
    try:
        return "error" not in await api(client, "STREAM.CREATE.S", S, 2)
    except NoAnswer:
        return False


def is_off(server: Server) -> bool:
    """Whether a server has no JetStream."""
    return bool(page(server, "jsz").get("disabled"))


@pytest.mark.parametrize("kinds", ["ooo", "opp"])
@asynchronous
async def test_a_server_that_runs_and_is_removed_has_no_jetstream(
    servers: Servers, kinds: str
) -> None:
    """Until it is started again: then it joins at once."""
    cluster = Cluster(servers)
    cluster.start_all(kinds)
    await cluster.whole()
    await led_by(cluster, "B")
    gone, *others = cluster.members
    async with connected(others[0], user="sys", password="sys") as system:
        await until(lambda: {health(one) for one in cluster.members} == {200}, 60)
        assert (await api(system, "SERVER.REMOVE", {"peer": "A"}))["success"]
        await until(lambda: health(gone) == 503 and is_off(gone), 30)
        assert page(gone, "jsz").get("meta_cluster") is None
        async with connected(gone) as client:  # others answer
            assert (await api(client, "STREAM.NAMES"))["total"] == 0
        await until(lambda: {health(one) for one in others} == {200}, 30)
        await asyncio.to_thread(gone.restart)
        # A nats-server adds a member that it sends entries to: so there have to be some.
        async with connected(others[0]) as client:
            await until(lambda: _created(client), 30)
        await cluster.whole()
        await until(lambda: health(gone) == 200, 30)


@asynchronous
async def test_what_a_removed_server_held_alone_is_served_once(servers: Servers) -> None:
    """The stream begins anew elsewhere; the server that runs on takes no messages for it."""
    cluster = Cluster(servers)
    cluster.start_all("ooo")
    await cluster.ready()
    await led_by(cluster, "B")
    async with (
        connected(cluster.members[0]) as client,
        connected(cluster.members[1], user="sys", password="sys") as system,
    ):
        for n in range(20):
            config = S | {"name": f"S{n}", "subjects": [f"s{n}"]}
            about = await api(client, f"STREAM.CREATE.S{n}", config)
            if about["cluster"]["leader"] == "A":
                break
        await client.request(f"s{n}", b"before", timeout=10)
        assert (await api(system, "SERVER.REMOVE", {"peer": "A"}))["success"]
        await until(lambda: is_off(cluster.members[0]), 30)

        async def elsewhere() -> bool:
            return bool(await holders(client, f"STREAM.INFO.S{n}") - {"A"})

        await until(elsewhere, 30)
        inbox = client.new_inbox()
        acks = await client.subscribe(inbox)
        await client.publish(f"s{n}", b"after", reply=inbox)
        await acks.next_msg(timeout=10)
        with pytest.raises(NoAnswer):
            await acks.next_msg(timeout=1)
