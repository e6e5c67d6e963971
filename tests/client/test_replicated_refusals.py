"""A stream's leader refuses publishes only while it still leads, beside nats-servers."""

import asyncio
import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer

from tests.client.aio import connected, until
from tests.client.mesh import Cluster, mixtures
from tests.client.test_held_diff import done
from tests.client.test_replicated import led_by
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

CONFIG = {"name": "S", "subjects": ["s"], "num_replicas": 3}


async def published(client: Client, expected: int, timeout: float = 2) -> dict[str, Any]:
    """The answer to a publish that is to follow this sequence."""
    headers = {"Nats-Expected-Last-Sequence": str(expected)}
    answer: dict[str, Any] = json.loads(
        (await client.request("s", b"x", timeout=timeout, headers=headers)).data
    )
    return answer


async def led_by_first(servers: Servers, kinds: str) -> Cluster:
    """A cluster with a stream that the first server leads, with three messages."""
    cluster = Cluster(servers)
    cluster.start_all(kinds)
    await cluster.ready()
    async with connected(cluster.members[0]) as client:
        await done(client, "STREAM.CREATE.S", CONFIG)
        await led_by(client, "STREAM", "S", "A")
        for number in range(3):
            assert (await published(client, number))["seq"] == number + 1
    return cluster


async def stopped(members: list[Server]) -> None:
    """Stops servers, and waits until they stand still."""
    for member in members:
        os.kill(member.pid, signal.SIGSTOP)

    def still() -> bool:
        tasks = [task for one in members for task in Path(f"/proc/{one.pid}/task").iterdir()]
        stats = [(task / "stat").read_text().rpartition(")")[2].split() for task in tasks]
        return all(stat[0] == "T" for stat in stats)

    await until(still)


def resumed(members: list[Server]) -> None:
    for member in members:
        os.kill(member.pid, signal.SIGCONT)


@pytest.mark.parametrize("kinds", mixtures("opp", soak=("ooo", "onn")))
def test_a_leader_that_was_replaced_refuses_nothing(servers: Servers, kinds: str) -> None:
    asyncio.run(replaced(servers, kinds))


async def replaced(servers: Servers, kinds: str) -> None:
    """The leader stands still while another one takes over and stores a message. A publish that has
    waited in the former leader's socket follows that message."""
    cluster = await led_by_first(servers, kinds)
    first, *others = cluster.members
    async with connected(first) as near, connected(others[0]) as far:
        began = time.monotonic()
        assert (await published(near, 9))["error"]["description"] == "wrong last sequence: 3"
        assert time.monotonic() - began < 1
        await stopped([first])
        try:

            async def goes_on() -> bool:
                with contextlib.suppress(NoAnswer, NoRespondersError):
                    answer = await published(far, 3, 1)
                    return answer.get("seq") == 4 or "wrong last sequence: 4" in str(answer)
                return False

            await until(goes_on, 30)
            late = asyncio.create_task(published(near, 4, 5))
            await asyncio.sleep(0.2)  # it is in the socket
        finally:
            resumed([first])
        with contextlib.suppress(NoAnswer):  # nobody took it
            assert (await late).get("seq") == 5

        async def taken() -> bool:
            with contextlib.suppress(NoAnswer, NoRespondersError):
                answer = await published(near, 4, 1)
                return answer.get("seq") == 5 or "wrong last sequence: 5" in str(answer)
            return False

        await until(taken, 15)


@pytest.mark.parametrize("kinds", mixtures("opp"))
def test_a_leader_alone_refuses_nothing(servers: Servers, kinds: str) -> None:
    asyncio.run(alone(servers, kinds))


async def alone(servers: Servers, kinds: str) -> None:
    """Without a quorum nobody knows whether there is another leader."""
    cluster = await led_by_first(servers, kinds)
    first, *others = cluster.members
    async with connected(first) as client:
        await stopped(others)
        try:
            with pytest.raises(NoAnswer):
                await published(client, 9, 1)
        finally:
            resumed(others)

        async def refused() -> bool:
            with contextlib.suppress(NoAnswer, NoRespondersError):
                answer = await published(client, 9, 1)
                return bool(answer["error"]["description"] == "wrong last sequence: 3")
            return False

        await until(refused, 30)
