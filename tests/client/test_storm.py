"""Replicated streams agree whatever is sent, whoever leads, whatever happens to servers and links:
random requests to streams of all kinds in clusters of ours and of nats-servers, and then each
member's store.

`STORM_SECONDS` (4) is how long requests are sent; `STORM_SEED`, `STORM_KINDS` and
`STORM_RESHAPED_KINDS` choose a run. Beside nats-servers ours alone is killed: what a nats-server
that was killed replays of its log is not always what it had applied.
"""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.client.mesh import clients_of
from tests.client.reshaped import Linked, Reshaping
from tests.client.storm import KEPT, KINDS, Storm, differences, held, lost, states
from tests.client.test_replicated import Three
from tests.fault.faulty import Faults
from tests.seeds import seed_of
from tests.servers import Servers

pytestmark = [pytest.mark.usefixtures("peer_present"), pytest.mark.timeout(7200)]

SECONDS = float(os.environ.get("STORM_SECONDS", "4"))
MIXTURES = os.environ.get("STORM_KINDS", "ppo ooo").split()
RESHAPED = os.environ.get("STORM_RESHAPED_KINDS", "ooo").split()
Harm = Callable[[Storm], Awaitable[None]]


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


async def agreed(made: Storm, kinds: str) -> None:
    """Stops the members once they are current, and compares them with each other and with what
    clients saw."""
    await made.settled()
    found = [await asyncio.to_thread(states, member) for member in made.members]
    told = [one for one in made.wrong if set(kinds) == {"o"} or not one.startswith("floor 0 ")]
    for name in KINDS:
        seen = [one[name] for one in found if name in one]
        if len(seen) != made.replicas(name) or any(one != seen[0] for one in seen):
            told.append(f"{name}: {[one.get(name) for one in found]}")
    holders = {name: [n for n, one in enumerate(found) if name in one] for name in KINDS}
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in made.members))
    for name in KINDS:
        if KINDS[name][0].get("storage") != "memory" and holders[name]:
            stores = [held(made.members[number], name) for number in holders[name]]
            told += [f"{name}: {line}" for line in differences(stores)]
            told += lost(made, stores[0]) if name == KEPT else []
    assert not told, f"seed {made.seed}: {made.done}\n" + "\n".join(told)


async def storm(members: Three, kinds: str, harm: Harm) -> None:
    await members.ready()
    async with clients_of(members.members) as clients:
        made = Storm(members.members, clients, seed_of("STORM_SEED"))
        await made.create()
        await made.play(SECONDS, lambda: harm(made))
        await agreed(made, kinds)


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

    asyncio.run(asyncio.wait_for(storm(members, kinds, harm), SECONDS + 600))


@pytest.mark.parametrize("kinds", RESHAPED)
def test_members_that_come_and_go(servers: Servers, tmp_path: Path, kinds: str) -> None:
    """While streams get more members, fewer and other ones, and servers are killed, stopped, held
    up, cut off, wiped and removed: no acked message is lost, and none is there twice."""

    async def play() -> None:
        members = Linked(servers, kinds, tmp_path)
        async with members.listening(), clients_of(members.members) as clients:
            made = Reshaping(members, clients, seed_of("STORM_SEED"))
            await made.create()
            await made.play(SECONDS, made.harm)
            await made.end()
            await agreed(made, kinds)

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

    asyncio.run(asyncio.wait_for(storm(members, "ooo", harm), SECONDS + 600))
