"""What an application does with consumers: pull, push, acknowledge, be redelivered, wait."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    ReplayPolicy,
    StorageType,
)
from nats.js.errors import APIError, NotFoundError

from tests.client.aio import api, asynchronous, connected, fill, nothing, take, unique, until
from tests.servers import Server

Pull = JetStreamContext.PullSubscription


@asynccontextmanager
async def stream(
    server: Server, count: int = 0, **config: Any
) -> AsyncIterator[tuple[Client, JetStreamContext, str]]:
    """A connection and a new stream on its own name with `count` messages 1, 2, 3…"""
    async with connected(server) as client:
        js = client.jetstream()
        name = unique("K")
        await js.add_stream(name=name, **({"subjects": [name, f"{name}.>"]} | config))
        await fill(js, name, count)
        yield client, js, name


def deliveries(message: Msg) -> int:
    return message.metadata.num_delivered or 0


def numbers(messages: list[Msg]) -> list[int]:
    return [int(m.data) for m in messages]


async def empty(pull: Pull, timeout: float = 0.2) -> None:
    """Fails when a fetch gets a message."""
    with pytest.raises(TimeoutError):
        await pull.fetch(1, timeout=timeout)


@asynchronous
async def test_pull_in_batches(js_server: Server) -> None:
    async with stream(js_server, 25) as (_, js, name):
        pull = await js.pull_subscribe(name, "c")
        seen = []
        for _ in range(3):
            for message in await pull.fetch(10, timeout=1):
                assert message.metadata.stream == name
                assert message.metadata.sequence.stream == int(message.data)
                assert message.metadata.num_pending == 25 - int(message.data)
                seen.append(int(message.data))
                await message.ack_sync(30)
        assert seen == list(range(1, 26))
        info = await pull.consumer_info()
        assert (info.num_pending, info.num_ack_pending) == (0, 0)
        assert info.ack_floor and info.ack_floor.stream_seq == 25
        await empty(pull)


@asynchronous
async def test_a_waiting_pull_is_served_when_a_message_comes(js_server: Server) -> None:
    async with stream(js_server) as (_, js, name):
        pull = await js.pull_subscribe(name, "c")
        fetch = asyncio.create_task(pull.fetch(1, timeout=10))

        async def waits() -> bool:
            return (await pull.consumer_info()).num_waiting == 1

        await until(waits)
        await js.publish(name, b"here")
        assert [m.data for m in await fetch] == [b"here"]


@asynchronous
async def test_waiting_pulls_take_turns(js_server: Server) -> None:
    async with stream(js_server) as (client, js, name):
        await js.add_consumer(name, durable_name="c")
        inboxes = [await client.subscribe(client.new_inbox()) for _ in range(2)]
        for inbox in inboxes:
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.c"
            await client.publish(subject, b'{"batch":3,"expires":5000000000}', inbox.subject)
        await client.flush()
        await fill(js, name, 6)
        taken = [numbers(await take(inbox, 3)) for inbox in inboxes]
        assert taken == [[1, 3, 5], [2, 4, 6]]


@asynchronous
async def test_nothing_is_lost_between_two_pulling_workers(js_server: Server) -> None:
    async with stream(js_server, 200) as (_, js, name):
        await js.add_consumer(name, durable_name="c")
        done: list[int] = []

        async def work() -> None:
            pull = await js.pull_subscribe_bind("c", stream=name)
            while len(done) < 200:
                # A fetch may end with nothing: the others were quicker, or the machine was slow.
                with suppress(TimeoutError):
                    for message in await pull.fetch(7, timeout=0.5):
                        done.append(int(message.data))
                        await message.ack()

        await asyncio.wait_for(asyncio.gather(work(), work(), work()), 60)
        assert sorted(done) == list(range(1, 201))


@asynchronous
async def test_push_to_a_durable(js_server: Server) -> None:
    async with stream(js_server, 5) as (_, js, name):
        push = await js.subscribe(name, durable="d", manual_ack=True)
        for message in await take(push, 5):
            await message.ack_sync(30)
        await push.unsubscribe()
        await js.publish(name, b"6")
        again = await js.subscribe(name, durable="d", manual_ack=True)
        assert numbers(await take(again, 1)) == [6]
        info = await js.consumer_info(name, "d")
        assert info.push_bound
        assert info.num_ack_pending == 1


@asynchronous
async def test_push_to_a_group(js_server: Server) -> None:
    async with stream(js_server) as (_, js, name):
        members = [await js.subscribe(name, "crew", manual_ack=True) for _ in range(2)]
        await fill(js, name, 100)
        await until(lambda: sum(m.pending_msgs for m in members) == 100)
        parts = [numbers(await take(m, m.pending_msgs)) for m in members]
        assert all(len(part) > 5 for part in parts)
        assert sorted(parts[0] + parts[1]) == list(range(1, 101))


@asynchronous
async def test_ordered_consumer(js_server: Server) -> None:
    async with stream(js_server, 300) as (_, js, name):
        ordered = await js.subscribe(name, ordered_consumer=True)
        assert numbers(await take(ordered, 300)) == list(range(1, 301))
        await js.publish(name, b"301")
        assert numbers(await take(ordered, 1)) == [301]


@asynchronous
async def test_ordered_consumer_goes_on_after_its_consumer_is_gone(js_server: Server) -> None:
    async with stream(js_server, 3) as (_, js, name):
        ordered = await js.subscribe(name, ordered_consumer=True, idle_heartbeat=0.3)
        assert numbers(await take(ordered, 3)) == [1, 2, 3]
        for info in await js.consumers_info(name):
            await js.delete_consumer(name, info.name)
        await js.publish(name, b"4")
        assert numbers(await take(ordered, 1, 10)) == [4]


@asynchronous
async def test_flow_control_passes_many_big_messages(js_server: Server) -> None:
    async with stream(js_server) as (_, js, name):
        for n in range(150):
            await js.publish_async(name, b"%d " % n + b"x" * 100_000)
        await js.publish_async_completed()
        push = await js.subscribe(name, flow_control=True, idle_heartbeat=1, manual_ack=True)
        for n in range(150):
            message = (await take(push, 1))[0]
            assert int(message.data[:4].split(b" ")[0]) == n
            await message.ack()


@asynchronous
async def test_heartbeats_of_an_idle_push_consumer(js_server: Server) -> None:
    async with stream(js_server, 1) as (client, js, name):
        inbox = await client.subscribe(client.new_inbox())
        await js.add_consumer(
            name, durable_name="h", deliver_subject=inbox.subject, idle_heartbeat=0.1
        )
        first, *beats = await take(inbox, 4)
        assert first.data == b"1"
        for beat in beats:
            headers = beat.headers or {}
            assert (headers["Status"], headers["Description"]) == ("100", "Idle Heartbeat")
            assert (headers["Nats-Last-Consumer"], headers["Nats-Last-Stream"]) == ("1", "1")


@asynchronous
async def test_heartbeats_of_a_waiting_pull(js_server: Server) -> None:
    async with stream(js_server) as (client, js, name):
        await js.add_consumer(name, durable_name="c")
        inbox = await client.subscribe(client.new_inbox())
        request = b'{"batch":1,"expires":1500000000,"idle_heartbeat":200000000}'
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", request, inbox.subject)
        statuses: list[str] = []
        while not statuses or statuses[-1] == "100":
            statuses.append(((await take(inbox, 1))[0].headers or {})["Status"])
        assert 2 <= statuses.count("100") <= 8
        assert statuses[-1] == "408"


@asynchronous
async def test_ack_all(js_server: Server) -> None:
    async with stream(js_server, 6) as (_, js, name):
        config = ConsumerConfig(ack_policy=AckPolicy.ALL, ack_wait=30)
        pull = await js.pull_subscribe(name, "all", config=config)
        messages = await pull.fetch(6, timeout=30)
        await messages[3].ack_sync(30)
        info = await pull.consumer_info()
        assert info.ack_floor and info.ack_floor.stream_seq == 4
        assert info.num_ack_pending == 2


@asynchronous
async def test_ack_none(js_server: Server) -> None:
    async with stream(js_server, 3) as (client, js, name):
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        pull = await js.pull_subscribe(name, "none", config=config)
        messages = await pull.fetch(3, timeout=30)
        info = await pull.consumer_info()
        assert info.ack_floor and info.ack_floor.stream_seq == 3
        assert info.num_ack_pending == 0
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request(messages[0].reply, b"+ACK", timeout=30)


@asynchronous
async def test_unacked_messages_come_again(js_server: Server) -> None:
    async with stream(js_server, 3) as (_, js, name):
        pull = await js.pull_subscribe(name, "c", config=ConsumerConfig(ack_wait=60))
        first = await pull.fetch(3, timeout=30)
        await first[1].ack_sync(30)
        start = time.monotonic()
        await js.add_consumer(
            name, durable_name="c", name="c", filter_subject=name, ack_wait=0.3
        )  # which holds for what is pending
        again = await pull.fetch(2, timeout=30)
        assert time.monotonic() - start > 0.1
        assert numbers(again) == [1, 3]
        assert [deliveries(m) for m in again] == [2, 2]
        info = await pull.consumer_info()
        assert (info.num_ack_pending, info.num_redelivered) == (2, 2)
        for message in again:
            await message.ack_sync(30)
        await empty(pull, 0.5)


@asynchronous
async def test_progress_keeps_a_message(js_server: Server) -> None:
    async with stream(js_server, 1) as (_, js, name):
        pull = await js.pull_subscribe(name, "c", config=ConsumerConfig(ack_wait=2))
        message = (await pull.fetch(1, timeout=30))[0]
        for _ in range(5):
            await asyncio.sleep(0.5)  # progress before the time to ack is over
            await message.in_progress()
        await empty(pull, 0.1)
        again = (await pull.fetch(1, timeout=30))[0]
        assert deliveries(again) == 2


@asynchronous
async def test_nak_brings_it_back_at_once(js_server: Server) -> None:
    async with stream(js_server, 2) as (_, js, name):
        pull = await js.pull_subscribe(name, "c")
        first, second = await pull.fetch(2, timeout=30)
        await second.nak()
        again = (await pull.fetch(1, timeout=30))[0]
        assert (again.data, deliveries(again)) == (b"2", 2)
        await first.ack_sync(30)
        await again.ack_sync(30)
        assert (await pull.consumer_info()).num_ack_pending == 0


@asynchronous
async def test_nak_with_delay(js_server: Server) -> None:
    async with stream(js_server, 1) as (_, js, name):
        pull = await js.pull_subscribe(name, "c")
        message = (await pull.fetch(1, timeout=30))[0]
        start = time.monotonic()
        await message.nak(delay=0.5)
        again = (await pull.fetch(1, timeout=30))[0]
        assert time.monotonic() - start > 0.45
        assert deliveries(again) == 2


@asynchronous
async def test_term_ends_redelivery(js_server: Server) -> None:
    async with stream(js_server, 1) as (client, js, name):
        advisories = await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
        pull = await js.pull_subscribe(name, "c", config=ConsumerConfig(ack_wait=0.2))
        message = (await pull.fetch(1, timeout=30))[0]
        await message.term()
        await take(advisories, 1)
        await empty(pull, 0.5)
        assert (await pull.consumer_info()).num_ack_pending == 0


@asynchronous
async def test_backoff(js_server: Server) -> None:
    async with stream(js_server, 1) as (_, js, name):
        config = ConsumerConfig(backoff=[0.1, 0.3, 0.6], max_deliver=4)
        pull = await js.pull_subscribe(name, "c", config=config)
        # Only the time since the start says something for sure: any delivery may be heard late.
        start = time.monotonic()
        times = []
        for n in range(4):
            message = (await pull.fetch(1, timeout=8))[0]
            times.append(time.monotonic() - start)
            assert deliveries(message) == n + 1
        for taken, wanted in zip(times, [0, 0.1, 0.4, 1.0], strict=True):
            assert wanted <= taken < wanted + 6, times


@asynchronous
async def test_max_deliver_gives_up_with_an_advisory(js_server: Server) -> None:
    async with stream(js_server, 1) as (client, js, name):
        advisories = await client.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{name}.c")
        config = ConsumerConfig(ack_wait=0.15, max_deliver=2)
        pull = await js.pull_subscribe(name, "c", config=config)
        assert [deliveries((await pull.fetch(1, timeout=30))[0]) for _ in range(2)] == [1, 2]
        while not advisories.pending_msgs:
            await empty(pull, 0.3)
        advisory = (await take(advisories, 1))[0]
        assert b'"stream_seq":1' in advisory.data
        assert b'"deliveries":2' in advisory.data
        assert (await js.stream_info(name)).state.messages == 1


@asynchronous
async def test_max_ack_pending_holds_delivery(js_server: Server) -> None:
    async with stream(js_server, 5) as (_, js, name):
        pull = await js.pull_subscribe(name, "c", config=ConsumerConfig(max_ack_pending=2))
        held = await pull.fetch(5, timeout=0.5)
        assert numbers(held) == [1, 2]
        await empty(pull)
        await held[0].ack_sync(30)
        assert numbers(await pull.fetch(1, timeout=30)) == [3]
        await js.add_consumer(
            name, durable_name="c", name="c", filter_subject=name, max_ack_pending=10
        )
        assert numbers(await pull.fetch(2, timeout=30)) == [4, 5]


@asynchronous
async def test_next_after_ack(js_server: Server) -> None:
    async with stream(js_server, 3) as (client, js, name):
        pull = await js.pull_subscribe(name, "c")
        message = (await pull.fetch(1, timeout=30))[0]
        inbox = await client.subscribe(client.new_inbox())
        await client.publish(message.reply, b"+NXT", inbox.subject)
        assert numbers(await take(inbox, 1)) == [2]
        assert (await pull.consumer_info()).num_ack_pending == 1


@asynchronous
async def test_headers_only(js_server: Server) -> None:
    async with stream(js_server) as (_, js, name):
        await js.publish(name, b"12345", headers={"A": "b"})
        await js.publish(name, b"")
        pull = await js.pull_subscribe(name, "c", config=ConsumerConfig(headers_only=True))
        first, second = await pull.fetch(2, timeout=30)
        assert (first.data, first.headers) == (b"", {"A": "b", "Nats-Msg-Size": "5"})
        assert (second.data, second.headers) == (b"", {"Nats-Msg-Size": "0"})


@asynchronous
async def test_replay_at_the_original_pace(js_server: Server) -> None:
    async with stream(js_server) as (_, js, name):
        for _ in range(3):
            await js.publish(name, b"x")
            await asyncio.sleep(0.3)  # the pace
        config = ConsumerConfig(replay_policy=ReplayPolicy.ORIGINAL)
        start = time.monotonic()
        push = await js.subscribe(name, config=config)
        for n in range(3):
            await take(push, 1)
            # From the start, because a reader that was late for one is not late for the next.
            assert n * 0.3 - 0.1 < time.monotonic() - start < n * 0.3 + 5


@asynchronous
async def test_pause_and_resume(js_server: Server) -> None:
    async with stream(js_server, 2) as (_, js, name):
        pull = await js.pull_subscribe(name, "c")
        until_then = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        paused = await js.pause_consumer(name, "c", until_then)
        assert paused.paused
        assert (await pull.consumer_info()).paused
        await empty(pull)
        assert not (await js.resume_consumer(name, "c")).paused
        assert numbers(await pull.fetch(2, timeout=30)) == [1, 2]
        soon = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
        await js.pause_consumer(name, "c", soon)
        await js.publish(name, b"3")
        assert numbers(await pull.fetch(1, timeout=30)) == [3]
        assert datetime.now(UTC) >= datetime.fromisoformat(soon)


POLICIES: list[tuple[str, dict[str, Any], list[int]]] = [
    ("all", {"deliver_policy": DeliverPolicy.ALL}, [1, 2, 3, 4, 5, 6, 7]),
    ("last", {"deliver_policy": DeliverPolicy.LAST}, [6, 7]),
    ("new", {"deliver_policy": DeliverPolicy.NEW}, [7]),
    (
        "sequence",
        {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 4},
        [4, 5, 6, 7],
    ),
    (
        "last_per_subject",
        {"deliver_policy": DeliverPolicy.LAST_PER_SUBJECT, "filter_subjects": ["{name}.*"]},
        [5, 6, 7],
    ),
]


@pytest.mark.parametrize(("label", "config", "wanted"), POLICIES, ids=[p[0] for p in POLICIES])
@asynchronous
async def test_deliver_policies(
    js_server: Server, label: str, config: dict[str, Any], wanted: list[int]
) -> None:
    async with stream(js_server) as (_, js, name):
        for n in range(1, 7):
            await js.publish(f"{name}.{n % 2}", b"%d" % n)
        config = dict(config)
        filters = [f.format(name=name) for f in config.pop("filter_subjects", [f"{name}.>"])]
        settings = ConsumerConfig(filter_subjects=filters, **config)
        pull = await js.pull_subscribe(name, "c", stream=name, config=settings)
        assert (await pull.consumer_info()).num_pending == len(wanted) - 1
        await js.publish(f"{name}.0", b"7")
        assert numbers(await pull.fetch(len(wanted), timeout=30)) == wanted


@asynchronous
async def test_start_by_time(js_server: Server) -> None:
    async with stream(js_server, 3) as (_, js, name):
        start = datetime.now(UTC)
        await js.publish(name, b"4")
        config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=start)
        pull = await js.pull_subscribe(name, "c", config=config)
        assert numbers(await pull.fetch(1, timeout=30)) == [4]


@asynchronous
async def test_filters(js_server: Server) -> None:
    async with stream(js_server) as (_, js, name):
        for n in range(1, 13):
            await js.publish(f"{name}.{n % 3}.{n % 2}", b"%d" % n)
        one = await js.pull_subscribe(f"{name}.*.1", "one", stream=name)
        assert numbers(await one.fetch(6, timeout=30)) == [1, 3, 5, 7, 9, 11]
        config = ConsumerConfig(filter_subjects=[f"{name}.0.>", f"{name}.1.1"])
        two = await js.pull_subscribe(name, "two", stream=name, config=config)
        assert (await two.consumer_info()).num_pending == 6
        assert numbers(await two.fetch(6, timeout=30)) == [1, 3, 6, 7, 9, 12]
        assert (await two.consumer_info()).num_pending == 0


@asynchronous
async def test_consumers_are_listed_changed_and_deleted(js_server: Server) -> None:
    async with stream(js_server, 1) as (client, js, name):
        for durable in ("b", "a", "c"):
            await js.add_consumer(name, durable_name=durable, ack_policy=AckPolicy.EXPLICIT)
        names = (await api(client, f"CONSUMER.NAMES.{name}"))["consumers"]
        assert names == ["a", "b", "c"]
        assert {i.name for i in await js.consumers_info(name)} == {"a", "b", "c"}
        created = (await js.consumer_info(name, "a")).created
        changed = await js.add_consumer(
            name, durable_name="a", ack_policy=AckPolicy.EXPLICIT, description="new"
        )
        assert changed.config.description == "new"
        assert changed.created == created
        with pytest.raises(APIError) as failure:
            await js.add_consumer(name, durable_name="a", ack_policy=AckPolicy.NONE)
        assert failure.value.err_code == 10012
        assert (await js.stream_info(name)).state.consumer_count == 3
        assert await js.delete_consumer(name, "b")
        with pytest.raises(NotFoundError) as missing:
            await js.consumer_info(name, "b")
        assert missing.value.err_code == 10014


@asynchronous
async def test_ephemerals_go_when_nobody_uses_them(js_server: Server) -> None:
    async with stream(js_server, 1) as (client, js, name):
        push = await client.subscribe(client.new_inbox())
        await client.flush()
        await js.add_consumer(name, deliver_subject=push.subject, inactive_threshold=0.3)
        await take(push, 1)
        await asyncio.sleep(0.5)  # longer than it may be unused
        assert len(await js.consumers_info(name)) == 1
        await js.add_consumer(name, name="eph", inactive_threshold=0.3)
        await push.unsubscribe()

        async def gone() -> bool:
            return not await js.consumers_info(name)

        await until(gone)


@asynchronous
async def test_a_deleted_consumer_ends_waiting_pulls(js_server: Server) -> None:
    async with stream(js_server) as (client, js, name):
        await js.add_consumer(name, durable_name="c")
        inbox = await client.subscribe(client.new_inbox())
        request = b'{"batch":1,"expires":30000000000}'
        await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c", request, inbox.subject)
        await client.flush()
        await js.delete_consumer(name, "c")
        headers = (await take(inbox, 1))[0].headers
        assert headers == {"Status": "409", "Description": "Consumer Deleted"}


@asynchronous
async def test_deleted_messages_are_skipped(js_server: Server) -> None:
    async with stream(js_server, 10) as (_, js, name):
        for seq in (1, 4, 5, 10):
            await js.delete_msg(name, seq)
        pull = await js.pull_subscribe(name, "c")
        assert (await pull.consumer_info()).num_pending == 6
        assert numbers(await pull.fetch(6, timeout=30)) == [2, 3, 6, 7, 8, 9]


@asynchronous
async def test_consumer_of_a_memory_stream(js_server: Server) -> None:
    async with stream(js_server, 4, storage=StorageType.MEMORY) as (_, js, name):
        pull = await js.pull_subscribe(name, "c")
        messages = await pull.fetch(4, timeout=30)
        assert numbers(messages) == [1, 2, 3, 4]
        for message in messages:
            await message.ack_sync(30)
        info = await pull.consumer_info()
        assert info.ack_floor and info.ack_floor.stream_seq == 4


@asynchronous
async def test_a_callback_subscription_acks_by_itself(js_server: Server) -> None:
    async with stream(js_server, 20) as (_, js, name):
        seen: list[int] = []

        async def handle(message: Msg) -> None:
            seen.append(int(message.data))

        await js.subscribe(name, durable="cb", cb=handle)
        await until(lambda: len(seen) == 20)

        async def acked() -> bool:
            info = await js.consumer_info(name, "cb")
            return bool(info.num_ack_pending == 0 and info.num_pending == 0)

        await until(acked)
        assert seen == list(range(1, 21))


@asynchronous
async def test_double_ack_of_an_old_message_is_answered(js_server: Server) -> None:
    async with stream(js_server, 1) as (client, js, name):
        pull = await js.pull_subscribe(name, "c")
        message = (await pull.fetch(1, timeout=30))[0]
        for _ in range(2):
            answer = await client.request(message.reply, b"+ACK", timeout=30)
            assert (answer.data, answer.headers) == (b"", None)
        never = message.reply.replace(".1.1.1.", ".1.9.9.")
        inbox = await client.subscribe(client.new_inbox())
        await client.publish(never, b"+ACK", inbox.subject)
        await nothing(inbox)
