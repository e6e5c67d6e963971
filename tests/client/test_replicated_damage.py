"""A leader that finds a message of its own damaged while it sends a member what that lacks: another
member, which has the message, leads and sends it."""

import os
import shutil
from pathlib import Path

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import streams_of
from tests.client.test_held_diff import done
from tests.client.test_replicated import Three, asked, current, led_by
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

LARGE = 700_000
"""Bytes of a message; COUNT of them fill blocks, and are more than a log holds."""
COUNT = 40
DAMAGED = 3


def hurt(block: Path, body: bytes) -> None:
    """One bit of a message in a block is another one, while its server runs."""
    at = block.read_bytes().index(body) + LARGE // 2
    with block.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def kept(member: Server) -> int:
    """How many messages a member of the stream holds."""
    return sum(one["state"]["messages"] for one in streams_of(member) if one["name"] == "S")


@asynchronous
async def test_a_message_that_is_damaged_here_comes_from_another_member(servers: Servers) -> None:
    members = Three(servers, "ooo")
    await members.ready()
    async with connected(members.members[0]) as client:
        await done(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
        await led_by(client, "STREAM", "S", "A")
        bodies = [b"%04d" % number + os.urandom(LARGE) for number in range(COUNT)]
        js = client.jetstream(timeout=20)
        for body in bodies:
            await js.publish("s", body)
        await until(lambda: current(client, "STREAM.INFO.S"), 60)
        store = members.members[0].store / "jetstream" / "ONE" / "streams" / "S" / "msgs"
        blocks = sorted(store.glob("*.blk"), key=lambda one: int(one.stem))
        assert len(blocks) > 2
        members.holder.stop()
        shutil.rmtree(members.holder.store)
        hurt(blocks[0], bodies[DAMAGED])
        members.holder.start()
        await until(lambda: kept(members.holder) == COUNT, 60)
        await led_by(client, "STREAM", "S", "C")
        assert (await asked(client, "STREAM.INFO.S"))["state"]["messages"] == COUNT
        found = await client.jetstream(timeout=20).get_msg("S", DAMAGED + 1)
        assert found.data == bodies[DAMAGED]
