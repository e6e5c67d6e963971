"""JetStream on both sides of a leaf link: apart, each reached by its domain's name, and copied by
mirrors and sources, with ours and nats-server in each mixture."""

import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.errors import NotFoundError

from tests.client.aio import asynchronous, until
from tests.client.leafs import MIXED, Tree
from tests.client.mesh import clients_of
from tests.servers import Servers

COUNT = 300

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.parametrize("kinds", MIXED)]


def started(servers: Servers, kinds: str) -> Tree:
    tree = Tree(servers)
    tree.add_hub(kinds[0], rest=domain(servers, "HUB"))
    tree.add_leaf(kinds[1], rest=domain(servers, "LEAF"))
    return tree


def domain(servers: Servers, name: str) -> str:
    return f'jetstream {{ domain: {name}, store_dir: "{servers.base}/js-{name}" }}'


async def names(js: JetStreamContext) -> list[str]:
    return sorted(info.config.name or "" for info in await js.streams_info())


@asynchronous
async def test_each_side_by_its_domain(servers: Servers, kinds: str) -> None:
    async with clients_of(started(servers, kinds).members) as (hub, leaf):
        for client, name in ((hub, "H"), (leaf, "L")):
            await client.jetstream(timeout=10).add_stream(name=name, subjects=[f"{name}.>"])
        assert await names(hub.jetstream(timeout=10)) == ["H"]
        assert await names(leaf.jetstream(timeout=10)) == ["L"]
        assert await names(hub.jetstream(domain="LEAF", timeout=10)) == ["L"]
        assert await names(leaf.jetstream(domain="HUB", timeout=10)) == ["H"]
        await hub.jetstream(domain="LEAF", timeout=10).delete_stream("L")
        assert await names(leaf.jetstream(timeout=10)) == []


@asynchronous
async def test_a_stream_of_the_other_side(servers: Servers, kinds: str) -> None:
    """Published to by its subjects, read by push, pull and as a bucket, and acked, from there."""
    async with clients_of(started(servers, kinds).members) as (hub, leaf):
        for here, there, other in ((hub, leaf, "LEAF"), (leaf, hub, "HUB")):
            far = here.jetstream(domain=other, timeout=10)
            subject = f"into.{other}"
            await far.add_stream(name=f"S{other}", subjects=[f"{subject}.>"])

            async def taken(client: Client = here, at: str = subject) -> bool:
                try:
                    await client.jetstream(timeout=10).publish(f"{at}.first", b"")
                except Exception:  # until the other side has told of its stream
                    return False
                return True

            await until(taken)
            for n in range(COUNT):
                await here.jetstream(timeout=10).publish(f"{subject}.{n % 3}", b"%d" % n)
            expected = [f"{subject}.first", *(f"{subject}.{n % 3}" for n in range(COUNT))]

            got: list[Any] = []

            async def take(message: Any, got: list[Any] = got) -> None:
                got.append(message.subject)
                await message.ack()

            await far.subscribe(f"{subject}.>", durable="pushed", cb=take, manual_ack=True)
            await until(lambda got=got: len(got) >= COUNT + 1)  # type: ignore[misc]
            assert got == expected

            async def acked(js: JetStreamContext = far, stream: str = f"S{other}") -> bool:
                info = await js.consumer_info(stream, "pushed")
                return bool(info.num_ack_pending == 0)

            await until(acked)
            pull = await far.pull_subscribe(f"{subject}.>", "pulled")
            found: list[Any] = []
            while len(found) < COUNT + 1:
                for message in await pull.fetch(50, timeout=10):
                    await message.ack()
                    found.append(message.subject)
            assert found == expected
            near = await there.jetstream(timeout=10).create_key_value(bucket=f"B{other}")
            for n in range(20):
                key = f"$JS.{other}.API.$KV.B{other}.key{n}"
                assert b"seq" in (await here.request(key, b"%d" % n, timeout=10)).data
            assert (await near.get("key19")).value == b"19"
            bucket = await far.key_value(f"B{other}")
            assert (await bucket.get("key7")).value == b"7"
            with pytest.raises(NotFoundError):
                await here.jetstream(timeout=10).key_value(f"B{other}")


@asynchronous
async def test_mirrors_and_sources(servers: Servers, kinds: str) -> None:
    """Of a stream of the other side, also of what came while that was away."""
    tree = started(servers, kinds)
    async with clients_of(tree.members) as (hub, leaf):
        js = leaf.jetstream(timeout=10)
        await js.add_stream(name="ORIGIN", subjects=["origin.>"])
        for n in range(COUNT):
            await js.publish(f"origin.{n % 5}", b"%d" % n, headers={"Nth": str(n)})
        near = hub.jetstream(timeout=10)
        origin = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.LEAF.API"))
        await near.add_stream(StreamConfig(name="MIRROR", mirror=origin))
        await near.add_stream(StreamConfig(name="SOURCED", sources=[origin]))

        async def copied(count: int) -> bool:
            infos = [await near.stream_info(name) for name in ("MIRROR", "SOURCED")]
            return all(info.state.messages == count for info in infos)

        await until(lambda: copied(COUNT))
    tree.hub.kill()
    async with clients_of(tree.members[1:]) as (leaf,):
        js = leaf.jetstream(timeout=10)
        for n in range(COUNT):
            await js.publish(f"origin.{n % 5}", b"%d" % (COUNT + n), headers={"Nth": str(n)})
    tree.hub.start()
    async with clients_of(tree.members) as (hub, leaf):
        near = hub.jetstream(timeout=10)
        await until(lambda: copied(COUNT * 2))
        for name in ("MIRROR", "SOURCED"):
            for n in (1, COUNT, COUNT + 1, COUNT * 2):
                message = await near.get_msg(name, n)
                assert (
                    message.data == b"%d" % (n - 1) and message.subject == f"origin.{(n - 1) % 5}"
                )


@asynchronous
async def test_the_api_does_not_pass(servers: Servers, kinds: str) -> None:
    """A client that listens to the API of one side hears nothing of the other's."""
    async with clients_of(started(servers, kinds).members) as (hub, leaf):
        heard = await leaf.subscribe("$JS.API.>")
        also = await leaf.subscribe("$KV.>")
        await leaf.flush()
        await hub.jetstream(timeout=10).account_info()
        await hub.publish("$KV.b.key", b"")
        answer = await hub.request("$JS.LEAF.API.INFO", b"", timeout=10)
        assert json.loads(answer.data)["domain"] == "LEAF"
        assert (await heard.next_msg(10)).subject == "$JS.API.INFO"
        assert heard.pending_msgs == 0 and also.pending_msgs == 0
