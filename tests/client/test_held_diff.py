"""A server of ours holds streams and consumers of one replica in a cluster with two nats-servers:
clients see the same as with three nats-servers."""

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, clients_of, meet, page, placeable
from tests.servers import Server, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

TAG = "here"
HERE = {"tags": [TAG]}
CHANGING = ("created", "ts", "last_active", "first_ts", "last_ts", "time", "leader_since")
"""Keys that differ between any two clusters: times."""


class Members(Cluster):
    """Three servers. Streams are placed by a tag that only the last one, the holder, has."""

    def __init__(self, servers: Servers, kinds: str, **holder: Any) -> None:
        """`holder`: options of the last server."""
        super().__init__(servers)
        self.ports = [free_port() for _ in range(3)]
        routes = list(self.ports)
        for number, kind in enumerate(kinds):
            rest = ACCOUNTS + (f'server_tags: ["{TAG}"]' if number == 2 else "")
            port = self.ports[number]
            more = {"jetstream": True, "monitor": True} | (holder if number == 2 else {})
            self.add(kind, rest=rest, routes=routes, port=port, **more)

    @property
    def holder(self) -> Server:
        return self.members[2]

    def is_led(self) -> bool:
        leaders = {page(one, "jsz").get("meta_cluster", {}).get("leader") for one in self.members}
        return len(leaders) == 1 and bool(leaders.pop())

    def leader_of(self, member: int) -> str:
        """The meta leader's name, as a member reports it."""
        return str(page(self.members[member], "jsz").get("meta_cluster", {}).get("leader"))

    async def ready(self) -> None:
        """Waits until the meta leader knows enough of all members to place streams on the
        holder."""
        await until(self.is_led, 60)
        async with connected(self.members[0]) as client:
            await placeable(client, 1, placement=HERE)


async def ask(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    """An answer without what differs between clusters."""
    answer: dict[str, Any] = steady(await api(client, subject, body))
    return answer


def steady(answer: Any) -> Any:
    if isinstance(answer, list):
        return [steady(one) for one in answer]
    if isinstance(answer, dict):
        return {key: steady(value) for key, value in answer.items() if key not in CHANGING}
    return answer


def stream(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name}.>"], "placement": HERE, **more}


async def script(clients: list[Client]) -> list[Any]:
    """Sends requests by clients of all members in turn; the answers."""
    said: list[Any] = []
    turn = 0

    async def request(subject: str, body: object = None) -> None:
        nonlocal turn
        turn += 1
        client = clients[turn % len(clients)]
        said.append((subject, await ask(client, subject, body)))

    await request("STREAM.CREATE.S", stream("S"))
    await request("STREAM.CREATE.S", stream("S"))
    await request("STREAM.CREATE.M", stream("M", storage="memory", allow_direct=True))
    await request("STREAM.INFO.S")
    for number, client in enumerate(clients * 4):
        answer = await client.request(f"S.{number}", b"%d" % number, timeout=10)
        said.append(json.loads(answer.data))
    await request("STREAM.INFO.S", {"subjects_filter": ">"})
    await request("STREAM.MSG.DELETE.S", {"seq": 3})
    await request("STREAM.MSG.GET.S", {"seq": 2})
    await request("STREAM.MSG.GET.S", {"seq": 3})
    await request("STREAM.MSG.GET.S", {"last_by_subj": "S.7"})
    await request("STREAM.UPDATE.S", stream("S", max_msgs=100, description="changed"))
    await request("STREAM.UPDATE.S", stream("S", max_msgs=100, storage="memory"))
    durable = {"durable_name": "D", "ack_policy": "explicit"}
    for _ in range(2):
        body = {"stream_name": "S", "config": durable}
        await request("CONSUMER.DURABLE.CREATE.S.D", body)
    pushed = {"name": "P", "deliver_subject": "to.p"}
    await request("CONSUMER.CREATE.S.P", {"stream_name": "S", "config": pushed})
    await request("CONSUMER.INFO.S.D")
    await request("CONSUMER.INFO.S.NONE")
    await request("CONSUMER.NAMES.S")
    await request("CONSUMER.LIST.S")
    await request("STREAM.NAMES")
    await request("STREAM.LIST")
    await request("STREAM.PURGE.S", {"filter": "S.0"})
    await request("CONSUMER.DELETE.S.P")
    await request("CONSUMER.INFO.S.P")
    await request("STREAM.PURGE.S")
    await request("STREAM.DELETE.M")
    await request("STREAM.INFO.M")
    await request("STREAM.INFO.S")
    return said


@asynchronous
async def test_answers_are_those_of_a_nats_server(servers: Servers) -> None:
    said = []
    for kinds in ("ppp", "ppo"):
        members = Members(servers, kinds)
        await members.ready()
        async with clients_of(members.members) as clients:
            said.append(await script(clients))
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in members.members))
    real, ours = said
    for one, other in zip(real, ours, strict=True):
        assert one == other


