"""The servers of a cluster of nats-servers are replaced one by one by servers of ours on the same
directories, and back again, while clients publish, read and write: nothing that was acked is lost.

`REPLACEMENT_ROUNDS` (1): how often there and back.
"""

import asyncio
import os
import time
import urllib.error
import urllib.request

import pytest

from tests.client.mesh import ACCOUNTS, Cluster
from tests.client.replaced import REPLICATED, SINGLE, Load, all_current, stores_are_equal
from tests.servers import Server, Servers, command_of_peer, command_under_test
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("peer_present")

ROUNDS = int(os.environ.get("REPLACEMENT_ROUNDS", "1"))
GAP_SECONDS = 15.0
"""Seconds for which publishers may get no ack: nats-server's elections take 4 to 9 seconds."""


def healthy(member: Server) -> bool:
    """Waits for the page's status, as an operator's script does."""
    try:
        with urllib.request.urlopen(f"{member.monitor_url}/healthz", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        time.sleep(0.2)  # between two checks
        return False


def replace(member: Server, command: list[str], *, kill: bool) -> None:
    """Stops a server, starts the other program, and waits for its health, as an operator does."""
    if kill:
        member.kill()
    else:
        member.stop()
    member.command = command
    member.start()
    wait_until(lambda: healthy(member), f"{member.folder} is healthy")


@pytest.mark.timeout(60 + 120 * ROUNDS)
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_there_and_back(servers: Servers, kill: bool) -> None:
    """By SIGTERM and by SIGKILL. SIGKILL may cost consumers of nats-server acks that are only in
    its memory."""
    peer = command_of_peer()
    assert peer is not None
    cluster = Cluster(servers)
    cluster.start_all("ppp", [f'{ACCOUNTS}\nserver_tags: ["{tag}"]' for tag in "abc"])

    async def run() -> None:
        await cluster.whole()
        load = Load(cluster.members, forgets=(*SINGLE, "MEMORY") if kill else ())
        await load.make()
        async with load.going():
            for _ in range(ROUNDS):
                for command in (command_under_test(), peer):
                    for member in cluster.members:
                        await asyncio.to_thread(replace, member, command, kill=kill)
        await load.hold()
        await all_current(load)
        for stream in REPLICATED:
            assert load.gaps[stream] < GAP_SECONDS, load.gaps
        for member in cluster.members:
            await asyncio.to_thread(member.stop)

    asyncio.run(run())
    stores_are_equal(cluster)
