"""What survives a restart, clean or by SIGKILL: everything that was acked."""

import asyncio
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from tests.client.aio import asynchronous, connected, fill, restart, take
from tests.client.raw import EOF, RawApp
from tests.servers import Server, Servers, command_of_peer
from tests.waiting import wait_until

kinds = pytest.mark.parametrize("kill", [False, True], ids=["terminated", "killed"])

# The reference keeps what an ack changed in memory for a moment; it was observed to need less.
SETTLE_SECONDS = 0.3
# And it keeps deadlines rounded down to seconds.
DEADLINE_SECONDS = 1.0


@pytest.fixture
def server(servers: Servers) -> Server:
    return servers.under_test(jetstream=True)


async def contents(js: JetStreamContext, stream: str) -> list[tuple[int, str, bytes, Any]]:
    """Sequence, subject, body and headers of all messages."""
    info = await js.stream_info(stream)
    if info.state.messages == 0:
        return []
    ordered = await js.subscribe(">", stream=stream, ordered_consumer=True)
    messages = await take(ordered, info.state.messages)
    await ordered.unsubscribe()
    return [(m.metadata.sequence.stream, m.subject, m.data, m.headers) for m in messages]


@kinds
@asynchronous
async def test_messages(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        payloads = random.Random(3)
        for n in range(400):
            body = payloads.randbytes(payloads.choice([0, 1, 10, 100, 5000]))
            headers = {"N": str(n)} if n % 3 == 0 else None
            await js.publish(f"s.{n % 7}", body, headers=headers)
        for seq in (1, 2, 50, 51, 52, 399):
            await js.delete_msg("S", seq)
        await js.purge_stream("S", subject="s.6")
        before = await contents(js, "S")
        state = (await js.stream_info("S", subjects_filter=">")).state
        await restart(client, server, kill=kill)
        assert await contents(js, "S") == before
        after = (await js.stream_info("S", subjects_filter=">")).state
        fields = ("messages", "bytes", "first_seq", "last_seq", "num_deleted", "subjects")
        assert [getattr(after, f) for f in fields] == [getattr(state, f) for f in fields]
        assert (await js.publish("s.x", b"")).seq == 401


@kinds
@asynchronous
async def test_configuration(server: Server, kill: bool) -> None:
    config = StreamConfig(
        name="C",
        subjects=["c.>", "d"],
        description="all of it",
        max_msgs=1000,
        max_bytes=1_000_000,
        max_age=3600,
        max_msgs_per_subject=10,
        max_msg_size=10_000,
        duplicate_window=30,
        allow_direct=True,
        allow_rollup_hdrs=True,
        deny_delete=True,
        retention=RetentionPolicy.INTEREST,
        metadata={"owner": "test"},
    )
    consumer = ConsumerConfig(
        durable_name="c",
        description="mine",
        ack_wait=7,
        max_deliver=9,
        max_ack_pending=11,
        filter_subjects=["c.a", "c.b.>"],
        sample_freq="50",
        metadata={"k": "v"},
    )
    async with connected(server) as client:
        js = client.jetstream()
        stream = await js.add_stream(config)
        info = await js.add_consumer("C", consumer)
        await restart(client, server, kill=kill)
        again = await js.stream_info("C")
        assert (again.config, again.created) == (stream.config, stream.created)
        consumer_again = await js.consumer_info("C", "c")
        assert (consumer_again.config, consumer_again.created) == (info.config, info.created)
        await js.delete_consumer("C", "c")
        await js.delete_stream("C")
        await restart(client, server, kill=kill)
        with pytest.raises(NotFoundError):
            await js.stream_info("C")


@kinds
@asynchronous
async def test_consumer_state(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await fill(js, "s", 10)
        config = ConsumerConfig(ack_wait=60)
        pull = await js.pull_subscribe("s", "c", config=config)
        messages = await pull.fetch(6, timeout=30)
        for index in (0, 1, 3):
            await messages[index].ack_sync(30)
        await messages[4].nak(delay=4)
        refused = time.monotonic()
        await asyncio.sleep(SETTLE_SECONDS)  # nats-server has written it down
        before = await pull.consumer_info()
        await restart(client, server, kill=kill)
        after = await js.consumer_info("S", "c")
        assert after.delivered and before.delivered and after.ack_floor and before.ack_floor
        assert after.delivered.stream_seq == before.delivered.stream_seq == 6
        assert after.ack_floor.stream_seq == before.ack_floor.stream_seq == 2
        assert (after.num_ack_pending, after.num_pending) == (3, 4)
        again = await js.pull_subscribe_bind("c", stream="S")
        heard: dict[bytes, tuple[int, float]] = {}
        while len(heard) < 5:
            for message in await again.fetch(1, timeout=15):
                waited = time.monotonic() - refused
                heard[message.data] = (message.metadata.num_delivered, waited)
        deliveries, waited = heard.pop(b"5")
        assert deliveries == 2 and waited >= 4 - DEADLINE_SECONDS
        assert [(data, n) for data, (n, _) in heard.items()] == [
            (b"7", 1),
            (b"8", 1),
            (b"9", 1),
            (b"10", 1),
        ]


@kinds
@asynchronous
async def test_work_queue(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="W", subjects=["w"], retention=RetentionPolicy.WORK_QUEUE)
        await fill(js, "w", 20)
        pull = await js.pull_subscribe("w", "c")
        for message in await pull.fetch(20, timeout=30):
            if int(message.data) % 2:
                await message.ack_sync(30)
        await asyncio.sleep(SETTLE_SECONDS)  # nats-server has written it down
        await restart(client, server, kill=kill)
        left = [int(data) for _, _, data, _ in await contents_of_queue(js)]
        assert left == list(range(2, 21, 2))


async def contents_of_queue(js: JetStreamContext) -> list[tuple[int, str, bytes, Any]]:
    """The messages of the work queue, read by their sequences: a second consumer is refused."""
    state = (await js.stream_info("W")).state
    found = []
    for seq in range(state.first_seq, state.last_seq + 1):
        try:
            message = await js.get_msg("W", seq)
        except NotFoundError:
            continue
        found.append((seq, message.subject or "", message.data or b"", message.headers))
    assert len(found) == state.messages
    return found


@kinds
@asynchronous
async def test_duplicates_stay_known(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for n in range(5):
            await js.publish("s", b"", headers={"Nats-Msg-Id": f"id-{n}"})
        await restart(client, server, kill=kill)
        again = await js.publish("s", b"", headers={"Nats-Msg-Id": "id-3"})
        assert (again.seq, again.duplicate) == (4, True)
        new = await js.publish("s", b"", headers={"Nats-Msg-Id": "id-5"})
        assert (new.seq, new.duplicate) == (6, None)


@kinds
@asynchronous
async def test_key_values_and_objects(server: Server, kill: bool) -> None:
    data = random.Random(5).randbytes(3_000_000)
    async with connected(server) as client:
        js = client.jetstream()
        kv = await js.create_key_value(bucket="B", history=3)
        for n in range(60):
            await kv.put(f"k.{n % 20}", b"%d" % n)
        await kv.delete("k.0")
        await kv.purge("k.1")
        objects = await js.create_object_store("O")
        await objects.put("big", data)
        await objects.put("small", b"s")
        await objects.delete("small")
        await restart(client, server, kill=kill)
        kv = await js.key_value("B")
        assert sorted(await kv.keys()) == sorted(f"k.{n}" for n in range(2, 20))
        assert [e.value for e in await kv.history("k.7")] == [b"7", b"27", b"47"]
        # The reference may bring one purged value back after SIGKILL.
        assert [e.operation for e in await kv.history("k.1")] == ["PURGE"]
        objects = await js.object_store("O")
        assert (await objects.get("big")).data == data
        assert [o.name for o in await objects.list() if not o.deleted] == ["big"]


@asynchronous
async def test_memory_streams_are_gone_and_file_streams_are_not(server: Server) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="M", subjects=["m"], storage=StorageType.MEMORY)
        await js.add_stream(name="F", subjects=["f"])
        await restart(client, server)
        assert [s.config.name for s in await js.streams_info()] == ["F"]


@kinds
@asynchronous
async def test_limits_go_on(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.*"], max_msgs=10, max_msgs_per_subject=3)
        for n in range(30):
            await js.publish(f"s.{n % 5}", b"%d" % n)
        await restart(client, server, kill=kill)
        for n in range(30, 36):
            await js.publish(f"s.{n % 2}", b"%d" % n)
        kept = [int(data) for _, _, data, _ in await contents(js, "S")]
        assert kept == [24, 27, 28, 29, 30, 31, 32, 33, 34, 35]


@kinds
@asynchronous
async def test_several_restarts(server: Server, kill: bool) -> None:
    async with connected(server) as client:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        for turn in range(4):
            for n in range(25):
                ack = await js.publish("s", b"%d" % (turn * 25 + n))
                assert ack.seq == turn * 25 + n + 1
            await restart(client, server, kill=kill)
        assert [int(data) for _, _, data, _ in await contents(js, "S")] == list(range(100))


def test_a_second_server_is_kept_off_the_store(servers: Servers, server: Server) -> None:
    """The reference has no such lock; two servers on one directory damage it."""
    if server.command == command_of_peer():
        pytest.skip("nats-server does not lock its store")
    second = Server(server.command, server.folder / "second", jetstream=True)
    second.store = server.store
    servers.started.append(second)
    second.launch()
    assert second.process is not None
    assert second.process.wait(10) == 1
    assert "store" in second.log().lower()
    assert server.running


@pytest.mark.parametrize("cipher", ["aes", "chachapoly"])
def test_an_encrypted_directory_is_named_and_left_alone(
    servers: Servers, peer_present: None, tmp_path: Path, cipher: str
) -> None:
    store = f'store_dir: "{tmp_path}"'
    peer = servers.peer(config=f"jetstream {{ {store}, cipher: {cipher}, key: secret }}")
    with RawApp(peer.port) as client:
        client.api("STREAM.CREATE.S", {"name": "S"})
        config = {"stream_name": "S", "config": {"durable_name": "c"}}
        client.api("CONSUMER.DURABLE.CREATE.S.c", config)
        client.request("S", b"x")
    peer.stop()
    files = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    server = servers.under_test(config=f"jetstream {{ {store} }}")
    reason = "encrypted, and the configuration has no key"
    with RawApp(server.port) as client:
        assert client.api("STREAM.LIST")["offline"] == {"S": reason}
        answer = client.api("STREAM.CREATE.S", {"name": "S"})["error"]
        assert answer["description"] == f"stream is offline: {reason}"
    server.wait_log(f"Stream '$G > S' is offline: {reason}")
    server.stop()
    after = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert files.items() <= after.items()


def test_a_server_that_stops_says_of_no_stream_that_it_is_missing(server: Server) -> None:
    """Who hears of no stream may make it anew, over the one that comes back."""
    with RawApp(server.port) as client:
        for n in range(20):
            assert "error" not in client.api(f"STREAM.CREATE.S{n}", {"name": f"S{n}"})
    for _ in range(6):
        clients = [RawApp(server.port) for _ in range(3)]
        with ThreadPoolExecutor() as threads:
            heard = [threads.submit(asked_until_the_end, client) for client in clients]
            wait_until(partial(has_asked, clients[-1]), "the requests have begun")
            server.restart()
            for one in heard:
                assert one.result() <= {None, 10008}


def has_asked(client: RawApp) -> bool:
    return client.last_inbox > 1


def asked_until_the_end(client: RawApp) -> set[int | None]:
    """The err_codes of what the server answers until it closes the connection; None: no error."""
    codes: set[int | None] = set()
    with client:
        while True:
            inbox = client.inbox()
            for subject in ("STREAM.INFO.S1", "STREAM.CREATE.S1", "CONSUMER.NAMES.S1"):
                body = b'{"name":"S1"}' if "CREATE" in subject else b""
                client.publish(f"$JS.API.{subject}", body, reply=inbox)
            for _ in range(3):
                frame = client.frame()
                if frame.verb == EOF:
                    return codes
                if frame.payload:
                    codes.add(json.loads(frame.payload).get("error", {}).get("err_code"))
