"""A storm over servers that are stopped, wiped, removed and cut off, while their streams get other
members: more, fewer, and those with other tags."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.errors import Error

from tests.client.aio import connected, until
from tests.client.mesh import ACCOUNTS, NAMES, Cluster
from tests.client.proxy import Proxy
from tests.client.storm import KINDS, Lost, Storm
from tests.fault.faulty import Faults
from tests.servers import Server, Servers, free_port

ALL = "all"
"""A tag that all servers have."""
TAGS = {3: ("x", "y", "z"), 5: ("x", "xy", "xyz", "yz", "z")}
"""By the number of servers: the other tags of each server, one letter a tag."""
HEALTHY_SECONDS = 90.0


class Linked(Cluster):
    """Servers with a link between each two that can be broken: they know each other only by the
    links. The disk of the last one may fail, where that is a server of ours."""

    def __init__(self, servers: Servers, kinds: str, folder: Path) -> None:
        super().__init__(servers)
        self.kinds = kinds
        self.faults = Faults(folder, "/jetstream/") if kinds.endswith("o") else None
        ports = [free_port() for _ in kinds]
        self.own_ports = ports
        self.links = {
            (one, other): Proxy(ports[other])
            for one in range(len(kinds))
            for other in range(one + 1, len(kinds))
        }

    @property
    def ours(self) -> list[Server]:
        return [one for one, kind in zip(self.members, self.kinds, strict=True) if kind == "o"]

    @contextlib.asynccontextmanager
    async def listening(self) -> Any:
        """Starts the servers once the links listen."""
        async with contextlib.AsyncExitStack() as stack:
            for link in self.links.values():
                await stack.enter_async_context(link.listening())
            await asyncio.to_thread(self._begin)
            await self.whole()
            yield

    def _begin(self) -> None:
        for number, kind in enumerate(self.kinds):
            letters = TAGS[len(self.kinds)][number]
            last = number == len(self.kinds) - 1
            self.add(
                kind,
                rest=f"{ACCOUNTS}\nserver_tags: {json.dumps([ALL, *letters])}",
                # A nats-server wants a route: the last one dials itself, which it notices.
                routes=[link.port for (one, _), link in self.links.items() if one == number]
                or [self.own_ports[number]],
                port=self.own_ports[number],
                block='advertise: "127.0.0.1:1"',
                jetstream=True,
                monitor=True,
                env=self.faults.env if last and self.faults else None,
            )

    def able(self, tag: str) -> int:
        """How many servers have a tag."""
        return sum(tag == ALL or tag in letters for letters in TAGS[len(self.kinds)])


class Reshaping(Storm):
    """Consumers have the replicas of their streams. What the members of each stream are in the
    end is what its configuration says then."""

    def __init__(self, cluster: Linked, clients: list[Client], seed: int) -> None:
        super().__init__(cluster.members, clients, seed)
        self.cluster = cluster
        self.shapes = dict.fromkeys(KINDS, (3, ALL))
        """Each stream's replicas and tag, as they were when last asked for."""
        self.harms: list[Callable[[], Awaitable[None]]] = [
            self.step_down,
            self.meta_step_down,
            self.reshape,
            self.reshape,
            self.reshape,
            self.remove_replica,
            self.stop,
            lambda: self.kill(cluster.ours, self.random.uniform(0, 3)),
            lambda: self.pause(self.members, self.random.uniform(0.5, 12)),
            self.part_some,
            self.cut_off,
            self.wipe,
            self.remove_server,
        ]
        if cluster.faults:
            self.harms.append(self.fill)

    async def harm(self) -> None:
        await self.random.choice(self.harms)()

    def config(self, name: str) -> dict[str, Any]:
        replicas, tag = self.shapes[name]
        more = {"num_replicas": replicas, "placement": {"tags": [tag]}}
        return super().config(name) | more

    def replicas(self, name: str) -> int:
        return self.shapes[name][0]

    async def update(self, name: str) -> None:
        """No limits: they apply at once, and a member that is away would not hear of each."""
        body = self.config(name) | {"description": f"change {next(self.numbers)}"}
        await self.api(f"STREAM.UPDATE.{name}", body)

    async def replace_consumer(self, name: str) -> None:
        """Not beside nats-servers: each of them sees for itself who wants a message, by what it has
        heard of consumers then."""
        if set(self.cluster.kinds) == {"o"}:
            await super().replace_consumer(name)

    async def learn(self, name: str) -> None:
        """Asks for a stream's shape; Lost."""
        config = (await self.api(f"STREAM.INFO.{name}")).get("config")
        if config is None:
            raise Lost
        self.shapes[name] = config["num_replicas"], config["placement"]["tags"][0]

    # ---- streams

    async def reshape(self) -> None:
        """A stream gets another number of replicas, or those with another tag."""
        name = self.random.choice(list(KINDS))
        with contextlib.suppress(Lost):
            await self.learn(name)
            replicas, tag = self.shapes[name]
            tags = [one for one in ("x", "y", "z", ALL) if self.cluster.able(one) >= replicas]
            counts = [one for one in (1, 3, 5) if self.cluster.able(tag) >= one]
            if self.random.random() < 0.5:
                tag = self.random.choice(tags)
            else:
                replicas = self.random.choice(counts)
            more = {"num_replicas": replicas, "placement": {"tags": [tag]}}
            self.done.append(f"{name} to {replicas} of {tag}")
            answer = await self.api(f"STREAM.UPDATE.{name}", self.config(name) | more)
            if "error" in answer:
                self.done.append(answer["error"]["description"])
            await self.learn(name)

    async def remove_replica(self) -> None:
        """Another server takes the place of a stream's replica."""
        name = self.random.choice(list(KINDS))
        with contextlib.suppress(Lost):
            cluster = (await self.api(f"STREAM.INFO.{name}")).get("cluster") or {}
            others = [one["name"] for one in cluster.get("replicas", [])]
            replicas, tag = self.shapes[name]
            if not await self._is(f"STREAM.INFO.{name}") or self.cluster.able(tag) <= replicas:
                return
            if len(others) == replicas - 1 > 1:
                gone = self.random.choice([*others, cluster["leader"]])
                self.done.append(f"{name} without {gone}")
                await self.api(f"STREAM.PEER.REMOVE.{name}", {"peer": gone})

    # ---- servers

    async def ask_system(self, subject: str, body: object = None) -> dict[str, Any]:
        """The answer to a request of the system account; Lost."""
        data = b"" if body is None else json.dumps(body).encode()
        for member in self.random.sample(self.members, len(self.members)):
            with contextlib.suppress(Error, OSError, TimeoutError):
                async with connected(
                    member, user="sys", password="sys", connect_timeout=2, max_reconnect_attempts=1
                ) as system:
                    answer = await system.request(f"$JS.API.{subject}", data, timeout=5)
                    found: dict[str, Any] = json.loads(answer.data)
                    return found
        raise Lost

    async def meta_step_down(self) -> None:
        self.done.append("meta leader")
        with contextlib.suppress(Lost):
            await self.ask_system("META.LEADER.STEPDOWN")

    async def stop(self) -> None:
        """Stops a server with SIGTERM, and starts it again at once."""
        member = self.random.choice(self.members)
        self.done.append(f"stop {self._name(member)}")
        await asyncio.to_thread(member.stop)
        await asyncio.to_thread(member.start)

    async def part_some(self) -> None:
        await self.part(list(self.cluster.links.values()), self.random.uniform(0.5, 6))

    async def cut_off(self) -> None:
        """A server loses all its links."""
        number = self.random.randrange(len(self.members))
        self.done.append(f"cut off {NAMES[number]}")
        links = [link for pair, link in self.cluster.links.items() if number in pair]
        for link in links:
            link.shut()
        await asyncio.sleep(self.random.uniform(1, 15))  # the other members go on meanwhile
        for link in links:
            link.reopen()

    async def fill(self) -> None:
        """The last server's disk refuses writes or syncs for a while."""
        assert self.cluster.faults
        op, error = self.random.choice([("pwrite", errno.ENOSPC), ("sync", errno.EIO)])
        self.done.append(f"{op} fails")
        self.cluster.faults.fail(op, error, times=1 << 30)
        await asyncio.sleep(self.random.uniform(0.2, 4))  # the other members go on meanwhile
        self.cluster.faults.mend()

    async def wipe(self) -> None:
        """Kills a server and starts it on an empty directory, as an operator may do with one server
        at a time where each stream has replicas: not before all members are current, and nothing
        else happens before the server has all of them again."""
        await self._whole_streams()
        member = self.random.choice(self.cluster.ours)
        self.done.append(f"wipe {self._name(member)}")
        await asyncio.to_thread(member.kill)
        shutil.rmtree(member.store)
        await asyncio.to_thread(member.start)
        await self._until_healthy(member)

    async def remove_server(self) -> None:
        """Removes a server that is down from the meta group; then it starts again and joins."""
        await self._whole_streams()
        member = self.random.choice(self.cluster.ours)
        name = self._name(member)
        self.done.append(f"remove {name}")
        await asyncio.to_thread(member.kill)
        for _ in range(20):
            with contextlib.suppress(Lost):
                answer = await self.ask_system("SERVER.REMOVE", {"peer": name})
                if answer.get("success") or answer.get("error", {}).get("err_code") == 10044:
                    break
            await asyncio.sleep(0.5)  # until a meta leader answers
        await asyncio.sleep(self.random.uniform(0, 5))  # streams get other members meanwhile
        await asyncio.to_thread(member.start)
        await self._until_healthy(member)

    def _name(self, member: Server) -> str:
        return NAMES[self.members.index(member)]

    async def _whole_streams(self) -> None:
        """Waits until no stream has one replica only, and all members are current."""
        for name in KINDS:

            async def whole(name: str = name) -> bool:
                with contextlib.suppress(Lost):
                    await self.learn(name)
                    if self.replicas(name) == 1:
                        more = {"num_replicas": 3, "placement": {"tags": [ALL]}}
                        if self.shapes[name][1] != ALL:
                            more = {"placement": more["placement"]}
                        await self.api(f"STREAM.UPDATE.{name}", self.config(name) | more)
                    return self.replicas(name) > 1
                return False

            await until(whole, HEALTHY_SECONDS)
        await self.settled(HEALTHY_SECONDS)

    async def _until_healthy(self, member: Server) -> None:
        said = ""

        def healthy() -> bool:
            nonlocal said
            try:
                with urllib.request.urlopen(f"{member.monitor_url}/healthz", timeout=10) as answer:
                    return bool(answer.status == 200)
            except urllib.error.HTTPError as error:
                said = error.read().decode()
                return False

        async def is_healthy() -> bool:
            await asyncio.sleep(0.1)  # between two checks
            return await asyncio.to_thread(healthy)

        try:
            await until(is_healthy, HEALTHY_SECONDS)
        except AssertionError as error:
            name = self._name(member)
            raise AssertionError(f"{name}: {said}; {self.done}\n{member.log()}") from error

    async def end(self) -> None:
        """Lets what stands still go on, and learns the streams' last shapes."""
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGCONT)
        for name in KINDS:

            async def learnt(name: str = name) -> bool:
                with contextlib.suppress(Lost):
                    await self.learn(name)
                    return True
                return False

            await until(learnt, HEALTHY_SECONDS)
