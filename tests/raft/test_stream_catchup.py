"""A member of a stream that lacks what the log has no more gets it from its leader's store, in both
directions between ours and real nats-servers: then all have the same messages."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from jsserver.text.identity import short_hash
from tests.client.aio import api, asynchronous, until
from tests.raft.test_stream_members import (
    Members,
    compare,
    end,
    handed,
    messages,
    publish,
    stream,
)
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("peer_present")

LARGE = 700_000  # bytes of a message; so many of them are more than a log holds
SOME = 16


async def large(client: Client, count: int) -> None:
    """Messages that do not get smaller, upon which nats-server's log begins anew."""
    js = client.jetstream(timeout=10)
    for _ in range(count):
        await js.publish("s.large", os.urandom(LARGE))


async def holes(client: Client, members: Members, first: int) -> None:
    """Single deleted sequences and runs of them."""
    for seq in (first, first + 2, first + 3, first + 4, first + 9):
        assert (await api(client, "STREAM.MSG.DELETE.S", {"seq": seq}))["success"]
    await api(client, "STREAM.PURGE.S", {"filter": "s.3"})


def wipe(server: Server) -> None:
    """All that it has on disk."""
    shutil.rmtree(server.store)


async def caught_up(members: Members, server: Server) -> None:
    await until(lambda: bool(members.state(server).get("current")), 60)
    await until(members.same, 60)


@pytest.mark.parametrize("config", [{}, {"compression": "s2"}, {"max_msgs": 60}])
@asynchronous
async def test_ours_far_behind_or_wiped_is_sent_the_messages(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    members = Members(tmp_path, "ppo")
    try:
        ours = members.ours[0]
        async with stream(members, **config) as client:
            await publish(client, 40, "one")
            await compare(members, client)
            for wiped in (False, True):
                ours.stop()
                if wiped:
                    wipe(ours)
                state = members.state(members.real[0])
                await holes(client, members, state["last_seq"] - 20)
                await publish(client, 30, f"two {wiped}")
                await large(client, SOME)
                await publish(client, 10, f"three {wiped}")
                ours.start()
                await caught_up(members, ours)
                # It came by messages: the log here begins behind those that ours lacked.
                assert members.state(ours)["first_index"] > 60
                await publish(client, 5, f"four {wiped}")
                assert await compare(members, client) > 40
    finally:
        end(members)


@asynchronous
async def test_a_nats_server_that_is_wiped_is_sent_the_messages_of_ours(tmp_path: Path) -> None:
    members = Members(tmp_path, "ppo")
    try:
        ours, other = members.ours[0], members.real[1]
        async with stream(members) as client:
            await publish(client, 40, "one")
            await holes(client, members, 10)
            await handed(client, "C")
            await members.leads(ours)
            other.stop()
            wipe(other)
            await publish(client, 30, "two")
            await large(client, SOME)
            members.ask(ours, "snapshot")
            await until(lambda: members.state(ours)["first_index"] > 60, 30)
            await publish(client, 10, "three")
            other.start()
            await until(members.same, 60)
            wanted = [[one[0], *one[2:]] for one in members.ask(ours, "messages")]
            assert members.ask(ours, "hand_over", to=short_hash("B"))
            await until(lambda: members.state(ours)["leader"] == short_hash("B"), 30)
            state = members.state(other)
            found = await messages(client, state["first_seq"], state["last_seq"])
            assert found == wanted
    finally:
        end(members)
