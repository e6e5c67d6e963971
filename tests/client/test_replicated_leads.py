"""Readers of consumers of three replicas whose leaders change: what was confirmed as acked does not
come again, nothing is lost, no ack floor goes back, and all members have the same."""

import asyncio
import contextlib
import os
import signal
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import APIError, NoStreamResponseError

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import streams_of
from tests.client.test_held_diff import done, stream
from tests.client.test_replicated import THREE, Three, asked, led_by
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

SECOND = 10**9
ACK_WAIT = 2
LATER = (NoAnswer, NoRespondersError)
"""Nobody leads just now."""


class Reader:
    """What is delivered by a consumer, which it acks; every tenth message it naks at first.

    Messages and confirmations come by one subscription, so that they are seen in the order in which
    they came: a message that was sent before an ack was confirmed is no wrong one.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.inbox = f"to.{name}"
        self.sent = f"{self.inbox}.sent"
        self.deliveries: dict[int, int] = {}
        """Of each message, by its sequence: how many the last one said."""
        self.confirmed: dict[int, int] = {}
        """By their sequences: which delivery was acked."""
        self.acked: set[int] = set()
        self.wrong: list[str] = []
        self.floor = (0, 0)
        self.ended = asyncio.Event()
        """Of the pull request that waits."""

    async def listen(self) -> None:
        """A wildcard is no subscription that a consumer which pushes waits for."""
        await self.client.subscribe(f"{self.inbox}.>", cb=self.take)
        await self.client.subscribe(self.sent, cb=nothing)

    async def take(self, message: Any) -> None:
        if message.subject.startswith(f"{self.inbox}.acked."):
            if not message.headers:  # else nobody leads just now
                seq, delivery = map(int, message.subject.split(".")[-2:])
                self.confirmed[seq] = delivery
            return
        tokens = message.reply.split(".")
        if tokens[:2] != ["$JS", "ACK"]:
            self.ended.set()
            return
        deliveries, seq, delivery = map(int, tokens[4:7])
        # What a frozen server sent long ago comes late, and is older than what was acked.
        if delivery > self.confirmed.get(seq, delivery):
            self.wrong.append(f"{message.reply} comes after an ack was confirmed")
        if deliveries < self.deliveries.get(seq, 0):
            self.wrong.append(f"{seq} was delivered more often before")
        self.deliveries[seq] = deliveries
        if seq % 10 == 0 and deliveries == 1:
            await self.client.publish(message.reply, b"-NAK")
            return
        self.acked.add(seq)
        await self.client.publish(message.reply, b"", f"{self.inbox}.acked.{seq}.{delivery}")

    async def pull(self) -> None:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.S.{self.name}"
        while True:
            self.ended.clear()
            await self.client.publish(subject, b'{"batch":200,"expires":300000000}', self.sent)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), 0.5)
            await asyncio.sleep(0.02)  # until it is asked again

    async def look(self) -> None:
        """The ack floor, as who leads tells it."""
        while True:
            info = await asked(self.client, f"CONSUMER.INFO.S.{self.name}")
            if (info.get("cluster") or {}).get("leader"):
                floor = info["ack_floor"]
                now = (floor["consumer_seq"], floor["stream_seq"])
                if now < self.floor:
                    self.wrong.append(f"the ack floor went back from {self.floor} to {now}")
                self.floor = max(now, self.floor)
            await asyncio.sleep(0.05)


async def nothing(message: Any) -> None:
    """Reader.take() has it, too."""


class Publisher:
    """Publishes one message after the other."""

    def __init__(self, client: Client) -> None:
        self.context = client.jetstream(timeout=2)
        self.stored: set[int] = set()
        self.ends = False

    async def publish(self) -> None:
        number = 0
        while not self.ends:
            number += 1
            taken = False
            while not taken:
                headers = {"Nats-Msg-Id": str(number)}
                try:
                    answer = await self.context.publish("S.a", b"", headers=headers)
                except (*LATER, NoStreamResponseError, APIError):
                    await asyncio.sleep(0.02)  # until it is tried again
                    continue
                self.stored.add(answer.seq)
                taken = True
            await asyncio.sleep(0.02)


async def change(members: Three, client: Client, name: str, how: str) -> None:
    """Another server is to lead the consumer, which C leads before."""
    await led_by(client, "CONSUMER", f"S.{name}", "C")
    if how == "stepdown":
        await asked(client, f"CONSUMER.LEADER.STEPDOWN.S.{name}")
    elif how == "freeze":
        os.kill(members.holder.pid, signal.SIGSTOP)
        await asyncio.sleep(ACK_WAIT)  # as long as acks may take that its consumers wait for
        os.kill(members.holder.pid, signal.SIGCONT)
    else:
        await asyncio.to_thread(members.holder.restart, kill=how == "kill")


def shown(members: Three, name: str) -> list[tuple[int, ...]]:
    """What each member has of the consumer."""
    found: list[tuple[int, ...]] = []
    for member in members.members:
        for held in streams_of(member, "&consumers=1"):
            for info in held.get("consumer_detail") or []:
                if info["name"] == name:
                    seqs = [info[key] for key in ("delivered", "ack_floor")]
                    places = [(s["consumer_seq"], s["stream_seq"]) for s in seqs]
                    found.append((*places[0], *places[1], info["num_ack_pending"]))
    return found


@pytest.mark.parametrize("kinds", ["ooo", "ppo"])
@asynchronous
async def test_acks_hold_whoever_leads(servers: Servers, kinds: str) -> None:
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", stream("S", **THREE))
        for name, more in (("P", {}), ("Q", {"deliver_subject": "to.Q.sent"})):
            config = {"durable_name": name, "ack_policy": "explicit"} | more
            body = {"stream_name": "S", "config": config | {"ack_wait": ACK_WAIT * SECOND}}
            await done(client, f"CONSUMER.DURABLE.CREATE.S.{name}", body)
        publisher = Publisher(client)
        pulls, pushes = readers = Reader(client, "P"), Reader(client, "Q")
        for reader in readers:
            await reader.listen()
        works = (publisher.publish(), pulls.pull(), pulls.look(), pushes.look())
        tasks = [asyncio.create_task(work) for work in works]
        for how in ("stepdown", "kill", "stop", "freeze"):
            for reader in readers:
                await change(members, client, reader.name, how)
                goal = len(reader.confirmed) + 20
                await until(lambda r=reader, g=goal: len(r.confirmed) >= g, 60)  # type: ignore[misc]
        publisher.ends = True  # a request may swallow what cancels it
        await tasks[0]
        for reader in readers:
            await until(lambda r=reader: publisher.stored <= r.acked, 60)  # type: ignore[misc]
        last = max(publisher.stored)

        async def settled(name: str) -> bool:
            info = await asked(client, f"CONSUMER.INFO.S.{name}")
            left = info.get("num_ack_pending", 1) + info.get("num_pending", 1)
            return bool(left == 0 and info["ack_floor"]["stream_seq"] >= last)

        for reader in readers:
            await until(lambda r=reader: settled(r.name), 60)  # type: ignore[misc]
            await until(lambda r=reader: len({*shown(members, r.name)}) == 1, 60)  # type: ignore[misc]
        for task in tasks:
            task.cancel()
        for reader in readers:
            assert reader.wrong == [], reader.name
            assert publisher.stored <= reader.deliveries.keys()
            assert len(shown(members, reader.name)) == 3
