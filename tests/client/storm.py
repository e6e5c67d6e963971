"""Random requests to a cluster's replicated streams while leaders step down and members are killed;
and a comparison of the members in the end."""

import asyncio
import base64
import contextlib
import io
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nats.aio.client import Client
from nats.errors import Error

from jsserver.offline.dumping import Form, Wanted, dump
from jsserver.offline.places import layout
from tests.client.aio import until
from tests.client.mesh import page, streams_of
from tests.client.proxy import Proxy
from tests.client.random_requests import RandomRequests
from tests.servers import Server

SECOND = 10**9
FEW = {"ack_policy": "explicit", "ack_wait": 2 * SECOND, "max_deliver": 4}
KEPT = "KEPT"
"""A stream from which nothing is ever removed. Each message has an id, and is repeated until it is
acked."""
#: By name: the stream's configuration without subjects, and its consumers by name.
KINDS: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    KEPT: ({"duplicate_window": 600 * SECOND}, {"A": FEW}),
    "PLAIN": ({"allow_direct": True}, {"A": FEW}),
    "MANY": ({"max_msgs": 40, "max_bytes": 20000, "max_msgs_per_subject": 9}, {}),
    "NEW": ({"max_msgs": 60, "discard": "new", "allow_atomic": True}, {}),
    "EACH": ({"max_msgs_per_subject": 4, "discard": "new", "discard_new_per_subject": True}, {}),
    "AGED": ({"max_age": 2 * SECOND, "duplicate_window": SECOND}, {"A": FEW}),
    "ROLL": ({"allow_rollup_hdrs": True, "max_msgs_per_subject": 5}, {}),
    "LIVES": ({"allow_msg_ttl": True, "allow_rollup_hdrs": True}, {}),
    "MARKS": (
        {"allow_msg_ttl": True, "allow_rollup_hdrs": True, "subject_delete_marker_ttl": SECOND},
        {},
    ),
    "COUNT": ({"allow_msg_counter": True, "allow_direct": True}, {}),
    "TIMED": ({"allow_msg_schedules": True, "allow_rollup_hdrs": True}, {}),
    "BATCH": ({"allow_atomic": True, "allow_batched": True}, {}),
    "NAMED": ({"subject_transform": {"src": "NAMED.a", "dest": "NAMED.other.a"}}, {}),
    "MEMORY": ({"storage": "memory", "max_msgs": 50}, {"A": FEW}),
    "WANTED": (
        {"retention": "interest"},
        {"A": FEW | {"filter_subject": "WANTED.a"}, "B": FEW | {"filter_subject": "WANTED.*"}},
    ),
    "SOME": ({"retention": "interest"}, {"A": FEW | {"filter_subject": "SOME.a"}}),
    "WORK": ({"retention": "workqueue"}, {"A": FEW}),
    "PARTS": (
        {"retention": "workqueue", "max_msgs": 50, "discard": "new"},
        {name: FEW | {"filter_subject": f"PARTS.{name}"} for name in "ab"},
    ),
}


LAST_SEQUENCE = (1 << 64) - 1
EVERYTHING = Wanted(first=0, last=LAST_SEQUENCE, subject="", limit=LAST_SEQUENCE)


class Lost(Exception):
    """A request had no answer."""


