"""Mirrors and sources of three replicas, of origins with one and with three replicas, with servers
of ours among the members: all members have the origins' messages, once, whichever server leads."""

import asyncio
import base64
import itertools
import os
import signal
from collections import Counter
from typing import Any, NamedTuple

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer
from nats.js.errors import APIError, NoStreamResponseError

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import mixtures
from tests.client.test_held_diff import done
from tests.client.test_replicated import Three, asked, current, led_by
from tests.servers import Servers

pytestmark = pytest.mark.usefixtures("peer_present")

WAYS = ("stepdown", "kill", "stop", "freeze")
LATER = (NoAnswer, NoRespondersError, NoStreamResponseError, APIError)
"""The error while there is no leader."""
TROUBLES = [
    ("ooo", ("stepdown", "kill", "freeze")),
    ("ppo", ("kill", "stop")),
    *(pytest.param(kinds, WAYS, marks=pytest.mark.soak) for kinds in ("ooo", "ppo", "oop")),
]
"""Kinds of members, and what befalls the leaders."""
SOURCE = "Nats-Stream-Source"
AT_ONCE = 50


class Stored(NamedTuple):
    """A message of a stream."""

    subject: str
    header: str
    body: str
    time: str

    @property
    def source(self) -> str:
        """The header that says where the message came from."""
        lines = base64_lines(self.header)
        return next((line.split(": ", 1)[1] for line in lines if line.startswith(SOURCE)), "")

    @property
    def bare(self) -> tuple[str, list[str], str]:
        """The message without that header and without its time."""
        lines = [one for one in base64_lines(self.header) if not one.startswith(SOURCE)]
        return self.subject, [one for one in lines[1:] if one], self.body


def base64_lines(text: str) -> list[str]:
    return base64.b64decode(text).decode().split("\r\n")


Contents = dict[int, Stored]
"""Messages by sequence."""


async def contents(client: Client, name: str) -> Contents:
    """The leader's messages of a stream."""
    state = (await done(client, f"STREAM.INFO.{name}"))["state"]
    found: Contents = {}

    async def read(seq: int) -> None:
        answer: dict[str, Any] = {}

        async def answered() -> bool:
            nonlocal answer
            answer = await asked(client, f"STREAM.MSG.GET.{name}", {"seq": seq})
            return "message" in answer or answer["error"]["err_code"] == 10037

        await until(answered, 30)
        if "message" in answer:
            one = answer["message"]
            what = one["subject"], one.get("hdrs", ""), one.get("data", ""), one["time"]
            found[seq] = Stored(*what)

    seqs = iter(range(state["first_seq"], state["last_seq"] + 1))
    while some := list(itertools.islice(seqs, AT_ONCE)):
        await asyncio.gather(*map(read, some))
    assert len(found) == state["messages"]
    return dict(sorted(found.items()))


async def alike(client: Client, name: str) -> Contents:
    """The messages of all three members, each of which leads in turn."""
    found, states = [], []
    for one in "ABC":
        await led_by(client, "STREAM", name, one)
        found.append(await contents(client, name))
        states.append((await done(client, f"STREAM.INFO.{name}"))["state"])
    assert found[0] == found[1] == found[2]
    assert states[0] == states[1] == states[2]
    return found[0]


async def came_to(client: Client, name: str, last: int, seconds: float = 60) -> None:
    async def there() -> bool:
        info = await asked(client, f"STREAM.INFO.{name}")
        return bool((info.get("state") or {}).get("last_seq", 0) >= last)

    await until(there, seconds)


async def has(client: Client, name: str, count: int, seconds: float = 60) -> None:
    async def there() -> bool:
        info = await asked(client, f"STREAM.INFO.{name}")
        return bool((info.get("state") or {}).get("messages", 0) == count)

    await until(there, seconds)


async def create(client: Client, name: str, replicas: int = 3, **config: Any) -> None:
    body = {"name": name, "num_replicas": replicas, **config}
    await done(client, f"STREAM.CREATE.{name}", body)


