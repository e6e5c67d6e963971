"""A directory with assets of every kind, and all that clients can read of one."""

import asyncio
import base64
import json
from typing import Any

from nats.aio.client import Client
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, connected
from tests.servers import Server

#: What is told of a moment, or by one release alone, and not what is stored.
MOMENTARY = ("ts", "cluster", "num_waiting", "active", "lag", "error", "last_active", "seq",
             "pause_remaining", "_nats.ver", "_nats.level")  # fmt: skip


def stream(name: str, **options: Any) -> dict[str, Any]:
    config = {"name": name, "subjects": [f"{name}.>"], "retention": "limits", "storage": "file"}
    return config | options


STREAMS = [
    stream("PLAIN", max_msgs_per_subject=40, duplicate_window=120_000_000_000),
    stream("COMPRESSED", compression="s2"),
    stream("WORK", retention="workqueue"),
    stream("INTEREST", retention="interest"),
    stream("TTL", allow_msg_ttl=True, subject_delete_marker_ttl=10**11, allow_rollup_hdrs=True),
    stream("SCHEDULED", allow_msg_schedules=True, allow_msg_ttl=True),
    stream("COUNTED", allow_msg_counter=True),
    stream("BATCHED", allow_atomic=True),
    stream("FIRST", first_seq=5000, discard="new", max_msgs=400, metadata={"team": "x"}),
    stream("AGED", max_age=3_600_000_000_000, max_bytes=4_000_000, deny_delete=True),
    stream("MAPPED", subject_transform={"src": "MAPPED.*.>", "dest": "mapped.{{wildcard(1)}}.>"}),
    stream("REPUBLISHED", republish={"src": "REPUBLISHED.>", "dest": "again.>"}, allow_direct=True),
    {"name": "COPY", "mirror": {"name": "PLAIN"}, "storage": "file", "mirror_direct": True},
    {
        "name": "SUM",
        "storage": "file",
        "sources": [{"name": "PLAIN", "filter_subject": "PLAIN.1"}, {"name": "COMPRESSED"}],
    },
    {"name": "KV_b", "subjects": ["$KV.b.>"], "storage": "file", "max_msgs_per_subject": 5,
     "allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True, "discard": "new"},
]  # fmt: skip
CONSUMERS: dict[str, list[dict[str, Any]]] = {
    "PLAIN": [
        {"durable_name": "pull", "ack_policy": "explicit", "max_ack_pending": 100},
        {"durable_name": "all", "ack_policy": "all", "filter_subjects": ["PLAIN.1", "PLAIN.2"]},
        {"durable_name": "back", "ack_policy": "explicit", "max_deliver": 3,
         "backoff": [3_600_000_000_000, 7_200_000_000_000], "metadata": {"k": "v"}},
        {"durable_name": "none", "ack_policy": "none", "opt_start_seq": 20,
         "deliver_policy": "by_start_sequence"},
        {"durable_name": "pushed", "ack_policy": "explicit", "deliver_subject": "to.nobody",
         "flow_control": True, "idle_heartbeat": 5_000_000_000},
        {"durable_name": "paused", "ack_policy": "explicit", "pause_until": "2099-01-01T00:00:00Z"},
        {"durable_name": "grouped", "ack_policy": "explicit", "priority_groups": ["A"],
         "priority_policy": "overflow"},
        {"durable_name": "last", "ack_policy": "explicit", "deliver_policy": "last_per_subject",
         "filter_subject": ">"},
    ],
    "COMPRESSED": [{"durable_name": "pull", "ack_policy": "explicit"}],
    "WORK": [{"durable_name": "workers", "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}],
    "INTEREST": [
        {"durable_name": "one", "ack_policy": "explicit"},
        {"durable_name": "two", "ack_policy": "explicit", "filter_subject": "INTEREST.3"},
    ],
    "FIRST": [{"durable_name": "sampled", "ack_policy": "explicit", "sample_freq": "50"}],
}  # fmt: skip


async def publish(client: Client, subject: str, data: bytes, **headers: str) -> None:
    """Publishes and waits for the ack. Names of headers are written with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = json.loads(
        (await client.request(subject, data, timeout=30, headers=named or None)).data
    )
    assert "error" not in answer, answer


async def deliver(client: Client, of: str, durable: str, answers: str, **how: str) -> None:
    """Pulls a message for each letter: a acks it, n naks it, t ends it, w works on, - is silent."""
    inbox = client.new_inbox()
    heard = await client.subscribe(inbox)
    body = json.dumps({"batch": len(answers), "expires": 30_000_000_000} | how).encode()
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{of}.{durable}", body, reply=inbox)
    messages = [await heard.next_msg(30) for _ in answers]
    await heard.unsubscribe()
    words = {"a": b"+ACK", "n": b'-NAK {"delay": 7200000000000}', "t": b"+TERM", "w": b"+WPI"}
    for message, letter in zip(messages, answers, strict=True):
        if letter in words:
            assert message.reply.startswith("$JS.ACK."), message
            if letter == "w":
                await client.publish(message.reply, words[letter])
            else:
                await client.request(message.reply, words[letter], timeout=30)
    await client.flush()


async def fill(server: Server) -> None:
    """Makes all streams and consumers and lets each kind do what it is for."""
    async with connected(server) as client:
        for config in STREAMS:
            answer = await api(client, f"STREAM.CREATE.{config['name']}", config)
            assert "error" not in answer, (config["name"], answer)
        for of, consumers in CONSUMERS.items():
            for config in consumers:
                body = {"stream_name": of, "config": config}
                answer = await api(
                    client, f"CONSUMER.DURABLE.CREATE.{of}.{config['durable_name']}", body
                )
                assert "error" not in answer, (config, answer)
        await go_on(client, 0)
        await publish(client, "TTL.a", b"for an hour", Nats_TTL="1h")
        await publish(client, "TTL.b", b"never ends", Nats_TTL="never")
        for n in range(5):
            await publish(client, f"TTL.c{n}", b"replaced")
        await publish(client, "TTL.c0", b"alone", Nats_Rollup="sub")
        await publish(client, "SCHEDULED.s", b"later", Nats_Schedule="@at 2099-01-01T00:00:00Z",
                      Nats_Schedule_Target="SCHEDULED.t")  # fmt: skip
        await publish(client, "SCHEDULED.h", b"hourly", Nats_Schedule="@every 10h",
                      Nats_Schedule_Target="SCHEDULED.t", Nats_Schedule_TTL="5m")  # fmt: skip
        for seq in (3, 4, 5, 17, 100):
            await api(client, "STREAM.MSG.DELETE.PLAIN", {"seq": seq, "no_erase": seq % 2 == 0})
        await api(client, "STREAM.PURGE.COMPRESSED", {"filter": "COMPRESSED.2", "keep": 3})
        await api(client, "STREAM.PURGE.FIRST", {"seq": 5050})
        await publish(client, "$KV.b.gone", b"", KV_Operation="DEL")
        await publish(client, "$KV.b.purged", b"", KV_Operation="PURGE", Nats_Rollup="sub")
        await settle(client)


async def go_on(client: Client, round_: int) -> None:
    """What a day brings: messages for all streams, deliveries, acks."""
    size = 300
    for name in ("PLAIN", "COMPRESSED", "WORK", "INTEREST", "AGED", "REPUBLISHED"):
        await asyncio.gather(
            *(publish(client, f"{name}.{n % 7}", b"%d %d " % (round_, n) * 40) for n in range(size))
        )
    await asyncio.gather(*(publish(client, f"FIRST.{n}", b"x" * n) for n in range(150)))
    await asyncio.gather(*(publish(client, f"MAPPED.{n}.a.b", b"m") for n in range(20)))
    for n in range(30):
        await publish(client, f"COUNTED.{n % 3}", b"", Nats_Incr=str(n - 7))
        await publish(client, f"$KV.b.k{n % 4}", b"v%d" % n)
    for at in (1, 2, 3):
        last = {"Nats_Batch_Commit": "1"} if at == 3 else {}
        subject, number = f"BATCHED.{at}", str(at)
        headers = {"Nats_Batch_Id": f"b{round_}", "Nats_Batch_Sequence": number} | last
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if at == 3:
            await client.request(subject, b"b", timeout=30, headers=named)
        else:
            await client.publish(subject, b"b", headers=named)
    await publish(client, "PLAIN.once", b"", Nats_Msg_Id=f"id{round_}")
    await deliver(client, "PLAIN", "pull", "aaa-a-awntaa-a")
    await deliver(client, "PLAIN", "all", "--------a---")
    await deliver(client, "PLAIN", "back", "nanaa")
    await deliver(client, "PLAIN", "last", "a-a")
    await deliver(client, "PLAIN", "grouped", "aa--", group="A")
    await deliver(client, "COMPRESSED", "pull", "a-aa")
    await deliver(client, "WORK", "workers", "aaaa--nat-aaa")
    await deliver(client, "INTEREST", "one", "aaaaaaa--")
    await deliver(client, "INTEREST", "two", "aa-")
    await deliver(client, "FIRST", "sampled", "a-a")


def _stored(answer: Any) -> Any:
    """An info's answer without what is told of a moment, at every depth."""
    if isinstance(answer, dict):
        return {name: _stored(value) for name, value in answer.items() if name not in MOMENTARY}
    return [_stored(value) for value in answer] if isinstance(answer, list) else answer


async def settle(client: Client) -> None:
    """Waits until mirrors and sources have everything."""
    for _ in range(3000):
        plain = await api(client, "STREAM.INFO.PLAIN")
        copy = await api(client, "STREAM.INFO.COPY")
        summed = await api(client, "STREAM.INFO.SUM")
        lags = [copy["mirror"]["lag"], *(source["lag"] for source in summed["sources"])]
        if copy["state"]["last_seq"] == plain["state"]["last_seq"] and not any(lags):
            return
        await asyncio.sleep(0.02)  # between two looks
    raise AssertionError("mirrors and sources did not follow")


async def contents(server: Server) -> dict[str, Any]:
    """All streams and consumers, configuration and state, and each message or its absence."""
    found: dict[str, Any] = {}
    async with connected(server) as client:
        names = (await api(client, "STREAM.NAMES"))["streams"]
        for name in sorted(names):
            info = _stored(
                await api(
                    client, f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"}
                )
            )
            if "sources" in info:
                info["sources"].sort(key=lambda source: source["name"])
            found[name] = info
            state = info["state"]
            gets = (
                _message(client, name, seq)
                for seq in range(state["first_seq"], state["last_seq"] + 1)
            )
            found[f"{name} messages"] = await asyncio.gather(*gets)
            for consumer in (await api(client, f"CONSUMER.NAMES.{name}"))["consumers"] or []:
                found[f"{name} {consumer}"] = _stored(
                    await api(client, f"CONSUMER.INFO.{name}.{consumer}")
                )
    # nats-server counts subjects after a restart, and delivers the messages.
    del found["PLAIN last"]["num_pending"]
    return found


async def _message(client: Client, name: str, seq: int) -> tuple[Any, ...]:
    for _ in range(3):
        try:
            answer = await api(client, f"STREAM.MSG.GET.{name}", {"seq": seq})
        except NoAnswer:
            continue
        if "error" in answer:
            return (seq, answer["error"]["err_code"])
        message = answer["message"]
        parts = [base64.b64decode(message.get(part, "")) for part in ("hdrs", "data")]
        return (seq, message["subject"], message["time"], *parts)
    raise AssertionError(f"message {seq} of {name} was not answered")


def differences(before: Any, after: Any, at: str = "") -> list[str]:
    """What is not the same, each with its place."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted(before.keys() | after.keys())
        return [
            text for n in names for text in differences(before.get(n), after.get(n), f"{at}/{n}")
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [text for i, (old, new) in pairs for text in differences(old, new, f"{at}/{i}")]
    return [] if before == after else [f"{at}: {before} became {after}"]
