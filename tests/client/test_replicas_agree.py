"""Random publishes and requests to streams of three replicas, while leaders change: afterwards all
three replicas have the same messages, whichever servers hold them.

`AGREE_SECONDS` (2): how long each mixture is played; `AGREE_KINDS` (oop): the mixtures;
`AGREE_SEED` chooses a run.
"""

import asyncio
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import connected, until
from tests.client.mesh import Cluster, streams_of
from tests.client.test_held_diff import done
from tests.client.test_replicated import asked, led_by
from tests.client.test_replicated_origins import LATER, Contents, contents
from tests.seeds import seed_of
from tests.servers import Server, Servers

SECONDS = float(os.environ.get("AGREE_SECONDS", "2"))
ROUND_SECONDS = 20.0
"""After so long at most all replicas are compared."""
pytestmark = [
    pytest.mark.usefixtures("peer_present"),
    pytest.mark.timeout(300 + SECONDS * 6),
]
KINDS = os.environ.get("AGREE_KINDS", "oop").split()
SECOND = 10**9
AT_ONCE = 8
"""Clients' requests that are under way."""
AGREED_SECONDS = 60.0
"""How long replicas may take to be alike: some messages still have to expire."""
STREAMS: dict[str, dict[str, Any]] = {
    "LIMITS": {"max_msgs": 60, "max_msgs_per_subject": 20, "allow_rollup_hdrs": True},
    "NEW": {"max_msgs": 40, "discard": "new", "duplicate_window": SECOND},
    "LIVES": {"allow_msg_ttl": True, "subject_delete_marker_ttl": SECOND, "max_age": 3 * SECOND},
    "TTL": {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "storage": "memory"},
    "INTEREST": {"retention": "interest", "max_msgs": 200},
    "WORK": {"retention": "workqueue", "max_msgs": 200, "storage": "memory"},
    "COUNT": {"allow_msg_counter": True, "max_msgs": 100},
    "BATCH": {"allow_atomic": True, "allow_batched": True, "max_msgs": 100},
    "PLAN": {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True},
}
CONSUMED = ("INTEREST", "WORK")
CONSUMERS = 3
"""Two of the stream with interest, one of the work queue."""
FEWEST = 25
"""The limit of messages at the end. Members learn of an update at different messages, so those that
a limit removes may differ until another one removes more."""
COMPARED = ("messages", "bytes", "first_seq", "last_seq", "num_subjects", "deleted")


def config(stream: str) -> dict[str, Any]:
    named = {"name": stream, "subjects": [f"{stream}.>"], "num_replicas": 3}
    return named | STREAMS[stream]


