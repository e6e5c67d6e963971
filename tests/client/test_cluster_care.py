"""`jsserver cluster`: a server drained, and replicas and leaders balanced, while clients go on."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from jsserver.admin.survey import survey
from jsserver.admin.system import System
from jsserver.client.connection import Connection
from jsserver.client.credentials import Credentials
from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, mixtures
from tests.client.test_meta_moves import holders
from tests.client.test_regrouped import alike, held, loaded, made, started, stream, take
from tests.servers import Server, Servers

pytestmark = pytest.mark.usefixtures("peer_present")

STREAMS = 4


async def command(server: Server, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command while the test's clients go on."""
    login = ["-s", server.url, "--user", "sys", "--password", "sys"]
    line = [sys.executable, "-m", "jsserver.cli", "cluster", *words, *login]
    return await asyncio.to_thread(
        subprocess.run, line, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


def held_by(cluster: Cluster) -> Counter[str]:
    """How many streams and consumers each server holds, as the servers report it."""
    login = Credentials(user="sys", password="sys")
    with Connection(cluster.members[0].url, name="test", credentials=login) as connection:
        found = survey(System(connection))
    held = [one.holders for one in found.streams]
    held += [one.holders for stream in found.streams for one in stream.consumers]
    return Counter(name for holders in held for name in holders)


async def filled(client: Any) -> None:
    """Creates streams of one and of three replicas, each with a consumer."""
    for n in range(STREAMS):
        for replicas in (1, 3):
            name = f"R{replicas}N{n}"
            config = {"name": name, "subjects": [name], "num_replicas": replicas}
            assert "error" not in await api(client, f"STREAM.CREATE.{name}", config)
            durable = {"durable_name": "D", "ack_policy": "explicit"}
            body = {"stream_name": name, "config": durable}
            assert "error" not in await api(client, f"CONSUMER.DURABLE.CREATE.{name}.D", body)
            await client.request(name, b"x", timeout=10)


@pytest.mark.parametrize("kinds", mixtures("oooo", "popo", soak=["opop", "pppp"]))
@asynchronous
async def test_a_server_is_drained_and_gets_its_part_again(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0]) as client:
        await filled(client)
        await made(client, stream(3))
        async with loaded(client) as load:
            info = await api(client, "STREAM.INFO.S")
            name = info["cluster"]["leader"]
            shown = await command(cluster.members[1], "drain", name)
            assert shown.returncode == 0 and "nothing was changed" in shown.stdout, shown
            assert held_by(cluster)[name]
            done = await command(cluster.members[1], "drain", name, "--apply")
            assert done.returncode == 0, done
            assert f"{name} holds nothing any more" in done.stdout
            assert held_by(cluster)[name] == 0
            members = await held(client, 3)
            await take(load)
            again = await command(cluster.members[1], "drain", name, "--json", "--apply")
            result = json.loads(again.stdout.splitlines()[-1])["result"]
            assert again.returncode == 0 and result == f"{name} leads and holds nothing"
            assert name not in members

            async def evened() -> bool:
                """Whether the server holds streams again. The command is repeated, as a busy server
                may answer too late for a plan, and a leader may stay longer than it waits."""
                done = await command(cluster.members[1], "balance", "--apply")
                return done.returncode == 0 and bool(held_by(cluster)[name])

            await until(evened, 90)
            await take(load)
        shown = await command(cluster.members[1], "balance", "--json")
        assert json.loads(shown.stdout.splitlines()[0])["plan"]["stuck"] == []
        await alike(cluster, load, await held(client, 3))


@pytest.mark.parametrize("kinds", mixtures("oop", soak=["ppo"]))
@asynchronous
async def test_what_nobody_else_can_take_stays(servers: Servers, kinds: str) -> None:
    cluster = await started(servers, kinds)
    async with connected(cluster.members[0]) as client:
        await filled(client)
        before = held_by(cluster)
        refused = await command(cluster.members[0], "drain", "B", "--apply")
        assert refused.returncode == 3
        assert "ONE/R3N0 cannot leave: holds it already (2)" in refused.stdout
        assert "4 replicas cannot leave B; nothing was changed" in refused.stdout
        assert held_by(cluster) == before
        partly = await command(cluster.members[0], "drain", "B", "--apply", "--partial")
        # B may lead nothing by chance; then no step is left to take.
        said = ("B holds 4 still", "B leads and holds nothing that can leave")
        assert partly.returncode == 3 and any(one in partly.stdout for one in said), partly
        assert held_by(cluster)["B"] == 2 * STREAMS


