"""A directory with assets of every kind goes from one server to the other and back, unchanged."""

import asyncio
from typing import Any

import pytest

from tests.client.aio import connected
from tests.client.directories import contents, differences, fill, go_on, settle
from tests.peer import NEWER_VERSION, PEER_VERSION, find_peer
from tests.servers import Server, Servers

pytestmark = pytest.mark.timeout(300)


def move(source: Server, target: Server) -> None:
    """Stops `source` and starts `target` on a copy of its directory."""
    source.stop()
    target.start_on_copy(source.store)


def expect_equal(before: dict[str, Any], server: Server) -> None:
    found = differences(before, asyncio.run(contents(server)))
    assert not found, "\n".join(found)


async def another_day(server: Server) -> None:
    async with connected(server) as client:
        await go_on(client, 1)
        await settle(client)


@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize("version", [PEER_VERSION, NEWER_VERSION])
def test_there_and_back(servers: Servers, version: str, first: str) -> None:
    if find_peer(version) is None:
        pytest.skip(f"no nats-server {version}: `make peer` installs it")
    ours, theirs = servers.under_test(jetstream=True), servers.release(version, jetstream=True)
    one, other = (ours, theirs) if first == "ours" else (theirs, ours)
    asyncio.run(fill(one))
    before = asyncio.run(contents(one))
    move(one, other)
    expect_equal(before, other)
    asyncio.run(another_day(other))
    more = asyncio.run(contents(other))
    move(other, one)
    expect_equal(more, one)
