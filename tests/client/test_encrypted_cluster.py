"""Clusters with JetStream and encrypted stores: logs of Raft groups are encrypted, too, and ours
and nats-server go on in each other's directories."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.client.aio import asynchronous, connected, until
from tests.client.mesh import ACCOUNTS, Cluster, streams_of
from tests.client.test_operator_cluster import meet_stream, three
from tests.servers import Server, Servers, free_port

pytestmark = pytest.mark.usefixtures("peer_present")

SECRET = b"secret-payload"


def store(folder: Path, key: str = "one", cipher: str = "chacha", more: str = "") -> str:
    """An account with JetStream, and an encrypted store."""
    of_key = f'key: "{key}", cipher: {cipher}' if key else ""
    return f'{ACCOUNTS}\njetstream {{ store_dir: "{folder}", {of_key} {more} }}'


def start_all(cluster: Cluster, kinds: str, rests: list[str]) -> None:
    """Starts members that dial each other, each with its own store."""
    ports = [free_port() for _ in kinds]
    for kind, rest, port in zip(kinds, rests, ports, strict=True):
        cluster.add(kind, rest=rest, routes=ports, port=port, monitor=True)


def blocks_of(folder: Path) -> list[Path]:
    """The blocks of all groups' logs in a store."""
    return sorted(folder.glob("jetstream/*/_js_/*/msgs/*.blk"))


def in_clear(folder: Path) -> list[Path]:
    """Files that contain a message's text."""
    return [path for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()]


async def stored(member: Server, count: int) -> list[bytes]:
    """So many messages of the stream, read through this member: one may not be on the disk of the
    consumer's leader yet. No more follow."""
    async with connected(member) as client:
        subscription = await client.jetstream().subscribe("S.>", ordered_consumer=True)
        found: list[Any] = [await subscription.next_msg(20)]
        while len(found) < count or found[-1].metadata.num_pending:
            found.append(await subscription.next_msg(20))
        return [message.data for message in found]


def agree(members: list[Server], count: int = 0) -> bool:
    """Whether all members hold equally many messages of the stream, `count` at least, and know its
    leader."""

    def seen(member: Server) -> tuple[int | None, str | None]:
        found = next((one for one in streams_of(member) if one["name"] == "S"), None)
        if found is None:
            return None, None
        return found["state"]["messages"], (found.get("cluster") or {}).get("leader")

    said = {seen(member) for member in members}
    messages, leader = said.pop()
    return not said and bool(leader) and messages is not None and messages >= max(count, 1)


@pytest.mark.parametrize(
    ("kinds", "cipher"), [("ooo", "chacha"), ("oop", "aes"), ("ppo", "chacha")]
)
@asynchronous
async def test_either_server_goes_on_in_an_encrypted_directory(
    servers: Servers, tmp_path: Path, kinds: str, cipher: str
) -> None:
    cluster = Cluster(servers)
    folders = [tmp_path / str(n) for n in range(3)]
    rests = [store(folder, cipher=cipher) for folder in folders]
    start_all(cluster, kinds, rests)
    await cluster.whole()
    expected = 0
    async with connected(cluster.members[0]) as client:
        await three(client, "S")
        await meet_stream(client, "S.a")
        for _ in range(50):
            expected = (await client.jetstream().publish("S.a", SECRET)).seq
    for number, kind in ((2, "p" if kinds[2] == "o" else "o"), (2, kinds[2])):
        await until(lambda: agree(cluster.members), 60)
        last = cluster.members.pop(number)
        port = cluster.ports.pop(number)
        await asyncio.to_thread(last.stop)
        assert blocks_of(folders[number]) and not in_clear(folders[number])
        routes = [*cluster.ports, port]
        cluster.add(kind, rest=rests[number], routes=routes, port=port, monitor=True)
        await until(lambda: agree(cluster.members), 90)
        async with connected(cluster.members[number]) as client:
            await meet_stream(client, "S.a")
    # A member shows a message once its own disk has it, which may be after the ack.
    await until(lambda: agree(cluster.members, expected + 2), 60)
    found = await stored(cluster.members[2], expected + 2)
    assert len(found) == expected + 2
    assert found.count(SECRET) == 50
    for folder in folders:
        assert not in_clear(folder)


@asynchronous
async def test_keys_of_members_change(servers: Servers, tmp_path: Path) -> None:
    cluster = Cluster(servers)
    folders = [tmp_path / str(n) for n in range(3)]
    start_all(cluster, "ooo", [store(folder, key="") for folder in folders])
    await cluster.whole()
    async with connected(cluster.members[0]) as client:
        await three(client, "S")
        await meet_stream(client, "S.a")
        await client.jetstream().publish("S.a", SECRET)
    await until(lambda: agree(cluster.members), 60)
    last = cluster.members[2]
    before = last.config
    for key, more, says in (
        ("one", "", ""),
        ("", "", "is encrypted, and the configuration has no key"),
        ("two", "", "neither the key nor the previous key of the configuration opens the log"),
        ("two", ', prev_key: "one"', ""),
        ("two", "", ""),
    ):
        await asyncio.to_thread(last.stop)
        rest = store(folders[2], key=key, more=more)
        last.config = before.replace(store(folders[2], key=""), rest)
        if says:
            await asyncio.to_thread(last.launch)
            await until(lambda: not last.running, 60)
            assert says in last.log()
            continue
        await asyncio.to_thread(last.start)
        await until(lambda: agree(cluster.members), 90)
        assert not in_clear(folders[2])
