"""Members of groups that stop as their disk fails: they are opened anew, and do nothing alone."""

import asyncio
import errno
import json
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error

from tests.client.aio import connected, until
from tests.client.test_held_diff import done, stream
from tests.client.test_replicated import THREE, Three, current
from tests.fault.faulty import Faults
from tests.servers import Servers

STREAMS = [f"S{number}" for number in range(12)]
FULL = 5.0
"""Seconds for which there is no room: a member is opened several times meanwhile."""
WELL = 30.0


class Full(Three):
    """Three of ours, of which the last one has a disk that may have no room."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.faults = Faults(folder, "/jetstream/")
        super().__init__(servers, "ooo", env=self.faults.env)

    def fill(self) -> None:
        self.faults.fail("pwrite", errno.ENOSPC, times=1 << 30)


async def lacking(client: Client, subjects: list[str], left: list[str]) -> bool:
    """Whether all members of these assets have all; `left`: those of which not all have."""
    left[:] = [subject for subject in subjects if not await current(client, subject)]
    return not left


async def well(client: Client, subjects: list[str]) -> None:
    left: list[str] = []
    try:
        await until(lambda: lacking(client, subjects, left), WELL)
    except AssertionError as error:
        raise AssertionError(f"members of {left} lack something") from error


async def publish(client: Client, name: str, over: asyncio.Event) -> list[int]:
    """Publishes to a stream until it is over, also while nobody leads; sequences of acks."""
    acked: list[int] = []
    while not over.is_set():
        try:
            answer = json.loads((await client.request(f"{name}.a", b"x", timeout=2)).data)
        except (Error, OSError):
            await asyncio.sleep(0.05)  # somebody leads it soon
            continue
        if "error" not in answer:
            acked.append(answer["seq"])
    return acked


def test_members_that_stop_while_they_are_opened(servers: Servers, tmp_path: Path) -> None:
    """The disk refuses what a member that was opened just now is to store: it is opened again."""

    async def play() -> None:
        members = Full(servers, tmp_path)
        await members.ready()
        async with connected(members.members[0]) as client:
            for name in STREAMS:
                await done(client, f"STREAM.CREATE.{name}", stream(name, **THREE))
            over = asyncio.Event()
            publishing = [asyncio.create_task(publish(client, name, over)) for name in STREAMS]
            members.fill()
            await asyncio.sleep(FULL)  # members are opened and stop meanwhile
            members.faults.mend()
            over.set()
            await asyncio.gather(*publishing)
            await well(client, [f"STREAM.INFO.{name}" for name in STREAMS])

    asyncio.run(asyncio.wait_for(play(), 240))


def test_a_member_that_stopped_takes_nothing_by_itself(servers: Servers, tmp_path: Path) -> None:
    """Where its disk works again before it is opened anew, publishes are still the leader's."""

    async def play() -> None:
        members = Full(servers, tmp_path)
        await members.ready()
        async with connected(members.members[2]) as client:
            for name in STREAMS:
                await done(client, f"STREAM.CREATE.{name}", stream(name, **THREE))
            over = asyncio.Event()
            publishing = [asyncio.create_task(publish(client, name, over)) for name in STREAMS]
            for _ in range(4):
                members.faults.fail("sync", errno.EIO, times=1 << 30)
                await asyncio.sleep(0.3)  # stores fail meanwhile
                members.faults.mend()
                await asyncio.sleep(1.5)  # members are opened meanwhile
            over.set()
            acked = zip(STREAMS, await asyncio.gather(*publishing), strict=True)
            twice = {name: len(seqs) - len({*seqs}) for name, seqs in acked}
            assert not any(twice.values()), f"sequences that were acked twice: {twice}"
            await well(client, [f"STREAM.INFO.{name}" for name in STREAMS])

    asyncio.run(asyncio.wait_for(play(), 240))
