"""What a client does with JetStream that is on other servers than its own."""

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import NoStreamResponseError

from tests.client.aio import until

COUNT = 1000


async def use_jetstream(client: Client) -> None:
    """Makes a stream and consumers of each kind, and a bucket: gets whatever it has sent."""
    js = client.jetstream(timeout=10)

    async def made() -> bool:
        try:
            await js.add_stream(name="S", subjects=["s.>"])
        except Exception:  # until the others have chosen a leader
            return False
        return True

    async def heard() -> bool:
        try:
            await js.publish("s.0", b"0")
        except NoStreamResponseError:  # until its server has told this one
            return False
        return True

    await until(made, 30)
    await until(heard)
    for n in range(1, COUNT):
        await js.publish(f"s.{n % 7}", b"%d" % n, headers={"Nth": str(n)} if n % 2 else None)
    expected = [(f"s.{n % 7}", b"%d" % n) for n in range(COUNT)]

    pushed: list[tuple[str, bytes]] = []

    async def take(message: Msg) -> None:
        pushed.append((message.subject, message.data))
        await message.ack()

    await js.subscribe("s.>", durable="pushed", cb=take, manual_ack=True)
    await until(lambda: len(pushed) >= COUNT)
    assert pushed == expected

    pull = await js.pull_subscribe("s.>", durable="pulled")
    pulled: list[tuple[str, bytes]] = []
    while len(pulled) < COUNT:
        try:
            messages = await pull.fetch(100, timeout=10 if pulled else 1)
        except NoAnswer:
            assert not pulled  # until its server has told this one of the consumer
            continue
        for message in messages:
            pulled.append((message.subject, message.data))
            await message.ack()
    assert pulled == expected

    ordered = await js.subscribe("s.>", ordered_consumer=True)
    found = [await ordered.next_msg(10) for _ in range(COUNT)]
    assert [(message.subject, message.data) for message in found] == expected

    async def acked() -> bool:
        infos = [await js.consumer_info("S", name) for name in ("pushed", "pulled")]
        return all(info.ack_floor.stream_seq == COUNT for info in infos if info.ack_floor)

    await until(acked)
    bucket = await js.create_key_value(bucket="B")
    watcher = await bucket.watchall()
    for n in range(50):
        await bucket.put(f"k{n}", b"%d" % n)
    keys: list[str] = []
    while len(keys) < 50:
        entry = await watcher.updates(timeout=10)
        if entry is not None:
            keys.append(entry.key)
    assert keys == [f"k{n}" for n in range(50)]
