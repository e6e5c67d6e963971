"""Faults of a cluster of three by name: no acked message is lost, none is there twice, and all
members have the same in the end."""

import asyncio
import errno
import os
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path

from nats.aio.client import Client
from nats.errors import Error
from nats.js.errors import APIError

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import NAMES, clients_of
from tests.client.reshaped import Linked
from tests.client.storm import differences, held, states
from tests.client.test_held_diff import done
from tests.client.test_regrouped import alike, loaded, made, started, stream, take
from tests.client.test_regrouped import held as held_by
from tests.client.test_replicated import current, leader, led_by, published
from tests.servers import Server, Servers


def status_of(member: Server) -> int:
    """The status of a member's `/healthz`."""
    try:
        with urllib.request.urlopen(f"{member.monitor_url}/healthz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


async def is_healthy(member: Server) -> bool:
    await asyncio.sleep(0.1)  # between two looks
    return await asyncio.to_thread(status_of, member) == 200


async def equal(members: Linked, client: Client, count: int) -> None:
    """Waits until all members are current; each has so many messages, and the same ones."""
    await until(lambda: current(client, "STREAM.INFO.S"), 60)
    found = [states(one)["S"] for one in members.members]
    assert found == [found[0]] * 3
    assert found[0]["messages"] == count
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in members.members))
    assert differences([held(one, "S") for one in members.members]) == []


@asynchronous
async def test_a_server_that_is_cut_off_acks_nothing(servers: Servers, tmp_path: Path) -> None:
    """All links break, and later come back."""
    members = Linked(servers, "ooo", tmp_path)
    async with members.listening(), clients_of(members.members) as clients:
        await done(clients[0], "STREAM.CREATE.S", stream(3))
        for number in range(3):
            await published(clients[0], "s", number)
        for link in members.links.values():
            link.shut()

        async def is_acked(client: Client, number: int) -> bool:
            headers = {"Nats-Msg-Id": f"s-{number}"}
            try:
                await client.jetstream(timeout=2).publish("s", b"%d" % number, headers=headers)
            except (Error, APIError, TimeoutError):
                return False
            return True

        tried = [is_acked(one, 3 + number) for number, one in enumerate(clients)]
        assert await asyncio.gather(*tried) == [False] * 3
        for link in members.links.values():
            link.reopen()
        for number, client in enumerate(clients):
            await published(client, "s", 3 + number)
        await equal(members, clients[0], 6)


@asynchronous
async def test_a_leader_whose_disk_is_full_withdraws(servers: Servers, tmp_path: Path) -> None:
    members = Linked(servers, "ooo", tmp_path)
    assert members.faults
    async with members.listening(), clients_of(members.members) as clients:
        await done(clients[0], "STREAM.CREATE.S", stream(3))
        await led_by(clients[0], "STREAM", "S", "C")
        members.faults.fail("pwrite", errno.ENOSPC, times=1 << 30)
        for number in range(3):
            await published(clients[0], "s", number)
        assert await leader(clients[0], "STREAM.INFO.S") != "C"
        assert await asyncio.to_thread(status_of, members.members[2]) == 503
        members.faults.mend()
        await until(lambda: is_healthy(members.members[2]), 60)
        await equal(members, clients[0], 3)


@asynchronous
async def test_each_is_restarted_when_the_one_before_is_healthy(servers: Servers) -> None:
    cluster = await started(servers, "ooo")
    async with connected(cluster.members[0]) as client:
        await made(client, stream(3))
        async with loaded(client) as load:
            for member in cluster.members:
                await take(load, 5)
                await asyncio.to_thread(member.restart)
                await until(lambda one=member: is_healthy(one), 60)  # type: ignore[misc]
            members = await held_by(client, 3)
        await alike(cluster, load, members)


@asynchronous
async def test_a_directory_of_an_hour_ago(servers: Servers, tmp_path: Path) -> None:
    """An old copy of a member's directory takes nothing away from the others."""
    cluster = await started(servers, "ooo")
    async with connected(cluster.members[0]) as client:
        await made(client, stream(3))
        await led_by(client, "STREAM", "S", "A")
        old = cluster.members[2]
        async with loaded(client) as load:
            await take(load)
            await asyncio.to_thread(old.stop)
            await asyncio.to_thread(shutil.copytree, old.store, tmp_path / "copy")
            await asyncio.to_thread(old.start)
            await held_by(client, 3)
            await take(load)
            await asyncio.to_thread(old.start_on_copy, tmp_path / "copy")
            members = await held_by(client, 3)
            await take(load)
        await alike(cluster, load, members)


@asynchronous
async def test_a_lame_duck_hands_over_what_it_leads(servers: Servers) -> None:
    cluster = await started(servers, "ooo")
    async with connected(cluster.members[0]) as client:
        await made(client, stream(3))
        await led_by(client, "STREAM", "S", "B")
        duck = cluster.members[NAMES.index("B")]
        async with loaded(client) as load:
            await take(load)
            os.kill(duck.pid, signal.SIGUSR2)

            async def led_by_another() -> bool:
                return await leader(client, "STREAM.INFO.S") in ("A", "C")

            await until(led_by_another, 60)
            await take(load)
            await asyncio.to_thread(duck.restart)
            members = await held_by(client, 3)
        await alike(cluster, load, members)
