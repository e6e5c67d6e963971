"""Replicated streams agree whatever is sent, whoever leads and whoever is killed: random requests
to streams of all kinds in clusters of ours and of nats-servers, and then each member's store.

`STORM_SECONDS` (4) is how long requests are sent; `STORM_SEED` and `STORM_KINDS` choose a run.
Beside nats-servers ours alone is killed: what a nats-server that was killed replays of its log is
not always what it had applied.
"""

import asyncio
import contextlib
import errno
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.client.mesh import ACCOUNTS, clients_of
from tests.client.proxy import Proxy
from tests.client.storm import KEPT, KINDS, Storm, held, states
from tests.client.test_replicated import Three
from tests.fault.faulty import Faults
from tests.seeds import seed_of
from tests.servers import Servers, free_port

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(7200)]

SECONDS = float(os.environ.get("STORM_SECONDS", "4"))
MIXTURES = os.environ.get("STORM_KINDS", "ppo ooo").split()
Harm = Callable[[Storm], Awaitable[None]]


class Linked(Three):
    """Three servers of ours, with a link between each two that can be broken."""

    def __init__(self, servers: Servers) -> None:
        self.servers, self.name = servers, "C"
        self.members = []
        self.ports = [free_port() for _ in range(3)]
        self.links = [Proxy(self.ports[other]) for _, other in ((0, 1), (0, 2), (1, 2))]

    def begin(self) -> None:
        """Starts the servers once the links listen; they know each other only by the links."""
        one, other, third = (link.port for link in self.links)
        for port, routes in zip(list(self.ports), ([one, other], [third], []), strict=True):
            block = 'advertise: "127.0.0.1:1"'
            self.add(
                "o",
                rest=ACCOUNTS,
                routes=routes,
                port=port,
                block=block,
                jetstream=True,
                monitor=True,
            )


class Faulty(Three):
    """Three servers of ours; the last one's disk may fail."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.faults = Faults(folder, "/jetstream/")
        super().__init__(servers, "ooo", env=self.faults.env)

    async def fill(self, made: Storm, seconds: float) -> None:
        """Makes writes or syncs of the disk fail for so many seconds."""
        op, error = made.random.choice([("pwrite", errno.ENOSPC), ("sync", errno.EIO)])
        made.done.append(f"{op} fails")
        self.faults.fail(op, error, times=1 << 30)
        await asyncio.sleep(seconds)  # the other members go on meanwhile
        self.faults.mend()


def differences(found: Sequence[Sequence[Any]]) -> list[str]:
    """Lines that not all members' lists have."""
    common = set.intersection(*(set(one) for one in found))
    told = []
    for number, one in enumerate(found):
        told += [f"member {number}: {line}" for line in one if line not in common]
    return told[:40]


async def storm(members: Three, seed: int, harm: Harm) -> None:
    await members.ready()
    async with clients_of(members.members) as clients:
        made = Storm(members.members, clients, seed)
        await made.create()
        await made.play(SECONDS, lambda: harm(made))
        await made.settled()
        found = [states(member) for member in members.members]
    told = []
    for name in KINDS:
        seen = [one.get(name) for one in found]
        if any(one != seen[0] for one in seen):
            told.append(f"{name}: {seen}")
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in members.members))
    for name in KINDS:
        if KINDS[name][0].get("storage") != "memory":
            stores = [held(one, name) for one in members.members]
            told += [f"{name}: {line}" for line in differences(stores)]
            told += lost(made, stores[0]) if name == KEPT else []
    assert not told, f"seed {seed}: {made.done}\n" + "\n".join(told)


def lost(made: Storm, found: list[tuple[Any, ...]]) -> list[str]:
    """Acked messages that are missing, or there twice."""
    seqs: dict[str, list[int]] = {}
    for seq, _, _, headers, *_ in found:
        seqs.setdefault(json.loads(headers)["Nats-Msg-Id"][0], []).append(seq)
    pairs = [(key, [seq], seqs.get(key)) for key, seq in made.kept.items()]
    return [f"{key}: acked as {acked}, is {now}" for key, acked, now in pairs if acked != now]


@pytest.mark.parametrize("kinds", MIXTURES)
def test_members_agree(servers: Servers, kinds: str) -> None:
    """While leaders step down, and members are killed."""
    members = Three(servers, kinds)
    victims = [one for one, kind in zip(members.members, kinds, strict=True) if kind == "o"]

    async def harm(made: Storm) -> None:
        if made.random.random() < 0.6:
            await made.step_down()
        else:
            await made.kill(victims, made.random.uniform(0, 2))

    asyncio.run(asyncio.wait_for(storm(members, seed_of("STORM_SEED"), harm), SECONDS + 600))


def test_members_that_stand_still_and_links_that_break(servers: Servers) -> None:
    """No acked message is lost, and none is there twice."""

    async def play() -> None:
        members = Linked(servers)
        async with contextlib.AsyncExitStack() as stack:
            for link in members.links:
                await stack.enter_async_context(link.listening())
            await asyncio.to_thread(members.begin)

            async def harm(made: Storm) -> None:
                pick, seconds = made.random.random(), made.random.uniform(0.5, 3)
                if pick < 0.2:
                    await made.step_down()
                elif pick < 0.5:
                    await made.pause(members.members, seconds)
                elif pick < 0.8:
                    await made.part(members.links, seconds)
                else:
                    await made.kill(members.members, seconds)

            await storm(members, seed_of("STORM_SEED"), harm)

    asyncio.run(asyncio.wait_for(play(), SECONDS + 600))


def test_a_disk_that_fails(servers: Servers, tmp_path: Path) -> None:
    """On one member: no acked message is lost, and all members are equal in the end."""
    members = Faulty(servers, tmp_path)

    async def harm(made: Storm) -> None:
        pick, seconds = made.random.random(), made.random.uniform(0.2, 2)
        if pick < 0.4:
            await made.step_down()
        elif pick < 0.8:
            await members.fill(made, seconds)
        else:
            await made.kill(members.members, seconds)

    asyncio.run(asyncio.wait_for(storm(members, seed_of("STORM_SEED"), harm), SECONDS + 600))