class Play:
    """What clients do to the streams of a cluster."""

    def __init__(self, clients: list[Client], random: Random, ours: bool) -> None:
        """`ours`: no nats-server is among the members."""
        self.clients = clients
        self.ours = ours
        self.random = random
        self.numbers = itertools.count(1)
        self.acked = 0
        self.acts: list[tuple[int, Callable[[str], Awaitable[None]]]] = [
            *((60, self.publish), (4, self.delete), (2, self.purge), (10, self.special)),
            *((10, self.consume), (1, self.step_down), (1, self.update)),
        ]

    @property
    def client(self) -> Client:
        return self.random.choice(self.clients)

    async def begin(self) -> None:
        for name in STREAMS:
            await done(self.clients[0], f"STREAM.CREATE.{name}", config(name))
        for stream in CONSUMED:
            subjects = ("a", "b") if stream == "INTEREST" else (">",)
            for number, subject in enumerate(subjects):
                durable = {
                    "durable_name": f"D{number}",
                    "filter_subject": f"{stream}.{subject}",
                    "ack_policy": "explicit",
                    "ack_wait": SECOND,
                    "max_deliver": 3,
                }
                body = {"stream_name": stream, "config": durable}
                await done(self.clients[0], f"CONSUMER.DURABLE.CREATE.{stream}.D{number}", body)

    async def go_on(self, end: float) -> None:
        weights, acts = zip(*self.acts, strict=True)
        while time.monotonic() < end:
            act = self.random.choices(acts, weights)[0]
            try:
                await act(self.random.choice([*STREAMS]))
            except LATER:
                await asyncio.sleep(0.02)  # no leader at the moment

    # ---- publishes

    async def publish(self, stream: str) -> None:
        token = self.random.choice("abcd")
        await self.send(f"{stream}.{token}", self.headers(stream))

    def headers(self, stream: str) -> dict[str, str]:
        number, chance = next(self.numbers), self.random.random()
        if stream == "COUNT":
            return {"Nats-Incr": self.random.choice(("1", "+5", "-3", "99999999999999999999", "x"))}
        if chance < 0.15:
            return {"Nats-Msg-Id": str(self.random.randrange(max(number // 20, 1) + 1))}
        if chance < 0.2:
            return {"Nats-Rollup": self.random.choice(("sub", "sub", "all"))}
        if chance < 0.3:
            return {"Nats-Expected-Last-Sequence": str(self.random.randrange(5))}
        if chance < 0.35:
            return {"Nats-Expected-Last-Subject-Sequence": "0"}
        if chance < 0.38 and self.ours:
            return {"Nats-Expected-Last-Msg-Id": str(number // 20)}
        if chance < 0.6 and stream in ("LIVES", "TTL", "PLAN"):
            return {"Nats-TTL": self.random.choice(("1s", "2s", "never", "0s", "x"))}
        return {"Number": str(number)} if chance < 0.8 else {}

    async def send(self, subject: str, headers: dict[str, str]) -> None:
        size = self.random.choice((0, 5, 100, 3000))
        data = self.random.randbytes(size) if "Nats-Incr" not in headers else b""
        answer = await self.client.request(subject, data, timeout=2, headers=headers or None)
        self.acked += b'"error"' not in answer.data

    async def special(self, stream: str) -> None:
        """Batches and schedules."""
        if self.random.random() < 0.5:
            target = f"PLAN.out.{self.random.choice('ab')}"
            plan = self.random.choice(("@every 1s", f"@at {later(1)}"))
            name = f"PLAN.plan.{self.random.choice('abc')}"
            headers = {"Nats-Schedule": plan, "Nats-Schedule-Target": target}
            await self.send(name, headers | {"Nats-Rollup": "sub"})
        else:
            await self.random.choice((self.atomic, self.fast))()

    async def atomic(self) -> None:
        client, id, count = self.client, str(next(self.numbers)), self.random.randrange(1, 12)
        for number in range(1, count + 1):
            headers = {"Nats-Batch-Id": f"a{id}", "Nats-Batch-Sequence": str(number)}
            if self.random.random() < 0.03:
                headers["Nats-Expected-Last-Sequence"] = "1"
            subject = f"BATCH.{self.random.choice('abcd')}"
            if number < count:
                await client.publish(subject, b"atomic", headers=headers)
            elif self.random.random() < 0.8:
                headers["Nats-Batch-Commit"] = "1"
                await client.request(subject, b"atomic", timeout=2, headers=headers)

    async def fast(self) -> None:
        client, id, count = self.client, str(next(self.numbers)), self.random.randrange(1, 20)
        inbox = client.new_inbox()
        heard = await client.subscribe(f"{inbox}.>")
        for number in range(1, count + 1):
            op = 2 if number == count else int(number > 1)
            reply = f"{inbox}.f{id}.10.ok.{number}.{op}.$FI"
            await client.publish(f"BATCH.{self.random.choice('abcd')}", b"fast", reply=reply)
        await heard.next_msg(timeout=2)
        await heard.unsubscribe()

    # ---- requests

    async def delete(self, stream: str) -> None:
        state = (await asked(self.client, f"STREAM.INFO.{stream}")).get("state")
        if state and state["messages"]:
            seq = self.random.randint(state["first_seq"], state["last_seq"])
            body = {"seq": seq, "no_erase": self.random.random() < 0.5}
            await asked(self.client, f"STREAM.MSG.DELETE.{stream}", body)

    async def purge(self, stream: str) -> None:
        by: tuple[dict[str, Any], ...] = ({"keep": 3}, {"filter": f"{stream}.a"}, {})
        await asked(self.client, f"STREAM.PURGE.{stream}", self.random.choice(by))

    async def consume(self, _: str) -> None:
        stream = self.random.choice(CONSUMED)
        name = "D0" if stream == "WORK" else self.random.choice(("D0", "D1"))
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        for _turn in range(self.random.randrange(1, 10)):
            message = await self.client.request(subject, b'{"no_wait":true}', timeout=2)
            if not message.reply:
                return
            answer = self.random.choice((b"+ACK", b"+ACK", b"+ACK", b"-NAK", b"+TERM"))
            await self.client.publish(message.reply, answer)

    async def step_down(self, stream: str) -> None:
        await asked(self.client, f"STREAM.LEADER.STEPDOWN.{stream}")

    async def update(self, stream: str) -> None:
        body = config(stream)
        if "max_msgs" in body:
            body["max_msgs"] = self.random.randrange(FEWEST + 5, 100)
        await asked(self.client, f"STREAM.UPDATE.{stream}", body)

    # ---- what the replicas have

    async def consumers_agree(self, members: list[Server]) -> None:
        """Waits until all members show the same of each consumer: what was delivered, what was
        acked, and what waits for an ack."""
        found: list[dict[str, tuple[Any, ...]]] = []

        def alike() -> bool:
            found[:] = [consumers(member) for member in members]
            return len(found[0]) == CONSUMERS and found.count(found[0]) == len(found)

        try:
            await until(alike, AGREED_SECONDS)
        except AssertionError:
            pytest.fail("\n".join(str(one) for one in found))

    async def agreed(self) -> None:
        """Ends what publishes by itself, and waits until all replicas are alike."""
        client = self.clients[0]
        different: list[Any] = []

        async def purged() -> bool:
            body = {"filter": "PLAN.plan.>"}
            return "error" not in await asked(client, "STREAM.PURGE.PLAN", body)

        async def bounded(stream: str) -> bool:
            wanted = config(stream) | {"max_msgs": FEWEST}
            return "error" not in await asked(client, f"STREAM.UPDATE.{stream}", wanted)

        await until(purged, AGREED_SECONDS)
        for stream, given in STREAMS.items():
            if "max_msgs" in given:
                await until(partial(bounded, stream), AGREED_SECONDS)

        async def alike() -> bool:
            nonlocal different
            found = []
            for server in "ABC":
                await asyncio.gather(*(led_by(client, "STREAM", one, server) for one in STREAMS))
                try:
                    found.append([await self.replica(one) for one in STREAMS])
                except (KeyError, AssertionError):  # a message has expired meanwhile
                    return False
            different = [one for one in zip(*found, strict=True) if one.count(one[0]) < 3]
            return not different

        try:
            await until(alike, AGREED_SECONDS)
        except AssertionError:
            pytest.fail("\n".join(told(*one) for one in different))

    async def replica(self, stream: str) -> tuple[str, dict[str, Any], Contents]:
        """A stream, and what its leader has."""
        client = self.clients[0]
        there = await contents(client, stream)
        info = await done(client, f"STREAM.INFO.{stream}", {"deleted_details": True})
        state = {key: info["state"].get(key) for key in COMPARED}
        # Members note for themselves when they passed over a sequence that has no message.
        if info["state"]["last_seq"] in there:
            state["last_ts"] = info["state"]["last_ts"]
        return stream, state, there


def consumers(server: Server) -> dict[str, tuple[Any, ...]]:
    """What a server shows of its consumers."""
    found = {}
    for stream in streams_of(server, "&consumers=1"):
        for info in stream.get("consumer_detail") or []:
            places = [info[key] for key in ("delivered", "ack_floor")]
            seqs = [(place["consumer_seq"], place["stream_seq"]) for place in places]
            found[f"{stream['name']}.{info['name']}"] = *seqs, info["num_ack_pending"]
    return found


def told(*replicas: tuple[str, dict[str, Any], Contents]) -> str:
    """In what the replicas of a stream differ."""
    lines = [replicas[0][0]]
    seqs = sorted({seq for _, _, there in replicas for seq in there})
    for name, (_, state, there) in zip("ABC", replicas, strict=True):
        odd = [seq for seq in seqs if len({one[2].get(seq) for one in replicas}) > 1]
        lines.append(f"  {name}: {json.dumps(state)}")
        lines += [f"    {seq}: {there.get(seq)}" for seq in odd[:5]]
    return "\n".join(lines)


def later(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


@pytest.mark.parametrize("kinds", KINDS)
def test_all_replicas_are_equal(servers: Servers, kinds: str) -> None:
    seed = seed_of("AGREE_SEED")
    print(f"AGREE_SEED={seed}")
    asyncio.run(play(servers, kinds, Random(seed)))


async def play(servers: Servers, kinds: str, random: Random) -> None:
    cluster = Cluster(servers)
    cluster.start_all(kinds)
    await cluster.whole()
    one, two, three = cluster.members
    async with connected(one) as a, connected(two) as b, connected(three) as c:
        play = Play([a, b, c], random, "p" not in kinds)
        await play.begin()
        end = time.monotonic() + SECONDS
        while (now := time.monotonic()) < end:
            paused = min(now + ROUND_SECONDS, end)
            await asyncio.gather(*(play.go_on(paused) for _ in range(AT_ONCE)))
            await play.agreed()
            await play.consumers_agree(cluster.members)
        assert play.acked
        print(f"{play.acked} messages were acked")