class Storm(RandomRequests):
    """Random requests by clients of all members, and harm to the members."""

    def __init__(self, members: list[Server], clients: list[Client], seed: int) -> None:
        super().__init__(seed)
        self.seed = seed
        self.members = members
        self.clients = clients
        self.over = False
        self.kept: dict[str, int] = {}
        """Sequences of KEPT's acked messages, by id, in the order of their publishing."""
        self.confirmed: set[int] = set()
        """Sequences of KEPT's messages whose acks were answered."""
        self.wrong: list[str] = []
        """What no client may see."""
        self.done: list[str] = []

    # ---- requests

    async def ask(self, subject: str, body: bytes, headers: Any = None, seconds: float = 2) -> Any:
        """The answer to a request by a random client; Lost."""
        client = self.random.choice([one for one in self.clients if one.is_connected] or [None])
        if client is None:
            raise Lost
        try:
            return await client.request(subject, body, timeout=seconds, headers=headers)
        except (TimeoutError, Error, OSError) as error:
            raise Lost from error

    async def create(self) -> None:
        for name in KINDS:
            await self._until_done(f"STREAM.CREATE.{name}", self.config(name))
            for consumer in KINDS[name][1]:
                await self.create_consumer(name, consumer)

    def config(self, name: str) -> dict[str, Any]:
        config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, "storage": "file"}
        return config | {"retention": "limits", "duplicate_window": 60 * SECOND} | KINDS[name][0]

    def replicas(self, name: str) -> int:
        """How many members a stream and its consumers are to have."""
        return 3

    async def create_consumer(self, name: str, consumer: str) -> None:
        config = {"durable_name": consumer, **KINDS[name][1][consumer]}
        path = f"CONSUMER.DURABLE.CREATE.{name}.{consumer}"
        await self._until_done(path, {"stream_name": name, "config": config})

    async def _until_done(self, subject: str, body: object) -> None:
        said: dict[str, Any] = {}

        async def did() -> bool:
            with contextlib.suppress(Lost):
                said.update({"error": None} | await self.api(subject, body))
            return bool(said) and not said["error"]

        try:
            await until(did, 60)
        except AssertionError as error:
            raise AssertionError(f"{subject}: {said}") from error

    async def keep(self) -> None:
        """Publishes a message to KEPT until it is acked."""
        key = f"id{next(self.numbers)}"
        while key not in self.kept:
            with contextlib.suppress(Lost):
                answer = await self.ask(f"{KEPT}.a", self.body(), {"Nats-Msg-Id": key})
                said = json.loads(answer.data)
                if not said.get("error"):
                    self.kept[key] = said["seq"]
            await asyncio.sleep(0.01)  # a leader will take it soon

    # ---- random requests

    async def step(self, name: str) -> None:
        """Sends a random request to a stream; Lost."""
        config, consumers = KINDS[name]
        pick = self.random.random()
        subject = self.random.choice("abc")
        if name == KEPT and pick < 0.8:
            await self.keep()
        elif name == KEPT:
            await self.take(name)
        elif name == "COUNT":
            await self.publish(name, subject, b"", Nats_Incr=self.random.randint(-5, 50))
        elif pick < 0.05:
            await self.remove(name)
        elif pick < 0.08:
            await self.purge(name)
        elif pick < 0.09:
            await self.update(name)
        elif pick < 0.1 and len(consumers) > 1:
            await self.replace_consumer(name)
        elif pick < 0.25 and config.get("allow_atomic"):
            await self.batch(name)
        elif pick < 0.35 and config.get("allow_batched"):
            await self.fast(name)
        elif pick < 0.45 and consumers:
            await self.take(name)
        else:
            await self.publish(name, subject, self.body(), **self.lines(name))

    def lines(self, name: str) -> dict[str, object]:
        config = KINDS[name][0]
        chance = self.random.random
        lines: dict[str, object] = {}
        if chance() < 0.4:
            lines["Nats_Msg_Id"] = f"id{self.random.randint(0, 60)}"
        if config.get("allow_rollup_hdrs") and chance() < 0.1:
            lines["Nats_Rollup"] = self.random.choice(["sub", "all"])
        if config.get("allow_msg_ttl") and chance() < 0.4:
            lines["Nats_TTL"] = self.random.choice(["1s", "1", "2h", "never"])
        if chance() < 0.05:
            lines["Nats_Expected_Last_Sequence"] = self.random.randint(0, 50)
        if name == "TIMED" and chance() < 0.2:
            lines = self.scheduled(name)
        return lines

    async def state(self, name: str) -> dict[str, Any]:
        answer = await self.api(f"STREAM.INFO.{name}")
        if "state" not in answer:
            raise Lost
        found: dict[str, Any] = answer["state"]
        return found

    async def remove(self, name: str) -> None:
        state = await self.state(name)
        seq = self.random.randint(state["first_seq"], max(state["last_seq"], 1) + 2)
        body = {"seq": seq, "no_erase": self.random.random() < 0.5}
        await self.api(f"STREAM.MSG.DELETE.{name}", body)

    async def update(self, name: str) -> None:
        more: dict[str, Any] = {"description": f"change {next(self.numbers)}"}
        config = self.config(name)
        if not await self._is(f"STREAM.INFO.{name}"):
            return  # limits apply at once, not by entries: members would differ meanwhile
        for limit in ("max_msgs", "max_msgs_per_subject"):
            if limit in config:
                more[limit] = config[limit] + self.random.randint(-2, 8)
        self.done.append(f"{name} with {more}")
        await self.api(f"STREAM.UPDATE.{name}", config | more)
        await asyncio.sleep(0.5)  # until all members have heard of it

    async def replace_consumer(self, name: str) -> None:
        consumer = self.random.choice(list(KINDS[name][1]))
        with contextlib.suppress(Lost):
            await self.api(f"CONSUMER.DELETE.{name}.{consumer}")
        await self.create_consumer(name, consumer)

    async def fast(self, name: str) -> None:
        number, n = next(self.numbers), self.random.randint(1, 6)
        client = self.random.choice(self.clients)
        for at in range(1, n + 1):
            operation = 2 if at == n else min(at - 1, 1)
            reply = f"answers.fast{number}.10.ok.{at}.{operation}.$FI"
            with contextlib.suppress(Error, OSError):
                await client.publish(f"{name}.{self.random.choice('abc')}", self.body(), reply)

    async def take(self, name: str) -> None:
        consumer = self.random.choice(list(KINDS[name][1]))
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}"
        message = await self.ask(subject, b'{"no_wait":true}', seconds=1)
        if message.reply:
            seq = int(message.reply.split(".")[5])
            if name == KEPT and seq in self.confirmed:
                self.wrong.append(f"{message.reply} came after its ack")
            verdict = self.random.choice([b"+ACK", b"+ACK", b"+ACK", b"+ACK", b"-NAK", b"+TERM"])
            await self.ask(message.reply, verdict, seconds=1)
            if name == KEPT and verdict != b"-NAK":
                self.confirmed.add(seq)

    # ---- harm

    async def step_down(self) -> None:
        name = self.random.choice(list(KINDS))
        consumers = list(KINDS[name][1])
        if consumers and self.random.random() < 0.5:
            path = f"CONSUMER.LEADER.STEPDOWN.{name}.{self.random.choice(consumers)}"
        else:
            path = f"STREAM.LEADER.STEPDOWN.{name}"
        with contextlib.suppress(Lost):
            await self.api(path)
        self.done.append(path)

    async def kill(self, victims: list[Server], down: float) -> None:
        """Kills one of these members, and starts it again after so many seconds."""
        member = self.random.choice(victims)
        number = self.members.index(member)
        self.done.append(f"kill {number}")
        await asyncio.to_thread(member.kill)
        await asyncio.sleep(down)  # the other members go on meanwhile
        await asyncio.to_thread(member.start)
        self.done.append(f"start {number}")

    async def pause(self, victims: list[Server], seconds: float) -> None:
        """Stops one of these members with SIGSTOP for so many seconds."""
        member = self.random.choice(victims)
        self.done.append(f"pause {self.members.index(member)}")
        os.kill(member.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)  # the other members go on meanwhile
        finally:
            os.kill(member.pid, signal.SIGCONT)

    async def part(self, links: list[Proxy], seconds: float) -> None:
        """Breaks some of these links for so many seconds."""
        chosen = self.random.sample(links, self.random.randint(1, 2))
        self.done.append(f"part {[links.index(one) for one in chosen]}")
        for link in chosen:
            link.shut()
        await asyncio.sleep(seconds)  # members go on meanwhile
        for link in chosen:
            link.reopen()

    # ---- the whole

    async def play(self, seconds: float, harms: Callable[[], Awaitable[None]]) -> None:
        """Sends requests to all streams for so many seconds, and does harm in turns."""
        end = time.monotonic() + seconds

        async def requests(name: str) -> None:
            while time.monotonic() < end:
                try:
                    await self.step(name)
                except Lost:
                    await asyncio.sleep(0.1)  # there will be a leader soon
                await asyncio.sleep(0.01)  # lets other tasks run

        async def harm() -> None:
            while time.monotonic() < end:
                await asyncio.sleep(self.random.uniform(0.5, 2))  # between two harms
                await harms()

        async def floor() -> None:
            """The ack floor of KEPT's consumer, as its leader tells it, never goes back."""
            last = 0
            while time.monotonic() < end:
                with contextlib.suppress(Lost):
                    answer = await self.api(f"CONSUMER.INFO.{KEPT}.A")
                    found = (answer.get("ack_floor") or {}).get("stream_seq", last)
                    if found < last:
                        self.wrong.append(f"floor {found} after {last}: {answer['cluster']}")
                    last = found
                await asyncio.sleep(0.1)  # between two looks

        await asyncio.gather(harm(), floor(), *(requests(name) for name in KINDS))

    async def settled(self, seconds: float = 90) -> None:
        """Waits until all members are current, and messages with a short life are gone."""
        left: list[str] = []
        for name in KINDS:
            for consumer in KINDS[name][1]:
                await self.create_consumer(name, consumer)  # a deletion may have come late

        async def current() -> bool:
            paths = [path for name in KINDS for path in self._paths(name)]
            left[:] = [path for path in paths if not await self._is(path)]
            return not left

        try:
            await until(current, seconds)
            await asyncio.sleep(3)  # until messages of one second are gone and schedules due
            await until(current, seconds)
        except AssertionError as error:
            told = [f"members of {left} lack something", f"harm: {self.done}"]
            told += [f"{path}: {await self._told(path)}" for path in left]
            for number, member in enumerate(self.members):
                told += await asyncio.to_thread(seen_of, number, member, left)
            raise AssertionError("\n".join(told)) from error

    async def _told(self, path: str) -> object:
        """Who leads, and how far the others are."""
        try:
            answer = await self.api(path)
        except Lost:
            return "nobody answers"
        return answer.get("cluster") or answer

    def _paths(self, name: str) -> list[str]:
        return [f"STREAM.INFO.{name}", *(f"CONSUMER.INFO.{name}.{one}" for one in KINDS[name][1])]

    async def _is(self, path: str) -> bool:
        try:
            cluster = (await self.api(path)).get("cluster") or {}
        except Lost:
            return False
        replicas = cluster.get("replicas", [])
        return (
            bool(cluster.get("leader"))
            and len(replicas) == self.replicas(path.split(".")[2]) - 1
            and all(one["current"] and not one.get("lag") for one in replicas)
        )


