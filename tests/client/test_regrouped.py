"""Streams and consumers get more members, fewer, or other ones while clients publish and read and
members are killed: every acked message is on all members."""

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import APIError

from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, NAMES, Cluster, mixtures, placeable
from tests.client.offline import run
from tests.client.test_meta_leader import leads
from tests.client.test_meta_moves import holders
from tests.client.test_replicated import asked
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

DURABLE = {"durable_name": "D", "ack_policy": "explicit", "ack_wait": 2 * 10**9}


def stream(replicas: int, **more: Any) -> dict[str, Any]:
    return {"name": "S", "subjects": ["s"], "num_replicas": replicas, **more}


async def started(servers: Servers, kinds: str, tags: tuple[str, ...] = ()) -> Cluster:
    """A cluster whose meta leader knows enough of all members to place streams on them."""
    cluster = Cluster(servers)
    rests = [f"{ACCOUNTS}\nserver_tags: [{tags[n] if tags else 'all'}]" for n in range(len(kinds))]
    cluster.start_all(kinds, rests)
    await cluster.ready()
    return cluster


class Load:
    """A client that publishes and reads, and what was acked to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.acked: dict[int, bytes] = {}
        """Acked messages by sequence."""
        self.read: set[int] = set()
        """Sequences of delivered messages."""
        self.floors: list[int] = []
        self.ends = False
        self.has_published = False
        """All messages are acked that were sent before the end."""

    async def publish(self) -> None:
        context = self.client.jetstream(timeout=1)
        number = 0
        while not self.ends:
            number += 1
            body, ack = b"%d" % number, None
            while ack is None:
                with contextlib.suppress(NatsError, APIError, TimeoutError):
                    ack = await context.publish("s", body, headers={"Nats-Msg-Id": str(number)})
                if ack is None:
                    await asyncio.sleep(0.05)  # no leader at the moment
            self.acked[ack.seq] = body
            await asyncio.sleep(0.002)  # leaves processor time to the servers
        self.has_published = True

    async def fetch(self) -> None:
        done = False
        while not done:
            published = self.has_published
            with contextlib.suppress(NatsError, APIError, TimeoutError):
                pull = await self.client.jetstream(timeout=2).pull_subscribe_bind("D", "S")
                for message in await pull.fetch(20, timeout=0.5):
                    self.read.add(message.metadata.sequence.stream)
                    await message.ack_sync(timeout=1)
                await pull.unsubscribe()
            info = await asked(self.client, "CONSUMER.INFO.S.D")
            if "ack_floor" in info:
                self.floors.append(info["ack_floor"]["stream_seq"])
                left = info["num_pending"] + info["num_ack_pending"]
                # A new leader may not know yet of a message that the former one delivered last.
                whole = self.floors[-1] >= max(self.acked, default=0)
                done = published and not left and whole and {*self.acked} <= self.read


@contextlib.asynccontextmanager
async def loaded(client: Client) -> AsyncIterator[Load]:
    """Publishes and reads while the block runs, and reads the rest at its end."""
    load = Load(client)
    tasks = [asyncio.create_task(load.publish()), asyncio.create_task(load.fetch())]
    try:
        yield load
    finally:
        load.ends = True
        await asyncio.wait(tasks, timeout=60)
    info = await asked(client, "CONSUMER.INFO.S.D")
    assert all(task.done() for task in tasks), (info, {*load.acked} - load.read)
    for task in tasks:
        task.result()


async def held(client: Client, count: int, within: set[str] | None = None) -> set[str]:
    """The members of the stream and its consumer, once there are so many."""
    found: set[str] = set()

    async def so_many() -> bool:
        nonlocal found
        found = await holders(client, "STREAM.INFO.S")
        alike = found == await holders(client, "CONSUMER.INFO.S.D")
        return alike and len(found) == count and (within is None or found == within)

    await until(so_many, 60)
    return found


def folder(server: Server) -> Any:
    return server.store / "jetstream" / "ONE" / "streams" / "S"


async def alike(cluster: Cluster, load: Load, members: set[str]) -> None:
    """Waits until all members have exactly the acked messages, and other servers have nothing."""
    client = load.client

    async def has_all() -> bool:
        info = await asked(client, "STREAM.INFO.S")
        there = (info.get("cluster") or {}).get("replicas", [])
        lag = [one for one in there if not one["current"] or one.get("lag")]
        return "state" in info and not lag

    await until(has_all, 60)
    last = max(load.acked)

    async def all_acked() -> bool:
        info = await asked(client, "CONSUMER.INFO.S.D")
        return "ack_floor" in info and info["ack_floor"]["stream_seq"] >= last

    await until(all_acked, 60)
    if all("jsserver" in "".join(one.command) for one in cluster.members):
        # A nats-server that has just become leader reports a floor of 0 for a moment.
        assert load.floors == sorted(load.floors)
    others = [one for n, one in enumerate(cluster.members) if NAMES[n] not in members]
    await until(lambda: not [one for one in others if folder(one).exists()], 60)
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in cluster.members))
    seen = []
    for number, server in enumerate(cluster.members):
        if NAMES[number] in members:
            code, out, error = run("dump", server.store, "--stream", "S", "--json")
            assert code == 0, error
            seen.append([json.loads(line) for line in out.splitlines()])
    assert all(one == seen[0] for one in seen), [len(one) for one in seen]
    there = {one["seq"]: base64.b64decode(one["data"]) for one in seen[0]}
    assert {seq: there.get(seq) for seq in load.acked} == load.acked
    assert len({*there.values()}) == len(there)


async def done(client: Client, subject: str, body: object = None) -> dict[str, Any]:
    """Makes a change. A request to a leader that has just changed is lost with nats-servers, and
    so is the answer of a leader that steps down for the change: the request is repeated then, and
    an error that the change is done already is ignored."""
    data = b"" if body is None else json.dumps(body).encode()
    lost = 0
    while True:
        try:
            message = await client.request(f"$JS.API.{subject}", data, timeout=10)
        except TimeoutError:
            lost += 1
            assert lost < 3, f"nobody answers {subject}"
            continue
        answer: dict[str, Any] = json.loads(message.data)
        assert lost or "error" not in answer, answer
        return answer


async def updated(client: Client, body: dict[str, Any]) -> None:
    answer = await done(client, "STREAM.UPDATE.S", body)
    assert answer["config"]["num_replicas"] == body["num_replicas"]


async def made(client: Client, body: dict[str, Any]) -> None:
    assert "error" not in await api(client, "STREAM.CREATE.S", body)
    wanted = {"stream_name": "S", "config": DURABLE}
    assert "error" not in await api(client, "CONSUMER.DURABLE.CREATE.S.D", wanted)


async def take(load: Load, more: int = 30) -> None:
    """Waits until so many more messages are acked."""
    wanted = len(load.acked) + more
    await until(lambda: len(load.acked) >= wanted, 60)


@pytest.mark.parametrize("kinds", mixtures("ooo", "poo", "onn", soak=["opp", "ppo"]))
@asynchronous
async def test_one_becomes_three_and_one_again(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0]) as client:
        await made(client, stream(1))
        async with loaded(client) as load:
            await take(load)
            await updated(client, stream(3))
            await held(client, 3)
            await take(load)
            await asyncio.to_thread(cluster.members[2].restart, kill=True)
            await held(client, 3)
            await placeable(client, 3)
            await updated(client, stream(1))
            await held(client, 1)
            await take(load)
            await updated(client, stream(3))
            members = await held(client, 3)
            await take(load)
        await alike(cluster, load, members)


@pytest.mark.parametrize("kinds", mixtures("ooo", soak=["pop"]))
@asynchronous
async def test_a_stream_in_memory_keeps_what_it_has(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0]) as client:
        await made(client, stream(1, storage="memory"))
        async with loaded(client) as load:
            for count in (3, 1, 3):
                await take(load)
                await updated(client, stream(count, storage="memory"))
                await held(client, count)
                info = await api(client, "STREAM.INFO.S")
                assert info["state"]["messages"] >= len(load.acked) - 1
            await take(load)
        info = await api(client, "STREAM.INFO.S")
        assert info["state"]["messages"] == len(load.acked) == info["state"]["last_seq"]


@pytest.mark.parametrize("kinds", mixtures("opopo", soak=["ooooo"]))
@asynchronous
async def test_three_become_five_and_members_are_replaced(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0]) as client:
        await made(client, stream(3))
        async with loaded(client) as load:
            await updated(client, stream(5))
            await held(client, 5)
            await take(load)
            await updated(client, stream(3))
            members = await held(client, 3)
            for leads in (True, False):
                leader = (await api(client, "STREAM.INFO.S"))["cluster"]["leader"]
                gone = leader if leads else max(members - {leader})
                answer = await api(client, "STREAM.PEER.REMOVE.S", {"peer": gone})
                assert answer.get("success"), answer
                await take(load)

                async def replaced(gone: str = gone) -> bool:
                    found = await holders(client, "STREAM.INFO.S")
                    same = found == await holders(client, "CONSUMER.INFO.S.D")
                    return same and len(found) == 3 and gone not in found

                await until(replaced, 60)
                members = await held(client, 3)
        await alike(cluster, load, members)


@pytest.mark.parametrize("kinds", mixtures("oooo", "popo", soak=["opop", "nono"]))
@asynchronous
async def test_a_stream_moves_to_other_tags(servers: Servers, kinds: str) -> None:
    """Members A, B and C have the tag a, members B, C and D the tag b; then the stream moves to D
    alone, and to A."""
    tags = ('"a", "one"', '"a", "b"', '"a", "b"', '"b", "other"')
    cluster = await started(servers, kinds, tags)
    async with connected(cluster.members[1]) as client:
        await made(client, stream(3, placement={"tags": ["a"]}))
        async with loaded(client) as load:
            await held(client, 3, {*"ABC"})
            await take(load)
            await updated(client, stream(3, placement={"tags": ["b"]}))
            await held(client, 3, {*"BCD"})
            await take(load)
        await alike(cluster, load, {*"BCD"})


@pytest.mark.parametrize("kinds", mixtures("poo", soak=["ooo", "opo"]))
@asynchronous
async def test_a_single_replica_moves(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds, ('"a"', '"b"', '"c"'))
    async with connected(cluster.members[1]) as client:
        await made(client, stream(1, placement={"tags": ["a"]}))
        async with loaded(client) as load:
            for tag, name in (("c", "C"), ("a", "A")):
                await take(load)
                await updated(client, stream(1, placement={"tags": [tag]}))
                await held(client, 1, {name})
            await take(load)
        await alike(cluster, load, {"A"})


async def not_led_by(cluster: Cluster, system: Client, name: str) -> bool:
    """The meta leader steps down."""
    if leads(cluster) == name:
        await asked(system, "META.LEADER.STEPDOWN")
    return leads(cluster) not in ("", name)


@pytest.mark.parametrize("kinds", mixtures("oooo", soak=["poop"]))
@asynchronous
async def test_a_move_is_cancelled(servers: Servers, kinds: str) -> None:
    tags = ('"a"', '"a", "b"', '"a", "b"', '"b"')
    cluster = await started(servers, kinds, tags)
    async with (
        connected(cluster.members[1]) as client,
        connected(cluster.members[1], user="sys", password="sys") as system,
    ):
        await made(client, stream(3, placement={"tags": ["a"]}))
        async with loaded(client) as load:
            await held(client, 3, {*"ABC"})
            await until(lambda: not_led_by(cluster, system, "D"), 60)
            os.kill(cluster.members[3].pid, signal.SIGSTOP)
            try:
                await updated(client, stream(3, placement={"tags": ["b"]}))
                await take(load)
                await done(system, "ACCOUNT.STREAM.CANCEL_MOVE.ONE.S")
            finally:
                os.kill(cluster.members[3].pid, signal.SIGCONT)
            # The first three members of the assignment stay; D may stand before B or C.
            members = await held(client, 3)
            await take(load)
        assert "A" in members
        await alike(cluster, load, members)


@pytest.mark.parametrize("kinds", mixtures("opp", soak=["ooo"]))
@asynchronous
async def test_a_consumer_is_scaled_alone(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0]) as client:
        await made(client, stream(3))
        async with loaded(client) as load:
            for count in (1, 3):
                await take(load)
                config = DURABLE | {"num_replicas": count}
                wanted = {"stream_name": "S", "config": config, "action": "update"}
                answer = await api(client, "CONSUMER.CREATE.S.D", wanted)
                assert "error" not in answer, answer

                async def scaled(count: int = count) -> bool:
                    return len(await holders(client, "CONSUMER.INFO.S.D")) == count

                await until(scaled, 60)
            members = await held(client, 3)
        await alike(cluster, load, members)


@asynchronous
async def test_a_server_that_was_removed_comes_back(servers: Servers) -> None:
    """It was down when it was removed. The streams that lack a member get it again."""
    cluster = await started(servers, "ooo")
    gone = next(name for name in NAMES[:3] if name != leads(cluster))
    member = cluster.members[NAMES.index(gone)]
    other = next(one for one in cluster.members if one is not member)
    async with (
        connected(other) as client,
        connected(other, user="sys", password="sys") as system,
    ):
        await made(client, stream(3))
        async with loaded(client) as load:
            await held(client, 3)
            await asyncio.to_thread(member.kill)

            async def removed() -> bool:
                answer = await asked(system, "SERVER.REMOVE", {"peer": gone})
                return bool(answer.get("success"))

            await until(removed, 60)
            await held(client, 2)
            await take(load)
            await asyncio.to_thread(member.start)
            members = await held(client, 3)
            await take(load)
        await alike(cluster, load, members)
