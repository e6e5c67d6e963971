"""Elections of streams of three replicas when servers stop and start: publishes that a leader took
before it stopped are answered, and a new or restarted group needs only one election."""

import asyncio
import json
from pathlib import Path

from nats.aio.msg import Msg

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import NAMES
from tests.client.test_held_diff import done, stream
from tests.client.test_replicated import THREE, Three, led_by, published, survivor
from tests.servers import Servers

AT_ONCE = 500
"""Messages to publish without a pause."""
GROUPS = 12
FEW = 8
"""Further elections that are allowed for, on a busy machine."""


@asynchronous
async def test_a_leader_that_ends_answers_what_it_took(servers: Servers) -> None:
    members = Three(servers, "ooo")
    await members.ready()
    leader = members.members[1]
    acked: set[int] = set()

    async def heard(message: Msg) -> None:
        if message.data:
            acked.add(json.loads(message.data).get("seq", 0))

    async with connected(survivor(members, leader)) as client:
        await done(client, "STREAM.CREATE.S", stream("S", **THREE))
        await led_by(client, "STREAM", "S", NAMES[1])
        inbox = client.new_inbox()
        await client.subscribe(inbox, cb=heard)
        ending = asyncio.create_task(asyncio.to_thread(leader.stop))
        while not ending.done():
            for _ in range(AT_ONCE):
                await client.publish("S.x", b"", reply=inbox)
            await client.flush()
        last = await published(client, "S.last", 1)
        await until(lambda: len(acked - {0}) == last - 1)


@asynchronous
async def test_groups_have_leaders_after_one_election(servers: Servers) -> None:
    members = Three(servers, "ooo")
    await members.ready()
    names = [f"S{number}" for number in range(GROUPS)]
    async with connected(members.members[0]) as client:
        made = [done(client, f"STREAM.CREATE.{name}", stream(name, **THREE)) for name in names]
        await asyncio.gather(*made)
        assert elections(terms(members), {}) <= GROUPS + FEW
    for member in members.members:
        member.stop()
    before = terms(members)
    for member in members.members:
        member.start()
    async with connected(members.members[0]) as client:
        for name in names:
            await published(client, f"{name}.x", 1)
    assert elections(terms(members), before) <= GROUPS + FEW


def terms(members: Three) -> dict[str, int]:
    """The greatest term on a member's disk, by group of a stream."""
    found: dict[str, int] = {}
    for member in members.members:
        for file in Path(member.store, "jetstream", "SYS", "_js_").glob("S-*/tav.idx"):
            term = int.from_bytes(file.read_bytes()[:8], "little")
            found[file.parent.name] = max(found.get(file.parent.name, 0), term)
    return found


def elections(after: dict[str, int], before: dict[str, int]) -> int:
    """How many elections there were."""
    return sum(term - before.get(group, 0) for group, term in after.items())
