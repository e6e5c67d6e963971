"""`jsserver cluster rescue`: servers that are left of a cluster go on without those lost."""

import asyncio
import itertools

import pytest
from nats.aio.client import Client

from jsserver.rescue import grouplogs
from jsserver.rescue.groupfiles import EntryType
from tests.client.aio import api, asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, NAMES, Cluster, page
from tests.client.rescued import (
    ACKED,
    COUNT,
    asked,
    fill,
    groups_of,
    kill_all,
    lose,
    messages,
    served,
    told,
    tool,
)
from tests.servers import Server, Servers, command_under_test

pytestmark = pytest.mark.usefixtures("peer_present")

KEY = "one key of a store"
MESSAGES = (4, 14)
"""Entries of a stream's group that are messages."""


def rests(size: int, more: str = "") -> list[str]:
    """Beside the `cluster` block of each member."""
    return [f"{ACCOUNTS}\nserver_tags: [{name.lower()}]\n{more}" for name in NAMES[:size]]


async def begun(servers: Servers, kinds: str, more: str = "") -> Cluster:
    cluster = Cluster(servers)
    cluster.start_all(kinds, rests(len(kinds), more))
    await cluster.whole()
    return cluster


async def scaled(client: Client, size: int) -> None:
    """The stream and its consumer have so many replicas, which have all of them."""
    config = (await served(client, "ALL"))["config"] | {"num_replicas": size}

    async def updated() -> bool:
        return "error" not in await asked(client, "STREAM.UPDATE.ALL", config)

    await until(updated)

    async def current() -> bool:
        for request in ("STREAM.INFO.ALL", "CONSUMER.INFO.ALL.D"):
            about = await asked(client, request, {})
            replicas = about.get("cluster", {}).get("replicas", [])
            if len(replicas) != size - 1 or not all(one["current"] for one in replicas):
                return False
        return True

    await until(current)


async def acked(client: Client) -> int:
    """Up to which message the consumer has acked."""
    found = 0

    async def there() -> bool:
        nonlocal found
        about = await asked(client, "CONSUMER.INFO.ALL.D", {})
        found = about.get("ack_floor", {}).get("stream_seq", 0)
        return "error" not in about

    await until(there)
    return found


def meta_leader(member: Server) -> str:
    """Who leads the meta group, as this member knows it; "": nobody."""
    return str(page(member, "jsz")["meta_cluster"].get("leader", ""))


async def survive(member: Server) -> None:
    """Starts what was rescued, as the server under test. Others may have its ports meanwhile."""
    member.command = command_under_test()
    member.port = member.monitor_port = -1
    await asyncio.to_thread(member.start)


@pytest.mark.parametrize(("kinds", "key"), [("ooo", ""), ("ppp", ""), ("poo", KEY)])
@asynchronous
async def test_one_of_three_goes_on(servers: Servers, kinds: str, key: str) -> None:
    """It serves every message, and wiped servers join again and hold what is scaled up."""
    more = ""
    cluster = Cluster(servers)
    if key:
        more = f'jetstream {{ key: "{key}" }}'
    cluster.start_all(kinds, rests(3, more))
    await cluster.whole()
    await fill(cluster)
    last, *others = cluster.members
    async with connected(last) as client:
        before = {name: await messages(client, name) for name in ("ALL", "ONEA")}
    await kill_all(cluster.members)
    for other in others:
        lose(other)
    words = ["rescue", str(last.store), "--server", "A"]
    if key:
        path = last.folder / "key"
        path.write_text(key)
        words += ["--key-file", str(path)]
    plan = told(*words)
    assert plan["changes"] and not plan["done"] and not plan["damage"]
    fates = {(a["stream"], a.get("consumer", "")): a["fate"] for a in plan["assets"]}
    assert fates == {
        ("ALL", ""): "reduced",
        ("ALL", "D"): "reduced",
        ("ONEA", ""): "same",
        ("ONEB", ""): "lost",
        ("ONEC", ""): "lost",
    }
    assert tool(*words)[0] == 1
    code, out, errors = tool(*words, "--yes")
    assert code == 0, (out, errors)
    assert "still assigned to servers that are gone: $G" not in out
    assert "ONE > ONEB" in out
    assert tool(*words)[:2] == (0, out[out.index("lost, and") :].join(("nothing to do\n", "")))
    await survive(last)
    async with connected(last) as client:
        for name, found in before.items():
            await served(client, name)
            assert await messages(client, name) == found
        assert (await api(client, "STREAM.INFO.ALL", {}))["config"]["num_replicas"] == 1
        assert await acked(client) == ACKED
        await client.jetstream(timeout=10).publish("ALL.1", b"after")
        for other in others:
            await survive(other)
        await cluster.whole()
        await scaled(client, 3)
        await client.jetstream(timeout=10).publish("ALL.1", b"on all")
        after = await messages(client, "ALL")
        assert len(after) == COUNT + 2
        deleted = await api(client, "STREAM.DELETE.ONEB", {})
        assert deleted.get("success"), deleted
    assert not list(last.store.glob("**/rescued"))
    await asyncio.to_thread(last.kill)
    async with connected(others[0]) as client:
        await served(client, "ALL")
        assert await messages(client, "ALL") == after
        assert await acked(client) == ACKED


