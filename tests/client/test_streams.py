"""What an application does with streams: define, publish, limit, read, delete."""

import asyncio
import base64
import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError

from tests.client.aio import api, asynchronous, connected, fill, nothing, take, unique, until
from tests.servers import Server

STORAGES = [StorageType.FILE, StorageType.MEMORY]
both_storages = pytest.mark.parametrize("storage", STORAGES, ids=lambda s: s.value)


async def bodies(js: JetStreamContext, stream: str) -> list[tuple[int, bytes]]:
    """Sequence and body of every message of a stream."""
    info = await js.stream_info(stream)
    found = []
    for seq in range(info.state.first_seq, info.state.last_seq + 1):
        try:
            message = await js.get_msg(stream, seq)
        except NotFoundError:
            continue
        found.append((seq, message.data or b""))
    assert len(found) == info.state.messages
    return found


def error_of(failure: pytest.ExceptionInfo[APIError]) -> int:
    return failure.value.err_code or 0


@both_storages
@asynchronous
async def test_create_change_list_and_delete(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        a, b = sorted([unique("A"), unique("A")])
        first = await js.add_stream(name=a, subjects=[f"{a}.>"], storage=storage)
        assert first.config.subjects == [f"{a}.>"]
        assert (first.config.storage, first.config.max_msgs) == (storage, -1)
        assert (first.state.messages, first.state.first_seq, first.state.last_seq) == (0, 0, 0)
        again = await js.add_stream(name=a, subjects=[f"{a}.>"], storage=storage)
        assert again.created == first.created
        with pytest.raises(BadRequestError) as failure:
            await js.add_stream(name=a, subjects=[f"{a}.>"], storage=storage, max_msgs=5)
        assert error_of(failure) == 10058
        with pytest.raises(BadRequestError) as failure:
            await js.add_stream(name=b, subjects=[f"{a}.x"], storage=storage)
        assert error_of(failure) == 10065
        await js.add_stream(name=b, subjects=[f"{b}.>"], storage=storage, description="second")
        changed = await js.update_stream(
            name=a, subjects=[f"{a}.>", f"{a}-more"], storage=storage, max_msgs=5
        )
        assert (changed.config.max_msgs, changed.config.subjects) == (5, [f"{a}.>", f"{a}-more"])
        names = (await api(client, "STREAM.NAMES"))["streams"]
        assert {a, b} <= set(names)
        assert names == sorted(names)
        assert (await api(client, "STREAM.NAMES", {"subject": f"{b}.x"}))["streams"] == [b]
        assert {a, b} <= {info.config.name for info in await js.streams_info()}
        assert await js.find_stream_name_by_subject(f"{a}-more") == a
        for name in (a, b):
            assert await js.delete_stream(name)
            with pytest.raises(NotFoundError) as missing:
                await js.stream_info(name)
            assert missing.value.err_code == 10059
        with pytest.raises(NoStreamResponseError):
            await js.publish(f"{a}.x", b"")


@both_storages
@asynchronous
async def test_publish_and_read_back(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("P")
        await js.add_stream(name=name, subjects=[f"{name}.*"], storage=storage)
        for n in range(1, 51):
            ack = await js.publish(f"{name}.{n % 5}", str(n).encode(), headers={"N": str(n)})
            assert (ack.stream, ack.seq, ack.duplicate) == (name, n, None)
        info = await js.stream_info(name, subjects_filter=">")
        assert (info.state.messages, info.state.first_seq, info.state.last_seq) == (50, 1, 50)
        assert info.state.subjects == {f"{name}.{n}": 10 for n in range(5)}
        for seq in (1, 27, 50):
            message = await js.get_msg(name, seq)
            assert (message.subject, message.seq) == (f"{name}.{seq % 5}", seq)
            assert (message.data, message.headers) == (str(seq).encode(), {"N": str(seq)})
        last = await js.get_last_msg(name, f"{name}.3")
        assert (last.seq, last.data) == (48, b"48")
        following = await js.get_msg(name, seq=7, subject=f"{name}.1", next=True)
        assert following.seq == 11
        with pytest.raises(NotFoundError) as missing:
            await js.get_msg(name, 51)
        assert missing.value.err_code == 10037


@both_storages
@asynchronous
async def test_many_async_publishes_keep_their_order(
    js_server: Server, storage: StorageType
) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("M")
        await js.add_stream(name=name, storage=storage)
        acks = [await js.publish_async(name, str(n).encode()) for n in range(2000)]
        done = await asyncio.gather(*acks)
        assert [ack.seq for ack in done] == list(range(1, 2001))
        subscription = await js.subscribe(name, ordered_consumer=True)
        assert [int(m.data) for m in await take(subscription, 2000)] == list(range(2000))


@both_storages
@asynchronous
async def test_duplicates_are_acked_and_not_stored(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("D")
        await js.add_stream(name=name, storage=storage, duplicate_window=60)
        first = await js.publish(name, b"1", headers={"Nats-Msg-Id": "a"})
        again = await js.publish(name, b"2", headers={"Nats-Msg-Id": "a"})
        other = await js.publish(name, b"3", headers={"Nats-Msg-Id": "b"})
        assert (first.seq, first.duplicate) == (1, None)
        assert (again.seq, again.duplicate) == (1, True)
        assert (other.seq, other.duplicate) == (2, None)
        await js.update_stream(name=name, storage=storage, duplicate_window=0.3)

        async def forgotten() -> bool:
            return (await js.publish(name, b"4", headers={"Nats-Msg-Id": "a"})).seq == 3

        await until(forgotten)


@both_storages
@asynchronous
async def test_expectations_of_a_publisher(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("E")
        await js.add_stream(name=name, subjects=[f"{name}.>"], storage=storage)

        async def refused(expected: dict[str, str], code: int, text: str = "") -> None:
            with pytest.raises(APIError) as failure:
                await js.publish(f"{name}.a", b"no", headers=expected)
            assert error_of(failure) == code
            assert text in (failure.value.description or "")

        await js.publish(f"{name}.a", b"1", stream=name)
        await refused({"Nats-Expected-Stream": "other"}, 10060)
        await js.publish(f"{name}.b", b"2", headers={"Nats-Expected-Last-Sequence": "1"})
        await refused({"Nats-Expected-Last-Sequence": "1"}, 10071, "wrong last sequence: 2")
        await js.publish(f"{name}.a", b"3", headers={"Nats-Expected-Last-Subject-Sequence": "1"})
        await refused({"Nats-Expected-Last-Subject-Sequence": "1"}, 10071, "wrong last sequence: 3")
        await refused({"Nats-Expected-Last-Subject-Sequence": "0"}, 10071)
        await js.publish(f"{name}.new", b"4", headers={"Nats-Expected-Last-Subject-Sequence": "0"})
        wild = {
            "Nats-Expected-Last-Subject-Sequence": "3",
            "Nats-Expected-Last-Subject-Sequence-Subject": f"{name}.a",
        }
        await js.publish(f"{name}.b", b"5", headers=wild)
        await js.publish(f"{name}.a", b"6", headers={"Nats-Msg-Id": "six"})
        await js.publish(f"{name}.a", b"7", headers={"Nats-Expected-Last-Msg-Id": "six"})
        await refused({"Nats-Expected-Last-Msg-Id": "six"}, 10070)
        assert [body for _, body in await bodies(js, name)] == [b"%d" % n for n in range(1, 8)]


@both_storages
@asynchronous
async def test_rollup_replaces_what_was_there(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("R")
        config = StreamConfig(
            name=name, subjects=[f"{name}.>"], storage=storage, allow_rollup_hdrs=True
        )
        await js.add_stream(config)
        for n in range(6):
            await js.publish(f"{name}.{n % 2}", str(n).encode())
        await js.publish(f"{name}.0", b"sum", headers={"Nats-Rollup": "sub"})
        assert await bodies(js, name) == [(2, b"1"), (4, b"3"), (6, b"5"), (7, b"sum")]
        await js.publish(f"{name}.1", b"all", headers={"Nats-Rollup": "all"})
        assert await bodies(js, name) == [(8, b"all")]
        with pytest.raises(APIError) as failure:
            await js.publish(f"{name}.1", b"", headers={"Nats-Rollup": "zz"})
        assert error_of(failure) == 10111


@both_storages
@asynchronous
async def test_limit_of_messages_drops_the_oldest(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("L")
        await js.add_stream(name=name, storage=storage, max_msgs=10)
        await fill(js, name, 25)
        assert await bodies(js, name) == [(n, b"%d" % n) for n in range(16, 26)]
        await js.update_stream(name=name, storage=storage, max_msgs=3, subjects=[name])
        assert [seq for seq, _ in await bodies(js, name)] == [23, 24, 25]


@both_storages
@asynchronous
async def test_limit_of_messages_per_subject(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("S")
        await js.add_stream(
            name=name, subjects=[f"{name}.*"], storage=storage, max_msgs_per_subject=2
        )
        for n in range(1, 10):
            await js.publish(f"{name}.{n % 3}", b"%d" % n)
        assert [seq for seq, _ in await bodies(js, name)] == [4, 5, 6, 7, 8, 9]


@both_storages
@asynchronous
async def test_limit_of_bytes(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("B")
        await js.add_stream(name=name, storage=storage, max_bytes=10_000)
        for _ in range(40):
            await js.publish(name, b"x" * 900)
        state = (await js.stream_info(name)).state
        assert state.bytes <= 10_000
        assert state.messages == 10
        assert (state.first_seq, state.last_seq) == (31, 40)


@both_storages
@asynchronous
async def test_limit_of_age(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("T")
        await js.add_stream(name=name, storage=storage, max_age=600)
        await fill(js, name, 5)
        assert (await js.stream_info(name)).state.messages == 5
        await js.update_stream(name=name, storage=storage, max_age=0.4, duplicate_window=0.4)

        async def empty() -> bool:
            return (await js.stream_info(name)).state.messages == 0

        await until(empty, 5)
        state = (await js.stream_info(name)).state
        assert (state.first_seq, state.last_seq) == (6, 5)
        assert (await js.publish(name, b"next")).seq == 6


@both_storages
@asynchronous
async def test_discard_new_refuses_what_does_not_fit(
    js_server: Server, storage: StorageType
) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("N")
        await js.add_stream(
            name=name,
            subjects=[f"{name}.*"],
            storage=storage,
            max_msgs=3,
            discard=DiscardPolicy.NEW,
        )
        for n in range(3):
            await js.publish(f"{name}.{n}", b"")
        with pytest.raises(APIError) as failure:
            await js.publish(f"{name}.x", b"")
        assert error_of(failure) == 10077
        assert failure.value.description == "maximum messages exceeded"
        await js.delete_msg(name, 2)
        assert (await js.publish(f"{name}.x", b"")).seq == 4


@both_storages
@asynchronous
async def test_discard_new_per_subject(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("N")
        await js.add_stream(
            name=name,
            subjects=[f"{name}.*"],
            storage=storage,
            max_msgs_per_subject=1,
            discard=DiscardPolicy.NEW,
            discard_new_per_subject=True,
        )
        await js.publish(f"{name}.a", b"1")
        await js.publish(f"{name}.b", b"2")
        with pytest.raises(APIError) as failure:
            await js.publish(f"{name}.a", b"3")
        assert error_of(failure) == 10077
        assert failure.value.description == "maximum messages per subject exceeded"


@both_storages
@asynchronous
async def test_message_size_limit(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("Z")
        await js.add_stream(name=name, storage=storage, max_msg_size=100)
        await js.publish(name, b"x" * 100)
        for size, headers in ((101, None), (90, {"Some": "header"})):
            with pytest.raises(APIError) as failure:
                await js.publish(name, b"x" * size, headers=headers)
            assert error_of(failure) == 10054


@both_storages
@asynchronous
async def test_work_queue_forgets_what_is_acked(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("W")
        await js.add_stream(name=name, storage=storage, retention=RetentionPolicy.WORK_QUEUE)
        await fill(js, name, 5)
        worker = await js.pull_subscribe(name, "worker")
        messages = await worker.fetch(5, timeout=30)
        for message in (messages[1], messages[0], messages[4]):
            await message.ack_sync(30)
        assert [seq for seq, _ in await bodies(js, name)] == [3, 4]
        with pytest.raises(APIError) as failure:
            await js.pull_subscribe(name, "second")
        assert error_of(failure) == 10100
        await messages[2].term()
        await messages[3].ack_sync(30)

        async def empty() -> bool:
            return (await js.stream_info(name)).state.messages == 0

        await until(empty)


@both_storages
@asynchronous
async def test_interest_keeps_until_every_consumer_acked(
    js_server: Server, storage: StorageType
) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("I")
        await js.add_stream(
            name=name,
            subjects=[f"{name}.*"],
            storage=storage,
            retention=RetentionPolicy.INTEREST,
        )
        assert (await js.publish(f"{name}.a", b"lost")).seq == 1
        assert (await js.stream_info(name)).state.messages == 0
        both = await js.pull_subscribe(f"{name}.*", "all")
        only_a = await js.pull_subscribe(f"{name}.a", "only")
        for subject in ("a", "b", "a"):
            await js.publish(f"{name}.{subject}", b"")
        for message in await both.fetch(3, timeout=30):
            await message.ack_sync(30)
        assert [seq for seq, _ in await bodies(js, name)] == [2, 4]
        first, _ = await only_a.fetch(2, timeout=30)
        await first.ack_sync(30)
        assert [seq for seq, _ in await bodies(js, name)] == [4]
        await js.delete_consumer(name, "only")

        async def empty() -> bool:
            return (await js.stream_info(name)).state.messages == 0

        await until(empty)


@both_storages
@asynchronous
async def test_purge(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("G")
        await js.add_stream(name=name, subjects=[f"{name}.*"], storage=storage)
        for n in range(1, 13):
            await js.publish(f"{name}.{n % 3}", b"%d" % n)
        purge = f"STREAM.PURGE.{name}"
        assert (await api(client, purge, {"filter": f"{name}.0"}))["purged"] == 4
        assert [seq for seq, _ in await bodies(js, name)] == [1, 2, 4, 5, 7, 8, 10, 11]
        assert (await api(client, purge, {"filter": f"{name}.1", "keep": 1}))["purged"] == 3
        assert [seq for seq, _ in await bodies(js, name)] == [2, 5, 8, 10, 11]
        assert (await api(client, purge, {"seq": 6}))["purged"] == 2
        assert (await api(client, purge, {"filter": f"{name}.2", "seq": 11}))["purged"] == 1
        assert [seq for seq, _ in await bodies(js, name)] == [10, 11]
        assert (await api(client, purge, {"keep": 1}))["purged"] == 1
        assert await js.purge_stream(name)
        state = (await js.stream_info(name)).state
        assert (state.messages, state.first_seq, state.last_seq) == (0, 13, 12)
        assert (await js.publish(f"{name}.x", b"")).seq == 13
        assert (await api(client, purge, {"seq": 100}))["purged"] == 1
        assert (await js.publish(f"{name}.x", b"")).seq == 100


@both_storages
@asynchronous
async def test_delete_a_message(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("X")
        await js.add_stream(name=name, storage=storage)
        await fill(js, name, 10)
        for seq in (1, 5, 6, 10):
            assert await js.delete_msg(name, seq)
        assert [seq for seq, _ in await bodies(js, name)] == [2, 3, 4, 7, 8, 9]
        info = await api(client, f"STREAM.INFO.{name}", {"deleted_details": True})
        assert info["state"]["deleted"] == [5, 6, 10]
        assert (info["state"]["first_seq"], info["state"]["last_seq"]) == (2, 10)
        for seq in (5, 11):
            with pytest.raises(APIError):
                await js.delete_msg(name, seq)
        assert (await js.publish(name, b"")).seq == 11


@asynchronous
async def test_sealed_and_denied_streams_refuse(js_server: Server) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("Y")
        config = StreamConfig(name=name, deny_delete=True, deny_purge=True, subjects=[name])
        await js.add_stream(config)
        await fill(js, name, 2)
        with pytest.raises(APIError) as failure:
            await js.delete_msg(name, 1)
        assert error_of(failure) == 10057
        with pytest.raises(APIError) as failure:
            await js.purge_stream(name)
        assert error_of(failure) == 10110
        config.sealed = True
        await js.update_stream(config)
        with pytest.raises(APIError) as failure:
            await js.publish(name, b"")
        assert error_of(failure) == 10109
        assert len(await bodies(js, name)) == 2


async def direct(client: Client, name: str, request: object) -> list[Msg]:
    """All frames that answer a direct get."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(f"$JS.API.DIRECT.GET.{name}", json.dumps(request).encode(), reply=inbox)
    frames = [await subscription.next_msg(5)]
    multiple = isinstance(request, dict) and {"batch", "multi_last"} & set(request)
    while multiple and (frames[-1].headers or {}).get("Status") is None:
        frames.append(await subscription.next_msg(5))
    await subscription.unsubscribe()
    return frames


@both_storages
@asynchronous
async def test_direct_get(js_server: Server, storage: StorageType) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("Q")
        await js.add_stream(name=name, subjects=[f"{name}.*"], storage=storage, allow_direct=True)
        for n in range(1, 13):
            await js.publish(f"{name}.{n % 3}", b"%d" % n, headers={"N": str(n)})
        message = await js.get_msg(name, 4, direct=True)
        assert (message.seq, message.data, message.subject) == (4, b"4", f"{name}.1")
        assert (message.headers or {})["N"] == "4"
        last = await js.get_last_msg(name, f"{name}.2", direct=True)
        assert (last.seq, last.data) == (11, b"11")
        with pytest.raises(NotFoundError):
            await js.get_msg(name, 99, direct=True)

        frames = await direct(client, name, {"seq": 3, "batch": 4})
        assert [f.data for f in frames] == [b"3", b"4", b"5", b"6", b""]
        assert (frames[-1].headers or {})["Status"] == "204"
        assert [(f.headers or {})["Nats-Num-Pending"] for f in frames] == list("98766")
        frames = await direct(client, name, {"seq": 1, "next_by_subj": f"{name}.0", "batch": 10})
        assert [f.data for f in frames[:-1]] == [b"3", b"6", b"9", b"12"]
        frames = await direct(client, name, {"multi_last": [f"{name}.0", f"{name}.2"]})
        assert [f.data for f in frames[:-1]] == [b"11", b"12"]
        frames = await direct(client, name, {"multi_last": [f"{name}.>"], "up_to_seq": 5})
        assert [f.data for f in frames[:-1]] == [b"3", b"4", b"5"]
        assert (await direct(client, name, {"seq": 50, "batch": 2}))[0].headers == {
            "Status": "404",
            "Description": "Message Not Found",
        }
        await js.update_stream(name=name, subjects=[f"{name}.*"], storage=storage)

        async def refused() -> bool:
            answer = (await direct(client, name, {"seq": 1}))[0]
            return (answer.headers or {}).get("Status") == "503"

        await until(refused)


@asynchronous
async def test_no_ack_stream_stays_silent(js_server: Server) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("O")
        await js.add_stream(name=name, no_ack=True)
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        await client.publish(name, b"x", reply=inbox)

        async def stored() -> bool:
            return (await js.stream_info(name)).state.messages == 1

        await until(stored)
        await nothing(answers)


@asynchronous
async def test_plain_publishes_and_subscribers_meet_at_a_stream(js_server: Server) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("C")
        await js.add_stream(name=name)
        subscriber = await client.subscribe(name)
        await client.publish(name, b"fire and forget")
        assert [m.data for m in await take(subscriber, 1)] == [b"fire and forget"]

        async def stored() -> bool:
            return (await js.stream_info(name)).state.messages == 1

        await until(stored)


@asynchronous
async def test_account_info_counts(servers: Any) -> None:
    server = servers.under_test(jetstream=True)
    async with connected(server) as client:
        js = client.jetstream()
        before = await js.account_info()
        assert (before.streams, before.consumers, before.storage, before.memory) == (0, 0, 0, 0)
        await js.add_stream(name="F")
        await js.add_stream(name="M", storage=StorageType.MEMORY)
        await js.pull_subscribe("F", "c")
        for name in ("F", "M"):
            await fill(js, name, 10)
        info = await js.account_info()
        assert (info.streams, info.consumers) == (2, 1)
        states = {s.config.name: s.state.bytes for s in await js.streams_info()}
        assert (info.storage, info.memory) == (states["F"], states["M"])
        assert info.api.total >= 4


@asynchronous
async def test_binary_bodies_and_headers_survive(js_server: Server) -> None:
    async with connected(js_server) as client:
        js = client.jetstream()
        name = unique("U")
        await js.add_stream(name=name)
        payloads = [b"", bytes(range(256)), b"\r\n\r\n", b"\0" * 1000, b"x" * 1_000_000]
        for payload in payloads:
            await js.publish(name, payload, timeout=10)
        subscription = await js.subscribe(name, ordered_consumer=True)
        assert [m.data for m in await take(subscription, len(payloads))] == payloads
        raw = await api(client, f"STREAM.MSG.GET.{name}", {"seq": 2})
        assert base64.b64decode(raw["message"]["data"]) == bytes(range(256))