@asynchronous
async def test_what_cannot_be_asked(servers: Servers) -> None:
    cluster = await started(servers, "ooo")
    unknown = await command(cluster.members[0], "drain", "X")
    assert unknown.returncode == 1 and "there are A, B, C" in unknown.stderr
    line = [sys.executable, "-m", "jsserver.cli", "cluster", "balance", "-s"]
    run = [*line, cluster.members[0].url]
    other = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, timeout=60)
    assert other.returncode == 1 and "a user of the system account" in other.stderr
    none = await command(cluster.members[0], "balance", "--together", "0")
    assert none.returncode == 2 and "invalid" in none.stderr


async def lead(client: Any, name: str) -> None:
    """Has a member lead the stream."""

    async def leads() -> bool:
        about = await api(client, "STREAM.INFO.S")
        if about.get("cluster", {}).get("leader") == name:
            return len(await holders(client, "STREAM.INFO.S")) == 3
        await api(client, "STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": name}})
        return False

    await until(leads, 60)


@pytest.mark.parametrize("kinds", mixtures("ooo", soak=["opo"]))
@asynchronous
async def test_replicas_are_compared(servers: Servers, kinds: str) -> None:
    """One of them gets the messages of another stream of this name, which are as many, and is built
    anew on request."""
    more = "TWO { jetstream: enabled, users: [{ user: two, password: x }] }\n ONE {"
    rest = ACCOUNTS.replace("ONE {", more)
    cluster = Cluster(servers)
    cluster.start_all(kinds, [f"{rest} server_tags: [{name}]" for name in ("a", "b", "third")])
    await cluster.whole()
    async with (
        connected(cluster.members[0]) as client,
        connected(cluster.members[0], user="two", password="x") as other,
    ):
        config: dict[str, Any] = {"name": "S", "subjects": ["s"], "num_replicas": 3}

        async def placed() -> bool:  # once who leads the meta group has heard of all
            return "error" not in await api(client, "STREAM.CREATE.S", config)

        await until(placed, 60)
        here = {"num_replicas": 1, "placement": {"tags": ["third"]}}
        assert "error" not in await api(other, "STREAM.CREATE.S", config | here)
        for n in range(20):
            await client.request("s", b"%d" % n, timeout=10)
            await other.request("s", b"%d" % n, timeout=10)

        async def whole() -> bool:
            return len(await holders(client, "STREAM.INFO.S")) == 3

        same = await command(cluster.members[0], "compare", "S")
        assert same.returncode == 0 and same.stdout.startswith("ONE/S: the same on "), same
        third = cluster.members[2]
        accounts = third.store / "jetstream"
        streams = [accounts / name / "streams" / "S" / "msgs" for name in ("ONE", "TWO")]
        await asyncio.to_thread(third.stop)
        shutil.rmtree(streams[0])
        shutil.copytree(streams[1], streams[0])
        await asyncio.to_thread(third.start)
        await cluster.whole()
        await until(whole, 60)
        await lead(client, "A")
        differs = await command(cluster.members[0], "compare", "--account", "ONE", "--json")
        said = json.loads(differs.stdout)
        assert differs.returncode == 3 and (said["odd"], said["seqs"][0]) == (["C"], 1)
        anew = ["compare", "--account", "ONE", "--rebuild"]
        if kinds == "ooo":  # of two that make digests, the one that leads is taken for right
            await lead(client, "C")
            refused = await command(cluster.members[0], *anew)
            assert refused.returncode == 1, refused
            assert "have another server lead it first" in refused.stderr
            await lead(client, "A")
        done = await command(cluster.members[0], *anew)
        assert done.returncode == 0 and "ONE/S: the same on A, B, C" in done.stdout, done
        assert ("of B only counts" in done.stdout) == ("p" in kinds)
        [aside] = (accounts / "ONE" / "aside").iterdir()  # nothing is removed
        assert (aside / "msgs").is_dir()
        assert "is built anew" in third.log()


@asynchronous
async def test_of_nats_servers_counts_are_compared(servers: Servers) -> None:
    cluster = await started(servers, "opo")
    async with connected(cluster.members[0]) as client:
        await filled(client)
    done = await command(cluster.members[0], "compare")
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    [told] = [line for line in lines if line.startswith("ONE/R3N0: the same on ")]
    assert told.endswith("up to sequence 1; of B only counts were compared")
