"""A damaged stream as its users meet it: what is intact is served, and what is not is told."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy
from nats.js.errors import APIError

from tests.client.aio import api, asynchronous, connected, until
from tests.servers import Server, Servers

COUNT = 100
DAMAGED = 37


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.under_test(jetstream=True, monitor=True)


def flip(server: Server, body: bytes) -> Path:
    """Changes a bit of the one message with these bytes."""
    for path in sorted(server.store.rglob("*.blk")):
        data = bytearray(path.read_bytes())
        at = data.find(body)
        if at >= 0:
            data[at + len(body) // 2] ^= 4
            path.write_bytes(data)
            return path
    raise AssertionError("the message is in no block")


def body_of(n: int) -> bytes:
    return b"message %03d:" % n + bytes(1000)


@pytest.mark.parametrize("kill", [False, True], ids=["terminated", "killed"])
@asynchronous
async def test_one_damaged_message_costs_one_message(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(
            name="S",
            subjects=["s"],
            retention=RetentionPolicy.INTEREST,
            max_bytes=120_000,
            allow_direct=True,
        )
        for name in ("a", "b"):
            config = ConsumerConfig(durable_name=name, ack_policy=AckPolicy.EXPLICIT)
            await js.add_consumer("S", config)
        for n in range(1, COUNT + 1):
            await js.publish("s", body_of(n))
        await asyncio.to_thread(server.kill if kill else server.stop)
        flip(server, body_of(DAMAGED))
        await asyncio.to_thread(server.start)
        await until(lambda: client.is_connected)
        for name in ("a", "b"):
            taken: list[int] = []
            sub = await js.pull_subscribe_bind(name, stream="S")
            while len(taken) < COUNT - 1:
                for message in await sub.fetch(50, timeout=10):
                    taken.append(message.metadata.sequence.stream)
                    await message.ack_sync()
            assert taken == [n for n in range(1, COUNT + 1) if n != DAMAGED]
        state = (await api(client, "STREAM.INFO.S"))["state"]
        assert state["lost"]["msgs"] == [DAMAGED]
        with pytest.raises(APIError, match="the message is damaged"):
            await js.get_msg("S", DAMAGED)
        assert f"message {DAMAGED} is damaged" in server.log()
        url = f"{server.monitor_url}/healthz"
        page = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url).read()))
        assert page["status"] == "ok"
        assert [e["stream"] for e in page["errors"]] == ["S"]


@asynchronous
async def test_a_missing_block_is_told(server: Server) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"], max_bytes=120_000)
        for n in range(1, COUNT + 1):
            await js.publish("s", body_of(n))
        await asyncio.to_thread(server.stop)
        blocks = sorted(server.store.rglob("*.blk"), key=lambda p: int(p.stem))
        assert len(blocks) >= 3
        blocks[1].unlink()
        await asyncio.to_thread(server.start)
        await until(lambda: client.is_connected)
        info = (await api(client, "STREAM.INFO.S"))["state"]
        assert info["last_seq"] == COUNT
        assert info["messages"] + len(info["lost"]["msgs"]) == COUNT
        assert "block 2 is missing" in server.log()
        assert (await js.publish("s", b"more")).seq == COUNT + 1
