"""Clusters for tests: our servers, nats-servers, or a mixture of them."""

import asyncio
import contextlib
import itertools
import json
import urllib.request
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import api, connected, until
from tests.peer import NEWER_VERSION, find_peer
from tests.servers import Server, Servers, free_port

NAMES = "ABCDEF"
REPLICAS_MAX = 5
MIXED = ("oop", "opo", "poo", "opp", "pop", "ppo", "ooo")
"""Kinds of three members in the order of their start: o is ours, p a nats-server; where n stands,
it is a nats-server of the newest release."""
NEWEST = pytest.mark.skipif(
    find_peer(NEWER_VERSION) is None, reason=f"no nats-server {NEWER_VERSION}: `make peer`"
)
"""Of a test with a kind `n`."""


def mixtures(*often: str, soak: Iterable[str] = ()) -> list[ParameterSet]:
    """Kinds of members as parameters of a test. Those of `soak`, which repeat what the others tell
    with more nats-servers or fewer, run in `make soak` alone."""
    found = []
    for kinds in dict.fromkeys((*often, *soak)):
        marks = [NEWEST] if "n" in kinds else []
        marks += [pytest.mark.soak] if kinds not in often else []
        found.append(pytest.param(kinds, marks=marks))
    return found


ACCOUNTS = """
    accounts {
        SYS { users: [{ user: sys, password: sys }] }
        ONE { jetstream: enabled, users: [{ user: one, password: x }] }
    }
    system_account: SYS
    no_auth_user: one
"""
"""An account with JetStream, and the system account."""


class Cluster:
    """Servers of a cluster. Each dials the first one, and hears of the others from it."""

    def __init__(self, servers: Servers, name: str = "C") -> None:
        self.servers = servers
        self.name = name
        self.members: list[Server] = []
        self.ports: list[int] = []

    def start(self, kinds: str, *, block: str = "", rest: str = "", **options: Any) -> None:
        """Starts members of these kinds. `block`: more for `cluster`; `rest`: more beside it."""
        for kind in kinds:
            self.add(kind, block=block, rest=rest, **options)

    def start_all(self, kinds: str, rests: Iterable[str] = itertools.repeat(ACCOUNTS)) -> None:
        """Starts members with JetStream that dial each other. `rests`: each one's `rest`."""
        ports = [free_port() for _ in kinds]
        for kind, rest, port in zip(kinds, rests, ports, strict=False):
            self.add(kind, rest=rest, routes=ports, port=port, jetstream=True, monitor=True)

    async def whole(self) -> None:
        """Waits until all members know the meta leader, and how many they are."""

        def known() -> bool:
            found = [page(one, "jsz").get("meta_cluster", {}) for one in self.members]
            size = len(self.members)
            return all(one.get("leader") and one.get("cluster_size") == size for one in found)

        await until(known, 60)

    async def ready(self) -> None:
        """Waits until streams can be placed on all members."""
        await self.whole()
        async with connected(self.members[0]) as client:
            await placeable(client, len(self.members))

    def add(
        self,
        kind: str,
        *,
        block: str = "",
        rest: str = "",
        routes: list[int] | None = None,
        port: int | None = None,
        name: str | None = None,
        server: str = "",
        **options: Any,
    ) -> Server:
        """Starts another member. `routes`: the ports to dial, by default the first member's;
        `port`: its own; `name`: another cluster name; `server`: the server's name."""
        own = port or free_port()
        dialled = self.ports[:1] if routes is None else routes
        urls = ", ".join(f'"nats://127.0.0.1:{other}"' for other in dialled)
        called = self.name if name is None else name
        config = f"""
            server_name: {server or NAMES[len(self.members)]}
            {rest}
            cluster {{
                {f"name: {called}" if called else ""}
                listen: "127.0.0.1:{own}"
                routes: [{urls}]
                {block}
            }}
        """
        self.members.append(self.servers.of_kind(kind, config=config, **options))
        self.ports.append(own)
        return self.members[-1]


async def placeable(client: Client, count: int, **config: Any) -> None:
    """Waits until the meta leader places streams, with more of a configuration, on so many members.
    A nats-server takes a member for offline until it has the member's statistics, also after a
    restart of either."""
    replicas = min(count, REPLICAS_MAX)
    probe = {"name": "PROBE", "subjects": ["PROBE"], "num_replicas": replicas, **config}

    async def done(request: str, body: object = None) -> bool:
        try:
            return "error" not in await api(client, f"STREAM.{request}.PROBE", body, 10)
        except (NoRespondersError, NoAnswer):
            return False

    await until(lambda: done("CREATE", probe), 60)
    await done("DELETE")


@contextlib.asynccontextmanager
async def clients(cluster: Cluster, **options: Any) -> AsyncIterator[list[Client]]:
    """A client for each member, once all servers know all clients' subscriptions."""
    async with clients_of(cluster.members, **options) as found:
        yield found


@contextlib.asynccontextmanager
async def clients_of(members: list[Server], **options: Any) -> AsyncIterator[list[Client]]:
    """The same for these servers."""
    async with contextlib.AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(connected(member, **options)) for member in members
        ]
        await meet(found)
        yield found


_probes = itertools.count(1)


async def meet(found: list[Client], seconds: float = 20.0) -> None:
    """Waits until each client's server knows the subscriptions of each other client, also the
    earlier ones, which servers announce first."""
    probe = f"probe.{next(_probes)}"
    subscriptions = []
    for number, client in enumerate(found):

        async def answer(message: Any) -> None:
            await message.respond(b"")

        subscriptions.append(await client.subscribe(f"{probe}.{number}", cb=answer))
        await client.flush()

    async def heard(client: Client, number: int) -> bool:
        try:
            await client.request(f"{probe}.{number}", b"", timeout=1)
        except (NoRespondersError, NoAnswer):
            await asyncio.sleep(0.02)  # before the next request
            return False
        return True

    for client, number in itertools.product(found, range(len(found))):
        await until(lambda c=client, n=number: heard(c, n), seconds)  # type: ignore[misc]
    for subscription in subscriptions:
        await subscription.unsubscribe()


def page(server: Server, path: str) -> dict[str, Any]:
    """A monitoring page as JSON."""
    with urllib.request.urlopen(f"{server.monitor_url}/{path}", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def streams_of(server: Server, more: str = "") -> list[dict[str, Any]]:
    """What a server shows of the streams that it holds, of all accounts. `more`: of the query."""
    accounts = page(server, f"jsz?accounts=1&streams=1{more}").get("account_details") or []
    return [stream for one in accounts for stream in one.get("stream_detail") or []]


class Heard:
    """Messages by subscription, in the order of their arrival."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Any]] = {}

    async def listen(self, client: Client, key: str, subject: str, queue: str = "") -> None:
        messages = self.messages[key] = []

        async def take(message: Any) -> None:
            messages.append(message)

        await client.subscribe(subject, queue, cb=take)

    def counts(self, start: str) -> list[int]:
        return [len(found) for key, found in self.messages.items() if key.startswith(start)]