@pytest.mark.parametrize("kinds", ["ooo", "oop"])
@asynchronous
async def test_what_a_log_has_is_applied(servers: Servers, kinds: str) -> None:
    """Killed in the middle of publishes, a member has in its log what it has not applied, and what
    a leader may have acked."""
    cluster = await begun(servers, kinds)
    await fill(cluster)
    last, *others = cluster.members
    stored: dict[int, bytes] = {}
    async with connected(others[0]) as client:
        js = client.jetstream(timeout=5)

        async def publish(n: int) -> None:
            data = b"under load %d" % n
            ack = await js.publish("ALL.load", data)
            stored[ack.seq] = data

        tasks: list[asyncio.Task[None]] = []
        numbers = itertools.count()
        while len(stored) < 300:
            while sum(not task.done() for task in tasks) < 50:
                tasks.append(asyncio.create_task(publish(next(numbers))))
            await asyncio.sleep(0)  # the answers have their turn
        await kill_all(cluster.members)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    (place,) = (one for one in groups_of(last.store) if one.name.startswith("S-R3F"))
    log = grouplogs.read(place)
    in_log = [
        data
        for _, _, record in log.rows
        for kind, data in record.entries
        if kind is EntryType.NORMAL and data[0] in MESSAGES
    ]
    for other in others:
        lose(other)
    code, out, errors = tool("rescue", str(last.store), "--server", "A", "--yes")
    assert code == 0, (out, errors)
    await survive(last)
    async with connected(last) as client:
        await served(client, "ALL")
        found = {one.seq for one in await messages(client, "ALL")}
        assert len(found) >= len(in_log)
        assert max(found) == len(found)


@pytest.mark.parametrize(
    "empty_first", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["after", "before"]
)
@asynchronous
async def test_two_of_five_go_on(servers: Servers, empty_first: bool) -> None:
    """Also when the others are there with empty directories, and have a leader."""
    cluster = await begun(servers, "ooooo")
    await fill(cluster)
    left, lost = cluster.members[:2], cluster.members[2:]
    async with connected(left[0]) as client:
        before = await messages(client, "ALL")
    await kill_all(cluster.members)
    for member in lost:
        lose(member)
    for member, name, other in ((left[0], "A", "B"), (left[1], "B", "A")):
        words = ("rescue", str(member.store), "--server", name, "--with", other)
        code, out, errors = tool(*words, "--yes", "--remove-lost")
        assert code == 0, (out, errors)
    if empty_first:
        for member in lost:
            await survive(member)
        await until(lambda: all(meta_leader(one) for one in lost), 60)
    for member in left:
        await survive(member)
    if empty_first:
        await until(lambda: all(meta_leader(one) in ("A", "B") for one in cluster.members), 60)
    async with connected(left[0]) as client:
        about = await served(client, "ALL")
        assert about["config"]["num_replicas"] == 2
        assert await messages(client, "ALL") == before
        names = await api(client, "STREAM.NAMES", {})
        assert names["streams"] == ["ALL", "ONEA", "ONEB"]
        await client.jetstream(timeout=10).publish("ALL.1", b"after")
        for member in [] if empty_first else lost:
            await survive(member)
        await cluster.whole()
        await scaled(client, 5)
        after = await messages(client, "ALL")
        assert len(after) == COUNT + 1
    for member in left:
        await asyncio.to_thread(member.kill)
    async with connected(lost[0]) as client:
        await served(client, "ALL")
        assert await messages(client, "ALL") == after
