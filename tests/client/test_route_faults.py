"""Routes under random interest, over connections that break, and to servers that take nothing."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from nats.aio.client import Client

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import Cluster, clients, meet, page
from tests.seeds import seed_of
from tests.servers import Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

STEPS = 200
CHECK_EVERY = 20
SUBJECTS = ("a", "a.b", "a.*", "*.b", "a.>", ">", "c.d.e")
PUBLISHED = ("a", "a.b", "a.c", "c.b", "c.d.e", "none.at.all.x")
QUEUES = ("", "", "q", "r")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to the pattern gets messages on the subject."""
    wanted, found = pattern.split("."), subject.split(".")
    for at, token in enumerate(wanted):
        if token == ">":
            return len(found) > at
        if at >= len(found) or token not in ("*", found[at]):
            return False
    return len(wanted) == len(found)


class Sub:
    """A subscription of a member's client, and what it got."""

    def __init__(self, member: int, subject: str, queue: str) -> None:
        self.member, self.subject, self.queue = member, subject, queue
        self.got: list[bytes] = []
        self.subscription: Any = None

    async def take(self, message: Any) -> None:
        if not message.subject.startswith(("probe.", "_INBOX.")):
            self.got.append(message.data)


class World:
    """Subscriptions at all members, and what they must get."""

    def __init__(self, members: list[Client]) -> None:
        self.members = members
        self.subs: list[Sub] = []
        self.published = 0

    async def step(self, random: Random) -> None:
        """One subscription more or less."""
        if self.subs and random.random() < 0.45:
            gone = self.subs.pop(random.randrange(len(self.subs)))
            await gone.subscription.unsubscribe()
        else:
            member = random.randrange(len(self.members))
            sub = Sub(member, random.choice(SUBJECTS), random.choice(QUEUES))
            client = self.members[member]
            sub.subscription = await client.subscribe(sub.subject, sub.queue, cb=sub.take)
            self.subs.append(sub)

    async def check(self) -> None:
        """A message on each subject from each member reaches every plain subscription once, and
        one member of each queue group."""
        for client in self.members:
            await client.flush()
        await meet(self.members)
        for sub in self.subs:
            sub.got.clear()
        sent: dict[bytes, str] = {}
        for client in self.members:
            for subject in PUBLISHED:
                self.published += 1
                data = b"%d" % self.published
                sent[data] = subject
                await client.publish(subject, data)
            await client.flush()
        plain = [sub for sub in self.subs if not sub.queue]
        queues = {sub.queue for sub in self.subs if sub.queue}

        def expected(*patterns: str) -> list[bytes]:
            return sorted(d for d, subj in sent.items() if any(matches(p, subj) for p in patterns))

        # A queue group is one of its name, whatever its members subscribe to.
        groups = {queue: [s for s in self.subs if s.queue == queue] for queue in queues}
        of_groups = {queue: expected(*(s.subject for s in of)) for queue, of in groups.items()}
        wanted = sum(len(expected(sub.subject)) for sub in plain)
        wanted += sum(map(len, of_groups.values()))
        await until(lambda: sum(len(sub.got) for sub in self.subs) >= wanted)
        await meet(self.members)  # whatever was sent twice has come by now
        for sub in plain:
            assert sorted(sub.got) == expected(sub.subject), (sub.member, sub.subject)
        for queue, of in groups.items():
            assert sorted(data for sub in of for data in sub.got) == of_groups[queue], queue


@pytest.mark.parametrize("kinds", ["opo", "pop", "ooo"])
@asynchronous
async def test_random_interest(servers: Servers, kinds: str) -> None:
    cluster = Cluster(servers)
    cluster.start(kinds)
    random = Random(f"{kinds}{seed_of('ROUTES_SEED')}")
    async with clients(cluster) as members:
        world = World(members)
        for step in range(1, STEPS + 1):
            await world.step(random)
            if step % CHECK_EVERY == 0:
                await world.check()


class Proxy:
    """Passes connections on to a port, until it cuts or holds them."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._writers: list[asyncio.StreamWriter] = []
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.release()
            self.cut()

    def cut(self) -> None:
        """Resets all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def hold(self) -> None:
        """Takes nothing more from connections that are open."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, out = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, out]
        await asyncio.gather(self._pass(reader, out, held=True), self._pass(there, writer))

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, held: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if held:
                    await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.transport.abort()


@pytest.mark.parametrize("kinds", ["po", "op", "oo"])
@asynchronous
async def test_links_that_are_cut_come_back(servers: Servers, kinds: str) -> None:
    """After each cut interest is what it was, and what went while it lasted is gone afterwards."""
    cluster = Cluster(servers)
    port = free_port()
    cluster.add(kinds[0], port=port, routes=[], block='advertise: "127.0.0.1:1"')
    async with Proxy(port).listening() as proxy:
        cluster.add(kinds[1], routes=[proxy.port])
        async with clients(cluster) as members:
            world = World(members)
            random = Random(f"{kinds}{seed_of('ROUTES_SEED')}")
            for _ in range(4):
                for _ in range(10):
                    await world.step(random)
                proxy.cut()
                for _ in range(3):
                    await world.step(random)
                await world.check()


@asynchronous
async def test_a_server_that_takes_nothing_is_cut(servers: Servers) -> None:
    """At most max_pending waits for it, and nobody waits longer than that takes."""
    cluster = Cluster(servers)
    port = free_port()
    cluster.add("p", port=port, routes=[], block='advertise: "127.0.0.1:1"')
    async with Proxy(port).listening() as proxy:
        limit = "max_pending: 2000000\nmax_payload: 100000"
        cluster.add("o", routes=[proxy.port], rest=limit, monitor=True)
        ours = cluster.members[1]
        async with clients(cluster) as members:
            got: Counter[bytes] = Counter()

            async def take(message: Any) -> None:
                got[bytes(message.data[:1])] += 1

            await members[0].subscribe("much", cb=take)
            await meet(members)
            proxy.hold()
            async with connected(ours) as near:
                await near.subscribe("much.near", cb=take)
                for _ in range(400):
                    await members[1].publish("much", b"x" * 90_000)
                await members[1].publish("much.near", b"y")
                await members[1].flush(60)
                await until(lambda: got[b"y"] == 1)
            await until(lambda: page(ours, "varz")["slow_consumer_stats"]["routes"] > 0)
            assert "Slow Consumer Detected: MaxPending of 2000000 Exceeded" in ours.log()
            assert page(ours, "varz")["slow_consumer_stats"]["clients"] == 0
            proxy.release()
            proxy.cut()
            await meet(members, 40)
            await members[1].publish("much", b"z")
            await until(lambda: got[b"z"] == 1)