class Publisher:
    """Publishes messages of five subjects to an origin, one after another; every third one has a
    header."""

    def __init__(self, client: Client, name: str) -> None:
        self.context = client.jetstream(timeout=2)
        self.client = client
        self.name = name
        self.count = 0
        self.last = 0

    async def publish(self, count: int) -> None:
        for _ in range(count):
            self.count += 1
            subject = f"{self.name}.{self.count % 5}"
            headers = {"Nats-Msg-Id": f"{self.name}{self.count}"}
            if self.count % 3 == 0:
                headers["Of"] = str(self.count)
            await until(lambda s=subject, h=headers: self._taken(s, h), 60)  # type: ignore[misc]

    async def _taken(self, subject: str, headers: dict[str, str]) -> bool:
        try:
            body = b"%d" % self.count
            self.last = (await self.context.publish(subject, body, headers=headers)).seq
        except LATER:
            await asyncio.sleep(0.05)  # before the next attempt
            return False
        return True

    async def go_on(self) -> None:
        while True:
            await self.publish(1)
            # All of it is read from each member at the end, message by message.
            await asyncio.sleep(0.04)


def check_source(taken: Contents, origins: dict[str, Contents]) -> None:
    """Checks that each message names its origin and equals the origin's message, unless that was
    deleted, and that each came once, in order."""
    come: Counter[str] = Counter()
    for stored in taken.values():
        name, seq, *_, subject = stored.source.split(" ")
        origin = origins[name].get(int(seq))
        if origin is not None:
            assert origin.subject == subject
            assert origin.bare[1:] == stored.bare[1:]
        assert int(seq) > come[name], f"{name} {seq} behind {come[name]}"
        come[name] = int(seq)


def kept(taken: Contents, origin: Contents) -> Contents:
    """The messages that the origin still has."""
    return {seq: one for seq, one in taken.items() if seq in origin}


def those(origin: Contents, *tokens: str) -> list[int]:
    """The sequences of these subjects."""
    return [seq for seq, one in origin.items() if one.subject.split(".")[1] in tokens]


def of(taken: Contents, name: str) -> list[int]:
    """The sequences that came from an origin."""
    sources = [one.source.split(" ") for one in taken.values()]
    return [int(source[1]) for source in sources if source[0] == name]


