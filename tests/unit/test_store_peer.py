"""nats-server opens our directories and we its: same messages, same state (v2.14)."""

import asyncio
from pathlib import Path
from typing import Any, TypedDict

import nats
import pytest
from nats.js.api import StreamConfig

from tests.cext.store import PyStore
from tests.servers import Server, Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(180)]


def directory_of(server: Server) -> Path:
    return server.store / "jetstream" / "$G" / "streams" / "S"


async def make(server: Server, n: int, **config) -> None:
    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="S", subjects=["k.>"], **config))
    for i in range(n):
        await js.publish(f"k.{i % 7}", b"peer-%d" % i, headers={"A": "b"} if i % 3 == 0 else None)
    if "max_msgs_per_subject" not in config:
        # What a limit took away leaves no record in nats-server's blocks: with room under the limit
        # again, nobody can tell it from what is kept.
        for seq in (n - 2, n - 5, n - 6):
            await js.delete_msg("S", seq)
    await client.close()


Contents = dict[int, tuple[str, bytes, dict[str, str]]]
"""Subject, data and headers by sequence."""


class Counts(TypedDict):
    msgs: int
    bytes: int
    first_seq: int
    last_seq: int


def counts_of(store: PyStore) -> Counts:
    s = store.state()
    return Counts(
        msgs=s["msgs"], bytes=s["bytes"], first_seq=s["first_seq"], last_seq=s["last_seq"]
    )


async def contents(server: Server) -> tuple[Contents, Counts]:
    client = await nats.connect(server.url)
    js = client.jetstream()
    state = (await js.stream_info("S")).state
    messages: Contents = {}
    for seq in range(state.first_seq, state.last_seq + 1):
        try:
            m = await js.get_msg("S", seq)
        except nats.js.errors.NotFoundError:
            continue
        messages[seq] = (m.subject or "", m.data or b"", dict(m.headers or {}))
    await client.close()
    return messages, {
        "msgs": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
    }


def ours(store: PyStore) -> Contents:
    state = store.state()
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        try:
            _, _, subject, header, data = store.load(seq)
        except KeyError:
            continue
        lines = header.decode().split("\r\n")[1:-2]
        found[seq] = (subject, data, dict(line.split(": ", 1) for line in lines))
    return found


@pytest.mark.parametrize(
    "config", [{}, {"max_msgs_per_subject": 5}, {"max_bytes": 64_000}], ids=str
)
def test_there_and_back(servers: Servers, config: dict[str, int]) -> None:
    server = servers.peer(jetstream=True)
    asyncio.run(make(server, 200, **config))
    theirs, state = asyncio.run(contents(server))
    server.stop()

    limits: dict[str, Any] = {"max_msgs_per": config.get("max_msgs_per_subject", -1)}
    limits["max_bytes"] = config.get("max_bytes", -1)
    store = PyStore(directory_of(server), "S", **limits)
    assert store.figures()["damage"] == 0
    assert ours(store) == theirs
    assert counts_of(store) == state
    for i in range(300):
        store.append(f"k.{i % 9}", b"ours-%d" % i, b"NATS/1.0\r\nB: c\r\n\r\n" if i % 2 else b"")
        if i % 20 == 0:
            store.wait_durable()
    last = store.state()["last_seq"]
    if "max_msgs_per_subject" not in config:
        for seq in (last, last - 3, last - 20):
            store.remove(seq, erase=True)
    want, state = ours(store), counts_of(store)
    store.close()

    server.start()
    theirs, theirs_state = asyncio.run(contents(server))
    assert theirs == want
    assert theirs_state == state
    server.stop()
    store = PyStore(directory_of(server), "S", **limits)
    assert ours(store) == want
    store.close()


def test_after_a_kill_of_ours(servers: Servers) -> None:
    """Markers, limits records and zeros ahead of use are passed over by nats-server."""
    server = servers.peer(jetstream=True)
    asyncio.run(make(server, 20))
    server.stop()
    store = PyStore(directory_of(server), "S")
    store.append_many("k.#", 30_000, 50, 100)
    store.wait_durable()
    want = store.state()
    store.abandon()
    server.start()

    async def look() -> tuple[int, int, int, bytes]:
        client = await nats.connect(server.url)
        js = client.jetstream()
        state = (await js.stream_info("S")).state
        m = await js.get_msg("S", state.last_seq)
        await client.close()
        return state.messages, state.bytes, state.last_seq, (m.data or b"")[:8]

    last = (30_000 - 1).to_bytes(8, "little")
    assert asyncio.run(look()) == (want["msgs"], want["bytes"], want["last_seq"], last)


def test_after_a_purge_of_ours(servers: Servers) -> None:
    server = servers.peer(jetstream=True)
    asyncio.run(make(server, 20))
    server.stop()
    store = PyStore(directory_of(server), "S")
    store.purge()
    store.close()
    server.start()
    messages, state = asyncio.run(contents(server))
    assert messages == {}
    assert (state["first_seq"], state["last_seq"]) == (21, 20)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("interval", [0, 120 * 10**9])
def test_batches_of_ours(servers: Servers, interval: int, killed: bool) -> None:
    """In several blocks, among what is stored one by one; their markers are passed over."""
    server = servers.peer(jetstream=True)
    asyncio.run(make(server, 20, max_bytes=400_000))
    server.stop()
    store = PyStore(directory_of(server), "S", max_bytes=400_000, sync_interval=interval)
    for number in range(6):
        store.append("k.1", b"alone-%d" % number)
        rows = [(f"k.{k % 5}", b"batch-%d-%d" % (number, k) * 200) for k in range(3 + 5 * number)]
        store.batch(rows, remove=[store.state()["last_seq"] - 1])
        store.wait_durable()
    want, state = ours(store), counts_of(store)
    if killed:
        store.abandon()
    else:
        store.close()
    server.start()
    theirs, theirs_state = asyncio.run(contents(server))
    assert theirs == want
    assert theirs_state == state