def seen_of(number: int, member: Server, paths: list[str]) -> list[str]:
    """Of these assets: what a member says of its groups and stores, and what it has logged."""
    try:
        groups = page(member, "raftz?acc=ONE").get("ONE") or {}
        found = states(member)
    except OSError as error:
        return [f"member {number}: {error}"]
    lines = [f"member {number}, {name}: {one}" for name, one in groups.items()]
    names = {path.split(".")[2] for path in paths}
    lines += [f"member {number}, {name}: {found.get(name)}" for name in sorted(names)]
    return lines + [f"member {number}: {line}" for line in member.log().splitlines()[-80:]]


def states(member: Server) -> dict[str, dict[str, Any]]:
    """The state of each stream on a member, without the time of the last message: where that
    message is gone, each member has its own time."""
    return {one["name"]: one["state"] | {"last_ts": ""} for one in streams_of(member)}


def held(member: Server, name: str) -> list[tuple[Any, ...]]:
    """A stream's messages, and ranges of deleted sequences, in the store of a stopped member; empty
    where the member has no such stream."""
    found: list[tuple[Any, ...]] = []
    for place in layout(str(member.store)).chosen("", name):
        out = io.StringIO()
        form = Form(json=True, raw=False, deleted=True, consumers=False)
        assert dump(place, EVERYTHING, form, out) == []
        for line in out.getvalue().splitlines():
            said = json.loads(line)
            if "deleted" in said:
                found.append(("deleted", *said["deleted"]))
            else:
                body = base64.b64decode(said["data"])
                headers = json.dumps(said.get("headers"), sort_keys=True)
                what = (headers, len(body), body[:9])
                found.append((said["seq"], said["time"], said["subject"], *what))
    return found


def differences(found: Sequence[Sequence[Any]]) -> list[str]:
    """Lines that not all members' lists have."""
    common = set.intersection(*(set(one) for one in found))
    told = []
    for number, one in enumerate(found):
        told += [f"member {number}: {line}" for line in one if line not in common]
    return told[:40]


def lost(made: Storm, found: list[tuple[Any, ...]]) -> list[str]:
    """Acked messages of KEPT that are missing, there twice, or not in the order of their acks."""
    seqs: dict[str, list[int]] = {}
    for seq, _, _, headers, *_ in found:
        seqs.setdefault(json.loads(headers)["Nats-Msg-Id"][0], []).append(seq)
    pairs = [(key, [seq], seqs.get(key)) for key, seq in made.kept.items()]
    told = [f"{key}: acked as {acked}, is {now}" for key, acked, now in pairs if acked != now]
    acked_seqs = list(made.kept.values())
    return told if acked_seqs == sorted(acked_seqs) else [*told, f"acks in disorder: {acked_seqs}"]
