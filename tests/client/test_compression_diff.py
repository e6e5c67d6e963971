"""A directory with compressed streams goes from one server to the other and back, unchanged."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import nats
import pytest

from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(300)]

LIMITS: dict[str, Any] = {"max_msgs": 100_000, "max_bytes": 30_000_000, "allow_msg_ttl": True}
COUNT = 9000
GONE = (2, 3, 77, 1500, 4444, 8000)


def directory_of(server: Server) -> Path:
    return server.store / "jetstream" / "$G" / "streams" / "S"


def forms(server: Server) -> list[bool]:
    files = (directory_of(server) / "msgs").glob("*.blk")
    return [p.read_bytes()[:4] == b"cmp\x01" for p in sorted(files, key=lambda p: int(p.stem))]


def payload(i: int) -> bytes:
    return b'{"order":%d,"customer":"c%d","state":"paid"}' % (i, i * 7919 % 1000) * 25


async def make(server: Server, first: int, count: int, compression: str = "s2") -> None:
    client = await nats.connect(server.url)
    js = client.jetstream()
    config = {"name": "S", "subjects": ["k.>"], "compression": compression, **LIMITS}
    verb = "CREATE" if first == 0 else "UPDATE"
    answer = await js._api_request(f"$JS.API.STREAM.{verb}.S", json.dumps(config).encode())
    assert answer["config"]["compression"] == compression
    for at in range(first, first + count, 500):
        await asyncio.gather(*(js.publish(f"k.{i % 11}", payload(i)) for i in range(at, at + 500)))
    if first == 0:
        for seq in GONE:
            await js.delete_msg("S", seq)
        await js.publish("k.ttl", b"for long", headers={"Nats-TTL": "1h"})
    await client.close()


async def contents(server: Server) -> dict[int, tuple[str, bytes, dict[str, str]]]:
    client = await nats.connect(server.url)
    js = client.jetstream()
    messages = {}
    sub = await js.subscribe("k.>", stream="S", ordered_consumer=True)
    state = (await js.stream_info("S")).state
    for _ in range(state.messages):
        m = await sub.next_msg(timeout=20)
        messages[m.metadata.sequence.stream] = (m.subject, m.data, dict(m.headers or {}))
    got = await js.get_msg("S", 4000)
    assert got.data == messages[4000][1]
    assert (await js.get_last_msg("S", "k.3")).seq == max(
        seq for seq, (subject, *_) in messages.items() if subject == "k.3"
    )
    await client.close()
    return messages


def moved(source: Server, target: Server) -> None:
    """Starts `target` on what `source`, which is stopped, has."""
    shutil.rmtree(target.store / "jetstream", ignore_errors=True)
    shutil.copytree(source.store / "jetstream", target.store / "jetstream")
    target.start()


@pytest.mark.parametrize("first", ["ours", "peer"])
def test_there_and_back(servers: Servers, first: str) -> None:
    ours, peer = servers.under_test(jetstream=True), servers.peer(jetstream=True)
    one, other = (ours, peer) if first == "ours" else (peer, ours)
    asyncio.run(make(one, 0, COUNT))
    before = asyncio.run(contents(one))
    assert len(before) == COUNT - len(GONE) + 1
    one.stop()
    other.stop()
    assert sum(forms(one)) >= 1 and not forms(one)[-1]
    moved(one, other)
    assert asyncio.run(contents(other)) == before
    asyncio.run(make(other, COUNT + 1, 5000))
    more = asyncio.run(contents(other))
    other.stop()
    moved(other, one)
    assert asyncio.run(contents(one)) == more
    one.stop()


def test_blocks_of_both_forms_in_one_stream(servers: Servers) -> None:
    """An update is for the blocks after it; nats-server takes one in at its next start."""
    ours, peer = servers.under_test(jetstream=True), servers.peer(jetstream=True)
    asyncio.run(make(ours, 0, 8000, "none"))
    asyncio.run(make(ours, 8001, 8000, "s2"))
    asyncio.run(make(ours, 16001, 8000, "none"))
    ours.stop()
    kinds = forms(ours)
    assert not kinds[0] and any(kinds) and not kinds[-2]
    peer.stop()
    moved(ours, peer)
    messages = asyncio.run(contents(peer))
    peer.stop()
    ours.start()
    assert asyncio.run(contents(ours)) == messages