@pytest.mark.parametrize("kinds", mixtures("ooo", "ppo", soak=["oop"]))
@asynchronous
async def test_all_members_have_what_the_origins_have(servers: Servers, kinds: str) -> None:
    """Origins of one and of three replicas with deleted messages, filters, transforms, and sources
    of the same subjects; each member leads for a while."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await create(client, "O", 1, subjects=["O.*"], allow_direct=True)
        await create(client, "P", 3, subjects=["P.*"])
        o, p = Publisher(client, "O"), Publisher(client, "P")
        await o.publish(20)
        await p.publish(20)
        for name, seq in (("O", 3), ("O", 4), ("P", 1), ("P", 7)):
            await done(client, f"STREAM.MSG.DELETE.{name}", {"seq": seq})
        await create(client, "M", mirror={"name": "P"})
        await create(client, "MO", mirror={"name": "O"}, storage="memory")
        await create(client, "L", mirror={"name": "P", "opt_start_seq": 6})
        await create(client, "F", mirror={"name": "O", "filter_subject": "O.2"})
        moved = [{"src": "P.*", "dest": "moved.{{wildcard(1)}}"}]
        await create(client, "X", mirror={"name": "P", "subject_transforms": moved})
        both = [{"name": "O", "filter_subject": "O.1"}, {"name": "P", "subject_transforms": moved}]
        await create(client, "S", sources=both)
        twice = [{"name": "P", "filter_subject": f"P.{n}"} for n in (1, 2)]
        more: dict[str, Any] = {}
        if "p" not in kinds:  # a nats-server reads such a stream anew with each leader
            more["subject_transform"] = {"src": "*.*", "dest": "stored.{{wildcard(2)}}"}
        await create(client, "T", sources=[*twice, {"name": "O"}], **more)
        names = ("M", "MO", "L", "F", "X", "S", "T")
        for name in "ABC":
            for one in names:
                await led_by(client, "STREAM", one, name)
            await asyncio.gather(o.publish(20), p.publish(20))
            await done(client, "STREAM.MSG.DELETE.P", {"seq": p.last - 1})
        await asyncio.gather(o.publish(20), p.publish(20))
        origins = {"O": await contents(client, "O"), "P": await alike(client, "P")}
        for name, origin in (("M", "P"), ("MO", "O"), ("L", "P"), ("X", "P")):
            await came_to(client, name, max(origins[origin]))
        await came_to(client, "F", max(those(origins["O"], "2")))
        o_all, o_1 = those(origins["O"], *"01234"), those(origins["O"], "1")
        p_all, p_12 = those(origins["P"], *"01234"), those(origins["P"], "1", "2")
        s = await settled(client, "S", {"O": o_1, "P": p_all})
        t = await settled(client, "T", {"O": o_all, "P": p_12})
        check_source(s, origins)
        assert {one.subject.split(".")[0] for one in s.values()} == {"O", "moved"}
        if more:
            assert {one.subject.split(".")[0] for one in t.values()} == {"stored"}

        assert kept(await alike(client, "M"), origins["P"]) == origins["P"]
        assert kept(await alike(client, "MO"), origins["O"]) == origins["O"]
        late = await alike(client, "L")
        assert min(late) == 6
        assert kept(late, origins["P"]) == {n: o for n, o in origins["P"].items() if n >= 6}
        filtered = await alike(client, "F")
        assert filtered == {seq: origins["O"][seq] for seq in those(origins["O"], "2")}
        renamed = kept(await alike(client, "X"), origins["P"])
        assert renamed.keys() == origins["P"].keys()
        for seq, stored in origins["P"].items():
            assert renamed[seq].subject == stored.subject.replace("P.", "moved.")
            assert renamed[seq][1:] == stored[1:]


async def settled(client: Client, name: str, wanted: dict[str, list[int]]) -> Contents:
    """The messages of all members, once the stream has these of its origins. Messages that the
    origins no longer have may be there, too."""
    found: Contents = {}

    async def there() -> bool:
        nonlocal found
        found = await contents(client, name)
        return all({*seqs} <= {*of(found, origin)} for origin, seqs in wanted.items())

    await until(there, 60)
    found = await alike(client, name)
    for origin in wanted:
        seqs = of(found, origin)
        assert len(seqs) == len({*seqs}), f"{origin} came twice: {seqs}"
    return found


async def trouble(members: Three, client: Client, name: str, how: str) -> None:
    """Server C, which leads the stream, hands over, or is gone for a while."""
    await led_by(client, "STREAM", name, "C")
    if how == "stepdown":
        await asked(client, f"STREAM.LEADER.STEPDOWN.{name}")
    elif how == "freeze":
        os.kill(members.holder.pid, signal.SIGSTOP)
        await asyncio.sleep(6)  # longer than a leader may be silent
        os.kill(members.holder.pid, signal.SIGCONT)
    else:
        await asyncio.to_thread(members.holder.restart, kill=how == "kill")


@pytest.mark.parametrize(("kinds", "ways"), TROUBLES)
@asynchronous
async def test_nothing_is_missing_or_twice_whoever_leads(
    servers: Servers, kinds: str, ways: tuple[str, ...]
) -> None:
    """Leaders of mirrors, of sources and of origins change and are killed while messages flow."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await create(client, "O", 3, subjects=["O.*"])
        await create(client, "P", 3, subjects=["P.*"])
        await create(client, "M", mirror={"name": "P"})
        await create(client, "S", sources=[{"name": "O", "filter_subject": "O.1"}, {"name": "P"}])
        publishers = _, p = Publisher(client, "O"), Publisher(client, "P")
        tasks = [asyncio.create_task(one.go_on()) for one in publishers]
        for how in ways:
            for name in ("M", "S", "P"):
                await trouble(members, client, name, how)
                goal = p.last + 20
                await until(lambda g=goal: p.last >= g, 60)  # type: ignore[misc]
                await came_to(client, "M", goal)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.publish(1) for one in publishers))
        origins = {"O": await alike(client, "O"), "P": await alike(client, "P")}
        assert len(origins["P"]) == p.last
        await came_to(client, "M", p.last)
        assert await alike(client, "M") == origins["P"]
        wanted = {"O": those(origins["O"], "1"), "P": [*origins["P"]]}
        taken = await settled(client, "S", wanted)
        check_source(taken, origins)
        assert {name: of(taken, name) for name in wanted} == wanted