@asynchronous
async def test_messages_are_delivered_at_every_server(servers: Servers) -> None:
    """Messages are pulled, pushed and got directly by clients of all members, acked, and acked
    again after a restart of the holder, which keeps its state."""
    members = Members(servers, "ppo")
    await members.ready()
    async with clients_of(members.members) as clients:
        first = clients[0]
        await done(first, "STREAM.CREATE.S", stream("S", allow_direct=True))
        for name in ("D", "E"):
            durable = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 5 * 10**9}
            body = {"stream_name": "S", "config": durable}
            await done(first, f"CONSUMER.DURABLE.CREATE.S.{name}", body)
        for number in range(12):
            context = clients[number % 3].jetstream(timeout=10)
            assert (await context.publish(f"S.{number}", b"%d" % number)).seq == number + 1
        for place, client in enumerate(clients):
            context = client.jetstream(timeout=10)
            pull = await context.pull_subscribe_bind("D", "S")
            got = await pull.fetch(2, timeout=10)
            assert [m.subject for m in got] == [f"S.{2 * place}", f"S.{2 * place + 1}"]
            for message in got:
                await message.ack_sync(timeout=10)
            found = await context.get_msg("S", 5, direct=True)
            assert (found.subject, found.data) == ("S.4", b"4")
            pushed = await context.subscribe("S.>", ordered_consumer=True)
            assert [(await pushed.next_msg(10)).data for _ in range(12)] == [
                b"%d" % number for number in range(12)
            ]
            await pushed.unsubscribe()
        for kill in (False, True):
            await asyncio.to_thread(members.holder.restart, kill=kill)
            await until(lambda: answered(first, "CONSUMER.INFO.S.D"))
            info = await api(first, "CONSUMER.INFO.S.D")
            assert info["num_ack_pending"] == 0
            assert info["num_pending"] == (6 if not kill else 5)
            assert (await api(first, "STREAM.INFO.S"))["state"]["messages"] == 12
            await until(members.is_led)
            await meet(clients)
            pull = await first.jetstream(timeout=10).pull_subscribe_bind("D", "S")
            (message,) = await pull.fetch(1, timeout=10)
            await message.ack_sync(timeout=10)


async def answered(client: Client, subject: str) -> bool:
    """Whether somebody answers soon: a request to a member that was just killed is lost."""
    try:
        return "error" not in await api(client, subject, seconds=3)
    except (NoAnswer, NoRespondersError):
        return False


async def done(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    answer = await api(client, subject, body)
    assert "error" not in answer, answer
    return answer


@asynchronous
async def test_what_is_removed_meanwhile_is_removed(servers: Servers) -> None:
    """A stream and a consumer that are deleted while the holder is down are gone when it is back;
    new ones of the same names begin empty."""
    members = Members(servers, "ppo")
    await members.ready()
    async with connected(members.members[0]) as client:
        for name in ("GONE", "NEW", "KEPT"):
            await done(client, f"STREAM.CREATE.{name}", stream(name))
            await client.jetstream(timeout=10).publish(f"{name}.x", b"x")
        for name in ("C", "D"):
            body = {"stream_name": "KEPT", "config": {"durable_name": name}}
            await done(client, f"CONSUMER.DURABLE.CREATE.KEPT.{name}", body)
        await asyncio.to_thread(members.holder.kill)
        await until(lambda: members.leader_of(0) in ("A", "B"), 60)
        for subject in ("STREAM.DELETE.GONE", "STREAM.DELETE.NEW", "CONSUMER.DELETE.KEPT.C"):
            # No member is up that could answer the request.
            await client.publish(f"$JS.API.{subject}", b"", reply=client.new_inbox())
        await until(lambda: gone(client, "STREAM.NAMES", "streams", ["KEPT"]))
        await asyncio.to_thread(members.holder.start)
        await until(lambda: answered(client, "STREAM.INFO.KEPT"))
        assert (await api(client, "STREAM.INFO.KEPT"))["state"]["messages"] == 1
        assert (await api(client, "CONSUMER.NAMES.KEPT"))["consumers"] == ["D"]
        assert (await api(client, "STREAM.INFO.GONE"))["error"]["err_code"] == 10059
        await done(client, "STREAM.CREATE.NEW", stream("NEW"))
        assert (await api(client, "STREAM.INFO.NEW"))["state"]["messages"] == 0
        await done(client, "STREAM.DELETE.NEW")
        folder = members.holder.store / "jetstream" / "ONE" / "streams"
        await until(lambda: {one.name for one in folder.iterdir()} == {"KEPT"})
        assert [one.name for one in (folder / "KEPT" / "obs").iterdir()] == ["D"]


async def gone(client: Client, subject: str, key: str, left: list[str]) -> bool:
    try:
        return bool((await api(client, subject, seconds=3))[key] == left)
    except NoAnswer:
        return False


@asynchronous
async def test_an_inactive_consumer_is_removed_by_the_cluster(servers: Servers) -> None:
    members = Members(servers, "ppo")
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", stream("S"))
        config = {"name": "E", "inactive_threshold": 10**9, "ack_policy": "explicit"}
        await done(client, "CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})
        assert (await api(client, "CONSUMER.NAMES.S"))["consumers"] == ["E"]
        await until(lambda: gone(client, "CONSUMER.NAMES.S", "consumers", []))
        await until(lambda: refused(client, "CONSUMER.INFO.S.E", 10014))


async def refused(client: Client, subject: str, code: int) -> bool:
    return bool((await api(client, subject)).get("error", {}).get("err_code") == code)
