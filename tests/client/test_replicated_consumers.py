"""What clients of replicated consumers are told, whichever server leads: the same as by
nats-servers."""

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import mixtures
from tests.client.test_held_diff import done, stream
from tests.client.test_replicated import THREE, Three, current, led_by
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SECOND = 10**9


async def made(client: Client, name: str, **config: Any) -> dict[str, Any]:
    """A durable consumer C of a new stream with three messages."""
    await done(client, f"STREAM.CREATE.{name}", stream(name, **THREE))
    for _ in range(3):
        await client.request(f"{name}.a", b"", timeout=10)
    await until(lambda: current(client, f"STREAM.INFO.{name}"))
    return await consumer(client, name, "C", **config)


async def consumer(client: Client, name: str, durable: str, **config: Any) -> dict[str, Any]:
    settings = {"durable_name": durable, "ack_policy": "explicit"} | config
    body = {"stream_name": name, "config": settings}
    answer: dict[str, Any] = await done(client, f"CONSUMER.DURABLE.CREATE.{name}.{durable}", body)
    return answer


class Waiting:
    """Waiting pull requests, and their statuses."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.heard: list[tuple[str, str]] = []

    async def ask(self, count: int) -> None:
        for number in range(count):
            inbox = self.client.new_inbox()

            async def take(message: Any, number: int = number) -> None:
                headers = message.headers or {}
                said = f"{headers.get('Status', '')} {headers.get('Description', '')}"
                self.heard.append((str(number), said))

            await self.client.subscribe(inbox, cb=take)
            body = json.dumps({"batch": 5, "expires": 60 * SECOND}).encode()
            await self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.name}.C", body, inbox)

        async def wait() -> bool:
            info = await done(self.client, f"CONSUMER.INFO.{self.name}.C")
            return bool(info["num_waiting"] == count)

        await until(wait)

    async def hears(self, said: str) -> None:
        """Checks that each request got this status once."""
        await until(lambda: len(self.heard) >= 2)
        await asyncio.sleep(0.3)  # another server would repeat it within this time
        assert sorted(self.heard) == [("0", said), ("1", said)]


@pytest.mark.parametrize("kinds", mixtures("ooo", "ppo", soak=["ppp"]))
@asynchronous
async def test_who_waits_is_told_why_that_is_over(servers: Servers, kinds: str) -> None:
    """A consumer or its stream is deleted, or the leader changes: every waiting request hears of it
    once."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        for name, request, said in (
            ("S1", "CONSUMER.DELETE.S1.C", "409 Consumer Deleted"),
            ("S2", "STREAM.DELETE.S2", "409 Consumer Deleted"),
            ("S3", "CONSUMER.LEADER.STEPDOWN.S3.C", "409 Leadership Change"),
        ):
            await made(client, name, deliver_policy="new")
            await led_by(client, "CONSUMER", f"{name}.C", "C")
            waiting = Waiting(client, name)
            await waiting.ask(2)
            await done(client, request)
            await waiting.hears(said)
        with pytest.raises(NoRespondersError):
            await client.request("$JS.API.CONSUMER.MSG.NEXT.S1.C", b"1", timeout=10)


@pytest.mark.parametrize("kinds", mixtures("ooo", soak=["ppp"]))
@asynchronous
async def test_a_new_consumer_is_shown_where_it_starts(servers: Servers, kinds: str) -> None:
    """The consumer's state at its creation, before any delivery."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await made(client, "S")
        await client.subscribe("pushed")
        await client.flush()
        starts: list[tuple[dict[str, Any], int, int]] = [
            ({"deliver_policy": "new"}, 3, 0),
            ({"deliver_policy": "last"}, 2, 1),
            ({"deliver_policy": "by_start_sequence", "opt_start_seq": 2}, 1, 2),
            ({"deliver_policy": "last_per_subject", "filter_subject": "S.*"}, 2, 1),
            ({"deliver_subject": "pushed"}, 0, 3),
        ]
        for number, (config, delivered, pending) in enumerate(starts):
            answer = await consumer(client, "S", f"D{number}", **config)
            floor = answer["ack_floor"]["stream_seq"]
            shown = (answer["delivered"]["stream_seq"], floor, answer["num_pending"])
            assert shown == (delivered, 0, pending), config
            assert answer.get("push_bound", False) is ("deliver_subject" in config)