@pytest.mark.parametrize("kinds", mixtures("ppo", soak=["ooo"]))
@asynchronous
async def test_origins_that_are_purged_and_mirrors_that_change(
    servers: Servers, kinds: str
) -> None:
    """Purges of the origin stay out of a mirror; its holes are known to all members; a mirror is
    read by consumers and direct gets, gets other numbers of replicas, and is promoted at last."""
    members = Three(servers, kinds)
    await members.ready()
    async with connected(members.members[0]) as client:
        await create(client, "P", 3, subjects=["P.*"], allow_direct=True)
        publisher = Publisher(client, "P")
        await publisher.publish(30)
        await done(client, "STREAM.PURGE.P", {"filter": "P.2"})
        await create(client, "M", mirror={"name": "P"}, allow_direct=True)
        await led_by(client, "STREAM", "M", "C")
        await has(client, "M", 24)
        before = await alike(client, "M")
        await done(client, "STREAM.PURGE.P")
        await publisher.publish(10)
        await came_to(client, "M", 40)
        mirrored = await alike(client, "M")
        assert {seq: mirrored[seq] for seq in before} == before
        assert {seq for seq in mirrored if seq > 30} == {*range(31, 41)}

        answers = [
            (await client.request("$JS.API.DIRECT.GET.M", b'{"seq":35}', timeout=10)).data
            for _ in range(9)
        ]
        assert {*answers} == {b"35"}
        pull = await client.jetstream(timeout=10).pull_subscribe("", "D", stream="M")
        assert len(await pull.fetch(40, timeout=10)) in range(1, 35)

        for replicas in (1, 3):
            body = {"name": "M", "num_replicas": replicas, "mirror": {"name": "P"}}
            await done(client, "STREAM.UPDATE.M", body | {"allow_direct": True})
            await publisher.publish(10)
            await came_to(client, "M", publisher.last)
        await until(lambda: current(client, "STREAM.INFO.M"), 60)
        assert {seq for seq in await alike(client, "M") if seq > 30} == {*range(31, 61)}
        await done(client, "STREAM.UPDATE.M", {"name": "M", "num_replicas": 3, "subjects": ["M.*"]})
        answer = await client.jetstream(timeout=10).publish("M.new", b"")
        assert answer.seq == 61
        await publisher.publish(5)
        assert max(await alike(client, "M")) == 61


@asynchronous
async def test_origins_that_wait_for_acks_go_on_whoever_leads_the_consumer(
    servers: Servers,
) -> None:
    """What the consumer's former leader has delivered and nobody has confirmed comes once more."""
    members = Three(servers, "ooo")
    await members.ready()
    async with connected(members.members[0]) as client:
        await create(client, "I", 3, subjects=["I.*"], retention="interest")
        await create(client, "W", 1, subjects=["W.*"], retention="workqueue")
        await create(client, "S", sources=[{"name": "I"}])
        await create(client, "M", mirror={"name": "W"})

        async def consumer(name: str) -> str:
            names = (await asked(client, f"CONSUMER.NAMES.{name}")).get("consumers") or [""]
            return str(names[0])

        async def active() -> bool:
            source = (await done(client, "STREAM.INFO.S"))["sources"][0]
            return source["active"] != -1 and bool(await consumer("I"))

        await until(active, 60)
        name = await consumer("I")
        publishers = i, w = Publisher(client, "I"), Publisher(client, "W")
        for leader_name in "ABC":
            await led_by(client, "CONSUMER", f"I.{name}", leader_name)
            await asyncio.gather(*(one.publish(20) for one in publishers))
            await led_by(client, "STREAM", "M", leader_name)
            await came_to(client, "S", i.last)
            await came_to(client, "M", w.last)
        for origin, sink in (("I", "S"), ("W", "M")):
            await has(client, origin, 0)
            taken = [one.bare[2] for one in (await contents(client, sink)).values()]
            assert [int(base64.b64decode(one)) for one in taken] == [*range(1, 61)]
